"""Other settings of what moved a kernel's time, without a model: of the library's and a model's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import graph_support
import pytest
from asked import Asked
from graph_support import TextRewrite
from model_role_support import new_folder, run
from scripted_chat_model import CURRENT, ScriptedChatModel
from text_runs import resume

from kernelblaster.graph.session import Session, Undecided
from kernelblaster.harness.records.tasks import Task
from kernelblaster.memory.records.policy import ExpectedGain
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.records.choices import Proposal
from kernelblaster.nodes.run.search import sweep
from kernelblaster.tools.models.code_reply import fenced
from kernelblaster.tools.rewriting.records import Inapplicable, Rewritten
from kernelblaster.tools.rewriting.source.named_constants import with_numbers


class Tiled(TextRewrite):
    """The time hangs on the tile: 32 is best, the default loses."""

    def apply(
        self, source: str, task: Task, parameters: Any = None, kernels: Any = ()
    ) -> Rewritten | Inapplicable:
        factors = {16: 1.3, 32: 0.5, 64: 0.9}
        tile = parameters.get("tile", 16)
        return TextRewrite(self.technique, factors[tile]).apply(source, task, parameters)


TILED = Tiled("shared_memory_tiling", parameters={"tile": (16, 32, 64)})


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "rewrites", lambda: (TILED,))


@pytest.mark.parametrize("sweeps", [True, False])
def test_a_technique_that_lost_with_one_setting_is_tried_with_its_neighbour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: None, sweeps: bool
) -> None:
    ran = run(tmp_path, monkeypatch, ScriptedChatModel(), rewrites=(TILED,), steps=2, repairs=0,
              sweeps=sweeps)  # fmt: skip
    first, *others = ran.steps
    assert first.parameters == {"tile": 16} and first.log_gain and first.log_gain < 0
    if not sweeps:
        assert not others and "ablation: no sweeps" in ran.result.notes
        return
    (second,) = others
    assert (second.parameters, second.parent_sha256) == ({"tile": 32}, first.parent_sha256)
    assert ran.result.best_us == 50.0
    rows = {str(row.parameters): row for row in ran.evidence}
    assert {row.technique for row in rows.values()} == {"shared_memory_tiling"}
    assert rows["{'tile': 32}"].log_gain == second.log_gain


def written(us: float, tile: int) -> str:
    """A model's kernel, whose time hangs on a number that it names."""
    source = f"us: {us}\nconstexpr int TILE = {tile};\n// launch()\ndid: shared_memory_tiling\n"
    return f'PARAMETERS: {{"tile": {tile}}}\n{fenced(source)}'


def test_numbers_that_a_models_kernel_names_are_changed_without_asking_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = "kernelblaster.nodes.optimization_proposer.table.Table.cards"
    monkeypatch.setattr(cards, lambda table: {})
    model = ScriptedChatModel(by_role={"kernel_writer": [written(80.0, 16)]})
    ran = run(tmp_path, monkeypatch, model, "kernel_writer", rewrites=(TILED,), steps=2)
    first, second = ran.steps
    assert (first.parameters, second.parameters) == ({"tile": 16}, {"tile": 32})
    assert second.parent_sha256 == first.child_sha256 and second.author == CURRENT
    assert second.reason in ("", "TILE 16 -> 32") and len(model.calls) == 1
    assert {str(row.earlier) for row in ran.evidence} == {"None", "{'tile': 16}"}
    source = new_source(tmp_path, str(second.child_sha256))
    assert re.search(r"^constexpr int TILE = 32;$", source, re.MULTILINE)


def test_a_kernel_that_breaks_by_its_number_says_nothing_of_the_technique(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = "kernelblaster.nodes.optimization_proposer.table.Table.cards"
    monkeypatch.setattr(cards, lambda table: {})
    model = ScriptedChatModel(by_role={"kernel_writer": [written(80.0, 16)]})

    def broken(text: str, values: Any) -> str:
        return f"{text}outcome: race\n// {values}\n"

    monkeypatch.setattr("kernelblaster.nodes.kernel_writer.builtin.with_numbers", broken)
    ran = run(tmp_path, monkeypatch, model, "kernel_writer", rewrites=(TILED,), steps=2)
    assert [step.outcome for step in ran.steps] == ["passed", "race"]
    assert [row.outcome for row in ran.evidence] == ["passed"] and len(model.calls) == 1
    assert ran.steps[1].evidence_id is None


def new_source(folder: Path, sha256: str) -> str:
    return (folder / "run" / "artifacts" / sha256[:2] / sha256[2:]).read_text()


def test_a_sweep_that_was_cut_off_is_the_same_one_when_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: None
) -> None:
    """The same path with the same seed, whether it was cut off or not."""
    paths = []
    for name in ("whole", "cut"):
        folder = new_folder(tmp_path, name)
        calls = iter(range(9))
        real = sweep.swept_on

        def killed(state: Any, calls: Any = calls, real: Any = real) -> Any:
            told = real(state)
            if next(calls) == 1:
                raise BrokenPipeError
            return told

        with monkeypatch.context() as patch:
            if name == "cut":
                patch.setattr(sweep, "swept_on", killed)
            try:
                run(folder, monkeypatch, ScriptedChatModel(), rewrites=(TILED,), steps=3)
                assert name == "whole"
            except BrokenPipeError:
                assert name == "cut"
        paths.append(resume(folder / "run").path)
    assert paths[0] == paths[1] and [step.parameters for step in paths[0]] == [{"tile": 32}]


