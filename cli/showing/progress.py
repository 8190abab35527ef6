"""What a person sees while a run goes on: the live view, or one JSON object a line."""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.tree import Tree

from ...nodes.common.history.authors import roles_in_words
from ...tools.models.records import BUILTIN

MOST_TENSORS = 12
"""Shapes of a task that are shown; a network has hundreds."""


class JsonLines:
    """Every event as one JSON object a line on standard output, for scripts."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def note(self, text: str) -> None:
        """Write one line of text as an event."""
        self.event({"event": "note", "text": text})

    def event(self, event: Mapping[str, Any]) -> None:
        """Write one event; a script that went away ends the run's output, not the run."""
        try:
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class ProgressView:
    """A line for each thing that happened, and under them what each rollout is doing now.

    Quiet, it shows nothing but what is said by `note`.
    """

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._live = Live(console=console, transient=True, refresh_per_second=4)
        self._doing: dict[tuple[int, int], str] = {}
        self._described: dict[tuple[int, int], str] = {}
        self._thinking: dict[tuple[str, str], str] = {}
        self._spent = ""
        self._paths: dict[tuple[int, int], list[str]] = {}
        self._reached: dict[tuple[int, int], float] = {}
        self._steps = 0
        self._by_rounds = False

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        """Print one line above the live part."""
        self._console.print(text, soft_wrap=True, highlight=False)

    def event(self, event: Mapping[str, Any]) -> None:
        """Show one progress event; unknown kinds are left out."""
        if self._quiet:
            return
        handler = getattr(self, f"_on_{event['event']}", None)
        if handler is not None:
            handler(event)

    def _on_task(self, event: Mapping[str, Any]) -> None:
        listed = [f"{name}{list(shape)}" for name, shape in event["shapes"].items()]
        more = f" and {len(listed) - MOST_TENSORS} more" if len(listed) > MOST_TENSORS else ""
        shapes = ", ".join(listed[:MOST_TENSORS]) + more
        plan = event["plan"]
        self._by_rounds = event["by_rounds"]
        self._steps = plan["rounds"] if self._by_rounds else plan["steps"]
        loop = (
            f"{plan['policy']}, up to {plan['rounds']} {'round' if self._steps == 1 else 'rounds'}"
            if self._by_rounds
            else f"{plan['iterations']} iterations of {plan['rollouts']} rollouts of up to "
            f"{plan['steps']} steps"
        )
        self.note(f"[bold]{escape(event['task'])}[/] ({event['op_class']}): {escape(shapes)}")
        self.note(
            f"{event['gpu']}, [bold]{event['device']}[/]: {loop}, seed {plan['seed']}"
        )
        if event.get("verified"):
            self.note(escape(event["verified"]))
        if event["device_why"]:
            self.note(f"device: {escape(event['device_why'])}")
        asked = roles_in_words(event["models"])
        if asked:
            self.note(f"asked: {escape(asked)}")
        self.note(f"run directory {escape(event['run'])}")
        self._live.update("[dim]writing and verifying the first kernel …[/]")

    def _on_decision(self, event: Mapping[str, Any]) -> None:
        said = {"accept": "accepted", "reject": "rejected", "edit": "edited"}[event["verdict"]]
        what = event["reason"] or (json.dumps(event["edit"]) if event["edit"] else "")
        self.note(f"{event['about']} [cyan]{said}[/]{f': {escape(what)}' if what else ''}")
        if event["about"] == "plan":
            loop = "rounds" if self._by_rounds else "steps"
            self._steps = event["edit"].get(loop, self._steps)

    def _on_initial(self, event: Mapping[str, Any]) -> None:
        if event["author"] != BUILTIN:
            self.note(f"initial kernel{_by(event)}, {event['lines']} lines")

    def _on_known_kernel(self, event: Mapping[str, Any]) -> None:
        how = ", ".join(event["techniques"])
        self.note(
            f"known kernel, {escape(event['told'])}: [green]holds[/], "
            f"{event['microseconds']:.2f} us{f' [dim]({escape(how)})[/]' if how else ''}"
        )

    def _on_baseline(self, event: Mapping[str, Any]) -> None:
        cases = event["facts"].get("cases")
        checked = f"; verified on {cases} cases" if cases else ""
        self.note(
            f"initial kernel: {event['microseconds']:.2f} us ({event['provenance']}), "
            f"bottleneck [yellow]{event['bottleneck']}[/]{checked}"
        )

    def _on_state(self, event: Mapping[str, Any]) -> None:
        self._now(event, f"state {event['bottleneck']}")
        self._described[event["iteration"], event["rollout"]] = event["description"]

    def _on_state_choice(self, event: Mapping[str, Any]) -> None:
        described = self._described.pop((event["iteration"], event["rollout"]), "")
        new = ", new" if event["discovered"] else ""
        if event["step"] == 0:
            self.note(
                f"{self._place(event)}state [yellow]{escape(event['state'])}[/]{new}: "
                f"[dim]{escape(described)}{_by(event)}[/]"
            )

    def _on_choice(self, event: Mapping[str, Any]) -> None:
        self._now(event, f"writing {event['technique']}")

    def _on_ended(self, event: Mapping[str, Any]) -> None:
        self.note(f"{self._place(event)}ends: {escape(event['reason'])}")
        self._now(event, "")

    def _on_attempt(self, event: Mapping[str, Any]) -> None:
        if event["written"]:
            self._now(event, f"compiling and verifying {event['technique']}")

    def _on_tool(self, event: Mapping[str, Any]) -> None:
        self._now(event, f"tried {event['tool']}: {escape(event['answer'])}")

    def _on_rejected(self, event: Mapping[str, Any]) -> None:
        self.note(
            f"{self._place(event)}{event['technique']}: [red]refused, {event['outcome']}[/]: "
            f"{escape(event['reason'])}"
        )

    def _on_step(self, event: Mapping[str, Any]) -> None:
        place = self._place(event)
        if event["log_gain"] is not None:
            gain = math.exp(event["log_gain"])
            color = "green" if gain > 1.01 else "yellow" if event["accepted"] else "red"
            verdict = f"[{color}]{gain:.2f}x[/]" + ("" if event["accepted"] else ", not kept")
        elif event["outcome"] == "not_applicable":
            verdict = f"[dim]does not apply: {escape(event['reason'])}[/]"
        elif event["outcome"] == "no_answer":
            verdict = f"[red]not written: {escape(event['reason'])}[/]"
        else:
            verdict = f"[red]{event['outcome']}[/]"
        self._grow(event, verdict)
        expected = f" (expected {math.exp(event['expected_log_gain']):.2f}x)"
        if "round" in event and event["expected_log_gain"] == 0:
            expected = ""  # Nobody said.
        aimed = f" of {event['launch']}" if event.get("launch") else ""
        self.note(
            f"{place}{event['technique']}{aimed}: {verdict}{expected}; "
            f"best {event['best_microseconds']:.2f} us{_by_whom(event)}"
        )
        self._now(event, "")

    def _on_policy_evaluation(self, event: Mapping[str, Any]) -> None:
        error = event["mean_absolute_error"]
        off = "" if error is None else f", expected gains off by {math.exp(error):.2f}x on average"
        self.note(
            f"[cyan]policy evaluation[/] of iteration {event['iteration'] + 1}: "
            f"{_several(event['techniques'], 'technique')} judged, each in the state where it was "
            f"tried; {event['success_rate']:.0%} of the tries passed{off}{_by(event)}"
        )
        self._console.print(self._tree(event["iteration"]))
        if self._spent:
            self.note(f"[dim]{self._spent}[/]")

    def _on_thinking(self, event: Mapping[str, Any]) -> None:
        self._thinking[_asker(event)] = event["model"]
        self._show()

    def _on_answered(self, event: Mapping[str, Any]) -> None:
        self._thinking.pop(_asker(event), None)
        money = event["all_money"]
        cost = "" if money is None else f", ${money:.4f}"
        self._spent = f"{event['calls']} model calls, {event['all_tokens']:,} tokens{cost}"
        self._show()

    def _on_trying_again(self, event: Mapping[str, Any]) -> None:
        self._thinking.pop(_asker(event), None)
        self.note(
            f"  [yellow]{event['role']}[/]: {escape(event['reason'])}; "
            f"trying again in {event['seconds']:.1f} s"
        )

    def _on_malformed(self, event: Mapping[str, Any]) -> None:
        self.note(f"  [yellow]{event['role']}[/]: malformed reply: {escape(event['reason'])}")

    def _on_standing_in(self, event: Mapping[str, Any]) -> None:
        self._thinking.pop(_asker(event), None)
        self.note(
            f"  [yellow]{event['role']}[/]: {escape(event['reason'])}; "
            "the built-in reasoner stands in"
        )

    def _on_note(self, event: Mapping[str, Any]) -> None:
        self.note(f"[yellow]note[/]: {escape(event['text'])}")

    def _on_initial_asked(self, event: Mapping[str, Any]) -> None:
        self.note(f"first kernel: {escape(event['reason'])}; {escape(event['model'])} writes these")

    def _on_initial_rejected(self, event: Mapping[str, Any]) -> None:
        self.note(f"first kernel: [red]refused, {event['outcome']}[/]: {escape(event['reason'])}")

    def _on_soft_verification(self, event: Mapping[str, Any]) -> None:
        if event["vetoed"]:
            self.note(f"[red]winner vetoed[/]: {escape('; '.join(event['reasons']))}")
        else:
            read = "was read before" if event.get("read_before") else "read"
            said = "; ".join((*event["remarks"], *_dropped(event.get("dropped", ()))))
            self.note(
                f"winner {read} by {escape(event['author'])}: {escape(said or 'no objection')}"
            )

    def _on_review(self, event: Mapping[str, Any]) -> None:
        for said in event["objections"]:
            self.note(f"  [yellow]objection[/]: {escape(said)}{_by(event)}")

    def _on_claim(self, event: Mapping[str, Any]) -> None:
        came_to = "[red]confirmed[/]" if event["confirmed"] else "refuted"
        words = f"{event['input']}: {event['found']}"
        self.note(f"  [dim]claimed input[/] {came_to}, where {escape(words)}")

    def _on_parameter_update(self, event: Mapping[str, Any]) -> None:
        self._doing.clear()
        lessons = len(event["lessons"])
        signed = Counter(lesson["author"] for lesson in event["lessons"])
        by = "".join(f", {count} by {name}" for name, count in signed.items() if name != BUILTIN)
        edits = event.get("edits", ())
        also = f", {_several(len(edits), 'edit')} of the policy" if edits else ""
        told = _several(lessons, "lesson")
        self.note(f"[cyan]parameter update[/]: {told} written{escape(by)}{also}")
        for edit in edits:
            self.note(f"  [dim]edit[/]  {escape(edit['text'])}")
        for refused in event.get("refused", ()):
            self.note(f"  [yellow]refused[/]  {escape(refused)}")

    def _on_gap_analysis(self, event: Mapping[str, Any]) -> None:
        if event["author"] != BUILTIN:
            told = _several(len(event["gaps"]), "gap")
            self.note(f"[cyan]gap analysis[/]: {told} explained{_by(event)}")

    def _on_confirmation(self, event: Mapping[str, Any]) -> None:
        if event["confirmed"]:
            self.note(f"winner measured again: {event['microseconds']:.2f} us, confirmed")
        else:
            self.note(f"[red]winner not confirmed[/]: {escape(event['reason'])}")

    def _on_feedback(self, event: Mapping[str, Any]) -> None:
        asked = "" if event["mode"] == "correction" else f"; {event['method']}"
        self.note(
            f"  [dim]judge[/]  {event['mode']}: [yellow]{escape(event['finding'])}[/]"
            f"{escape(asked)}{_by(event)}"
        )

    def _on_shape(self, event: Mapping[str, Any]) -> None:
        sizes = ", ".join(f"{name}={size}" for name, size in event["dimensions"].items())
        found = f"[red]{event['outcome']}[/]: {escape(event['reason'])}"
        if event["microseconds"] is not None:
            found = f"[green]holds[/], {event['microseconds']:.2f} us"
        elif not event["ran"]:
            found = escape(event["reason"])
        self.note(f"winner at {escape(sizes)}: {found}")

    def _place(self, event: Mapping[str, Any]) -> str:
        if "round" in event:
            return f"  [dim]round {event['round'] + 1}[/]  "
        return (
            f"  [dim]{event['iteration'] + 1}.{event['rollout'] + 1} step {event['step'] + 1}[/]  "
        )

    def _now(self, event: Mapping[str, Any], text: str) -> None:
        place = (event["iteration"], event["rollout"])
        turn = "round" if "round" in event else "step"
        rollout = "" if "round" in event else f"rollout {place[0] + 1}.{place[1] + 1}  "
        self._doing[place] = f"{rollout}{turn} {event['step'] + 1} of {self._steps}: {text}"
        self._show()

    def _show(self) -> None:
        lines = [f"[dim]{doing}[/]" for _, doing in sorted(self._doing.items())]
        lines += [
            f"[dim]{escape(model)} thinks as {role}{escape(place)}[/]"
            for (role, place), model in sorted(self._thinking.items())
        ]
        if self._spent:
            lines.append(f"[dim]{self._spent}[/]")
        self._live.update("\n".join(lines))

    def _grow(self, event: Mapping[str, Any], verdict: str) -> None:
        """Add a step to its trajectory's branch of the tree."""
        place = (event["iteration"], event["rollout"])
        self._paths.setdefault(place, []).append(f"{event['technique']} {verdict}")
        self._reached[place] = event["best_microseconds"]

    def _tree(self, iteration: int) -> Tree:
        """Return an iteration's trajectories, each with its steps and what they gained."""
        tree = Tree(f"[dim]iteration {iteration + 1}[/]")
        for (number, rollout), steps in sorted(self._paths.items()):
            if number == iteration:
                best = self._reached[number, rollout]
                tree.add(f"{number + 1}.{rollout + 1} best {best:.2f} us: " + " → ".join(steps))
        return tree


