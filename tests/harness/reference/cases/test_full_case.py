"""The case at full dimensions: rows of every distribution, its answers, and its tolerances."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_references import reference

from kernelblaster.harness.records.variations import Variation
from kernelblaster.harness.reference.cases import full_case
from kernelblaster.harness.reference.cases.exploration import explore
from kernelblaster.harness.reference.cases.full_case import (
    KINDS,
    OWN_ERROR_FACTOR,
    ROWS,
    widen_tolerances,
    write_full_case,
)
from kernelblaster.harness.reference.loading.model import Reference
from kernelblaster.harness.reference.precision.steps import Steps
from kernelblaster.harness.reference.precision.tolerances import tolerance_of
from kernelblaster.harness.task.rules import NOT_COMPARED

BY_ROWS = full_case._Rows((14,))


def made_case(
    folder: Path, made: Reference, shape: tuple[int, ...], secret: int = 0,
    variation: Variation | None = None, with_loss: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Write a case and return its description."""
    folder.mkdir(exist_ok=True)
    shapes = [shape, *([()] if with_loss else [])]
    write_full_case(made, folder, folder, shapes, variation or explore(made), secret)
    found: dict[str, Any] = json.loads((folder / "case.json").read_text())
    return found


def rows_of(
    folder: Path, name: str = "x", columns: int = 40, dtype: Any = np.float32
) -> np.ndarray[Any, Any]:
    return np.fromfile(folder / f"{name}.bin", dtype).reshape(-1, columns)


def test_rows_take_turns_in_their_distribution(tmp_path: Path) -> None:
    made = reference("x * 2")
    described = made_case(tmp_path, made, (64, 40))
    assert described["rows"] == ["own", *full_case.ROWS]
    x = rows_of(tmp_path)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "out0.bin", np.float32), 2 * x.ravel())
    for row, values in enumerate(x):
        kind = described["rows"][row % KINDS]
        largest = float(np.abs(values).max())
        assert (largest > 60) == (kind == "large"), (row, kind)
        assert (values.min() > 8) == (kind == "offset"), (row, kind)
        assert (values.std() == 0) == (kind == "constant"), (row, kind)
        assert ((values == 0).mean() > 0.2) == (kind == "zeros"), (row, kind)
        assert largest <= 1 or kind != "uniform", (row, kind)
        assert 0.4 < values.std() < 3.0 or kind != "gaussian", (row, kind)
    np.testing.assert_array_equal(x[::KINDS], draw_of_rows(made, 11)[::KINDS])


def draw_of_rows(made: Reference, seed: int) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = made.instance(seed).inputs["x"].numpy()
    return found


def test_a_secret_draws_all_rows_anew_and_the_same_again(tmp_path: Path) -> None:
    made = reference("x * 2")
    for name, secret in (("usual", 0), ("one", 5), ("again", 5), ("other", 6)):
        made_case(tmp_path / name, made, (64, 40), secret)
    usual, one, again, other = (rows_of(tmp_path / name) for name in (
        "usual", "one", "again", "other"))  # fmt: skip
    np.testing.assert_array_equal(one, again)
    for a, b in ((usual, one), (one, other)):
        same = (a == b).all(axis=1)
        assert {row % KINDS for row in np.flatnonzero(same)} <= {3}, "rows of a constant alone"


def test_factors_that_pytorch_does_not_survive_are_less(tmp_path: Path) -> None:
    described = made_case(tmp_path, reference("torch.exp(x * 2)"), (64, 40))
    assert described["drawn"][0] == 8.0
    large = rows_of(tmp_path)[1::KINDS]
    assert 8 < np.abs(large).max() < 60
    described = made_case(tmp_path, reference("x / 0"), (64, 40))
    assert described["drawn"] == [0.0, "normal", True, True, False, True, False]
    assert described["rows"] == ["own"]


@pytest.mark.parametrize("body", ["x.cumprod(1)", "x.prod(1)", "x.abs().cumprod(1)"])
def test_rows_of_which_long_products_are_numbers_lie_near_one(tmp_path: Path, body: str) -> None:
    made = reference(body, "torch.rand(70, 4096)")
    variation = explore(made)
    assert variation.multiplies and not explore(reference("x * 2")).multiplies
    shape = (70,) if "prod(1)" in body and "cum" not in body else (70, 4096)
    described = made_case(tmp_path, made, shape, variation=variation)
    assert described["rows"] == ["own", *["uniform"] * len(ROWS)]
    answers = np.fromfile(tmp_path / "out0.bin", np.float32).reshape(70, -1)[:, -1]
    near = np.arange(70) % KINDS > 0
    assert (answers[~near] == 0).all() and (np.abs(np.log(answers[near])) < 8).all()
    widen_tolerances(made, tmp_path, variation)
    (tolerance,) = json.loads((tmp_path / "case.json").read_text())["tolerances"]
    assert max(tolerance["absolute"]) < 0.01 and max(tolerance["relative"]) < 1e-3


