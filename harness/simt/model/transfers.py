"""What asynchronous copies and fills cost, their bytes or their rows, as a LaunchProfile."""

from __future__ import annotations

import math

import numpy as np

from ...gpus import Gpu
from ...judge.reports import TransferReport
from ...records.profiles import ELAPSED_CYCLES, Bottleneck, LaunchProfile
from ..run.arena import Allocation, Transfer
from .constants import ROWS, constants_of

SECTOR = 32


def account(transfer: Transfer, allocations: list[Allocation]) -> TransferReport:
    """Return what the child reports of a transfer."""
    place = _place(transfer.target, allocations)
    assert place is not None, "the plan has checked the target"
    return TransferReport(
        copy=transfer.is_copy,
        value=transfer.value,
        read=_moved(transfer.source, transfer.source_pitch, transfer) if transfer.source else 0,
        written=_moved(transfer.target, transfer.target_pitch, transfer),
        place=place,
        source_place=_place(transfer.source, allocations),
        offset=transfer.target - allocations[place].address,
        pitch=transfer.target_pitch,
        width=transfer.width,
        height=transfer.height,
    )


def _place(address: int, allocations: list[Allocation]) -> int | None:
    for place, allocation in enumerate(allocations):
        if allocation.address <= address < allocation.address + allocation.size:
            return place
    return None


def _moved(address: int, pitch: int, transfer: Transfer) -> int:
    """Return the bytes of one side: whole sectors of each row, or of all where they adjoin."""
    width, height = transfer.width, transfer.height
    if pitch == width:
        width, height = width * height, 1
    starts = address + pitch * np.arange(height, dtype=np.int64)
    sectors = (starts + width - 1) // SECTOR - starts // SECTOR + 1
    return int(sectors.sum()) * SECTOR


def describe_transfer(gpu: Gpu, told: TransferReport) -> LaunchProfile:
    """Return a copy or fill as a launch that moves its bytes through DRAM, or row after row."""
    read, written = float(told.read), float(told.written)
    constants = constants_of(gpu)
    dram = (read + written) / (gpu.dram_gigabytes_per_second * constants.dram_efficiency * 1e3)
    launch = constants.launch_microseconds + (constants.copy_microseconds if told.copy else 0.0)
    rows = _rows_microseconds(gpu, told)
    microseconds = launch + max(dram, rows)
    bottleneck: Bottleneck = "dram" if dram > max(launch, rows) else "launch"
    advice = (
        f"A copy in rows: {told.height} of {told.width} bytes take {rows:.1f} us, their bytes in "
        f"one piece {dram:.1f}; copy adjoining rows as one, or let a kernel move them.",
    )  # fmt: skip
    throughput = "{}_throughput.avg.pct_of_peak_sustained_elapsed"
    return LaunchProfile(
        kernel="cudaMemcpyAsync" if told.copy else "cudaMemsetAsync",
        grid=(1, 1, 1),
        block=(1, 1, 1),
        microseconds=microseconds,
        metrics={
            "gpu__time_duration.sum": microseconds * 1e3,
            ELAPSED_CYCLES: microseconds * gpu.clock_ghz * 1e3,
            throughput.format("sm_"): 0.0,
            throughput.format("gpu__dram"): 100 * constants.dram_efficiency * dram / microseconds,
            "dram__bytes_read.sum": read,
            "dram__bytes_write.sum": written,
            "dram__bytes.sum.per_second": (read + written) / (microseconds * 1e-6),
        },
        terms={"dram": round(dram, 6), "launch": round(launch + max(0.0, rows - dram), 6)},
        bottleneck=bottleneck,
        advice=advice if rows > dram else (),
    )  # fmt: skip


def _rows_microseconds(gpu: Gpu, told: TransferReport) -> float:
    """Return what the rows of a pitched copy or fill take, whether or not they adjoin."""
    if told.height <= 1:
        return 0.0
    constants = constants_of(gpu)
    moved = told.width * told.height * (2 if told.copy else 0)
    return max(
        constants.row_microseconds * math.pow(told.height, ROWS),
        moved / (constants.rows_bytes_per_nanosecond * 1e3),
    )
