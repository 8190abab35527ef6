"""Memory of a run at full dimensions: backed where it is touched, and what of it is handed over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ....judge.poison import FULL_SIZE_POISON, POISON
from ...run.arena import Allocation
from ...run.candidate import Candidate, memory_of
from ...run.core import untouched
from .written import Atomics

TILE_BYTES = 4 << 20
PAGE = 4096
LARGEST_MOVED = 256 << 20
"""Bytes of what holds its numbers in other places in a call before; larger tensors stay."""
LARGEST_DUMP = 8 << 30
"""Outputs larger than this are not handed to the parent. Only pages that were written are."""


def back_tensors(
    request: dict[str, Any],
    candidate: Candidate,
    *,
    again: bool = False,
    complete: bool = False,
    other_inputs: bool = False,
) -> None:
    """Back every tensor and the workspace, copied on write: no memory is filled.

    Args:
        request: what the process was asked for.
        candidate: whose tensors.
        again: on the poison of the second of two runs.
        complete: all blocks run, so that the workspace may hold what is no number in that one.
        other_inputs: floating inputs begin as they do, and go on with those of a small case; what
            else varies holds its numbers in other places.
    """
    output, workspace = FULL_SIZE_POISON[again]
    workspace = POISON if again and complete else workspace
    poison = np.full(TILE_BYTES, output, dtype=np.uint8)
    for tensor, allocation in candidate.tensors.items():
        if not tensor.nbytes:
            continue
        if tensor.role == "output":
            _repeat(candidate, allocation, poison)
        elif request["inputs_directory"] is not None and not (
            other_inputs and "float" in tensor.dtype and tensor.role == "input"
        ):
            path = Path(request["inputs_directory"], f"{tensor.name}.bin")
            if other_inputs and not tensor.constant and tensor.nbytes <= LARGEST_MOVED:
                candidate.arena.view(allocation)[:] = _moved_on(path, tensor.dtype)
                continue
            if path.stat().st_size != tensor.nbytes:
                raise ValueError(f"{path} has another size than {tensor.name}")
            with path.open("rb") as file:
                length = -(-tensor.nbytes // PAGE) * PAGE
                candidate.arena.back_with_tile(allocation, file.fileno(), length)
        else:
            case = Path(request["cases_directory"], request["cases"][0]["directory"])
            values = np.fromfile(case / f"{tensor.name}.bin", dtype=np.uint8)
            if values.size >= tensor.nbytes:
                candidate.arena.view(allocation)[:] = values[: tensor.nbytes]
            else:
                _repeat(candidate, allocation, values)
            if other_inputs and request["inputs_directory"] is not None:
                begin = min(tensor.nbytes // 4 // 8 * 8, TILE_BYTES)
                own = Path(request["inputs_directory"], f"{tensor.name}.bin")
                candidate.arena.view(allocation)[:begin] = np.fromfile(own, np.uint8, begin)
    if candidate.workspace is not None:
        _repeat(candidate, candidate.workspace, np.full(TILE_BYTES, workspace, dtype=np.uint8))


def _moved_on(path: Path, dtype: str) -> np.ndarray[Any, Any]:
    """Return the bytes of a tensor whose numbers are each in the place of another; those in order
    stay so, as they may be offsets."""
    raw = np.fromfile(path, dtype=np.uint8)
    item = next(size for size in (8, 4, 2, 1) if str(8 * size) in dtype or size == 1)
    numbers = raw.view(f"i{item}")
    if "float" not in dtype and bool((numbers[1:] >= numbers[:-1]).all()):
        return raw
    return np.roll(numbers, numbers.size // 2 + 1).view(np.uint8)


def follow(candidate: Candidate) -> None:
    """Have it noted which bytes hold what they would had all blocks run: at first all inputs."""
    memory = memory_of(candidate.arena)
    candidate.initialised = memory.initialised = untouched(memory.size // 4 + 1)
    tensors = candidate.tensors.items()
    unwritten = [allocation for tensor, allocation in tensors if tensor.role == "output"]
    if candidate.workspace is not None:
        unwritten.append(candidate.workspace)
    for allocation in candidate.arena.allocations:
        if allocation not in unwritten:
            memory.mark_initialised(allocation.address, allocation.size)


def leave_outputs(
    request: dict[str, Any], candidate: Candidate, atomics: Atomics, *, again: bool = False
) -> None:
    """Leave what was written of each output in files.

    Those are <name>.data, the pages that hold anything but poison; <name>.pages, their numbers; and
    <name>.atomics, the numbers of the 32-byte sectors that atomics touched, where there are any.
    Where that was followed, <name>.known has a byte for each of those pages' bytes, 1 for one that
    holds what it would had all blocks run.
    """
    folder, poison = Path(request["outputs_directory"]), FULL_SIZE_POISON[again][0]
    pattern = np.full(8, poison, dtype=np.uint8).view(np.uint64)
    for tensor, allocation in candidate.tensors.items():
        if tensor.role != "output" or not 0 < tensor.nbytes <= LARGEST_DUMP:
            continue
        view = candidate.arena.view(allocation)
        target = folder / tensor.name
        found = []
        with target.with_suffix(".data").open("wb") as file:
            for start in range(0, tensor.nbytes, TILE_BYTES):
                part = view[start : start + TILE_BYTES]
                whole = part[: part.size // PAGE * PAGE].reshape(-1, PAGE)
                written = np.flatnonzero((whole.view(np.uint64) != pattern).any(axis=1))
                whole[written].tofile(file)
                found.append(written + start // PAGE)
                rest = part[whole.size :]
                if rest.size and (rest != poison).any():
                    rest.tofile(file)
                    found.append(np.array([(start + whole.size) // PAGE]))
        pages = np.concatenate(found).astype(np.int64)
        pages.tofile(target.with_suffix(".pages"))
        if candidate.initialised is not None:
            first = (allocation.address - candidate.arena.base) // 4
            with target.with_suffix(".known").open("wb") as file:
                for page in pages.tolist():
                    end = first + min(PAGE * (page + 1), -(-tensor.nbytes // 4) * 4) // 4
                    words = candidate.initialised[first + PAGE // 4 * page : end]
                    bits = (words[:, None] >> np.arange(4, dtype=np.uint8)) & np.uint8(1)
                    bits.ravel()[: tensor.nbytes - PAGE * page].tofile(file)
    leave_sectors(request, atomics, ".atomics")


def leave_sectors(request: dict[str, Any], found: Atomics, suffix: str) -> None:
    """Leave the numbers of sectors in files, <name><suffix> of each output that has any."""
    for place, touched in found.items():
        sectors = np.unique(np.concatenate(touched)).astype(np.int64)
        name = f"{request['tensors'][place]['name']}{suffix}"
        sectors.tofile(Path(request["outputs_directory"], name))


def _repeat(candidate: Candidate, allocation: Allocation, values: np.ndarray[Any, Any]) -> None:
    """Let a buffer repeat some bytes."""
    pages = -(-allocation.size // PAGE) * PAGE
    tile = np.resize(values, min(TILE_BYTES, pages))
    descriptor = os.memfd_create(allocation.name)
    try:
        os.write(descriptor, tile.tobytes())
        candidate.arena.back_with_tile(allocation, descriptor, tile.size)
    finally:
        os.close(descriptor)
