"""Objections with an input that is run: what shows a kernel wrong goes back to its writer."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from typing import Any

import graph_support
import pytest
from graph_support import TextRewrite
from model_role_support import Ran, run
from rich.console import Console
from scripted_chat_model import CURRENT, ScriptedChatModel
from text_runs import resume

from kernelblaster.cli.showing.progress import ProgressView
from kernelblaster.harness.errors import UserError
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.tools.first_kernel.writer import InitialKernel
from kernelblaster.tools.models.code_reply import fenced
from kernelblaster.tools.rewriting.records import Inapplicable, Rewritten
from kernelblaster.tools.workspace import open_knowledge

ACCEPT = {"verdict": "accept", "objections": [], "summary": "It does what it says."}
WRONG = "wrong at: 3"


class Faulty(TextRewrite):
    """Makes a kernel that no case of the task's tells from right."""

    def apply(
        self, source: str, task: Any, parameters: Any = None, kernels: Any = ()
    ) -> Rewritten | Inapplicable:
        done = super().apply(source, task, parameters)
        if isinstance(done, Inapplicable):
            return done
        return Rewritten(source=f"{done.source}{WRONG}\n", note=done.note)


def kernel(us: float, *more: str) -> str:
    return fenced("\n".join([f"us: {us}", "// launch()", *more, ""]))


def claims(value: float, quote: str) -> dict[str, Any]:
    """Return a veto whose input holds one value everywhere."""
    objection = {
        "kind": "wrong_semantics", "quote": quote, "explanation": "the sign is lost there",
        "check": f"x = {value}", "input": [{"tensor": "x", "kind": "constant", "first": value}],
    }  # fmt: skip
    return {"verdict": "veto", "objections": [objection], "summary": ""}


def lowered(
    folder: Path, monkeypatch: pytest.MonkeyPatch, model: ScriptedChatModel, **changes: Any
) -> Ran:
    """Run with a model that writes and one that reviews; by default one step."""
    cards = "kernelblaster.nodes.optimization_proposer.table.Table.cards"
    monkeypatch.setattr(cards, lambda table: {})
    fields = {"steps": 1, "repairs": 1} | changes
    return run(folder, monkeypatch, model, "kernel_writer", "soft_verifier", **fields)


def stages(log: Path) -> list[str]:
    return [line.split()[0] for line in log.read_text().splitlines()]


def test_a_confirmed_claim_is_a_case_of_the_task_and_the_writer_mends_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        by_role={
            "kernel_writer": [kernel(20, WRONG), kernel(30)],
            "soft_verifier": [ACCEPT, claims(3, WRONG), ACCEPT],
        }
    )
    ran = lowered(tmp_path, monkeypatch, model)
    assert (ran.result.outcome, ran.result.best_us) == ("improved", 30.0)
    assert ("passed", 1) in [(row.outcome, row.repairs) for row in ran.evidence]
    assert [step.outcome for step in ran.steps] == ["passed"]
    again = str(model.calls_of("kernel_writer")[1].messages[-1].content)
    assert "Its results differ from PyTorch's" in again and "the sign is lost there" in again
    assert "expected 1, got 2" in again and "found by a reviewer" in again
    assert len(model.calls_of("soft_verifier")) == 3, "what was accepted is not read again"
    with RunStore(tmp_path / "run" / "run.sqlite") as store:
        (tried,) = store.claims.cases()
        wrong = [each for each in store.evaluations() if each.outcome == "wrong_answer"]
    assert tried.confirmed and tried.author == CURRENT and str(tried.claim) == "x: 3 everywhere"
    assert wrong[0].reason.startswith("where x: 3 everywhere: out0[0]: expected 1, got 2")
    (told,) = ran.told("claim")
    assert told["confirmed"] and told["input"] == "x: 3 everywhere"
    assert "found a kernel wrong there: x: 3 everywhere (wrong answer: out0" in ran.result.notes[-1]


