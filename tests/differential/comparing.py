"""Runs one kernel on the C core and on the reference, and says where they differ."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from reference_executor.executor import Execution, Outcome
from reference_executor.state import Arena as ReferenceArena
from simt_support import Arena, argument_bytes

from kernelblaster.harness.simt.decode.encoding import COUNTER_FIELDS
from kernelblaster.harness.simt.ptx.records import Module
from kernelblaster.harness.simt.run.candidate import HARMLESS
from kernelblaster.harness.simt.run.core import Launch, Result, run

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Both:
    """One launch on both executors."""

    module: Module
    core: Result
    core_arrays: list[Array]
    reference: Outcome
    reference_arrays: list[Array]

    def differing_counters(self) -> list[str]:
        """Return a line for each counter of an instruction on which the two do not agree."""
        found = []
        for instruction in self.module.instructions:
            counts = self.reference.counts[instruction.index]
            for name in COUNTER_FIELDS:
                ours, theirs = int(self.core.counters[name][instruction.index]), counts[name]
                if ours != theirs:
                    found.append(f"{instruction.text}: {name} core {ours}, reference {theirs}")
        return [*found, *self._differing_uses()]

    def _differing_uses(self) -> list[str]:
        arena, found = self.reference.arena, []
        for use in self.core.uses.values():
            first, last = (use.start - arena.base) // 32, (use.end - arena.base - 1) // 32
            for name, touched in (("read", arena.read), ("written", arena.written)):
                inside = [{s for s in block if first <= s <= last} for block in touched.values()]
                wanted = (len(set().union(*inside)), sum(map(len, inside)))
                got = (
                    getattr(use, f"{name}_sectors"), getattr(use, f"block_{name}_sectors")
                )  # fmt: skip
                if got != wanted:
                    found.append(f"sectors {name} (distinct, by block): core {got}, {wanted}")
        hottest = max(arena.atomics.values(), default=0)
        if self.core.hottest_atomic_sector != hottest:
            found.append(f"hottest atomic: core {self.core.hottest_atomic_sector}, {hottest}")
        if self.core.first_warp_path.tolist() != self.reference.path:
            found.append("the first warp took another path")
        return found

    def reports(self) -> list[str]:
        """Return what the core's checks found and hold against the kernel, in words."""
        against = [r for r in self.core.reports if r.kind not in HARMLESS]
        return [f"{r.kind}: {r.instruction}: {r.detail}" for r in against]


def run_both(
    module: Module,
    kernel: str,
    grid: int,
    block: int | tuple[int, int, int],
    arguments: Sequence[object],
    *,
    shared: int = 0,
    seed: int = 0,
    checks: bool = True,
) -> Both:
    """Run a kernel twice on equal memory; arrays become buffers and come back.

    Raises:
        UnsupportedInstruction: the core does not execute an instruction of the kernel.
    """
    arena = Arena(1 << 20)
    parameters: list[bytes] = []
    buffers: list[tuple[int, Array]] = []
    addresses: dict[str, int] = {}
    for variable in module.variables.values():
        if variable.space in ("global", "const"):
            data = np.frombuffer(variable.initial or bytes(max(variable.size, 1)), np.uint8)
            addresses[variable.name] = arena.place(data)
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            address = arena.place(argument)
            buffers.append((address, argument))
            parameters.append(struct.pack("<Q", address))
        else:
            parameters.append(argument_bytes(argument))
    shape = (block, 1, 1) if isinstance(block, int) else block
    launch = Launch(module, kernel, (grid, 1, 1), shape, shared, parameters, addresses)
    start = arena.offset
    copied = bytearray(arena._bytes[start : start + arena.top + 512].tobytes())
    core = run(launch, arena.memory(), seed=seed, checks=checks)
    execution = Execution(
        module, kernel, (grid, 1, 1), shape, shared, launch.parameter_buffer(), addresses,
        ReferenceArena(arena.base, copied),
    )  # fmt: skip
    outcome = execution.run()
    reference_arrays = [
        np.frombuffer(outcome.memory, np.uint8)[address - arena.base :][: array.nbytes]
        .view(array.dtype)
        .reshape(array.shape)
        for address, array in buffers
    ]
    return Both(
        module, core, [arena.read(a, like) for a, like in buffers], outcome, reference_arrays
    )