@pytest.mark.parametrize(
    ("inputs", "body", "names", "mixed"),
    [
        # Of a sparse one what is no zero is another.
        ("torch.randn(N, N).tril()", "x * 2", "x", True),
        ("torch.randn(N, N) * (torch.arange(N) % 8 > 0)", "x * 2", "x", True),
        ("torch.zeros(N, N).masked_fill(torch.rand(N, N) > 0.5, -torch.inf)", "x.softmax(1)",
         "x", False),
        ("(lambda a: a + a.T)(torch.randn(N, N))", "x * 2", "x", False),
        ("torch.randn(N, N)", "x * 2", "x", True),
        ("torch.randn(N, N) * (torch.arange(N) % 16 > 0)", "x * 2", "x", True),
        ("torch.randint(0, 9, (N, N))", "x * 2", "x", False),
        ("torch.rand(N, N)", "torch.log1p(-x.clamp(max=0.9)) + F.binary_cross_entropy(x, x)", "x",
         False),
    ],
)  # fmt: skip
def test_what_has_a_structure_keeps_its_rows(
    tmp_path: Path, inputs: str, body: str, names: str, mixed: bool
) -> None:
    described = made_case(tmp_path, reference(body, inputs, names), (64, 64))
    assert (len(described["rows"]) > 1) is mixed
    if "tril()" in inputs and mixed:
        rows = rows_of(tmp_path, columns=64)
        assert (np.triu(rows, 1) == 0).all() and np.abs(rows[1::KINDS]).max() > 8


@pytest.mark.parametrize(
    ("inputs", "body", "shape"),
    [("torch.rand(N, 40)", "x.relu().sum(0).cumsum(0)", (40,)),
     ("torch.rand(N, 40)", "(x / x.norm()).T * 1.0", (40, 64)),
     ("torch.rand(1, 40)", "x.softmax(1)", (1, 40))],
)  # fmt: skip
def test_without_rows_one_number_in_four_is_of_both_signs(
    tmp_path: Path, inputs: str, body: str, shape: tuple[int, ...]
) -> None:
    described = made_case(tmp_path, reference(body, inputs), shape)
    assert described["rows"] == ["own"]
    x = rows_of(tmp_path)
    assert (x[..., 2::4] < 0).any() and (x[..., 0::4] >= 0).all() and (x[..., 1::4] >= 0).all()


def test_a_loss_beside_an_answer_leaves_its_rows(tmp_path: Path) -> None:
    made = reference("(x.softmax(1), x.mean())", "torch.randn(N, 40)")
    described = made_case(tmp_path, made, (64, 40), with_loss=True)
    assert len(described["rows"]) > 1
    assert [len(each["absolute"]) for each in described["tolerances"]] == [KINDS, 1]


def test_flags_of_a_line_may_be_none_or_all_where_forward_survives_it(tmp_path: Path) -> None:
    flags = "torch.rand(N, 40) < 0.5"
    survives = made_case(tmp_path, reference("x.sum(1)", flags), (64,))
    lines = rows_of(tmp_path, dtype=np.uint8).sum(axis=1)
    assert survives["drawn"][5] and (lines == 0).any() and (lines == 40).any()
    not_so = made_case(tmp_path, reference("1.0 / x.sum(1)", flags), (64,))
    assert not not_so["drawn"][5] and (rows_of(tmp_path, dtype=np.uint8).sum(axis=1) > 0).all()


def test_rows_are_leading_axes_that_an_output_has_too(tmp_path: Path) -> None:
    body = "x.sum(-1)"
    made = reference(body, "torch.randn(2, 3, 4, 40)")
    described = made_case(tmp_path, made, (2, 3, 4))
    # Two leading axes count six rows, three twenty-four: KINDS is seven.
    (tolerance,) = described["tolerances"]
    assert len(tolerance["absolute"]) == KINDS and tolerance["row"] == 1
    assert full_case._shared_axes((2, 3, 4, 40), (2, 3, 4)) == 3
    assert full_case._shared_axes((2, 3, 4), (2, 3, 4)) == 2
    assert full_case._shared_axes((5,), (5,)) == 1
    assert full_case._shared_axes((5, 6), (6, 5)) == 0
    others = made_case(tmp_path, reference("x.T @ x"), (40, 40))
    assert others["rows"] == ["own"]
    assert others["tolerances"][0]["row"] == 40 * 40


@pytest.mark.parametrize(
    ("body", "shape", "row"),
    [("x.T * 1.0", (40, 64), 64), ("x.var(0)", (40,), 1), ("x.T.softmax(1)", (40, 64), 64),
     ("x.sum(0)[None]", (1, 40), 1), ("(x.T @ x.T.new_ones(N, 9)).T", (9, 40), 1)],
)  # fmt: skip
def test_columns_that_an_output_has_are_its_rows(
    tmp_path: Path, body: str, shape: tuple[int, ...], row: int
) -> None:
    described = made_case(tmp_path, reference(body), shape)
    assert described["rows"] == ["own", *ROWS]
    (tolerance,) = described["tolerances"]
    assert (tolerance["row"], tolerance["rows"]) == (row, 40)
    assert len(tolerance["absolute"]) == KINDS
    x = rows_of(tmp_path)
    large, offset, gaussian = (x[:, kind::KINDS] for kind in (1, 2, 6))
    assert np.abs(large).max() > 100 and offset.mean() > 5 and np.abs(gaussian).max() < 6


