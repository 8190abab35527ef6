"""How much later than its average warp a block ends: its time is that of its slowest path.

The core follows one block from barrier to barrier, each time by the warp that came last; here the
same scoreboard goes over that path and over the block's average warp.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...ptx.records import Module
from ...run.core import Result
from ...sass.sums import KernelCode

_IN_TURN = ("bar", "barrier")


@dataclass(frozen=True)
class SlowestPath:
    """What a block waits for."""

    delay: float
    """Clocks of the slowest path over those of the average warp; 1 or more."""
    barriers: float
    """Barriers on it."""


def slowest_path(
    module: Module,
    probe: Result,
    warps: float,
    machine: KernelCode | None,
    chain: Callable[[list[float], float], float] | None,
) -> SlowestPath:
    """Return what the slowest path of a block is beside its average warp.

    Args:
        module: what was run.
        probe: a run of one block or more, alike.
        warps: warps of those blocks.
        machine: the kernel's machine code; None: steps are counted instead of clocks.
        chain: clocks of an average of so many warps that went through the machine's blocks so
            often; None as `machine`.
    """
    critical = probe.critical.astype(np.int64)
    barriers = sum(
        float(critical[index]) for index in np.flatnonzero(critical).tolist()
        if module.instructions[index].opcode in _IN_TURN
        and "warp" not in module.instructions[index].modifiers
    )  # fmt: skip
    average = probe.counters["warps"] / warps
    if machine is None or chain is None:
        steps = float(average.sum())
        return SlowestPath(max(1.0, float(critical.sum()) / steps) if steps else 1.0, barriers)
    if np.array_equal(critical, average):
        return SlowestPath(1.0, barriers)
    share = np.divide(critical, probe.counters["warps"], where=probe.counters["warps"] > 0,
                      out=np.zeros(len(critical)))  # fmt: skip
    counters = probe.counters.copy()
    counters["warps"] = critical
    for name in ("slow_paths", "atomic_turns"):
        counters[name] = np.rint(probe.counters[name] * share)
    alone = dataclasses.replace(probe, counters=counters)
    slowest = chain(machine.executions(alone, 1.0, 1.0), 1.0)
    usual = chain(machine.executions(probe, 1.0, warps), warps)
    return SlowestPath(max(1.0, float(slowest / usual)) if usual else 1.0, barriers)
