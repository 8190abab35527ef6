"""A case: what is finite of it, how exact PyTorch is, and the files that a candidate is given."""

from __future__ import annotations

import json
import resource
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_references import HEAD, MODEL, X, cases, reference

from kernelblaster.harness.records.variations import Variation
from kernelblaster.harness.reference import child
from kernelblaster.harness.reference.cases.case import Case, is_cast
from kernelblaster.harness.reference.cases.distributions import (
    Usual,
    first_finite,
    scale_of,
    write_cases,
)
from kernelblaster.harness.reference.cases.exploration import explore
from kernelblaster.harness.reference.drawing.draws import Draw, draw
from kernelblaster.harness.reference.loading.model import Reference
from kernelblaster.harness.task.rules import CASES


def case_of(made: Reference, variation: Variation | None = None) -> Case:
    return Case(made, draw(made, Draw(5, "gaussian"), variation or explore(made)))


@pytest.mark.parametrize(
    ("body", "finite"),
    [
        ("x * 2", True),
        ("x / 0", False),
        # Finite in single precision, and not in double.
        ("x / 0 if x.dtype is torch.float64 else x", False),
        ("(x > 0)", True),
    ],
)
def test_a_case_is_finite_in_both_precisions(body: str, finite: bool) -> None:
    made = reference(body)
    case = case_of(made, Variation(levels={"x": "any"}))
    assert case.finite is finite


def test_own_errors_are_of_outputs_that_have_an_exact_answer() -> None:
    case = case_of(reference("(x @ x.T, x > 0, x * 1.0)"))
    errors = case.own_errors()
    assert errors[0] is not None and 0 < errors[0] < 1e-3
    assert errors[1] is None and errors[2] == 0


def test_a_task_in_half_precision_is_no_cast() -> None:
    for given, answer, cast in (("", ".half()", True), (".half()", "", False), ("", "", False)):
        made = reference(f"(x * 2){answer}", f"{X}{given}")
        case = case_of(made)
        assert is_cast(case.instance, case.outputs[0]) is cast


def test_sums_of_doubles_have_no_room_for_those_of_floats() -> None:
    for body, wide in (("x.sum(1)", False), ("x.float().sum(1).double()", True)):
        case = case_of(reference(body, X.replace(")", ", dtype=torch.float64)")))
        (tolerance,) = case.tolerances("both")
        assert tolerance is not None and (tolerance.absolute > 1e-6) is wide


def test_no_case_hangs_on_which_of_equal_elements_comes_first() -> None:
    for body, hangs in (("x.topk(3)[1]", True), ("x.topk(3)[0]", False), ("x.argsort()", True),
                        ("x.sort(stable=True)[1]", False), ("x.argmax(1)", False),
                        ("x.sum().median(0)[0]", False)):  # fmt: skip
        made = reference(body)
        variation = Variation(levels={"x": "any"})
        case = Case(made, draw(made, Draw(4, "constant"), variation))
        assert case.hangs_on_ties is hangs
        assert not first_finite(made, variation, 4, "constant", None)[0].hangs_on_ties


def test_a_case_is_written_as_it_started(tmp_path: Path) -> None:
    made = reference("(x.mul_(2), x > 0, x.bfloat16())")
    case = case_of(made, Variation(levels={"x": "any"}))
    case.write(tmp_path)
    own = np.fromfile(tmp_path / "x.bin", np.float32).reshape(64, 40)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "out0.bin", np.float32), 2 * own.ravel())
    exact = np.fromfile(tmp_path / "out0.f64.bin", np.float64)
    np.testing.assert_array_equal(exact, 2 * own.ravel().astype(np.float64))
    assert not (tmp_path / "out1.f64.bin").exists() and (tmp_path / "out2.f64.bin").exists()
    halves = np.fromfile(tmp_path / "out2.bin", np.uint16)
    assert halves.size == 64 * 40 and (tmp_path / "out1.bin").stat().st_size == 64 * 40


def test_what_get_inputs_makes_is_the_least_that_other_inputs_make() -> None:
    case, other = (case_of(reference(body)) for body in ("x * 2", "x * 2 / 0"))
    forms = [(case.outputs[0].shape, case.outputs[0].dtype)]
    numbers, any_values = Usual(False, True, forms), Usual(False, False, forms)
    assert numbers.is_met_by(case) and not numbers.is_met_by(other)
    assert any_values.is_met_by(case) and any_values.is_met_by(other)
    assert not Usual(False, False, [(torch.Size([3]), torch.float32)]).is_met_by(case)


def test_tolerances_follow_large_answers_up_and_small_ones_down() -> None:
    made = reference("x * 1e-3 @ x.T")
    for case, (_, name, _) in zip(cases(made, explore(made)), CASES, strict=True):
        (tolerance,) = case.tolerances(scale_of(name))
        assert tolerance is not None
        usual = name in ("normal", "gaussian", "uniform", "zeros", "constant")
        assert (tolerance.absolute < 1e-4) is usual, name


def described(folder: Path, made: Reference, secret: int = 0) -> dict[str, Any]:
    folder.mkdir()
    write_cases(made, folder, explore(made), secret)
    found: dict[str, Any] = json.loads((folder / "cases.json").read_text())
    return found


CONSTANT = "self.register_buffer('c', torch.arange(40.0))"


