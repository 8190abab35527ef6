"""Buffers, checks, verification and timing of the GPU worker, run without a GPU."""

from __future__ import annotations

import asyncio
import ctypes
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simulated_kernels as kernels
import torch
from cuda_support import HostCall, HostMachine, HostProgram, compile_c

from kernelblaster.harness.cuda.launching.buffers import PAINTINGS, PLACES, Buffers
from kernelblaster.harness.cuda.launching.candidate import Launch, Program
from kernelblaster.harness.cuda.parent.answers import Facts, baseline_facts
from kernelblaster.harness.cuda.present_gpus import FoundGpu, parse_line, visible
from kernelblaster.harness.cuda.reports import MeasureAnswer
from kernelblaster.harness.cuda.worker.main import TASKS_KEPT, Worker
from kernelblaster.harness.cuda.worker.measure_run import (
    TWO_SETS_ROOM,
    measure_candidates,
)
from kernelblaster.harness.cuda.worker.session import Clocked
from kernelblaster.harness.cuda.worker.task_context import Baseline, TaskContext
from kernelblaster.harness.cuda.worker.verify_run import verify
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.host.plan import Plan
from kernelblaster.harness.judge import tensor_comparison, verification
from kernelblaster.harness.judge.findings import judge
from kernelblaster.harness.judge.reports import CaseReport
from kernelblaster.harness.judge.timing import Stopping
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.records.tensors import TensorSpec, Tolerance
from kernelblaster.harness.task.loading import load_task
from kernelblaster.nodes.run.ending.circumstances import notes_of

TASK = kernels.SCALE_TASK.replace("N = 4194304", "N = 1021")
LAUNCH = "void launch(float* out0, const float* x, void* workspace, void* stream)"
SCALE = f"{LAUNCH} {{ for (int i = 0; i < 1021; i++) out0[i] = x[i] * 2.0f + 1.0f; }}"
QUICK = Stopping(least=4, most=8, batch=4, seconds=0.5, warmup=1)


@pytest.fixture(scope="module")
def machine() -> HostMachine:
    return HostMachine()


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("task") / "scale.py"
    path.write_text(TASK)
    return asyncio.run(load_task(path))


@pytest.fixture(scope="module")
def context(task: Task) -> TaskContext:
    return TaskContext(task, "cpu")


def spec(name: str, shape: tuple[int, ...], role: str, dtype: str = "float32") -> TensorSpec:
    return TensorSpec.model_validate({"name": name, "shape": shape, "dtype": dtype, "role": role})


# ---- buffers ----


def buffers() -> tuple[Buffers, dict[str, torch.Tensor]]:
    tensors = (spec("out0", (5,), "output"), spec("x", (2, 3), "input", "float16"))
    return Buffers(tensors, 100, torch.device("cpu")), {"x": torch.randn(2, 3).half()}


def test_outputs_are_poisoned_and_inputs_are_copied() -> None:
    made, values = buffers()
    made.fill(values, place=3, painting=PAINTINGS[0])
    assert made.view(made.tensors[0]).isnan().all()
    assert torch.equal(made.view(made.tensors[1]), values["x"])
    assert made.damage() == [] and made.modified(values) == []
    # The host allocator aligns to 64 bytes; the GPU's, which these buffers are for, to 256.
    places = list(made.addresses().values())
    assert all(place % 64 == places[0] % 64 for place in places) and len(places) == 3


def test_addresses_and_poison_differ_between_two_runs() -> None:
    made, values = buffers()
    made.fill(values, place=0, painting=PAINTINGS[0])
    first, poison = made.addresses(), made.output_bytes()[0].clone()
    made.fill(values, place=1, painting=PAINTINGS[1])
    assert not set(first.values()) & set(made.addresses().values())
    assert not torch.equal(poison, made.output_bytes()[0])
    made.fill(values, place=PLACES, painting=PAINTINGS[0])
    assert made.addresses() == first


@pytest.mark.parametrize(
    ("offset", "words"), [(20, "1 bytes past the end of out0"), (-1, "1 bytes before the start")]
)
@pytest.mark.parametrize("painting", PAINTINGS)
def test_one_byte_outside_is_seen(offset: int, words: str, painting: Any) -> None:
    made, values = buffers()
    made.fill(values, place=2, painting=painting)
    ctypes.memset(made.addresses()["out0"] + offset, 0x11, 1)
    assert words in made.damage()[0]


def test_a_changed_input_is_seen() -> None:
    made, values = buffers()
    made.fill(values, place=0, painting=PAINTINGS[0])
    ctypes.memset(made.addresses()["x"], 0x11, 1)
    assert made.modified(values) == ["x"]


