"""Sums what the instructions of a run counted, by what they are, scaled to the whole grid."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...counters import Counts
from ...ptx.records import Instruction, Module, elements_of
from ...run import core
from .instruction_mix import machine_instructions, tensor_operations


def count_by_kind(
    module: Module, result: core.Result, scale: float, shares: npt.NDArray[np.float64] | None = None
) -> Counts:
    """Return the counters of a run, summed by what each instruction is.

    Args:
        module: what was run.
        result: of some of the grid's blocks.
        scale: blocks of the grid for each that ran.
        shares: of the traffic of each instruction, what the machine code makes; None: all.
    """
    counts = Counts()
    rows = result.counters
    for index in np.flatnonzero(rows["warps"]).tolist():
        instruction = module.instructions[index]
        row = rows[index]
        warps, threads = float(row["warps"]) * scale, float(row["threads"]) * scale
        machine = 0.0
        for pipe, number in machine_instructions(instruction).items():
            counts.pipes[pipe] = counts.pipes.get(pipe, 0.0) + warps * number
            machine += warps * number
        counts.warp_instructions += warps
        counts.thread_instructions += threads
        counts.tensor_operations += warps * tensor_operations(instruction)
        _count_operations(counts, instruction, threads, warps)
        made = scale if shares is None else scale * float(shares[index])
        sectors = _count_memory(counts, instruction, row, made)
        wavefronts = _count_shared(counts, row, made)
        line = counts.lines.setdefault(instruction.line or 0, [0.0, 0.0, 0.0])
        line[0] += machine
        line[1] += sectors
        line[2] += wavefronts
    return counts


def _count_operations(
    counts: Counts, instruction: Instruction, threads: float, warps: float
) -> None:
    if instruction.opcode == "bra":
        counts.branches += warps
    if instruction.modifiers and instruction.modifiers[-1] == "f32":
        if instruction.opcode in ("fma", "mad"):
            counts.ffma += threads
        elif instruction.opcode in ("add", "sub"):
            counts.fadd += threads
        elif instruction.opcode == "mul":
            counts.fmul += threads


def _count_memory(counts: Counts, instruction: Instruction, row: np.void, scale: float) -> float:
    """Add the global and local traffic of one instruction; returns its global sectors."""
    requests, sectors = float(row["global_requests"]) * scale, float(row["sectors"]) * scale
    lines, moved = float(row["lines"]) * scale, float(row["bytes"]) * scale
    if row["copy_sectors"]:
        sectors = float(row["copy_sectors"]) * scale
        counts.copy_requests += requests
        counts.copy_sectors += sectors
        counts.copy_lines += lines
        counts.copy_fetched += float(row["copy_fetched"]) * scale
        counts.copy_wavefronts += float(row["copy_wavefronts"]) * scale
    counts.local_sectors += float(row["local_sectors"]) * scale
    if row["constant_words"]:
        reads = elements_of(instruction)
        counts.constant_requests += float(row["warps"]) * scale * reads
        counts.constant_words += float(row["constant_words"]) * scale * reads
    if not requests:
        return 0.0
    if instruction.opcode in ("atom", "red"):
        counts.atomic_requests += requests
        counts.atomic_lanes += float(row["atomic_lanes"]) * scale
        counts.atomic_lines += lines
        counts.atomic_turns += float(row["atomic_turns"]) * scale
        counts.atomic_passes += float(row["atomic_passes"]) * scale
        if instruction.modifiers[-1] in ("f32", "f64", "f16", "f16x2", "bf16", "bf16x2"):
            counts.float_atomics += float(row["atomic_turns"]) * scale
        return sectors
    if instruction.opcode == "st" or "store" in instruction.modifiers:
        counts.store_requests += requests
        counts.store_sectors += sectors
        counts.store_lines += lines
        counts.store_bytes += min(moved, 32 * sectors)  # Lanes may store the same places.
    else:
        counts.load_requests += requests
        counts.load_sectors += sectors
        counts.load_lines += lines
        counts.load_bytes += moved
    threads = float(row["threads"]) * scale
    if threads and moved / threads <= 4 and 2 <= sectors / requests <= 4.5:
        counts.narrow_requests += requests
    return sectors


def _count_shared(counts: Counts, row: np.void, scale: float) -> float:
    """Add the shared-memory traffic of one instruction; returns its wavefronts."""
    wavefronts = float(row["copy_wavefronts"] or row["shared_wavefronts"]) * scale
    counts.shared_requests += float(row["shared_requests"]) * scale
    counts.shared_wavefronts += wavefronts
    # A conflict-free vector load still needs a wavefront for every 128 bytes.
    counts.shared_wavefronts_ideal += min(wavefronts, float(row["shared_wavefronts_ideal"]) * scale)
    return wavefronts