def _dropped(why: Sequence[str]) -> list[str]:
    """Return what became of a reviewer's objections, by what their inputs showed."""
    return [
        f"{'its objection was' if count == 1 else f'{count} objections were'} refuted: {showed}"
        for showed, count in Counter(why).items()
    ]


def _asker(event: Mapping[str, Any]) -> tuple[str, str]:
    """Return who thinks and where: the role, and the numbers of its place counted from 1."""
    numbers = [part + 1 for part in event["place"] if isinstance(part, int)]
    return event["role"], f" at {'.'.join(str(number) for number in numbers)}" if numbers else ""


def _several(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _by(event: Mapping[str, Any]) -> str:
    """Return who did it, where that was not the built-in reasoner."""
    return "" if event["author"] == BUILTIN else f" by {escape(event['author'])}"


def _by_whom(event: Mapping[str, Any]) -> str:
    """Return who did which part of a step, where that was not all built in."""
    parts: dict[str, list[str]] = {}
    for part, key in (("state", "state_author"), ("choice", "choice_author"), ("source", "author")):
        if event[key] != BUILTIN:
            parts.setdefault(event[key], []).append(part)
    told = "; ".join(f"{', '.join(done)} by {name}" for name, done in parts.items())
    return f" [dim]({escape(told)})[/]" if told else ""
