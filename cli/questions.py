"""What a run asks a person, on the terminal: shown in words, answered with a letter and a line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ..harness.errors import UserError, in_shell
from ..nodes.common.stopping.questions import Misunderstood, read_decision

Question = Mapping[str, Any]
"""One of nodes/common/stopping/questions.py, as JSON values."""


def parse_answers(
    answers: Sequence[str], questions: Mapping[str, Question], directory: Path
) -> dict[str, Any]:
    """Return the answers of `--answer` by the id of the question each is for, in order.

    Raises:
        UserError: there is no question, there are fewer questions, or an answer is none.
    """
    if len(answers) > len(questions):
        asked = "; ".join(question["asks"] for question in questions.values())
        raise UserError(
            f"--answer is given {len(answers)} times, and {directory} asks "
            f"{asked or 'nothing: resume it without'}"
        )
    for answer in answers:
        try:
            read_decision(answer)
        except Misunderstood as error:
            raise UserError(f"--answer {answer}: {error}") from error
    return dict(zip(questions, answers, strict=False))


def ask_all(console: Console, questions: Mapping[str, Question]) -> dict[str, Any] | None:
    """Ask one question after another; None where the person leaves (end of input)."""
    try:
        return {key: _ask(console, question) for key, question in questions.items()}
    except EOFError:
        return None


def can_ask() -> bool:
    """Say whether a person sits at the terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def show_question(console: Console, question: Question) -> None:
    """Print a question with all that it says."""
    lines = [question["hint"], question["asks"], *_told(question), f"  so far: {_cost(question)}"]
    for line in filter(None, lines):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def how_to_answer(directory: Path, questions: Mapping[str, Question]) -> str:
    """Return the commands that answer the first question."""
    first = next(iter(questions.values()))
    forms = " or ".join(_quoted(answer) for answer in first["answers"])
    more = f"; {len(questions)} questions, an --answer each" if len(questions) > 1 else ""
    return f"answer with: kernelblaster resume {in_shell(directory)} --answer {forms}{more}"


def _quoted(answer: str) -> str:
    return answer if answer.isalnum() else f"'{answer}'"


def _told(question: Question) -> Iterator[str]:
    expected = question["expected"]
    if question["kind"] == "plan":
        models = ", ".join(f"{name} as {role}" for role, name in question["models"].items())
        caps = ", ".join(f"{name} {cap:g}" for name, cap in question["budgets"].items())
        yield f"  {question['gpu']} ({question['device']}); models: {models or 'none'}"
        yield f"  caps: {caps or 'none'}; no gain is known before the first profile"
    elif question["kind"] == "technique":
        values = ", ".join(f"{k}={v}" for k, v in sorted(question["parameters"].items()))
        others = ", ".join(f"{name} {gain:.2f}x" for name, gain in question["others"].items())
        yield f"  state {question['state']}, {question['microseconds']:.2f} us: " + (
            question["observation"]
        )
        yield (
            f"  expected {expected['gain']:.2f}x ({expected['low']:.2f} to {expected['high']:.2f})"
            f", passes with {question['success_probability']:.0%}"
            f"{f'; tried first: {values}' if values else ''}"
        )
        yield f"  why: {question['why']} (by {question['author']})"
        yield f"  instead: {others or 'nothing else is on the table'}"
    else:
        yield (
            f"  {question['initial_microseconds']:.2f} us -> {question['microseconds']:.2f} us "
            f"({question['provenance']}), gain {expected['low']:.2f} to {expected['high']:.2f}, by "
            f"{', '.join(question['techniques'])}"
        )
        yield question["remarks"] and f"  note: {question['remarks']}"
        yield question["diff"]


def _cost(question: Question) -> str:
    cost = question["cost"]
    money = "" if cost["money"] is None else f", ${cost['money']:.4f}"
    return (
        f"{cost['evaluations']} evaluations, {cost['model_calls']} model calls, "
        f"{cost['tokens']} tokens{money}, {cost['device_seconds']:.1f} s on the device, "
        f"{cost['working_seconds']:.1f} s in all"
    )


def _ask(console: Console, question: Question) -> Any:
    """Return a person's answer, as Command(resume=...) takes it."""
    show_question(console, question)
    letters = "accept or reject? [a/r] " if question["kind"] == "winner" else (
        "accept, edit or reject? [a/e/r] "
    )
    while True:
        letter = input(letters).strip().lower()[:1]
        if letter == "a":
            return "accept"
        if letter == "r" and (reason := input("reason: ").strip()):
            return {"reject": reason}
        if letter == "e" and (text := input(f"{_EDITS[question['kind']]}: ").strip()):
            return {"edit": _edit(question["kind"], text)}


_EDITS = {
    "plan": "iterations=N rollouts=N steps=N, or rounds=N (those to change)",
    "technique": "TECHNIQUE or parameter=value, or both",
    "winner": "a winner cannot be edited; say why not",
}


def _edit(kind: str, text: str) -> dict[str, Any]:
    """Return what was typed as an edit; the run says where it has no use for it."""
    named = dict(word.partition("=")[::2] for word in text.split() if "=" in word)
    values = {name: _value(said) for name, said in named.items()}
    if kind != "technique":
        return values or {"edit": text}
    words = [word for word in text.split() if "=" not in word]
    technique = {"technique": " ".join(words)} if words else {}
    return {**technique, **({"parameters": values} if values else {})}


def _value(said: str) -> Any:
    try:
        return json.loads(said)
    except ValueError:
        return said