# ---- comparison ----


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "bool"])
def test_comparison_agrees_with_the_one_on_files(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_comparison, "CHUNK", 7)
    tolerance = Tolerance(absolute=0.0 if dtype in ("int32", "bool") else 1e-2, relative=1e-2)
    generator = torch.Generator().manual_seed(1)
    expected = (torch.randn(6, 5, generator=generator) * 3).to(getattr(torch, dtype))
    for places in ([], [(2, 3)], [(1, 1), (4, 0)], [(0, 0)]):
        got = expected.clone()
        for place in places:
            got[place] = not got[place] if dtype == "bool" else got[place] * 2 + 1
        if dtype.startswith("float"):
            got[5, 4] = expected[5, 4] = float("nan")
            got[5, 3] = expected[5, 3] = float("inf")
        described = spec("out0", (6, 5), "output", dtype)
        found = tensor_comparison.compare(got, expected, tolerance, "out0")
        on_files = verification.compare(raw(got), raw(expected), described, tolerance)
        assert (found is None) == (not places)
        if found is not None and on_files is not None:
            assert (found.index, found.count, found.region, found.total) == (
                on_files.index, on_files.count, on_files.region, on_files.total,
            )  # fmt: skip
            assert found.largest_error == pytest.approx(on_files.largest_error)


def test_infinity_and_nan_agree_with_themselves_only() -> None:
    loose = Tolerance(absolute=1e30, relative=1e30)
    inf, nan, one = (torch.tensor([value]) for value in (float("inf"), float("nan"), 1.0))
    for got, expected, agree in [
        (inf, inf, True), (nan, nan, True), (inf, -inf, False), (nan, inf, False),
        (one, inf, False), (one, nan, False), (inf, one, False),
    ]:  # fmt: skip
        assert (tensor_comparison.compare(got, expected, loose, "out0") is None) == agree


def raw(tensor: torch.Tensor) -> bytes:
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.view(torch.int16)
    return np.asarray(tensor).tobytes()


# ---- verification ----


def run_verify(
    machine: HostMachine, context: TaskContext, folder: Path, source: str
) -> tuple[dict[str, Any], list[str]]:
    stages: list[str] = []
    return verify(machine, context, compile_c(source, folder), stages.append), stages


def test_a_right_answer_passes_every_case(
    machine: HostMachine, context: TaskContext, tmp_path: Path
) -> None:
    answer, stages = run_verify(machine, context, tmp_path, SCALE)
    assert len(answer["cases"]) >= 6 and not answer["mismatches"] and answer["repeat"] is None
    assert all(judge(CaseReport(**case)) is None for case in answer["cases"])
    assert answer["facts"]["precision_ratio"] <= 2
    assert answer["facts"]["precision_cases"] == answer["facts"]["cases"]
    assert stages[0] == "candidate" and stages.count("candidate") == len(answer["cases"]) + 1


WRONG: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "wrong answer": (
        f"{LAUNCH} {{ for (int i = 0; i < 1021; i++) out0[i] = x[i] * 2.0f + (i != 7); }}",
        lambda answer: answer["mismatches"][0][1],
    ),
    "part of the output": (
        f"{LAUNCH} {{ for (int i = 0; i < 1020; i++) out0[i] = x[i] * 2.0f + 1.0f; }}",
        lambda answer: answer["mismatches"][0][1],
    ),
    "past the end": (
        f"{LAUNCH} {{ for (int i = 0; i < 1022; i++) out0[i] = x[i] * 2.0f + 1.0f; }}",
        lambda answer: answer["cases"][-1]["guards"][0],
    ),
    "changes its input": (
        f"{SCALE[:-1]} ((float*)x)[3] = 0.5f; }}",
        lambda answer: answer["cases"][-1]["modified"][0],
    ),
    "reads past the end": (
        f"{LAUNCH} {{ for (int i = 0; i < 1021; i++) "
        "out0[i] = x[i] * 2.0f + (x[i + 1] != x[i + 1] ? 0.f : 1.0f); }",
        lambda answer: answer["mismatches"][0][1],
    ),
    "remembers an address": (
        f"#include <string.h>\nstatic const void* seen[64]; static float kept[64][1021];\n"
        f"{LAUNCH} {{ int k = 0; while (k < 63 && seen[k] && seen[k] != x) k++; "
        "if (!seen[k]) { seen[k] = x; "
        "for (int i = 0; i < 1021; i++) kept[k][i] = x[i] * 2.0f + 1.0f; } "
        "memcpy(out0, kept[k], sizeof kept[k]); }",
        lambda answer: answer["mismatches"][0][1],
    ),
    "another answer when called again": (
        f"static int calls; {LAUNCH} {{ float one = calls++ % 2 ? 1.01f : 1.0f; "
        "for (int i = 0; i < 1021; i++) out0[i] = x[i] * 2.0f + one; }",
        lambda answer: answer["repeat"][1],
    ),
    "depends on its workspace": (
        "unsigned long workspace_bytes(void) { return 4; }\n"
        f"{LAUNCH} {{ float add = *(unsigned char*)workspace == 0xff ? 1.0f : 1.5f; "
        "for (int i = 0; i < 1021; i++) out0[i] = x[i] * 2.0f + add; }",
        lambda answer: answer["repeat"][1],
    ),
    "too much workspace": (
        f"{SCALE} unsigned long workspace_bytes(void) {{ return 1ul << 40; }}",
        lambda answer: str(answer["cases"][0]["faults"][0]),
    ),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_a_wrong_candidate_is_refused(
    machine: HostMachine, context: TaskContext, tmp_path: Path, name: str
) -> None:
    source, reason = WRONG[name]
    answer, _ = run_verify(machine, context, tmp_path, source)
    assert reason(answer)


