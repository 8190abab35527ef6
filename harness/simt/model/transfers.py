"""What asynchronous copies and fills cost: their bytes, and those bytes as a LaunchProfile."""

from __future__ import annotations

import numpy as np

from ...gpus import Gpu
from ...judge.reports import TransferReport
from ...records import Bottleneck, LaunchProfile
from ..run.arena import Allocation, Transfer
from .constants import constants_of

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
    """Return a copy or fill as a launch that only moves bytes through DRAM."""
    read, written = float(told.read), float(told.written)
    constants = constants_of(gpu)
    dram = (read + written) / (gpu.dram_gigabytes_per_second * constants.dram_efficiency * 1e3)
    microseconds = constants.launch_microseconds + dram
    bottleneck: Bottleneck = "dram" if dram > constants.launch_microseconds else "launch"
    throughput = "{}_throughput.avg.pct_of_peak_sustained_elapsed"
    return LaunchProfile(
        kernel="cudaMemcpyAsync" if told.copy else "cudaMemsetAsync",
        grid=(1, 1, 1),
        block=(1, 1, 1),
        microseconds=microseconds,
        metrics={
            "gpu__time_duration.sum": microseconds * 1e3,
            throughput.format("sm_"): 0.0,
            throughput.format("gpu__dram"): 100 * constants.dram_efficiency * dram / microseconds,
            "dram__bytes_read.sum": read,
            "dram__bytes_write.sum": written,
            "dram__bytes.sum.per_second": (read + written) / (microseconds * 1e-6),
        },
        terms={"dram": round(dram, 6), "launch": constants.launch_microseconds},
        bottleneck=bottleneck,
    )  # fmt: skip