def test_after_a_sweep_was_accepted_the_steps_go_on_from_its_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Number by number as long as it gains, no kernel twice, and nobody is asked for these."""
    cards = "kernelblaster.nodes.optimization_proposer.table.Table.cards"
    monkeypatch.setattr(cards, lambda table: {})
    times = {64: 95.0, 128: 80.0, 256: 50.0, 512: 60.0}
    kernel = "us: 80.0\nconstexpr int BLOCK_SIZE = 128;\n// launch()\n"
    first_reply = f'PARAMETERS: {{"block_size": 128}}\n{fenced(kernel)}'

    def timed(text: str, values: Mapping[str, int]) -> str:
        changed = with_numbers(text, values)
        if "us: " not in changed:
            return changed
        return re.sub(r"us: [\d.]+", f"us: {times[values['BLOCK_SIZE']]}", changed)

    for module in ("kernel_writer.builtin", "run.search.sweep"):
        monkeypatch.setattr(f"kernelblaster.nodes.{module}.with_numbers", timed)
    model = ScriptedChatModel(by_role={"kernel_writer": [first_reply]}, otherwise=KEPT)
    blocks = (TextRewrite("tune_block_size", 0.9),)
    ran = run(tmp_path, monkeypatch, model, "kernel_writer", rewrites=blocks, steps=4, repairs=0)
    steps = ran.steps
    assert [step.parameters["block_size"] for step in steps] == [128, 64, 256, 512]
    assert [step.microseconds_after for step in steps] == [80.0, 95.0, 50.0, 60.0]
    first, lost, won, last = steps
    assert lost.parent_sha256 == won.parent_sha256 == first.child_sha256
    assert last.parent_sha256 == won.child_sha256, "from what was accepted"
    assert len({step.child_sha256 for step in steps}) == 4
    assert len(model.calls) == 1 and ran.result.best_us == 50.0


KEPT = "NOT APPLICABLE: it is fast already."


def test_a_person_is_asked_of_a_sweep_and_what_they_reject_is_swept_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: None
) -> None:
    graph_support.install(monkeypatch.setattr, (TILED,))
    asked: list[Any] = []

    def answer(question: dict[str, Any]) -> str:
        return "accept" if len(asked) == 1 else "reject: one setting is enough"

    request = Asked.of(
        task="text.py", knowledge=str(tmp_path / "kb"), iterations=1, rollouts=1, steps=3,
        repairs=0, approve=("technique",),
    )  # fmt: skip
    session = request.session(tmp_path / "run")
    answers = None
    for _ in range(5):
        try:
            asyncio.run(session.run(answers=answers))
            break
        except Undecided as undecided:
            asked.extend(undecided.questions.values())
            answers = {key: answer(each) for key, each in undecided.questions.items()}
        finally:
            session.close()
        session = Session.open(tmp_path / "run")
    techniques = [question["technique"] for question in asked]
    assert techniques == [TILED.technique] * 2, "the second is the sweep's, and there is no third"
    assert asked[1]["parameters"] != asked[0]["parameters"]
    with RunStore(tmp_path / "run" / "run.sqlite") as store:
        (step,) = store.replay.steps()
    assert step.parameters == {"tile": 16}


@pytest.mark.parametrize(
    ("launch", "score", "kept"),
    [("two", 0.5, "two"), ("two", -0.5, "one"), ("one", 0.5, "one")],
)
async def test_a_sweep_displaces_nothing_that_promises_more_on_another_kernel(
    monkeypatch: pytest.MonkeyPatch, launch: str, score: float, kept: str
) -> None:
    def proposal(where: str, expected: float, setting: int) -> Proposal:
        told = ExpectedGain(mean_log=expected, std_log=0.1, success_probability=1.0, passed=1.0,
                            failed=1.0, trials=0.0, score=expected)  # fmt: skip
        return Proposal(
            technique="register_tiling", source="proposer", settings=({"tile": setting},),
            launch=where, expected=told,
        )  # fmt: skip

    monkeypatch.setattr(sweep, "swept_on", lambda state: [proposal("one", 0.1, 32)])
    state: Any = {"proposals": (proposal(launch, score, 64),)}
    (found,) = (await sweep.sweep(state))["proposals"]
    assert (found.launch, found.settings[0]["tile"]) == (kept, 32 if kept == "one" else 64)
