"""Comparison of outputs: what counts as equal, and what a mismatch says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelblaster.harness.judge.reports import CaseReport, Finding, VerifyReport
from kernelblaster.harness.judge.run_verdict import judge_run, limits_of_task, with_constants
from kernelblaster.harness.judge.tensor_comparison import are_equal
from kernelblaster.harness.judge.tensor_comparison import compare as compare_tensors
from kernelblaster.harness.judge.verification import check_outputs, compare, least_own_error
from kernelblaster.harness.records.builds import Build
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task, TaskVariant
from kernelblaster.harness.records.tensors import TensorSpec, Tolerance
from kernelblaster.harness.records.variations import Variation
from kernelblaster.harness.task.cases import read_cases

TOLERANCE = Tolerance(absolute=1e-4, relative=1e-4)


def spec(shape: tuple[int, ...], dtype: str = "float32", role: str = "output") -> TensorSpec:
    name = "out0" if role == "output" else "x"
    return TensorSpec.model_validate({"name": name, "shape": shape, "dtype": dtype, "role": role})


def floats(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


@pytest.mark.parametrize(
    "got, expected, equal",
    [
        (1.0, 1.0, True),
        (1.00015, 1.0, True),
        (1.00025, 1.0, False),
        (9e-5, 0.0, True),
        (1.1e-4, 0.0, False),
        (float("nan"), float("nan"), True),
        (float("nan"), 0.0, False),
        (0.0, float("nan"), False),
        (float("inf"), float("inf"), True),
        (float("-inf"), float("inf"), False),
        (3e38, float("inf"), False),
        (float("inf"), 3e38, False),
        (float("nan"), float("inf"), False),
        (-0.0, 0.0, True),
    ],
)
def test_one_float(got: float, expected: float, equal: bool) -> None:
    result = compare(floats(got), floats(expected), spec((1,)), TOLERANCE)
    assert (result is None) is equal


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_anything_agrees_with_itself(values: list[float]) -> None:
    data = floats(*values)
    assert compare(data, data, spec((len(values),)), Tolerance(absolute=0, relative=0)) is None


def test_a_mismatch_names_place_count_and_region() -> None:
    expected = np.zeros((4, 6), "<f4")
    got = expected.copy()
    got[1, 2], got[3, 4] = np.nan, 7.0
    result = compare(got.tobytes(), expected.tobytes(), spec((4, 6)), TOLERANCE)
    assert result is not None
    assert (result.index, result.count, result.total) == ((1, 2), 2, 24)
    assert result.largest_error == 7.0
    assert result.message == (
        "out0[1, 2]: expected 0, got nan; 2 of 24 elements differ, all within [1..3, 2..4], "
        "largest error 7"
    )


def test_integers_and_booleans_are_exact() -> None:
    exact = Tolerance(absolute=0, relative=5)
    a, b = np.array([1, 2], "<i8"), np.array([1, 3], "<i8")
    result = compare(b.tobytes(), a.tobytes(), spec((2,), "int64"), exact)
    assert result is not None and result.index == (1,) and result.largest_error == 1
    assert compare(b"\x01\x00", b"\x01\x00", spec((2,), "bool"), exact) is None
    assert compare(b"\x00", b"\x01", spec((1,), "bool"), exact) is not None


@pytest.mark.parametrize("byte", [2, 128, 255])
@pytest.mark.parametrize("stepping", [False, True])
def test_a_flag_is_the_byte_zero_or_one(byte: int, stepping: bool) -> None:
    near = Tolerance(absolute=0, relative=0, step=float(stepping), share=float(stepping))
    found = compare(bytes([1, byte, 0]), b"\1\1\0", spec((3,), "bool"), near)
    got = torch.tensor([1, byte, 0], dtype=torch.uint8).view(torch.bool)
    same = compare_tensors(got, torch.tensor([True, True, False]), near, "out0")
    assert found == same and found is not None and (found.index, found.got) == ((1,), byte)
    assert found.message == (
        f"out0[1]: expected 1, got {byte}; 1 of 3 elements differ; a bool is the byte 0 or 1, "
        "and what reads another one as a number counts it so"
    )
    assert not are_equal(got, got.clone().fill_(True))
    whole = spec((1,), "uint8")
    assert (compare(bytes([2]), b"\1", whole, near) is None) is stepping


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_as_many_as_the_share_may_be_a_step_off(dtype: str) -> None:
    tolerance = Tolerance(absolute=0, relative=0, step=1, share=0.02)
    wanted = np.arange(100).astype(dtype)
    for off, count, agrees in ((1, 2, True), (1, 3, False), (2, 1, False), (-1, 2, True)):
        got = wanted.copy()
        got[40 : 40 + count] += off
        given = got.tobytes(), wanted.tobytes(), spec((100,), dtype), tolerance
        assert (compare(*given) is None) is agrees
        tensors = torch.from_numpy(got), torch.from_numpy(wanted)
        assert (compare_tensors(*tensors, tolerance, "out0") is None) is agrees


@pytest.mark.parametrize(("off", "agrees"), [(0.7, False), (0.8, True), (1.2, True), (1.3, False)])
def test_a_step_has_the_tolerance_on_both_sides(off: float, agrees: bool) -> None:
    tolerance = Tolerance(absolute=0.25, relative=0, step=1, least_step=1, share=1)
    got, wanted = floats(2.0 + off), floats(2.0)
    assert (compare(got, wanted, spec((1,)), tolerance) is None) is agrees


@pytest.mark.parametrize(
    "dtype, one, nearly", [("bfloat16", 0x3F80, 0x3F81), ("float16", 0x3C00, 0x3C04)]
)
def test_half_types(dtype: str, one: int, nearly: int) -> None:
    half = Tolerance(absolute=1e-2, relative=1e-2)
    a, b = np.array([one], "<u2").tobytes(), np.array([nearly], "<u2").tobytes()
    assert compare(b, a, spec((1,), dtype), half) is None
    assert compare(b, a, spec((1,), dtype), TOLERANCE) is not None


def test_scalar_tensor_and_wrong_length() -> None:
    result = compare(floats(2.0), floats(1.0), spec(()), TOLERANCE)
    assert result is not None and result.index == () and result.message.startswith("out0: expected")
    with pytest.raises(ValueError, match="3 bytes instead of 4"):
        compare(b"abc", floats(1.0), spec(()), TOLERANCE)


class Example:
    """A task of one input and one output with hand-made cases on disk."""

    def __init__(self, root: Path, answers: list[tuple[list[float], list[float]]]) -> None:
        size = len(answers[0][0])
        tensors = (spec((size,)), spec((size,), role="input"))
        one = TaskVariant(name="verify", dimensions={}, tensors=tensors)
        self.task = Task(
            name="t", path="t.py", reference_sha256="0", source="", op_class="mixed",
            dtype="float32", tolerance=TOLERANCE, full=one, verify=one,
        )  # fmt: skip
        self.cases, self.outputs = root / "cases", root / "outputs"
        listed: list[dict[str, Any]] = []
        for index, (given_input, answer) in enumerate(answers):
            folder = self.cases / str(index)
            folder.mkdir(parents=True)
            (self.outputs / str(index)).mkdir(parents=True)
            (folder / "x.bin").write_bytes(floats(*given_input))
            (folder / "out0.bin").write_bytes(floats(*answer))
            (folder / "out0.f64.bin").write_bytes(np.array(answer, "<f8").tobytes())
            listed.append({
                "name": f"case{index}", "directory": str(index), "inputs": "by hand", "factor": 1.0,
                "tolerances": [TOLERANCE.model_dump()], "own_errors": [1e-7],
            })  # fmt: skip
        (self.cases / "cases.json").write_text(
            json.dumps({"cases": listed, "weak_to": "", "degenerate": ""})
        )
        self.report = [CaseReport(name=case["name"], launches=1) for case in listed]

    def leave(self, index: int, values: list[float]) -> None:
        (self.outputs / str(index) / "out0.bin").write_bytes(floats(*values))


@pytest.fixture
def example(tmp_path: Path) -> Example:
    return Example(tmp_path, [([1.0, -2.0], [1.0, 0.0]), ([3.0, 4.0], [3.0, 4.0])])


def test_right_outputs_pass_with_facts(example: Example) -> None:
    example.leave(0, [1.0, 0.0])
    example.leave(1, [3.0, 4.0 + 1e-6])
    result = check_outputs(example.task, example.cases, example.outputs, example.report)
    assert result.outcome is Outcome.PASSED
    assert result.facts["cases"] == 2 and result.facts["launches"] == 1
    assert 0 < float(result.facts["max_abs_error"]) < 2e-6
    assert float(result.facts["precision_ratio"]) > 1


def test_wrong_missing_short_and_unrun_outputs_fail(example: Example) -> None:
    example.leave(0, [1.0, 0.0])
    example.leave(1, [3.0, float("nan")])
    result = check_outputs(example.task, example.cases, example.outputs, example.report)
    assert result.outcome is Outcome.WRONG_ANSWER
    assert result.reason == "out0[1]: expected 4, got nan; 1 of 2 elements differ (case case1)"

    (example.outputs / "1" / "out0.bin").write_bytes(b"1234")
    result = check_outputs(example.task, example.cases, example.outputs, example.report)
    assert "4 bytes instead of 8" in result.reason

    (example.outputs / "1" / "out0.bin").unlink()
    result = check_outputs(example.task, example.cases, example.outputs, example.report)
    assert "was not written" in result.reason

    example.leave(1, [3.0, 4.0])
    result = check_outputs(example.task, example.cases, example.outputs, [])
    assert result.outcome is Outcome.WRONG_ANSWER and "not run" in result.reason


def test_what_differs_is_told_as_far_as_it_helps(example: Example) -> None:
    example.leave(0, [1.0, 0.5])
    example.leave(1, [9.0, 9.0])
    found = check_outputs(example.task, example.cases, example.outputs, example.report)
    assert len(found.diagnostics) == 2
    assert "within [" not in found.diagnostics[1].message
    assert "1 of 2 elements differ, largest error 0.5" in found.diagnostics[0].message
    known = read_cases(example.cases)
    many = check_outputs(example.task, example.cases, example.outputs, example.report, known * 3)
    assert len(many.diagnostics) == 5
    assert check_outputs(
        example.task, example.cases, example.outputs, example.report[:1], known[:1]
    ).reason.endswith("(case case0)")


@pytest.mark.parametrize(
    ("own", "by", "ratio"),
    [(1e-6, 2e-5, 20.0), (1e-7, 2e-5, 2e-5 / (0.5 * 2**-23 * 4)), (None, 2e-5, 0.0)],
)
def test_the_error_is_weighed_by_what_pytorch_errs(
    example: Example, own: float | None, by: float, ratio: float
) -> None:
    listed = json.loads((example.cases / "cases.json").read_text())
    listed["cases"][1]["own_errors"] = [own]
    (example.cases / "cases.json").write_text(json.dumps(listed))
    example.leave(0, [1.0, 0.0])
    example.leave(1, [3.0 + by, 4.0])
    found = check_outputs(example.task, example.cases, example.outputs, example.report)
    assert float(found.facts["precision_ratio"]) == pytest.approx(ratio, rel=0.02)
    (example.cases / "1" / "out0.f64.bin").unlink()
    found = check_outputs(example.task, example.cases, example.outputs, example.report)
    assert found.facts["precision_ratio"] == 0.0


@pytest.mark.parametrize(
    ("dtype", "places"), [("float64", 53), ("float32", 24), ("float16", 11), ("bfloat16", 8)]
)
def test_half_a_unit_in_the_last_place_is_no_error(dtype: str, places: int) -> None:
    assert least_own_error(dtype, 3.0) == 3.0 * 2.0**-places


BUILD = Build(key="k", succeeded=True, arch="sm_90", compiler="nvcc")


def verdict(example: Example) -> StageResult:
    cases = read_cases(example.cases)
    report = VerifyReport(example.report)
    return judge_run(example.task, example.cases, cases, example.outputs, report, BUILD, "")


def again(example: Example, index: int, values: list[float]) -> None:
    folder = example.outputs / "again" / str(index)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "out0.bin").write_bytes(floats(*values))


def test_a_run_is_judged_by_faults_then_answers_then_repetition(example: Example) -> None:
    example.leave(0, [1.0, 0.0])
    example.leave(1, [3.0, 4.0])
    again(example, 1, [3.0, 4.00001])
    assert verdict(example).outcome is Outcome.PASSED and verdict(example).build == BUILD
    again(example, 1, [3.0, 5.0])
    found = verdict(example)
    assert found.outcome is Outcome.NONDETERMINISTIC and found.build == BUILD
    assert "out0[1]: expected 4, got 5" in found.reason and found.reason.endswith("(case case1)")
    again(example, 1, [3.0, float("nan")])
    assert verdict(example).outcome is Outcome.NONDETERMINISTIC
    note = Finding("uninitialized_read", "of shared memory")
    for case in example.report:
        case.notes = [note]
    found = verdict(example)
    assert found.outcome is Outcome.UNINITIALIZED_READ
    assert [told.kind for told in found.diagnostics].count("uninitialized_read") == 2
    example.leave(1, [3.0, 7.0])
    assert "got 7" in verdict(example).reason
    example.report[1].reports = [Finding("race", "r")]
    found = verdict(example)
    assert found.outcome is Outcome.RACE and found.build == BUILD


def test_a_tensor_that_is_not_compared_may_differ(example: Example) -> None:
    listed = json.loads((example.cases / "cases.json").read_text())
    for case in listed["cases"]:
        case["tolerances"] = [None]
    (example.cases / "cases.json").write_text(json.dumps(listed))
    for index in (0, 1):
        example.leave(index, [9.0, 9.0])
        again(example, index, [3.0, 5.0])
    assert verdict(example).outcome is Outcome.PASSED


def test_a_pass_tells_the_limits_of_its_task(example: Example) -> None:
    assert limits_of_task(example.task, "", "") == {}
    stays = Variation(fixed=("mask",), levels={"mask": "own"})
    task = example.task.model_copy(update={"variation": stays})
    assert limits_of_task(task, "relu", "") == {"task_weak_to": "relu", "not_varied": "mask"}
    passed = StageResult(outcome=Outcome.PASSED, facts={"cases": 1})
    assert with_constants(passed, ()) == passed
    found = with_constants(passed, ("bias", "table"))
    assert found.facts == {"cases": 1, "relies_on": "bias, table"}
    assert [told.kind for told in found.diagnostics] == ["relies_on_constants"]
