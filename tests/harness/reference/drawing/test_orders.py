"""Lines in order: each axis has sorted ones, clustered ones and ties, and all else is as drawn."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from small_references import reference

from kernelblaster.harness.records.variations import Variation
from kernelblaster.harness.reference.cases.distributions import first_finite
from kernelblaster.harness.reference.cases.exploration import explore
from kernelblaster.harness.reference.drawing import orders
from kernelblaster.harness.reference.drawing.draws import Draw, draw
from kernelblaster.harness.reference.drawing.orders import (
    EVEN,
    MOST_SORTED,
    NORMAL,
    RECORDS,
    Order,
    level_lines,
    pad_lines,
    put_flags_in_order,
    put_in_order,
)

ANY = Variation(levels={"x": "any"})


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def rises(lines: torch.Tensor) -> torch.Tensor:
    """Return the rising maxima of each line, the last axis."""
    most = lines.cummax(-1).values
    return 1 + (most[..., 1:] > most[..., :-1]).sum(-1)


@pytest.mark.parametrize(
    ("shape", "case", "axis"),
    [((64, 200), "gaussian", 1), ((64, 200), "large", 0), ((16, 32, 40), "gaussian", 2),
     ((16, 32, 40), "gaussian", 1), ((200, 8, 8), "large", 0), ((1, 1, 64, 200), "gaussian", 3)],
)  # fmt: skip
def test_every_axis_has_lines_that_rise_and_that_fall(
    shape: tuple[int, ...], case: str, axis: int
) -> None:
    value = torch.randn(shape, generator=generator())
    put_in_order(value, NORMAL, Order(case, alike=True), generator())
    lines = value.movedim(axis, -1)
    for each in (lines, lines.flip(-1)):
        assert int((rises(each) == shape[axis]).sum()) >= each[..., 0].numel() // 32
    assert 0.8 < float(value.std()) < 1.6


@pytest.mark.parametrize(
    ("case", "axis"), [("gaussian", 1), ("uniform", 1), ("large", 0), ("offset", 1)]
)
def test_positive_lines_are_in_order_too(case: str, axis: int) -> None:
    made = reference("x * 2", "torch.rand(64, 200)")
    how = Draw(1, case, 100.0 if case == "large" else 1.0)
    x = draw(made, how, Variation(levels={"x": "positive"})).inputs["x"]
    assert float(x.min()) > 0 and bool(x.isfinite().all())
    if case == "offset":
        return
    lines = x.movedim(axis, -1)
    for each in (lines, lines.flip(-1)):
        assert int((rises(each) == each.shape[-1]).sum()) >= each.shape[0] // 32
    # The smallest of some line lie in what one of 8 or more threads takes of it, or side by side.
    places = lines.topk(3, largest=False).indices
    apart = (places.amax(1) - places.amin(1)).float()
    together = (places % 8 == places[:, :1] % 8).all(1) | (apart < 8)
    assert float(together.float().mean()) > 0.25
    within = lines.mean(1) / lines.mean()
    assert 0.1 < float(within.min()) and float(within.max()) < 4


def test_an_axis_and_all_behind_it_is_a_line_too() -> None:
    value = torch.rand((32, 16, 20), generator=generator())
    put_in_order(value, EVEN, Order("uniform", alike=True), generator())
    assert int((rises(value.flatten(1)) == 320).sum()) >= 2
    assert 0 <= float(value.min()) and float(value.max()) < 1


def test_a_tensor_of_one_line_rises_once_and_falls_once() -> None:
    found = {
        case: draw(made, Draw(1, case), ANY).inputs["x"]
        for made in (reference("x * 2", "torch.randn(500)"),) for case in ("gaussian", "large")
    }  # fmt: skip
    assert rises(found["gaussian"]) > 490 and rises(found["large"].flip(0)) > 490


PEAK = """
import re, sys, torch
from kernelblaster.harness.records.variations import Variation
from kernelblaster.harness.reference.drawing.draws import Draw, redrawn
made, distribution = sys.argv[1:]
own, generator = eval(made), torch.Generator().manual_seed(1)
most = lambda: int(re.search("VmHWM:(.*)kB", open("/proc/self/status").read())[1])
redrawn(own[:64], Draw(1, distribution), Variation(levels={"x": "any"}), "x", generator)
before = most()
redrawn(own, Draw(1, distribution), Variation(levels={"x": "any"}), "x", generator)
print((most() - before) * 1024 / own.numel() / own.element_size())
"""
"""Prints by how much the memory of a process grows at most, in times of the tensor drawn anew.

