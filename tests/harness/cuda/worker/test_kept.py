"""What is known of a task outlives a worker, and is believed where a part of it is as it was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import simulated_kernels as kernels
import torch
from cuda_support import HostMachine, compile_c

from kernelblaster.harness.cuda.parent.answers import baseline_facts
from kernelblaster.harness.cuda.reports import MeasureAnswer
from kernelblaster.harness.cuda.worker.kept import Kept, KeptTimes
from kernelblaster.harness.cuda.worker.measure_run import _kept_times, measure_candidates
from kernelblaster.harness.cuda.worker.session import Clocked
from kernelblaster.harness.cuda.worker.task_context import Baseline, TaskContext
from kernelblaster.harness.cuda.worker.verify_run import verify
from kernelblaster.harness.judge.timing import Stopping
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.reference.cases.mutants import Mutants
from kernelblaster.harness.reference.precision import double_precision
from kernelblaster.harness.task.loading import load_task

TEXT = kernels.SCALE_TASK.replace("N = 4194304", "N = 1021")
SCALE = (
    "void launch(float* out0, const float* x, void* workspace, void* stream) "
    "{ for (int i = 0; i < 1021; i++) out0[i] = x[i] * 2.0f + 1.0f; }"
)
QUICK = Stopping(least=6, most=6, batch=6, warmup=1)


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("task") / "scale.py"
    path.write_text(TEXT)
    return asyncio.run(load_task(path))


def context_of(task: Task, folder: Path, machine: str = "a GPU") -> TaskContext:
    return TaskContext(task, "cpu", Kept(folder, task, machine))


def known(context: TaskContext) -> tuple[Any, ...]:
    # What double precision costs differs from time to time.
    plans = [replace(plan, exact=True) for plan in context.plans()]
    return (plans, context.constant_plans(), context.timed_tolerances, context.degenerate,
            context.weak_to)  # fmt: skip


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows whenever all cases are chosen: mutants are then tried."""
    grown: list[int] = []
    tried = Mutants.try_case

    def counted(*given: Any) -> None:
        grown.append(1)
        tried(*given)

    monkeypatch.setattr(Mutants, "try_case", counted)
    return grown


def test_another_worker_knows_the_cases(task: Task, tmp_path: Path, choices: list[int]) -> None:
    first = known(context_of(task, tmp_path))
    assert len(choices) == 7
    assert known(context_of(task, tmp_path)) == first == known(TaskContext(task, "cpu"))
    assert len(choices) == 14


def test_a_secrets_cases_are_not_kept(task: Task, tmp_path: Path) -> None:
    context = context_of(task, tmp_path)
    known(context)
    before = [path.read_text() for path in sorted(tmp_path.iterdir())]
    assert context.plans(77)[0].name == "secret-normal"
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == before


def test_cases_that_lacked_the_memory_for_double_precision_are_not_kept(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*given: Any) -> None:
        raise torch.OutOfMemoryError("none left")

    monkeypatch.setattr(double_precision, "double_run", none_left)
    kept = Kept(tmp_path, task, "a GPU")
    lacking = known(TaskContext(task, "cpu", kept, double_is_dispensable=True))
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    assert known(TaskContext(task, "cpu", kept)) != lacking
    assert list(tmp_path.iterdir())


def loosened(kept: dict[str, Any]) -> None:
    for plan in kept["plans"]:
        plan["tolerances"][0]["absolute"] *= 100


def shortened(kept: dict[str, Any]) -> None:
    del kept["plans"][3:]


def drawn_otherwise(kept: dict[str, Any]) -> None:
    for plan in kept["plans"]:
        plan["tolerances"] = [None]


def unknowing(kept: dict[str, Any]) -> None:
    for plan in kept["plans"]:
        plan["own_errors"] = [None]


@pytest.mark.parametrize("change", [loosened, shortened, drawn_otherwise, unknowing, None])
def test_what_is_not_as_it_was_is_found_out_anew(
    task: Task, tmp_path: Path, choices: list[int], change: Callable[[dict[str, Any]], None] | None
) -> None:
    first = known(context_of(task, tmp_path))
    (path,) = tmp_path.iterdir()
    if change is None:
        path.write_text(path.read_text()[:100])
    else:
        kept = json.loads(path.read_text())
        change(kept)
        path.write_text(json.dumps(kept))
    assert known(context_of(task, tmp_path)) == first
    assert len(choices) == 14
    known(context_of(task, tmp_path))
    assert len(choices) == 14, "what was found out anew is kept"