def test_the_cases_of_a_task_are_listed_with_what_was_found(tmp_path: Path) -> None:
    made = reference("x + self.c", init=CONSTANT)
    usual, secret = described(tmp_path / "usual", made), described(tmp_path / "secret", made, 9)
    names = [name for _, name, _ in CASES]
    assert [case["name"] for case in usual["cases"]] == [
        f"seed{seed}-{name}" for seed, name, _ in CASES
    ]
    assert [case["name"] for case in secret["cases"]] == [f"secret-{name}" for name in names]
    factors = {case["name"].partition("-")[2]: case["factor"] for case in usual["cases"]}
    assert factors == dict.fromkeys(names, 1.0) | {"large": 128.0, "offset": 16.0}
    assert [each["name"] for each in usual["constants"]] == ["c"] and secret["constants"] == []
    (changed,) = usual["constants"]
    values = np.fromfile(tmp_path / "usual" / changed["directory"] / "c.bin", np.float32)
    assert not np.array_equal(values, np.arange(40))
    assert usual["degenerate"] == "" and usual["weak_to"] == ""
    meanings = {case["name"]: case["inputs"] for case in usual["cases"]}
    assert len(set(meanings.values())) == len(CASES)


def test_what_is_told_of_a_task_is_found_in_the_usual_cases(tmp_path: Path) -> None:
    weak = reference("(x.sign() + 1e-9, x * 2.0 + 1.0)")
    assert "leaving out add" in described(tmp_path / "weak", weak)["weak_to"]
    assert described(tmp_path / "secret", weak, 7)["weak_to"] == ""
    nothing = described(tmp_path / "nothing", reference("torch.relu(x - 1e9)"))["degenerate"]
    assert "zeros" in nothing and "where its inputs are like" not in nothing
    part = reference("(x * 2, torch.zeros_like(x))")
    assert described(tmp_path / "part", part)["weak_to"] == "zeros in out1"


def test_what_is_random_is_no_task(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="another answer when called again"):
        described(tmp_path / "cases", reference("F.dropout(x)"))
    # What is not a number is the same as itself.
    described(tmp_path / "nan", reference("torch.where(x > 0, x, torch.nan)"))


# ---- the child's answer ----


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child limits itself; this process goes on."""
    monkeypatch.setattr(child, "_limit_memory", lambda: None)


def asked(
    folder: Path, body: str = "x + self.c", inputs: str = X, **chosen: int
) -> dict[str, Any]:
    text = (HEAD + MODEL).format(init=CONSTANT, names="x", body=body, inputs=inputs)
    shutil.rmtree(folder / "cases", ignore_errors=True)
    (folder / "cases").mkdir()
    request = {
        "path": "task.py", "source": text.replace("N = 64", "N = 65536"), "set": chosen,
        "verify": None, "cases": str(folder / "cases"), "reading": {},
    }  # fmt: skip
    (folder / "request.json").write_text(json.dumps(request))
    assert child.main([str(folder / "request.json"), str(folder / "result.json")]) == 0
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


@pytest.mark.usefixtures("unlimited")
def test_a_task_is_described_at_both_dimensions(tmp_path: Path) -> None:
    task = asked(tmp_path)["task"]
    assert task["full"]["dimensions"]["N"] == 65536
    small = task["verify"]["dimensions"]["N"]
    assert 16 <= small < 65536
    constant = {each["name"]: each["constant"] for each in task["full"]["tensors"]}
    assert constant == {"x": False, "c": True, "out0": False}
    assert task["tolerance"]["absolute"] == task["tolerance"]["relative"] == 1e-4
    assert task["program"]
    assert task["full"]["tensors"][0]["shape"] == [65536, 40]
    assert asked(tmp_path, body="x / missing")["error"].count("missing") == 1


@pytest.mark.usefixtures("unlimited")
def test_a_task_of_integers_has_no_tolerance(tmp_path: Path) -> None:
    task = asked(tmp_path, body="x * 2", inputs="torch.randint(0, 9, (N,))")["task"]
    assert task["dtype"] == "int64" and not any(task["tolerance"].values())
    assert task["op_class"] == "elementwise"


@pytest.mark.usefixtures("unlimited")
def test_a_size_that_a_person_chose_is_verified_with_or_refused(tmp_path: Path) -> None:
    assert asked(tmp_path, N=48)["task"]["verify"]["dimensions"]["N"] == 48
    assert asked(tmp_path, "x + torch.ones(65536, 40)", N=48)["error"].startswith("--set N=48: ")


def test_a_limit_counts_all_that_a_process_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"/proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 5 kB\n", "/proc/self/statm": "7 3 2"}
    asked_for: list[tuple[int, int]] = []
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", lambda path, encoding: told[str(path)])
        patched.setattr(resource, "getrlimit", lambda kind: (-1, resource.RLIM_INFINITY))
        patched.setattr(resource, "setrlimit", lambda kind, limits: asked_for.append(limits))
        child._limit_memory()
    assert asked_for == [(5 * 1024 + 7 * resource.getpagesize(), resource.RLIM_INFINITY)]


def test_memory_that_is_not_left_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[tuple[int, int]] = []
    left = next(
        int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable")
    )  # fmt: skip
    for hard in (resource.RLIM_INFINITY, 1 << 60, 1 << 20):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, hard=hard: (hard, hard))
        monkeypatch.setattr(
            resource, "setrlimit", lambda kind, limits: asked_for.append(limits)
        )
        child._limit_memory()
    assert [hard for _, hard in asked_for] == [resource.RLIM_INFINITY, 1 << 60]
    for limit, _ in asked_for:
        own = limit - 1024 * left
        assert -(2 << 30) < own < 1 << 42 and own != 1024 * left
