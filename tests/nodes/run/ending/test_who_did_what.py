"""Who did what: in result.json, the report, the lessons, and on the screen where it matters."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import graph_support
import pytest
from every_role import every_role, good
from model_role_support import Ran, run
from rich.console import Console
from scripted_chat_model import CURRENT, ScriptedChatModel

from kernelblaster.cli.showing.progress import ProgressView
from kernelblaster.harness.errors import UserError
from kernelblaster.nodes.common.history.authors import roles_in_words, together
from kernelblaster.nodes.common.policies import RULES
from kernelblaster.nodes.records.result import RunResult
from kernelblaster.tools.models.code_reply import fenced
from kernelblaster.tools.models.records import BUILTIN

LOOP = RULES["kernelblaster"].roles


def report(folder: Path) -> str:
    return (folder / "run" / "report.txt").read_text()


def screen(ran: Ran) -> str:
    """What a person saw of the run."""
    text = io.StringIO()
    view = ProgressView(Console(file=text, width=200))
    for event in ran.events:
        view.event(event)
    return text.getvalue()


def signed(ran: Ran, words: str) -> set[str]:
    """The authors of the lessons that hold some words."""
    return {lesson.author for lesson in ran.lessons if words in lesson.text}


def test_a_run_without_models_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = run(tmp_path, monkeypatch, ScriptedChatModel())
    result = ran.result
    assert result.models == dict.fromkeys(LOOP, BUILTIN) and result.initial_author == BUILTIN
    assert [(step.technique, step.state, step.choice, step.source) for step in result.steps] == [
        (step.technique, BUILTIN, BUILTIN, BUILTIN) for step in ran.steps
    ]
    assert result.lesson_authors == (BUILTIN,) * len(result.lessons)
    assert "Who did what: the built-in reasoners everything.\n" in report(tmp_path)
    assert "(by " not in report(tmp_path)
    seen = screen(ran)
    assert "written" in seen and "initial kernel: 100.00 us" in seen
    assert not [line for line in seen.splitlines() if BUILTIN in line and "winner" not in line]


def test_a_run_by_a_model_names_it_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = run(tmp_path, monkeypatch, every_role(), *LOOP)
    result = ran.result
    assert result.models == dict.fromkeys(LOOP, CURRENT) and result.initial_author == CURRENT
    assert {(step.state, step.choice, step.source) for step in result.steps} == {(CURRENT,) * 3}
    assert [(step.state_author, step.choice_author) for step in ran.steps] == [
        (CURRENT, CURRENT) for _ in ran.steps
    ]
    by_id = {lesson.id: lesson.author for lesson in ran.lessons}
    assert result.lesson_authors == tuple(by_id[name] for name in result.lessons)
    for needed in (f"asked: {CURRENT} in every role", f"initial kernel: {CURRENT}",
                   f"state {CURRENT}, choice {CURRENT}, source {CURRENT}"):  # fmt: skip
        assert needed in report(tmp_path), needed
    for needed in (f"asked: {CURRENT} in every role", f"initial kernel by {CURRENT}",
                   f"(state, choice, source by {CURRENT})"):  # fmt: skip
        assert needed in screen(ran), needed
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    assert stored["models"]["kernel_writer"] == CURRENT
    assert stored["steps"][0]["choice"] == CURRENT


def test_each_part_of_a_step_has_its_own_author(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ScriptedChatModel(otherwise=good("optimization_selector"))
    ran = run(tmp_path, monkeypatch, asked, "optimization_selector", steps=1)
    (step,) = ran.result.steps
    assert (step.state, step.choice, step.source) == (BUILTIN, CURRENT, BUILTIN)
    assert ran.evidence[0].author == BUILTIN
    assert f"step 1.1.1: state builtin, choice {CURRENT}, source builtin" in report(tmp_path)
    assert f"asked: {CURRENT} as optimization_selector; built in the rest" in report(tmp_path)
    assert f"(choice by {CURRENT})" in screen(ran)


@pytest.mark.parametrize(
    ("role", "words"),
    [("gap_analysis", "Fewer bytes move."), ("policy_evaluation", " was guessed.")],
)
def test_a_lesson_that_holds_a_models_words_is_signed_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: Any, words: str
) -> None:
    ran = run(tmp_path, monkeypatch, ScriptedChatModel(otherwise=good(role)), role)
    assert signed(ran, words) == {CURRENT}
    without = [lesson for lesson in ran.lessons if words not in lesson.text]
    assert {lesson.author for lesson in without} <= {BUILTIN}
    told = [line for line in report(tmp_path).splitlines() if words in line]
    assert told and all(line.endswith(f" (by {CURRENT})") for line in told)
    assert f"by {CURRENT}" in screen(ran)


def test_a_state_that_a_model_described_is_signed_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"state": "new", "name": "waits for rows", "description": "Rows come one by one.",
            "reason": "None fits."}  # fmt: skip
    ran = run(tmp_path / "model", monkeypatch, ScriptedChatModel(otherwise=said), "state_selector",
              steps=1)  # fmt: skip
    assert [step.state_author for step in ran.steps] == [CURRENT]
    rule = run(tmp_path / "rule", monkeypatch, ScriptedChatModel(), steps=1)
    assert [step.state_author for step in rule.steps] == [BUILTIN]


# The initial kernel ------------------------------------------------------------------------------


FAILING = "us: 100.0\noutcome: profiler_unavailable\n// launch()\n"


def test_a_persons_kernel_is_a_persons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = tmp_path / "first.cu"
    start.write_text("us: 90.0\n")
    ran = run(tmp_path, monkeypatch, ScriptedChatModel(), start=str(start), steps=1)
    assert ran.result.initial_author == "person"
    assert "initial kernel: person" in report(tmp_path)
    assert "initial kernel by person" in screen(ran)


def test_a_models_kernel_that_does_not_pass_is_called_the_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrote = ScriptedChatModel([fenced(FAILING)])
    with pytest.raises(UserError, match=f"written by {CURRENT}, does not pass") as refused:
        run(tmp_path, monkeypatch, wrote, "initial_cuda")
    assert "built-in" not in str(refused.value)


def test_a_built_in_kernel_that_does_not_pass_is_called_built_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_support, "INITIAL", FAILING)
    with pytest.raises(UserError, match="the built-in initial kernel does not pass .*/artifacts/"):
        run(tmp_path, monkeypatch, ScriptedChatModel())


# Words -------------------------------------------------------------------------------------------


def test_figures_by_rule_sign_nothing_beside_words() -> None:
    assert together() == together(BUILTIN, BUILTIN) == BUILTIN
    assert together(BUILTIN, "openai:a") == together("openai:a", "openai:a") == "openai:a"
    assert together("openai:a", BUILTIN, "openai:b") == "openai:a and openai:b"


def test_roles_are_told_by_who_was_asked() -> None:
    assert roles_in_words({"judge": BUILTIN}) == ""
    some = {"a": "openai:x", "b": BUILTIN, "c": "openai:x", "d": "openai:y"}
    assert roles_in_words(some) == "openai:x as a, c; openai:y as d"


def test_a_result_of_an_earlier_version_is_read() -> None:
    fields = set(RunResult.model_fields)
    added = {"models", "initial_author", "steps", "lesson_authors"}
    required = {name for name in fields if RunResult.model_fields[name].is_required()}
    assert added <= fields and not added & required