@pytest.mark.parametrize(
    ("value", "found"), [(5.0, "agree there"), (1001.0, "no input of this task")]
)
def test_a_refuted_claim_is_dropped_and_the_candidate_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float, found: str
) -> None:
    model = ScriptedChatModel(
        by_role={
            "kernel_writer": [kernel(20, WRONG)],
            "soft_verifier": [ACCEPT, claims(value, WRONG)],
        }
    )
    ran = lowered(tmp_path, monkeypatch, model)
    assert (ran.result.outcome, ran.result.best_us) == ("improved", 20.0)
    assert len(model.calls_of("kernel_writer")) == 1 and len(model.calls_of("soft_verifier")) == 2
    (told,) = ran.told("claim")
    assert not told["confirmed"] and found in told["found"]
    assert ran.result.notes[-1].startswith("1 objection was dropped")
    (winner,) = ran.told("soft_verification")
    shown = StringIO()
    ProgressView(Console(file=shown, width=200)).event(winner)
    assert f"winner was read before by {CURRENT}: its objection was refuted" in shown.getvalue()
    assert found in shown.getvalue()
    with RunStore(tmp_path / "run" / "run.sqlite") as store:
        assert store.claims.cases() == [] and len(store.claims.all()) == 1


def test_a_sibling_with_the_same_fault_fails_without_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second kernel of a kind is not read, and what one was found wrong on is run."""
    model = ScriptedChatModel(
        by_role={
            "kernel_writer": [kernel(20, WRONG), kernel(60), kernel(11, WRONG), kernel(50)],
            "soft_verifier": [ACCEPT, claims(3, WRONG), ACCEPT, ACCEPT],
        }
    )
    ran = lowered(tmp_path, monkeypatch, model, steps=2)
    assert [step.outcome for step in ran.steps] == ["passed", "passed"]
    assert [row.repairs for row in ran.evidence if row.outcome == "passed"] == [1, 1]
    reviewed = [call for call in model.calls_of("soft_verifier") if len(call.place) == 4]
    assert ran.result.best_us == 50.0 and len(reviewed) <= 4
    assert all("us: 11" not in call.prompt for call in reviewed)


def test_later_reviewers_are_told_what_was_refuted_of_the_same_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        by_role={
            "kernel_writer": [kernel(20, WRONG), kernel(10, WRONG, "// more")],
            "soft_verifier": [ACCEPT, claims(5, WRONG), ACCEPT, ACCEPT],
        }
    )
    lowered(tmp_path, monkeypatch, model, steps=2)
    calls = model.calls_of("soft_verifier")
    told = "run where x: 5 everywhere: the kernel and PyTorch agree there"
    assert told not in calls[1].prompt and told in calls[2].prompt


def test_a_winner_that_a_claim_shows_wrong_takes_its_siblings_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels of the library are read as winners alone; the report says what was reached."""
    plain = (TextRewrite("fast_math", 0.8), TextRewrite("unroll_loop", 0.9))
    rewrites = (Faulty("vectorize_memory_access", 0.5), *plain)
    model = ScriptedChatModel(by_role={"soft_verifier": [ACCEPT, claims(3, WRONG), ACCEPT]})
    ran = run(
        tmp_path, monkeypatch, model, "soft_verifier", rewrites=rewrites, steps=3, rollouts=2
    )
    assert len(model.calls) <= 3
    note = ran.result.notes[0]
    assert re.search(r"\d+\.\d\d us vetoed by import", note) and "x: 3 everywhere" in note
    assert "us does not stand: wrong answer: where x: 3 everywhere" in note
    assert ran.result.best_us in (72.0, 80.0, 90.0, 100.0)
    assert WRONG not in (tmp_path / "run" / "best.cu").read_text()


def test_a_first_kernel_that_a_claim_shows_wrong_is_mended_by_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        by_role={
            "initial_cuda": [kernel(90, WRONG), kernel(95)],
            "soft_verifier": [claims(3, WRONG), ACCEPT, ACCEPT],
        }
    )
    ran = run(tmp_path, monkeypatch, model, "initial_cuda", "soft_verifier", steps=1)
    assert ran.result.initial_us == 95.0 and ran.result.initial_author == CURRENT
    again = str(model.calls_of("initial_cuda")[1].messages[-1].content)
    assert "the sign is lost there" in again


def test_a_first_kernel_of_nobody_who_could_mend_it_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    model = ScriptedChatModel(by_role={"soft_verifier": [claims(3, WRONG)]})
    built_in = InitialKernel(source=f"us: 100.0\n{WRONG}\n")
    real = graph_support.install

    def install(patch: Any, rewrites: Any) -> None:
        real(patch, rewrites)
        patch("kernelblaster.nodes.initial_cuda.builtin.write_builtin", lambda task: built_in)

    monkeypatch.setattr(graph_support, "install", install)
    with pytest.raises(UserError, match="the built-in initial kernel does not pass .*x: 3 every"):
        run(tmp_path, monkeypatch, model, "soft_verifier", steps=1)


