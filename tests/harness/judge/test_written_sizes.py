"""A size of the task that a source writes out is named where its name stands nowhere."""

from __future__ import annotations

import pytest

from kernelblaster.harness.judge.written_sizes import with_written_sizes, written_sizes
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task, TaskVariant
from kernelblaster.harness.records.tensors import TensorSpec
from kernelblaster.harness.task.rules import TOLERANCES


def variant(name: str, *shape: int) -> TaskVariant:
    x = TensorSpec(name="x", shape=shape, dtype="float32", role="input")
    out0 = TensorSpec(name="out0", shape=(1,), dtype="float32", role="output")
    return TaskVariant(name=name, dimensions={}, tensors=(x, out0))


TASK = Task(
    name="t", path="t.py", reference_sha256="0", source="", op_class="mixed", dtype="float32",
    tolerance=TOLERANCES["float32"], full=variant("full", 2048, 768, 7, 96, 32),
    verify=variant("verify", 32, 768, 3, 24, 16),
)  # fmt: skip


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("int a;\nk<<<2048, 1>>>();", "2048 in line 2 is X_SIZE_0, as at full dimensions: that is "
                                      "32 here"),
        ("f(2048ULL);", "2048 in line 1 is X_SIZE_0"),
        ("f(96);", "96 in line 1 is X_SIZE_3"),
        ("f(32);", "32 in line 1 is X_SIZE_4"),
        ("f(768);", ""),
        ("f(7);", ""),
        ("f(2048); g(X_SIZE_0);", ""),
        ("f(2048.0f); a2048; 12048; 20480; 1.2048; 2048.;", ""),
        ("// 2048", ""),
    ],
)  # fmt: skip
def test_a_size_that_is_written_out(source: str, told: str) -> None:
    found = written_sizes(TASK, source)
    assert (found is None) is (not told)
    if found:
        assert told in found.message
        assert found.line == source.count("\n") + 1
    wrong = StageResult(outcome=Outcome.WRONG_ANSWER, reason="wrong")
    joined = with_written_sizes(wrong, TASK, source)
    if found:
        assert joined.reason == f"wrong; {found.message}" and joined.diagnostics == (found,)
    else:
        assert joined == wrong
