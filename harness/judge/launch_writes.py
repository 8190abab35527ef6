"""What launches write to an allocation: how much of it by estimate, and whether it stays."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from .reports import LaunchReport, TransferReport, Written

Launches = Sequence[LaunchReport | TransferReport]

UNSURE = 0.1
"""Of an estimate the part that stands for its own error, from which on it proves nothing."""


def kernels_of(launches: Launches) -> list[LaunchReport]:
    """Return the launches of kernels, in their order."""
    return [launch for launch in launches if not isinstance(launch, TransferReport)]


def transfers_of(launches: Launches) -> list[TransferReport]:
    """Return the copies and fills, in their order."""
    return [launch for launch in launches if isinstance(launch, TransferReport)]


def not_final(launches: Launches, place: int) -> str:
    """Return why what is in an output may change when all blocks run; empty where it stays.

    It may where a launch goes by what blocks that were not run would have written, where one of
    which blocks are missing overwrites what another wrote, and where the blocks of one join what
    they have found.
    """
    partial: set[int | None] = set()
    """Places that hold less than all blocks would have left there."""
    ranges: list[Written] = []
    for each in launches:
        if isinstance(each, TransferReport):
            if each.copy and each.source_place in partial:
                partial.add(each.place)
            continue
        goes_by_part = not partial.isdisjoint(each.read)
        own = each.written.get(place)
        if own and goes_by_part:
            return "a launch reads what another writes"
        if own and each.joins_blocks:
            return "blocks use atomics and read what the launch writes"
        if own and not each.complete:
            for its in ranges:
                if max(own.first, its.first) < min(own.end, its.end):
                    return "a launch overwrites what another writes"
        if own:
            ranges.append(own)
        if goes_by_part or not each.complete:
            partial.update(each.written)
    return ""


def goes_by_part(launches: Launches, place: int) -> bool:
    """Say whether what writes an output reads what launches, of which blocks are missing, left."""
    return any(
        place == each.place if isinstance(each, TransferReport) else place in each.written
        for each in _by_part(launches)
    )


def still_to_come(launches: Launches, place: int) -> float:
    """Return the bytes of an output that blocks which did not run would write, or others write by
    what these would have left, by estimate."""
    by_part = {id(each) for each in _by_part(launches)}
    found = 0.0
    for each in launches:
        if isinstance(each, TransferReport):
            found += (id(each) in by_part and each.place == place) * each.width * each.height
        elif place in each.written and (not each.complete or id(each) in by_part):
            found += each.written[place].grid_bytes
    return found


def _by_part(launches: Launches) -> list[LaunchReport | TransferReport]:
    """Return those that read what launches, of which blocks are missing, left."""
    partial: set[int | None] = set()
    found: list[LaunchReport | TransferReport] = []
    for each in launches:
        if isinstance(each, TransferReport):
            reads = each.copy and each.source_place in partial
            partial |= {each.place} if reads else set()
        else:
            reads = not partial.isdisjoint(each.read)
            partial |= set(each.written) if reads or not each.complete else set()
        if reads:
            found.append(each)
    return found


def carried_to(
    kernels: Sequence[LaunchReport], transfers: Sequence[TransferReport], place: int
) -> list[TransferReport]:
    """Return the copies that take to an output what launches wrote elsewhere."""
    written = {source for kernel in kernels for source in kernel.written}
    return [
        each
        for each in transfers
        if each.copy and each.place == place and each.source_place in written - {place}
    ]


def is_last(
    launches: Launches,
    place: int,
    carried: Sequence[TransferReport],
) -> bool:
    """Say whether each copied element is what one block left there, or nobody: then it counts."""
    kernels, sources = kernels_of(launches), {each.source_place for each in carried}
    if any(place in kernel.written or place in kernel.read for kernel in kernels):
        return False
    if any(each.place == place and each not in carried for each in transfers_of(launches)):
        return False
    return not (
        any(kernel.atomic_lines and not kernel.complete for kernel in kernels)
        or any(each.place in sources for each in transfers_of(launches))
        or any(source is not None and not_final(launches, source) for source in sources)
    )


def bytes_by_kernels(
    kernels: Sequence[LaunchReport], place: int, really_written: int | None
) -> float:
    """Return the estimated bytes of an allocation that all launches write, each byte once.

    Blocks count whole sectors; where the bytes that the sampled ones left are known, that corrects
    the estimate.
    """
    found = [kernel.written[place] for kernel in kernels if place in kernel.written]
    if not found:
        return 0.0
    # Of each launch by itself: what one computes in place of what nobody wrote may look unwritten.
    estimates = [
        min(each.span, each.grid_bytes * _density(each, really_written)) for each in found
    ]
    if len(found) == 1:
        return float(estimates[0])
    union, reached = 0, 0
    for each in sorted(found, key=lambda each: each.first):
        union += max(0, each.end - max(each.first, reached))
        reached = max(reached, each.end)
    widest = max(each.span / max(1, each.end - each.first) for each in found)
    return float(min(sum(estimates), widest * union))


def is_unsure(kernels: Sequence[LaunchReport], place: int) -> bool:
    """Say whether what a launch writes of an allocation is more a guess than an estimate."""
    found = [kernel.written[place] for kernel in kernels if place in kernel.written]
    return any(each.raised > UNSURE * each.grid_bytes for each in found)


def _density(each: Written, really_written: int | None) -> float:
    """Return how much of the sectors that sampled blocks touched holds something, at most 1."""
    if really_written is None:
        return 1.0
    return min(1.0, really_written / max(each.sampled_bytes, 1.0))


def bytes_copied_from_kernels(
    kernels: Sequence[LaunchReport], into: Sequence[TransferReport]
) -> float:
    """Return the bytes that copies carry from where kernels wrote them (the workspace)."""
    return sum(
        min(float(each.width * each.height), bytes_by_kernels(kernels, each.source_place, None))
        for each in into
        if each.copy and each.source_place is not None
    )


def read_unwritten(
    launches: Launches, least: float, own: Collection[int]
) -> tuple[str, float] | None:
    """Return the first kernel that reads more of an output or the workspace than is written before
    it, by estimate, and the share that is; None where none does. A copy has no name.

    What blocks that were not run would have written is none of what nobody writes.

    Args:
        launches: of a call, in their order.
        least: share of what is read that must be written.
        own: places of the outputs and of the workspace.
    """
    for index, each in enumerate(launches):
        before = launches[:index]
        for place, read in _read_by(each, own).items():
            moved = sum(
                it.width * it.height for it in transfers_of(before) if it.place == place
            )
            written = bytes_by_kernels(kernels_of(before), place, None) + moved
            if written < least * read:
                kernel = "" if isinstance(each, TransferReport) else each.kernel
                return kernel, written / read
    return None


def _read_by(each: LaunchReport | TransferReport, own: Collection[int]) -> dict[int, float]:
    """Return the bytes of outputs and the workspace that a launch or a copy reads, by place."""
    if not isinstance(each, TransferReport):
        return dict(each.read_bytes)
    if each.copy and each.source_place is not None and each.source_place in own:
        return {each.source_place: float(each.width * each.height)}
    return {}


def reached(transfer: TransferReport, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say which byte offsets of an output a transfer wrote."""
    row, column = np.divmod(offsets - transfer.offset, max(1, transfer.pitch))
    return np.asarray((row >= 0) & (row < transfer.height) & (column < transfer.width))
