"""Copies and fills as the time model has them: by bytes, by rows, one after the other."""

from __future__ import annotations

import pytest

from kernelblaster.harness.gpus import find_gpu
from kernelblaster.harness.judge.reports import TransferReport
from kernelblaster.harness.records.profiles import LaunchProfile
from kernelblaster.harness.simt.model.constants import constants_of
from kernelblaster.harness.simt.model.time_model import hidden_microseconds
from kernelblaster.harness.simt.model.transfers import describe_transfer

H200 = find_gpu("H200")


def _moved(width: int, height: int, *, copy: bool = True) -> LaunchProfile:
    moved = max(32, width) * height
    return describe_transfer(H200, TransferReport(
        copy=copy, value=0, read=moved if copy else 0, written=moved, place=0, source_place=1,
        offset=0, pitch=2 * width if height > 1 else width, width=width, height=height,
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("width", "height", "measured"),
    [(4, 1024, 4.2), (4, 16384, 13.5), (4, 65536, 17.7), (4, 262144, 45.9), (512, 65536, 26.9),
     (4096, 16384, 83.2), (1 << 26, 1, 35.6), (4, 1, 3.36)],
)  # fmt: skip
def test_copies_take_about_what_they_took_on_an_h200(
    width: int, height: int, measured: float
) -> None:
    assert _moved(width, height).microseconds == pytest.approx(measured, rel=0.32)


@pytest.mark.parametrize("copy", [True, False])
def test_the_same_bytes_in_more_rows_never_take_less(copy: bool) -> None:
    times = [_moved(2**20 // n, n, copy=copy).microseconds for n in (1, 2, 64, 4096, 65536)]
    assert times == sorted(times)


def test_a_copy_that_its_rows_decide_says_so() -> None:
    assert any("16384 of 4 bytes" in each for each in _moved(4, 16384).advice)
    assert not _moved(1 << 26, 1).advice


def test_a_further_launch_costs_something_and_less_than_the_first() -> None:
    first = constants_of(H200).launch_microseconds
    assert hidden_microseconds(H200, 1) == 0.0
    for launches in (2, 16):
        assert 0 < hidden_microseconds(H200, launches) < (launches - 1) * first
