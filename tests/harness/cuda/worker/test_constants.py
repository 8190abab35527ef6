"""What the GPU's worker varies and what it leaves alone, on the host's memory; candidates in C."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from cuda_support import HostMachine, compile_c

from kernelblaster.harness.cuda.launching.candidate import Program
from kernelblaster.harness.cuda.parent.answers import verdict
from kernelblaster.harness.cuda.reports import VerifyAnswer
from kernelblaster.harness.cuda.worker.measure_run import measure_candidates
from kernelblaster.harness.cuda.worker.task_context import TaskContext, values_of
from kernelblaster.harness.cuda.worker.verify_run import verify
from kernelblaster.harness.judge.border import read_report
from kernelblaster.harness.judge.timing import Stopping
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.task.claims import ClaimedInput, Fill
from kernelblaster.harness.task.loading import load_task

QUICK = Stopping(least=8, most=12, batch=4, seconds=0.5, warmup=1)
BIASED = """
import torch
import torch.nn as nn

ROWS = 40
COLUMNS = 24


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("bias", torch.arange(COLUMNS) / 8 - 1)
        self.register_buffer("shift", torch.randn(COLUMNS))
        self.weight = nn.Parameter(torch.ones(COLUMNS))

    def forward(self, x, keep):
        return torch.where(keep, x * self.weight + self.bias + self.shift, x)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.ones(ROWS, COLUMNS, dtype=torch.bool)]
"""
LAUNCH = (
    "void launch(float* out0, const float* x, const unsigned char* keep, const float* weight, "
    "const float* bias, const float* shift, void* workspace, void* stream) {{ "
    "for (int i = 0; i < 960; i++) {{ int c = i % 24; out0[i] = {}; }} }}"
)
READ = "keep[i] ? x[i] * weight[c] + bias[c] + shift[c] : x[i]"
FOLDED = READ.replace("bias[c]", "(c / 8.0f - 1.0f)")

LOSS = """
import torch
import torch.nn as nn

ROWS = 64
COLUMNS = 50


class Model(nn.Module):
    def forward(self, x, y):
        return torch.mean(torch.clamp(1 - x * y, min=0))


def get_inputs():
    return [torch.rand(ROWS, COLUMNS), torch.randint(0, 2, (ROWS, 1)).float() * 2 - 1]
"""
SUM = (
    "void launch(float* out0, const float* x, const float* y, void* workspace, void* stream) {{ "
    "double sum = 0; for (int i = 0; i < 3200; i++) {{ float v = 1.0f - x[i] * y[i / 50]; "
    "sum += v > 0 ? v : 0; }} out0[0] = {}; }}"
)


@pytest.fixture(scope="module")
def machine() -> HostMachine:
    return HostMachine()


def context_of(folder: Path, text: str) -> TaskContext:
    path = folder / "task.py"
    path.write_text(text)
    return TaskContext(asyncio.run(load_task(path)), "cpu")


@pytest.fixture(scope="module")
def biased(tmp_path_factory: pytest.TempPathFactory) -> TaskContext:
    return context_of(tmp_path_factory.mktemp("biased"), BIASED)


@pytest.fixture(scope="module")
def loss(tmp_path_factory: pytest.TempPathFactory) -> TaskContext:
    return context_of(tmp_path_factory.mktemp("loss"), LOSS)


def measured(machine: HostMachine, context: TaskContext, program: Program) -> dict[str, Any]:
    return measure_candidates(
        machine, context, {"candidate": program}, lambda stage: None,
        stopping=QUICK, seed=7, with_eager=True, with_compile=False,
    )  # fmt: skip


@pytest.mark.parametrize(("value", "relies_on"), [(READ, ""), (FOLDED, "bias")])
def test_a_constant_may_be_relied_on_in_checks_and_timed_runs(
    machine: HostMachine, biased: TaskContext, tmp_path: Path, value: str, relies_on: str
) -> None:
    program = compile_c(LAUNCH.format(value), tmp_path)
    answer = verify(machine, biased, program, lambda stage: None)
    assert not answer["mismatches"] and answer["repeat"] is None
    found = verdict(read_report(VerifyAnswer, answer))
    assert found.outcome is Outcome.PASSED
    assert found.facts.get("relies_on", "") == relies_on
    assert bool(relies_on) == bool(found.diagnostics)
    assert measured(machine, biased, program)["mismatch"] == ""


@pytest.mark.parametrize(
    "value",
    [READ.replace("keep[i] ?", "1 ?"), READ.replace(" * weight[c]", ""),
     READ.replace("shift[c]", "shift[0]")],
)  # fmt: skip
def test_all_else_varies(
    machine: HostMachine, biased: TaskContext, tmp_path: Path, value: str
) -> None:
    program = compile_c(LAUNCH.format(value), tmp_path)
    answer = verify(machine, biased, program, lambda stage: None)
    assert answer["mismatches"]
    # Timed runs tell as well: none of it is checked there alone.
    assert measured(machine, biased, program)["mismatch"]


def test_secret_cases_are_others(
    machine: HostMachine, biased: TaskContext, tmp_path: Path
) -> None:
    def inputs(secret: int) -> list[torch.Tensor]:
        return [values_of(biased.instance_of(plan))["x"] for plan in biased.plans(secret)]

    public, secret, again = inputs(0), inputs(5), inputs(5)
    assert all(map(torch.equal, secret, again))
    assert sum(map(torch.equal, public, secret)) <= 1
    program = compile_c(LAUNCH.format(READ), tmp_path)
    answer = verify(machine, biased, program, lambda stage: None, secret=5)
    assert not answer["mismatches"] and answer["cases"][0].get("name") == "secret-normal"


@pytest.mark.parametrize("value", ["1.0f", "0.0f / 0.0f", "x[0]"])
def test_a_loss_of_one_number_is_a_task_and_no_constant_is_its_answer(
    machine: HostMachine, loss: TaskContext, tmp_path: Path, value: str
) -> None:
    right = compile_c(SUM.format("sum / 3200"), tmp_path)
    answer = verify(machine, loss, right, lambda stage: None)
    assert answer["degenerate"] == "" and not answer["mismatches"]
    assert measured(machine, loss, right)["mismatch"] == ""
    (tmp_path / "wrong").mkdir()
    wrong = compile_c(SUM.format(value), tmp_path / "wrong")
    assert verify(machine, loss, wrong, lambda stage: None)["mismatches"]
    assert measured(machine, loss, wrong)["mismatch"]


# Claimed inputs ----------------------------------------------------------------------------------


def test_a_claimed_input_is_a_case_at_full_dimensions(
    machine: HostMachine, biased: TaskContext, tmp_path: Path
) -> None:
    """A kernel that is wrong on it alone passes all cases, and fails there; one that is right
    passes, and what is no input is told."""

    def run(expression: str, value: float | None = None) -> StageResult:
        program = compile_c(LAUNCH.format(expression), tmp_path)
        fill = Fill(tensor="x", kind="constant", first=value or 0.0)
        claim = None if value is None else ClaimedInput(tensors=(fill,))
        answer = verify(machine, biased, program, lambda stage: None, claim=claim)
        return verdict(read_report(VerifyAnswer, answer))

    cheat = f"x[i] == 3.5f ? 0 : ({READ})"
    assert run(cheat).outcome is Outcome.PASSED
    wrong = run(cheat, 3.5)
    assert wrong.outcome is Outcome.WRONG_ANSWER and "(case claimed-" in wrong.reason
    assert run(READ, 3.5).outcome is Outcome.PASSED
    assert "at most" in str(run(cheat, 4000.0).facts["not_an_input"])
