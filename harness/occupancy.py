"""Occupancy of a launch by NVIDIA's published formula (cuda_occupancy.h)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .gpus import Limits

Limiter = Literal["registers", "shared_mem", "warps", "blocks"]


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a launch one SM holds at a time, and what stops one more."""

    blocks: int
    """Resident blocks per SM; 0 where not even one fits."""
    warps: int
    """Resident warps per SM."""
    percent: float
    """Theoretical occupancy: resident warps over the SM's maximum, in percent."""
    by_limit: dict[Limiter, int]
    """Blocks that each resource alone would allow."""

    @property
    def limiters(self) -> tuple[Limiter, ...]:
        """The resources that allow no more blocks than the launch gets."""
        return tuple(name for name, blocks in self.by_limit.items() if blocks == self.blocks)


def occupancy(limits: Limits, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Return the occupancy of blocks of `threads` threads.

    Args:
        limits: the GPU's limits.
        threads: threads per block.
        registers: registers per thread, as ptxas reports them.
        shared_bytes: static plus dynamic shared memory of a block.
    """
    warps = max(1, -(-threads // 32))
    per_warp = _round_up(max(1, registers) * 32, limits.register_unit)
    register_warps = limits.registers // per_warp // limits.warp_unit * limits.warp_unit
    per_block = _round_up(shared_bytes + limits.shared_reserved, limits.shared_unit)
    by_limit: dict[Limiter, int] = {
        "registers": register_warps // warps,
        "shared_mem": limits.shared_bytes // per_block,
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
    }
    blocks = min(by_limit.values())
    return Occupancy(blocks, blocks * warps, 100.0 * blocks * warps / limits.warps, by_limit)


def shared_carveout(limits: Limits, shared_bytes: int, blocks: int) -> int:
    """Return the bytes of L1 given to shared memory when `blocks` blocks are resident on an SM.

    The driver takes the smallest configuration that fits them.
    """
    need = blocks * (shared_bytes + limits.shared_reserved)
    for kibibytes in limits.shared_carveouts:
        if kibibytes * 1024 >= need:
            return kibibytes * 1024
    return limits.shared_bytes


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
