"""A run in a sentence, in a few figures, and in facts: what each form of its report begins with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ..harness.errors import in_shell
from ..nodes.common.policies import loop_in_words
from ..tools.models.records import BUILTIN
from . import words
from .reading import RunAccount


class Tile(NamedTuple):
    """One figure that a reader looks for first."""

    name: str
    value: str
    note: str = ""
    kind: str = ""
    """gained or failed, where it is good or bad news."""


def levels_of(run: RunAccount) -> dict[str, float]:
    """Return the times that candidates are compared with, in microseconds, by their names."""
    found = {"initial kernel": run.initial.microseconds} if run.initial else {}
    names = {"eager_us": "PyTorch eager", "compile_us": "torch.compile"}
    baselines = run.result.baselines if run.result else {}
    found |= {names[key]: baselines[key] for key in names if baselines.get(key)}
    return found | ({"bound": run.bound_us} if run.bound_us else {})


def sentence(run: RunAccount) -> str:
    """Return what the run came to, in a sentence or two."""
    return " ".join(_sentences(run))


def _sentences(run: RunAccount) -> Iterator[str]:
    where = f"on {_article(run)}{run.plan.gpu}"
    tried = words.counted(len(run.verdicts), "candidate")
    if run.initial is None:
        refused = next((each for each in run.verdicts if each.microseconds is None), None)
        if refused is not None:
            yield (f"The first kernel for {run.name} did not pass {where}: "
                   f"{words.plain(refused.outcome)}.")  # fmt: skip
        else:
            yield f"Nothing was measured yet of {run.name} {where}."
    elif run.result is None:
        best, begins = run.best, f"After {tried}, the best kernel for {run.name} {where}"
        if best is not None and (run.gain or 1.0) > 1.0:
            yield (f"{begins} takes {words.microseconds(best[1])}: {words.gain(run.gain)} the "
                   "speed of the initial kernel, measured once and not confirmed.")  # fmt: skip
        else:
            yield (f"{begins} is still the initial one "
                   f"({words.microseconds(run.initial.microseconds)}).")  # fmt: skip
    else:
        yield from _finished(run)
    if run.result is None:
        yield {
            "in use": "The run is under way.",
            "waiting": f"It waits for {words.counted(run.waiting, 'job')} of another host.",
        }.get(run.status, "The run has not ended; go on with: "
                          f"kernelblaster resume {in_shell(run.directory)}")  # fmt: skip


def _finished(run: RunAccount) -> Iterator[str]:
    result = run.result
    assert result is not None
    where = f"on {_article(run)}{result.gpu}"
    within = words.interval(*result.gain_ci)
    if result.outcome == "improved":
        yield (f"{run.name} runs {words.gain(result.gain)} as fast as its initial kernel {where}"
               f"{f' (interval {within})' if within else ''}: "
               f"{words.microseconds(result.initial_us)} became "
               f"{words.microseconds(result.best_us)}.")  # fmt: skip
    elif result.outcome == "not_improved":
        yield f"No candidate made the initial kernel of {run.name} faster {where}."
    else:
        yield (f"No faster kernel for {run.name} held when it was measured again {where}: the "
               "initial one is announced.")  # fmt: skip
    if speedup := result.baselines.get("speedup"):
        low = result.baselines.get("speedup_low", speedup)
        high = result.baselines.get("speedup_high", speedup)
        within = words.interval(low, high)
        yield (f"It is {words.gain(speedup)} as fast as PyTorch's faster way"
               f"{f' ({within})' if within else ''}.")  # fmt: skip


def _article(run: RunAccount) -> str:
    return "the simulated " if run.plan.identity.kind == "simulated" else "the "


def tiles(run: RunAccount) -> list[Tile]:
    """Return the figures that a reader looks for first."""
    found = []
    result, best = run.result, run.best
    if run.gain is not None:
        within = words.interval(*result.gain_ci) if result else "not confirmed"
        kind = "gained" if run.gain > 1.01 else ""
        found.append(Tile("gain", words.gain(run.gain), within or "over the initial kernel", kind))
    if run.initial is not None and best is not None:
        found.append(
            Tile("time", words.microseconds(best[1]),
                 f"from {words.microseconds(run.initial.microseconds)}, {run.initial.provenance}")
        )  # fmt: skip
    if result and (speedup := result.baselines.get("speedup")):
        low, high = result.baselines.get("speedup_low"), result.baselines.get("speedup_high")
        within = words.interval(low, high) if low and high else ""
        found.append(Tile("over PyTorch's faster way", words.gain(speedup), within,
                          "gained" if speedup > 1.01 else ""))  # fmt: skip
    if run.bound_us and best is not None:
        score = "" if result is None or result.score is None else f"S = {result.score:.2f}"
        found.append(Tile("of the speed of light", words.share(run.bound_us / best[1]),
                          score or f"bound {words.microseconds(run.bound_us)}"))  # fmt: skip
    if result and (shapes := [each for each in result.shapes if each.ran]):
        held = sum(each.holds for each in shapes)
        found.append(Tile("unseen shapes", f"{held} of {len(shapes)}", "where it holds",
                          "" if held == len(shapes) else "failed"))  # fmt: skip
    refused = sum(each.microseconds is None for each in run.verdicts)
    found.append(Tile("candidates", str(len(run.verdicts)), f"{refused} refused"))
    found.append(Tile("steps", str(len(run.steps)),
                      words.counted(_trajectories(run), "trajectory", "trajectories")))  # fmt: skip
    found.append(Tile("time spent", words.seconds(run.wall_seconds),
                      f"{words.seconds(run.device_seconds)} of the device"))  # fmt: skip
    spent = run.spent
    if spent is not None and spent.calls:
        price = "" if spent.money is None else f", {words.money(spent.money)}"
        found.append(Tile("tokens", words.count(spent.tokens),
                          f"{words.counted(spent.calls, 'model call')}{price}"))  # fmt: skip
    else:
        found.append(Tile("models", "none", "built-in reasoners, no cost"))
    return found


def _trajectories(run: RunAccount) -> int:
    return len({(step.iteration, step.rollout) for step in run.steps})


def facts_of_run(run: RunAccount) -> list[tuple[str, str]]:
    """Return what was asked and with what it was done, as names and values."""
    plan, identity = run.plan, run.plan.identity
    budgets = {name: value for name, value in plan.budgets.model_dump().items() if value}
    roles = ", ".join(f"{role}: {name}" for role, name in sorted(plan.models.roles.items()))
    kind = f"{run.summary.op_class}, {run.summary.dtype}" if run.summary else ""
    facts = [
        ("task", plan.task),
        ("kind of operation", kind),
        ("policy", plan.policy),
        ("device", f"{plan.device} {identity.gpu} ({identity.arch})"),
        ("toolchain", identity.toolchain),
        ("versions of the harness", identity.harness),
        ("search", f"{loop_in_words(plan)}, {words.counted(plan.repairs, 'repair')}, "
                   f"seed {plan.seed}"),
        ("began with", _began(run)),
        ("ended because", run.result.ended if run.result else ""),
        ("speed of light", str(run.result.bound or "") if run.result else ""),
        ("models", roles or BUILTIN),
        ("caps", words.parameters(budgets) or "none"),
        ("knowledge base", f"{plan.knowledge}{_knowledge(run)}"),
        ("forked from", plan.forked_from),
        ("run directory", str(run.directory)),
    ]  # fmt: skip
    return [(name, value) for name, value in facts if value]


def _began(run: RunAccount) -> str:
    """Return which known kernel the search began with, in words; empty where with none."""
    return "; ".join(
        f"a kernel {step.reason}, {words.gain(math.exp(step.log_gain or 0.0))} the initial one"
        for step in run.began
    )


def _knowledge(run: RunAccount) -> str:
    if run.knowledge_at is None:
        return ""
    return f", {words.counted(run.knowledge_at, 'row')} when the run began"