def test_what_takes_long_is_run_twice_on_some_cases_and_on_all_when_it_is_confirmed(
    machine: HostMachine, context: TaskContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelblaster.harness.cuda.worker.verify_run.REPEAT_SECONDS", 0.0)
    # Wrong in second runs, from the third case on.
    source = (
        f"static int calls; {LAUNCH} {{ float one = ++calls > 5 && calls % 2 == 0 ? 1.5f : 1.0f; "
        "for (int i = 0; i < 1021; i++) out0[i] = x[i] * 2.0f + one; }"
    )
    program = compile_c(SCALE, tmp_path)
    quick = verify(machine, context, program, lambda stage: None)
    assert quick["facts"]["repeated_cases"] == 2 < quick["facts"]["cases"]
    assert not quick["mismatches"] and quick["repeat"] is None
    confirmed = verify(machine, context, program, lambda stage: None, secret=7)
    assert confirmed["facts"]["repeated_cases"] == confirmed["facts"]["cases"]
    (tmp_path / "changing").mkdir()
    program = compile_c(source, tmp_path / "changing")
    changing = verify(machine, context, program, lambda stage: None, secret=7)
    assert changing["repeat"] is not None


def test_a_task_that_zeros_pass_is_degenerate(tmp_path: Path, machine: HostMachine) -> None:
    path = tmp_path / "nothing.py"
    path.write_text(TASK.replace("x * 2.0 + 1.0", "x * 0.0"))
    context = TaskContext(asyncio.run(load_task(path)), "cpu")
    answer, _ = run_verify(machine, context, tmp_path, SCALE)
    assert "zeros" in answer["degenerate"]
    reading = context.task.reading.model_copy(update={"allow_degenerate": True})
    context.task = context.task.model_copy(update={"reading": reading})
    answer, _ = run_verify(machine, context, tmp_path, SCALE)
    assert answer["degenerate"] == "" and answer["mismatches"]


def test_half_precision_is_reported_by_its_ratio(
    machine: HostMachine, context: TaskContext, tmp_path: Path
) -> None:
    rounded = SCALE.replace("x[i] * 2.0f + 1.0f", "r(x[i] * 2.0f + 1.0f)")
    # Eight bits of the fraction are dropped: within the tolerance, far from float32.
    drop = "static float r(float v) { int b; __builtin_memcpy(&b, &v, 4); b &= ~0xff; "
    drop += "__builtin_memcpy(&v, &b, 4); return v; }\n"
    answer, _ = run_verify(machine, context, tmp_path, drop + rounded)
    assert not answer["mismatches"] and answer["facts"]["precision_ratio"] > 50


# ---- timing ----


def run_measure(
    machine: HostMachine, context: TaskContext, folder: Path, *sources: str
) -> dict[str, Any]:
    programs = {}
    for number, source in enumerate(sources):
        place = folder / str(number)
        place.mkdir()
        programs[f"candidate{number}"] = compile_c(source, place)
    return measure_candidates(
        machine, context, programs, lambda stage: None, stopping=QUICK, seed=7,
        with_eager=len(sources) == 1, with_compile=False,
    )  # fmt: skip


def test_a_candidate_is_timed_beside_eager(
    machine: HostMachine, context: TaskContext, tmp_path: Path
) -> None:
    answer = run_measure(machine, context, tmp_path, SCALE)
    assert set(answer["samples"]) == {"candidate0", "eager"}
    rounds = len(answer["samples"]["candidate0"])
    assert rounds == len(answer["samples"]["eager"]) >= QUICK.least
    assert answer["checked"] == rounds + QUICK.warmup
    assert answer["sets"] == 3


class TimedLaunches(HostMachine):
    """A machine that says what each launch of a candidate takes, and counts who asks."""

    def __init__(self, *microseconds: float) -> None:
        super().__init__()
        self.microseconds, self.asked, self.calls = microseconds, 0, 0

    def load(self, program: Program) -> HostProgram:
        machine = self

        class Call(HostCall):
            def __call__(self) -> None:
                super().__call__()
                machine.calls += 1

            def launches(self) -> list[Launch]:
                place = machine.asked % len(machine.microseconds)
                machine.asked += 1
                return [Launch("k", (1, 1, 1), (32, 1, 1), 0, machine.microseconds[place])]

        class Timed(HostProgram):
            def prepare(self, buffers: Buffers) -> HostCall:
                return Call(self._library.launch, buffers)

            prepare_timed = prepare

        return Timed(program)


@pytest.mark.parametrize(
    ("microseconds", "asked", "further"),
    [
        ((70.0, 50.0, 40.0, 60.0, 80.0), 5, 4),  # One in the warm-up, others after the rounds.
        ((7000.0, 5000.0), 2, 1),
        ((20000.0,), 1, 0),
    ],
)
def test_launches_are_told_by_the_warm_up_and_by_further_calls_where_these_are_short(
    microseconds: tuple[float, ...], asked: int, further: int, context: TaskContext, tmp_path: Path
) -> None:
    machine = TimedLaunches(*microseconds)
    answer = run_measure(machine, context, tmp_path, SCALE)
    assert [each["microseconds"] for each in answer["launches"]] == [min(microseconds)]
    rounds = len(answer["samples"]["candidate0"])
    assert machine.asked == asked and machine.calls == QUICK.warmup + rounds + further
    # Of two candidates that are compared it is the first that is described.
    machine = TimedLaunches(*microseconds)
    two = tmp_path / "two"
    two.mkdir()
    run_measure(machine, context, two, SCALE, SCALE)
    assert machine.asked == asked


class LateHost(HostMachine):
    """A host that takes so many flushes of the GPU to enqueue a call of PyTorch's."""

    def __init__(self, flushes: int, microseconds: float = 500.0) -> None:
        super().__init__()
        self.flushes, self.asked = flushes, list[int]()
        self.microseconds = microseconds

    def clock(self, call: Callable[[], Any], ahead: int = 1) -> Clocked:
        is_pytorch = not isinstance(call, HostCall)
        if is_pytorch:
            self.asked.append(ahead)
        call()
        late = is_pytorch and ahead < self.flushes
        return Clocked(self.microseconds if late else 20.0, None, late, 90.0 if is_pytorch else 1.0)


@pytest.mark.parametrize(("flushes", "enough"), [(1, 1), (6, 8), (128, 128)])
def test_pytorch_is_timed_where_all_of_it_was_enqueued_before(
    flushes: int, enough: int, context: TaskContext, tmp_path: Path
) -> None:
    machine = LateHost(flushes)
    answer = run_measure(machine, context, tmp_path, SCALE)
    assert set(answer["samples"]["eager"]) == {20.0} and not answer["disturbed"]
    # It is found out once.
    rounds = len(answer["samples"]["eager"]) + QUICK.warmup
    assert machine.asked == [2**n for n in range(enough.bit_length() - 1)] + [enough] * rounds
    told = facts_beside_pytorch(answer)
    assert told["eager_host_us"] == 90.0
    assert "(90 us for 20)" in " ".join(notes_of(told))


def test_pytorch_that_waits_on_its_way_is_timed_all_the_same_and_it_is_told(
    context: TaskContext, tmp_path: Path
) -> None:
    answer = run_measure(LateHost(10**9), context, tmp_path, SCALE)
    rounds = len(answer["samples"]["eager"]) + QUICK.warmup
    assert set(answer["samples"]["eager"]) == {500.0}
    assert rounds - 1 <= answer["disturbed"]["eager"] <= rounds
    assert "eager_host_us" not in facts_beside_pytorch(answer)
    assert "may partly be the host's" in " ".join(notes_of(facts_beside_pytorch(answer)))


def test_a_pytorch_that_changes_its_inputs_is_given_them_anew_before_it_is_run_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "inplace.py"
    path.write_text(TASK.replace("return x * 2.0 + 1.0", "return x.mul_(2.0).add_(1.0)"))
    context = TaskContext(asyncio.run(load_task(path)), "cpu")
    seen = list[float]()
    eager = Baseline.eager

    def note(self: Baseline) -> None:
        seen.append(float(self._tensors["x"].abs().max()))
        eager(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Baseline, "eager", note)
        run_measure(LateHost(128), context, tmp_path, SCALE)
    assert len(seen) > 10 and max(seen[1:]) < 4 * min(seen[1:])


def test_a_long_call_is_not_run_again(context: TaskContext, tmp_path: Path) -> None:
    machine = LateHost(10**9, microseconds=2e4)
    answer = run_measure(machine, context, tmp_path, SCALE)
    assert len(machine.asked) == len(answer["samples"]["eager"]) + QUICK.warmup


def test_running_pytorch_again_is_none_of_the_candidates_time(
    context: TaskContext, tmp_path: Path
) -> None:
    machine, stages = LateHost(64), list[str]()
    program = {"candidate": compile_c(SCALE, tmp_path)}
    measure_candidates(machine, context, program, stages.append, stopping=QUICK, seed=7,
                       with_eager=True, with_compile=False)  # fmt: skip
    assert stages.count("reference") > QUICK.least + 5 and stages[-1] == "candidate"


def facts_beside_pytorch(answer: dict[str, Any]) -> Facts:
    """Return the facts of an answer about one candidate."""
    samples = {"candidate": answer["samples"]["candidate0"], "eager": answer["samples"]["eager"]}
    return baseline_facts(MeasureAnswer(**answer | {"samples": samples}))


def test_what_still_runs_after_a_timed_call_and_fails_is_the_candidates_fault(
    context: TaskContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, clocked = HostMachine(), []
    clock = machine.clock

    def note(call: Callable[[], Any], ahead: int) -> Clocked:
        clocked.append(call)
        return clock(call, ahead)

    monkeypatch.setattr(machine, "clock", note)
    fault = ("illegal_address", "an illegal memory access was encountered")
    monkeypatch.setattr(machine, "finish_device", lambda: fault if clocked else None)
    answer = run_measure(machine, context, tmp_path, SCALE)
    assert answer["failed"] == "candidate0"
    assert answer["case"]["faults"] == [fault] and not answer["samples"]


@pytest.mark.parametrize("op", ["verify", "measure"])
def test_a_candidate_is_unloaded_where_trusted_work_finds_no_memory(
    op: str, context: TaskContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    class Noted(HostProgram):
        def close(self) -> None:
            closed.append(self)

    machine = HostMachine()
    monkeypatch.setattr(machine, "load", Noted)
    context.plans()

    def lacking(*_: object) -> None:
        raise torch.OutOfMemoryError("none left")

    monkeypatch.setattr(context, "answers", lacking)
    with pytest.raises(torch.OutOfMemoryError):
        (run_verify if op == "verify" else run_measure)(machine, context, tmp_path, SCALE)
    assert len(closed) == 1


def test_few_late_samples_are_not_told() -> None:
    samples = {"candidate": [1.0] * 20, "eager": [2.0] * 20}
    for disturbed, told in ((5, False), (6, True)):
        answer = MeasureAnswer(samples=samples, disturbed={"eager": disturbed, "compile": 1})
        assert ("host_late" in baseline_facts(answer)) is told


def with_sets(
    machine: HostMachine, context: TaskContext, sets: int, patch: pytest.MonkeyPatch
) -> None:
    """Have memory for so many sets of inputs."""
    rooms = {3: TWO_SETS_ROOM * 3, 2: TWO_SETS_ROOM, 1: TWO_SETS_ROOM - 1}[sets]
    free = rooms * sum(each.nbytes for each in context.tensors)
    patch.setattr(machine, "free_bytes", lambda: free)


@pytest.mark.parametrize("sets", [1, 2, 3])
def test_an_honest_candidate_passes_where_drawing_inputs_takes_long(
    machine: HostMachine,
    context: TaskContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sets: int,
) -> None:
    with_sets(machine, context, sets, monkeypatch)
    monkeypatch.setattr("kernelblaster.harness.cuda.worker.measure_run.DRAW_SECONDS", -1.0)
    answer = run_measure(machine, context, tmp_path, SCALE)
    assert answer["samples"] and answer["sets"] == sets


@pytest.mark.parametrize("slow_to_draw", [False, True])
def test_symmetric_inputs_stay_symmetric_in_timed_rounds(
    machine: HostMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_to_draw: bool
) -> None:
    if slow_to_draw:
        monkeypatch.setattr("kernelblaster.harness.cuda.worker.measure_run.DRAW_SECONDS", -1.0)
    text = TASK.replace("return x * 2.0 + 1.0", "return x + x.T").replace(
        "[torch.randn(N)]", "[(lambda a: a + a.T)(torch.randn(N, N))]"
    )
    path = tmp_path / "symmetric.py"
    path.write_text(text.replace("N = 1021", "N = 24"))
    context = TaskContext(asyncio.run(load_task(path)), "cpu")
    # Reads the lower triangle alone.
    honest = (
        f"{LAUNCH} {{ for (int i = 0; i < 24; i++) for (int j = 0; j < 24; j++) "
        "out0[24 * i + j] = 2.0f * x[i > j ? 24 * i + j : 24 * j + i]; }"
    )
    assert run_measure(machine, context, tmp_path, honest)["samples"]


def test_small_answers_are_judged_by_their_own_size(machine: HostMachine, tmp_path: Path) -> None:
    path = tmp_path / "softmax.py"
    path.write_text(
        TASK.replace("N = 1021", "N = 20000")
        .replace("return x * 2.0 + 1.0", "return torch.softmax(x, dim=0)")
        .replace("torch.randn", "torch.rand")
    )
    context = TaskContext(asyncio.run(load_task(path)), "cpu")
    context.plans()
    assert context.degenerate == ""
    zeros = f"#include <string.h>\n{LAUNCH} {{ memset(out0, 0, 80000); }}"
    answer = verify(machine, context, compile_c(zeros, tmp_path), lambda stage: None)
    assert answer["mismatches"][0][0] == "seed0-normal"


def test_a_task_whose_usual_answer_is_nothing_is_told(tmp_path: Path) -> None:
    path = tmp_path / "nothing.py"
    path.write_text(TASK.replace("return x * 2.0 + 1.0", "return torch.relu(x - 100.0)"))
    context = TaskContext(asyncio.run(load_task(path)), "cpu")
    context.plans()
    assert "like those of get_inputs()" in context.weak_to and not context.degenerate


def test_the_answer_to_a_round_lies_nowhere_while_candidates_run(
    machine: HostMachine, context: TaskContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What PyTorch was asked before is never what a candidate is asked."""
    answered: set[float] = set()
    found: list[float] = []
    baseline = context.baseline()
    eager, poison = baseline.eager, Buffers.poison

    def watched_eager() -> None:
        answered.add(float(next(iter(baseline._tensors.values()))[0]))
        eager()

    def watched_poison(buffers: Buffers) -> None:
        asked = float(buffers.view(buffers.tensors[-1])[0])
        if asked in answered:
            found.append(asked)
        poison(buffers)

    monkeypatch.setattr(baseline, "eager", watched_eager)
    monkeypatch.setattr(Buffers, "poison", watched_poison)
    assert run_measure(machine, context, tmp_path, SCALE)["samples"]
    assert len(answered) > QUICK.least and not found


def test_two_candidates_are_timed_together(
    machine: HostMachine, context: TaskContext, tmp_path: Path
) -> None:
    answer = run_measure(machine, context, tmp_path, SCALE, SCALE)
    assert set(answer["samples"]) == {"candidate0", "candidate1"}


CHEATS = {
    "stops working after some calls": (
        f"static int calls; {LAUNCH} {{ if (calls++ < 5) "
        "for (int i = 0; i < 1021; i++) out0[i] = x[i] * 2.0f + 1.0f; }"
    ),
    "keeps the answers of sets seen before": WRONG["remembers an address"][0],
    "scales what it remembers": (
        "#include <math.h>\n#include <string.h>\nstatic float known[8][1021]; static int used;\n"
        f"{LAUNCH} {{ for (int k = 0; k < used; k++) {{ float f = x[0] / known[k][0], g = x[1] / "
        "known[k][1]; if (fabsf(f / g - 1) < 0.02f && fabsf(f - 1) < 0.2f) { "
        "for (int i = 0; i < 1021; i++) out0[i] = known[k][i] * f * 2.0f + 1.0f; return; } } "
        "memcpy(known[used++ % 8], x, sizeof *known); if (used > 8) used = 8; "
        "for (int i = 0; i < 1021; i++) out0[i] = x[i] * 2.0f + 1.0f; }"
    ),
    "past the end now and then": (
        f"static int calls; {SCALE[:-1]} if (calls++ == 3) out0[1021] = 0.0f; }}"
    ),
}


@pytest.mark.parametrize("sets", [1, 2, 3])
@pytest.mark.parametrize("slow_to_draw", [False, True])
@pytest.mark.parametrize("name", list(CHEATS))
def test_timed_runs_are_verified_too(
    machine: HostMachine,
    context: TaskContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    slow_to_draw: bool,
    sets: int,
) -> None:
    with_sets(machine, context, sets, monkeypatch)
    if slow_to_draw:
        monkeypatch.setattr("kernelblaster.harness.cuda.worker.measure_run.DRAW_SECONDS", -1.0)
    answer = run_measure(machine, context, tmp_path, CHEATS[name])
    assert answer["failed"] == "candidate0"
    assert answer["mismatch"] or judge(CaseReport(**answer["case"]))


# ---- the worker ----


def test_the_rehearsal_is_the_trusted_work_alone(
    machine: HostMachine, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: Any = machine
    worker, stages = Worker(served, tmp_path), list[str]()
    described = task.model_dump(mode="json")
    allocated: list[int] = []
    made = Buffers.__init__

    def counted(self: Buffers, tensors: Any, size: int, device: torch.device) -> None:
        allocated.append(size)
        made(self, tensors, size, device)

    monkeypatch.setattr(Buffers, "__init__", counted)
    for work, buffers in (("verify", 1), ("measure", 3)):
        allocated.clear()
        answer = worker.serve({"op": "rehearse", "of": work, "task": described}, stages.append)
        assert not answer.get("task_error") and not answer.get("worker_error"), answer
        assert not answer["candidate_loaded"] and allocated == [0] * buffers
    assert set(stages) == {"reference"}


def test_memory_that_does_not_suffice_is_told_apart_and_everything_let_go(
    machine: HostMachine, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: Any = machine
    properties = type("Properties", (), {"total_memory": 141 << 30})
    monkeypatch.setattr(machine, "properties", properties)
    worker = Worker(served, tmp_path)
    described = task.model_dump(mode="json")
    inputs = worker.serve({"op": "inputs", "task": described}, lambda name: None)["inputs"]

    def none_left(*given: Any) -> None:
        raise torch.OutOfMemoryError("none left")

    monkeypatch.setattr(Buffers, "__init__", none_left)
    for request in requests(task, compile_c(SCALE, tmp_path)).values():
        for others, words in ((0, "GPU has (141 GiB): choose"), (40 << 30, "(101 of 141 GiB): w")):
            monkeypatch.setattr(machine, "others", others)
            answer = worker.serve(request, lambda name: None)
            assert answer["out_of_memory"] and answer["candidate_loaded"]
            assert words in answer["task_error"]
    assert not any(Path(path).exists() for path in inputs.values())


DOUBLES = "(_ for _ in ()).throw(torch.OutOfMemoryError('none left'))"


@pytest.fixture(params=[False, True], ids=["small", "large"])
def large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether tasks are large beside the GPU's memory."""
    if request.param:
        monkeypatch.setattr("kernelblaster.harness.cuda.gpu_lock.DOUBLE_PART", 0.0)
    return bool(request.param)


def test_only_a_large_task_does_without_double_precision_where_memory_is_short(
    machine: HostMachine, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    served: Any = machine
    source = task.source.replace(
        "return x * 2.0 + 1.0",
        f"return {DOUBLES} if x.dtype is torch.float64 else x * 2.0 + 1.0",
    )
    hungry = task.model_copy(update={"source": source, "reference_sha256": "2" * 64})
    properties = type("Properties", (), {"total_memory": 141 << 30})
    monkeypatch.setattr(machine, "properties", properties)
    worker = Worker(served, tmp_path)
    answer = worker.serve(requests(hungry, compile_c(SCALE, tmp_path))["verify"], lambda name: None)
    if large:
        assert not answer["mismatches"] and "does not suffice" in answer["facts"]["without_double"]
    else:
        assert answer["out_of_memory"] and not worker._tasks
        assert "more memory than this GPU has" in answer["task_error"]


@pytest.mark.parametrize("large", [False, True])
def test_an_idle_worker_holds_nothing_large_but_what_a_measurement_waits_for(
    machine: HostMachine, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    served: Any = machine
    if large:
        monkeypatch.setattr("kernelblaster.harness.cuda.gpu_lock.HELD_PART", 0.0)
    worker = Worker(served, tmp_path)
    measured = requests(task, compile_c(SCALE, tmp_path))["measure"]
    held = []
    for op in ("prepare", "measure"):
        worker.serve({**measured, "op": op}, lambda name: None)
        (context,) = worker._tasks.values()
        held.append(context._baseline is not None)
    assert held == [True, not large]


def test_input_files_go_with_their_task(
    machine: HostMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: Any = machine
    worker = Worker(served, tmp_path)
    written = []
    for number in range(TASKS_KEPT + 1):
        path = tmp_path / f"scale{number}.py"
        path.write_text(TASK.replace("1021", str(1021 + number)))
        described = asyncio.run(load_task(path)).model_dump(mode="json")
        answer = worker.serve({"op": "inputs", "task": described}, lambda name: None)
        written.append(Path(answer["inputs"]["x"]))
        assert written[-1].stat().st_size == 4 * (1021 + number)
    assert [path.exists() for path in written] == [False] + TASKS_KEPT * [True]


def test_large_floating_inputs_are_written_in_part(
    machine: HostMachine, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelblaster.harness.cuda.worker.input_files.WHOLE_BYTES", 400)
    served: Any = machine
    described = task.model_dump(mode="json")
    answer = Worker(served, tmp_path).serve({"op": "inputs", "task": described}, lambda name: None)
    own = TaskContext(task, "cpu")
    values = own.instance_of(own.plans()[0]).inputs["x"]
    assert Path(answer["inputs"]["x"]).read_bytes() == raw(values)[:400]


def requests(task: Task, program: Program) -> dict[str, dict[str, Any]]:
    described = task.model_dump(mode="json")
    told = {"image": str(program.image), "plan": asdict(program.plan)}
    measured = {"op": "measure", "programs": {"candidate": told}, "task": described,
                "stopping": QUICK.model_dump(), "seed": 1, "with_eager": True,
                "with_compile": False, "compile_anew": False}  # fmt: skip
    return {
        "verify": {"op": "verify", "program": told, "task": described},
        "measure": measured,
    }


def test_the_worker_answers_in_json(machine: HostMachine, task: Task, tmp_path: Path) -> None:
    served: Any = machine
    worker, stages = Worker(served, tmp_path), list[str]()
    for op, request in requests(task, compile_c(SCALE, tmp_path)).items():
        answer = worker.serve(request, stages.append)
        json.dumps(answer)
        assert answer["candidate_loaded"] and not answer["broken"], answer
        assert ("samples" if op == "measure" else "cases") in answer
    assert stages[0] == "reference" and set(stages) == {"reference", "candidate"}


def test_the_worker_tells_what_is_wrong_with_a_task(
    machine: HostMachine, task: Task, tmp_path: Path
) -> None:
    served: Any = machine
    missing = Program(tmp_path / "none.so", Plan((), 0, {}, 0.0))
    request = requests(task, missing)["verify"]
    raising = task.source.replace("return x * 2.0 + 1.0", "raise ValueError('no luck')")
    described = task.model_copy(update={"source": raising, "reference_sha256": "0" * 64})
    worker = Worker(served, tmp_path)
    answer = worker.serve({**request, "task": described.model_dump(mode="json")}, lambda name: None)
    assert "no luck" in answer["task_error"] and not answer["candidate_loaded"]
    hungry = task.source.replace("return x * 2.0 + 1.0", "raise torch.OutOfMemoryError('')")
    described = task.model_copy(update={"source": hungry, "reference_sha256": "1" * 64})
    machine.properties = type("Properties", (), {"total_memory": 141 << 30})
    answer = worker.serve({**request, "task": described.model_dump(mode="json")}, lambda name: None)
    assert "more memory than this GPU has (141 GiB)" in answer["task_error"]
    # A library that is not there is the harness's fault: told, and the worker goes on.
    assert "none.so" in worker.serve(request, lambda name: None)["worker_error"]


# ---- which GPU ----


def gpu(index: int, uuid: str = "GPU-0") -> FoundGpu:
    return FoundGpu(index=index, uuid=uuid, name="NVIDIA H200", capability=(9, 0),
                    memory_bytes=1, driver="580.1")  # fmt: skip


def test_a_line_of_nvidia_smi_is_read() -> None:
    found = parse_line("0, GPU-6bd1c9d6, NVIDIA H200, 9.0, 143771, 580.159.03")
    assert found is not None and found.arch == "sm_90a" and found.memory_bytes == 143771 << 20
    ada = parse_line("1, GPU-1, NVIDIA L40S, 8.9, [N/A], 580.1")
    assert ada is not None and ada.arch == "sm_89" and ada.memory_bytes == 0
    assert parse_line("No devices were found") is None


def test_visible_devices_are_respected() -> None:
    both = gpu(0, "GPU-aa"), gpu(1, "GPU-bb")
    assert visible(both, None) == both
    assert visible(both, "1,0") == (both[1], both[0])
    assert visible(both, "GPU-bb") == (both[1],)
    assert visible(both, "1,7,0") == (both[1],)
    for hidden in ("", "-1", "GPU-cc"):
        with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES"):
            visible(both, hidden)


def test_the_runtime_of_this_process_is_found(tmp_path: Path) -> None:
    from kernelblaster.harness.cuda.worker.session import loaded_runtime

    maps = tmp_path / "maps"
    line = "7f-80 r-xp 00000000 08:01 12 {}\n"
    maps.write_text(line.format("/usr/lib/libc.so.6") + line.format("/x y/lib/libcudart.so.13"))
    assert loaded_runtime(maps) == Path("/x y/lib/libcudart.so.13")
    maps.write_text(line.format("/usr/lib/libc.so.6"))
    with pytest.raises(OSError, match="shared library"):
        loaded_runtime(maps)


def test_a_large_task_that_finds_no_memory_is_asked_again_without_double_precision(
    machine: HostMachine, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    served: Any = machine
    asked: list[bool] = []

    def only_without(context: TaskContext, *given: Any) -> Any:
        asked.append(context.reference.lacked_memory_for_double)
        if not asked[-1]:
            raise torch.OutOfMemoryError("none left")
        return plans(context, *given)

    plans = TaskContext.plans
    monkeypatch.setattr(TaskContext, "plans", only_without)
    worker = Worker(served, tmp_path)
    request = requests(task, compile_c(SCALE, tmp_path))["verify"]
    answer = worker.serve(request, lambda name: None)
    assert asked[:2] == ([False, True] if large else [False])
    if not large:
        assert answer["out_of_memory"] and not worker._without_double
        return
    assert not answer["mismatches"] and "does not suffice" in answer["facts"]["without_double"]
    asked.clear()
    worker.serve(request, lambda name: None)
    assert asked and all(asked), "it is not tried again with it"