Not by ``ru_maxrss``: Linux lets it begin at what the process had that started this one.
"""


@pytest.mark.parametrize(
    ("made", "distribution", "most"),
    [("torch.randn(1 << 25)", "uniform", 4.0), ("torch.randn(1 << 25)", "gaussian", 4.0),
     ("torch.randint(-9, 9, (512, 1 << 16), dtype=torch.int8)", "uniform", 16.0)],
)  # fmt: skip
def test_lines_are_in_order_within_a_few_times_a_tensors_memory(
    made: str, distribution: str, most: float
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PEAK, made, distribution], capture_output=True, text=True, check=True
    )
    assert 0 < float(ran.stdout) < most


@pytest.mark.parametrize("shape", [(9000,), (64, 200), (16, 32, 40), (3, 5000), (5000, 3)])
@pytest.mark.parametrize("case", ["gaussian", "uniform", "large"])
def test_lines_in_pieces_are_in_the_same_order(
    shape: tuple[int, ...], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for piece in (1 << 22, 2 * MOST_SORTED):
        monkeypatch.setattr(orders, "PIECE", piece)
        value, flags = torch.rand(shape, generator=generator()), torch.zeros(shape).bool()
        put_in_order(value, EVEN, Order(case, alike=True, level=True), generator())
        put_flags_in_order(flags, Order(case, alike=True), generator())
        found.append((value, flags))
    (one, set_in_one), (other, set_in_other) = found
    assert torch.equal(set_in_one, set_in_other)
    # Sorted lines are drawn anew, of a piece at a time: only what is drawn in them may be another.
    assert abs(float(one.mean() - other.mean())) < 0.1
    for axis in range(len(shape)):
        sorted_ones = {
            int((rises(each.movedim(axis, -1)) == shape[axis]).sum()) for each in (one, other)
        }
        assert len(sorted_ones) == 1


def test_long_lines_have_records_and_no_large_partial_sums() -> None:
    value = torch.randn((64, 16 * MOST_SORTED), generator=generator())
    put_in_order(value, NORMAL, Order("gaussian", alike=True), generator())
    assert int(rises(value).max()) >= RECORDS
    assert float(value.cumsum(1).abs().max()) < 4096


def test_the_largest_lie_in_one_share_and_so_do_the_smallest() -> None:
    value = torch.randn((512, 1024), generator=generator())
    put_in_order(value, NORMAL, Order("gaussian", alike=True), generator())
    for lines in (value, -value):
        places = lines.topk(8, dim=1).indices
        for threads in (32, 128):
            in_one = (places % threads == places[:, :1] % threads).all(1)
            assert int(in_one.sum()) >= 4, threads
        assert int((places.amax(1) - places.amin(1) < 8).sum()) >= 2


def test_equal_neighbours_are_there_where_they_may_be() -> None:
    found = {}
    for alike in (True, False):
        value = torch.randn((64, 1024), generator=generator())
        put_in_order(value, NORMAL, Order("gaussian", alike=alike), generator())
        found[alike] = (value[:, 1:] == value[:, :-1]).float().mean(1) > 0.1
    assert int(found[True].sum()) >= 12 and not bool(found[False].any())


def test_a_case_that_hangs_on_ties_has_sorted_rows_all_the_same() -> None:
    made = reference("torch.topk(x, 3, dim=1)", "torch.randn(64, 40)")
    case, how = first_finite(made, explore(made), 1, "gaussian", None)
    assert how.lines == "unlike" and how.distribution == "gaussian"
    assert int((rises(case.tensors["x"]) == 40).sum()) >= 6


def test_integers_have_rows_of_nothing_but_the_largest() -> None:
    made = reference("x.sum(1)", "torch.randint(0, 256, (64, 100), dtype=torch.uint8)")
    x = draw(made, Draw(1, "gaussian"), explore(made)).inputs["x"]
    assert bool((x == 255).all(1).any()) and bool((x[:, 1:] >= x[:, :-1]).all(1).any())
    one = torch.arange(80) % 7
    level_lines(one, 6, generator())
    assert int((one == 6).sum()) >= 10 + 60 // 7
    one = torch.arange(80).reshape(8, 10) % 7
    level_lines(one, 9, generator())
    assert (one == 9).all(1).tolist() == [row == 3 for row in range(8)]
    assert len(one[5].unique()) == 1


@pytest.mark.parametrize("alike", [True, False])
def test_flags_are_set_as_padding_is(alike: bool) -> None:
    value = torch.rand((64, 50), generator=generator()) < 0.5
    put_flags_in_order(value, Order("gaussian", alike=alike), generator())
    assert bool((~value).all(1).any()) is alike and bool(value.all(1).any()) is alike
    falls, steps = (value[:, :-1] >= value[:, 1:]).all(1), (value[:, :-1] <= value[:, 1:]).all(1)
    assert int(falls.sum()) >= 8 and int(steps.sum()) >= 8


def test_a_mask_that_leaves_nothing_is_not_drawn_where_that_is_no_number() -> None:
    made = reference("x.masked_fill(~keep, -torch.inf).softmax(1)",
                     "torch.randn(64, 40), torch.rand(64, 40) < 0.5", "x, keep")  # fmt: skip
    variation = explore(made)
    assert variation.levels["keep"] == "any"
    usual, _ = first_finite(made, variation, 0, "normal", None)
    assert usual.finite
    case, how = first_finite(made, variation, 1, "gaussian", None)
    assert case.finite and how.lines == "unlike" and how.distribution == "gaussian"


def test_some_samples_are_zero_and_some_lines_end_in_zeros() -> None:
    value = torch.ones(16, 4, 10)
    pad_lines(value)
    assert [bool((each == 0).all()) for each in value] == [row % 8 == 3 for row in range(16)]
    assert bool((value.view(-1, 10)[5::8, 5:] == 0).all()) and bool((value[0] == 1).any())
    made = reference("F.hardswish(x)", "torch.randn(64, 40)")
    case, how = first_finite(made, explore(made), 5, "zeros", None)
    x = case.tensors["x"]
    assert how.lines == "any" and int((x == 3.0).sum()) > 10
    assert not bool(x[3::8].any()) and not bool(x[5::8, 20:].any()), "no border lies in padding"
    made = reference("x / x.norm(dim=1, keepdim=True)", "torch.randn(64, 40)")
    case, how = first_finite(made, explore(made), 5, "zeros", None)
    assert case.finite and how.lines == "unlike" and how.distribution == "zeros"