def test_another_machine_or_task_knows_nothing(
    task: Task, tmp_path: Path, choices: list[int]
) -> None:
    known(context_of(task, tmp_path))
    known(context_of(task, tmp_path, "another GPU"))
    other = task.model_copy(update={"reference_sha256": "0" * 64})
    known(context_of(other, tmp_path))
    assert len(choices) == 21


def test_a_folder_that_cannot_be_written_is_no_fault(task: Task, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert known(context_of(task, tmp_path / "file"))


def test_a_candidate_is_verified_on_the_kept_cases(task: Task, tmp_path: Path) -> None:
    known(context_of(task, tmp_path / "kept"))
    answer = verify(HostMachine(), context_of(task, tmp_path / "kept"),
                    compile_c(SCALE, tmp_path), lambda stage: None)  # fmt: skip
    assert len(answer["cases"]) == 7 and not answer["mismatches"]


class Clock(HostMachine):
    """A machine on which everything takes as long as it is told to."""

    def __init__(self, microseconds: float, late: bool = False) -> None:
        super().__init__()
        self.microseconds, self.late = microseconds, late
        self.asked = list[int]()

    def clock(self, call: Callable[[], Any], ahead: int = 1) -> Clocked:
        self.asked.append(ahead)
        call()
        return Clocked(self.microseconds, None, self.late)


def measured(task: Task, folder: Path, machine: HostMachine, **asked: bool) -> dict[str, Any]:
    (folder / "c").mkdir(exist_ok=True)
    programs = {"candidate": compile_c(SCALE, folder / "c")}
    return measure_candidates(
        machine, context_of(task, folder / "kept"), programs, lambda stage: None, stopping=QUICK,
        seed=7, with_eager=True, with_compile=True, **asked,
    )  # fmt: skip


@pytest.mark.parametrize("failure", ["", "NoCompiler: none here"])
def test_torch_compile_is_waited_for_once_a_machine(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    compiled: list[int] = []

    def compile(self: Baseline) -> str:
        compiled.append(1)
        self._compiled, self._compile_failure = self._instance.model, failure
        return failure

    monkeypatch.setattr(Baseline, "compile", compile)
    first = measured(task, tmp_path, Clock(100.0))
    assert ("compile" in first["samples"]) is not bool(failure)
    assert first["kept_compile"] == 0 and len(compiled) == 1
    again = measured(task, tmp_path, Clock(102.0))
    assert "compile" not in again["samples"] and len(compiled) == 1
    assert (again["kept_compile"], again["compile_failure"]) == (float(not failure), failure)
    facts = baseline_facts(MeasureAnswer(**again))
    assert facts["eager_us"] == 102.0 and facts.get("compile_us") == (None if failure else 102.0)
    assert ("compile_kept" in facts) is not bool(failure)
    measured(task, tmp_path, Clock(102.0), compile_anew=True)
    assert len(compiled) == 2
    measured(task, tmp_path, Clock(120.0))
    assert len(compiled) == 3, "eager takes another time than it did"


def test_times_are_believed_within_a_few_percent() -> None:
    kept = KeptTimes(eager=100.0, compiled=50.0)
    assert kept.is_confirmed_by(104.0) and kept.is_confirmed_by(96.0)
    assert not kept.is_confirmed_by(106.0) and not kept.is_confirmed_by(94.0)


@pytest.mark.parametrize(("microseconds", "repeated"), [(100.0, 7), (2e4, 0)])
def test_kept_times_are_compared_with_what_was_enqueued_ahead_unless_it_is_long(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, microseconds: float, repeated: int
) -> None:
    monkeypatch.setattr(Baseline, "compile", lambda self: "NoCompiler: none here")
    measured(task, tmp_path, Clock(microseconds))
    context = context_of(task, tmp_path / "kept")
    machine = Clock(microseconds, late=True)
    assert _kept_times(machine, context) is not None
    assert max(machine.asked) == 128 and len(machine.asked) == 8 + repeated