def test_a_candidate_of_a_round_is_corrected_by_what_a_claim_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix = {"diagnosis": "the sign is lost", "hint": "keep it"}
    model = ScriptedChatModel(
        by_role={
            "coder": [kernel(20, WRONG), kernel(40)],
            "judge": [fix],
            "soft_verifier": [ACCEPT, claims(3, WRONG), ACCEPT],
        }
    )  # fmt: skip
    ran = run(
        tmp_path, monkeypatch, model, "coder", "judge", "soft_verifier",
        policy="coder_judge", rounds=2,
    )  # fmt: skip
    assert [(str(step.outcome), step.technique) for step in ran.steps] == [
        ("wrong_answer", "first_kernel"), ("passed", "correction"),
    ]  # fmt: skip
    assert "x: 3 everywhere" in model.calls_of("judge")[0].prompt
    assert ran.result.best_us == 40.0


@pytest.mark.parametrize(("policy", "lessons"), [("kernelblaster", 1), ("minimal", 0)])
def test_a_policy_that_reads_no_knowledge_base_writes_no_lesson_of_a_veto(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, lessons: int
) -> None:
    veto = {"kind": "delegated", "quote": "did: fast_math", "explanation": "it is kept",
            "check": "call it twice"}  # fmt: skip
    model = ScriptedChatModel(
        by_role={"soft_verifier": [ACCEPT, {"verdict": "veto", "objections": [veto]}]}
    )
    length = {"steps": 1} if policy == "kernelblaster" else {"rounds": 1}
    ran = run(
        tmp_path, monkeypatch, model, "soft_verifier", policy=policy,
        rewrites=(TextRewrite("fast_math", 0.8),), **({"steps": 4} | length),
    )  # fmt: skip
    assert ran.result.best_us == 100.0 and "vetoed by" in ran.result.notes[0]
    with open_knowledge(str(tmp_path / "kb")) as knowledge:
        assert sum("vetoed" in each.text for each in knowledge.lessons()) == lessons


def test_what_the_library_writes_in_a_models_place_is_not_read_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedChatModel(
        by_role={"kernel_writer": ["no code"] * 3, "soft_verifier": [ACCEPT, ACCEPT]}
    )
    ran = lowered(tmp_path, monkeypatch, model)
    assert ran.steps[0].author.startswith("builtin (") and ran.result.outcome == "improved"
    assert len(model.calls_of("soft_verifier")) == 2, "the first kernel and the winner"


def test_a_trajectory_leaves_a_kernel_that_a_later_claim_shows_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is of the second kernel; the first has the same fault, and passed."""
    model = ScriptedChatModel(
        by_role={
            "kernel_writer": [kernel(50, "did: fast_math", WRONG), kernel(40, WRONG), kernel(60)],
            "soft_verifier": [ACCEPT, ACCEPT, claims(3, WRONG), ACCEPT, ACCEPT],
        }
    )
    rewrites = tuple(TextRewrite(name) for name in ("fast_math", "split_k", "unroll_loop"))
    ran = lowered(tmp_path, monkeypatch, model, steps=3, repairs=0, rewrites=rewrites)
    first, second, third = ran.steps
    assert (second.parent_sha256, second.outcome) == (first.child_sha256, "wrong_answer")
    assert third.parent_sha256 == first.parent_sha256 and ran.result.best_us == 60.0


@pytest.mark.parametrize("place", ["claims._told", "candidates._keep"])
def test_a_process_that_ends_while_a_claim_is_run_repeats_neither_question_nor_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("TEXT_DEVICE_LOG", str(log))
    model = ScriptedChatModel(
        by_role={
            "kernel_writer": [kernel(20, WRONG), kernel(30)],
            "soft_verifier": [ACCEPT, claims(3, WRONG), ACCEPT],
        }
    )
    real = f"kernelblaster.nodes.soft_verifier.{place}"
    calls = iter(range(9))

    async def killed(*_: Any) -> None:
        if next(calls):
            raise BrokenPipeError

    def at_once(*_: Any) -> None:
        raise BrokenPipeError

    with monkeypatch.context() as patch:
        patch.setattr(real, at_once if place == "claims._told" else killed)
        with pytest.raises(BrokenPipeError):
            lowered(tmp_path, monkeypatch, model)
    result = resume(tmp_path / "run")
    assert result.best_us == 30.0 and len(model.calls) == 5
    claimed = [line for line in log.read_text().splitlines() if line.startswith("claim")]
    assert len(claimed) == len(set(claimed)) == 2, "of the wrong kernel and of the mended one"