def test_each_kind_of_row_has_its_tolerance() -> None:
    answer = torch.ones(14, 32)
    answer[1::KINDS] *= 100
    answer[2::KINDS] /= 100
    found = full_case._tolerance(answer, None, BY_ROWS, cast=False)
    assert found is not None and found["row"] == 32
    assert found["absolute"] == pytest.approx([1e-4, 1e-2, *[1e-4] * 5])
    assert full_case._tolerance(answer.long(), None, BY_ROWS, cast=False) == {
        "absolute": [0.0], "relative": [0.0], "row": 32
    }  # fmt: skip
    columns = full_case._tolerance(answer.T, None, full_case._Rows(length=14), cast=False)
    assert columns == found | {"row": 1, "rows": 14}
    whole = full_case._tolerance(answer, None, full_case._Rows(), cast=False)
    assert whole is not None and whole["row"] == answer.numel() and len(whole["absolute"]) == 1


def test_kinds_that_pytorch_does_not_meet_are_not_compared() -> None:
    answer = torch.ones(14, 32)
    exact = answer.double()
    exact[3::KINDS] += 1.0
    found = full_case._tolerance(answer, exact, BY_ROWS, cast=False)
    assert found is not None
    assert [each == NOT_COMPARED for each in found["absolute"]] == [kind == 3 for kind in range(7)]
    assert full_case._tolerance(answer, exact + 1.0, BY_ROWS, cast=False) is None


def test_tolerances_are_widened_by_pytorchs_own_error(tmp_path: Path) -> None:
    made = reference("(x + 1e4) - 1e4", "torch.randn(N, 64)")
    variation = explore(made)
    before = made_case(tmp_path, made, (64, 64), variation=variation)
    widen_tolerances(made, tmp_path, variation)
    after = json.loads((tmp_path / "case.json").read_text())
    assert not before["exact"] and after["exact"]
    assert [path.name for path in tmp_path.glob("case.json*")] == ["case.json"]
    (old,), (new,) = before["tolerances"], after["tolerances"]
    pairs = list(zip(new["absolute"], old["absolute"], strict=True))
    assert all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)
    assert {name: before[name] for name in ("rows", "drawn", "shapes")} == {
        name: after[name] for name in ("rows", "drawn", "shapes")
    }
    answer = torch.ones(64, 64)
    exact = answer.double() * (1 + 1e-5)
    wide = full_case._tolerance(answer, exact, full_case._Rows(), cast=False)
    alone = tolerance_of(answer, exact, scale="both", cast=False, factor=OWN_ERROR_FACTOR)
    assert wide is not None and alone is not None
    assert math.isclose(wide["absolute"][0], alone.absolute)


def test_flags_of_which_any_would_be_right_are_not_compared_at_full_dimensions() -> None:
    whole: dict[str, Any] = {"absolute": [0.0], "relative": [0.0], "row": 4}
    flags = Steps(torch.tensor([0.0, 1.0, 1.0, 0.0]), size=1.0, least=1.0, share=0.5)
    assert full_case._stepped(whole, flags) is None
    numbers = flags._replace(exact=40.0 * flags.exact)
    assert full_case._stepped(whole, numbers) == {"absolute": [1.0], "relative": [1e-4]}


def test_plain_sums_have_room_at_full_dimensions_too(tmp_path: Path) -> None:
    made = reference("x.sum(-1, keepdim=True) * torch.ones(2)", "torch.rand(7, 1 << 19)")
    variation = explore(made)
    described = made_case(tmp_path, made, (7, 2), variation=variation)
    right = np.abs(np.fromfile(tmp_path / "out0.bin", np.float32).reshape(7, 2)[:, 0])

    def allowed() -> dict[str, float]:
        (tolerance,) = json.loads((tmp_path / "case.json").read_text())["tolerances"]
        parts = (np.array(tolerance[part]) for part in ("absolute", "relative"))
        absolute, relative = parts
        shares = (absolute + relative * right) / right
        return dict(zip(described["rows"], shares.tolist(), strict=True))

    before = allowed()
    widen_tolerances(made, tmp_path, variation)
    after = allowed()
    # Half a million equal numbers are rounded alike, and may be off by a hundredth.
    assert before["constant"] < 3e-4 and 5e-3 < after["constant"] < 0.05
    # Rows of large numbers leave the others their own.
    assert before["own"] <= after["own"] < 3e-4


def test_a_root_mean_square_is_taken_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_case, "PIECE", 7)
    assert full_case._rms(torch.arange(20.0).view(4, 5)) == pytest.approx((2470 / 20) ** 0.5)
