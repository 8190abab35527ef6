"""What launch() promised: each call that it made is held to it, whoever recorded the call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..judge.reports import Fault
from ..occupancy import occupancy
from ..records.builds import KernelResources
from .calls import Call, DynamicShared, Launch, Transfer
from .entries import Entry
from .plan import BEFORE_THE_END, CLUSTER, COOPERATIVE, is_cooperative
from .properties import GpuProperties

STREAM = 0x5BEA0
"""The handle of the stream that launch() is given."""
MOST_CALLS = 1 << 16
HOST_COPY_BYTES = 64 << 10
"""Bytes that one call of launch() may copy from the host: tables of a few numbers, no answers."""
_DEFAULT_STREAMS = (0, 1, 2)
"""NULL, cudaStreamLegacy, cudaStreamPerThread."""
_ALLOWED_ATTRIBUTES = {
    0: "ignore", COOPERATIVE: "cooperative", CLUSTER: "cluster dimension",
    5: "cluster scheduling policy", BEFORE_THE_END: "programmatic stream serialization",
}  # fmt: skip
"""None that keeps data in the L2."""


@dataclass
class Checks:
    """Looks at the calls of one recording, in order; remembers what earlier ones allowed."""

    gpu: GpuProperties
    entries: Mapping[str, Entry]
    resources: Mapping[str, KernelResources]
    dynamic_shared: dict[str, int] = field(default_factory=dict)

    def faults(self, call: Call) -> Iterator[Fault]:
        """Yield kind and message of whatever a call should not have asked for."""
        if isinstance(call, DynamicShared):
            yield from self._limit(call)
        elif isinstance(call, Launch):
            yield from self._launch(call)
        else:
            yield from self._transfer(call)

    def _limit(self, call: DynamicShared) -> Iterator[Fault]:
        most = self.gpu.limits.shared_bytes_optin - self._static(call.kernel)
        if not 0 <= call.limit <= most:
            yield (
                "invalid_launch",
                f"cudaFuncSetAttribute asks for {call.limit} bytes of dynamic shared memory for "
                f"{call.kernel}: the GPU allows {most}",
            )
        self.dynamic_shared[call.kernel] = call.limit

    def _launch(self, call: Launch) -> Iterator[Fault]:
        sizes = "({},{},{}), ({},{},{})".format(*call.grid, *call.block)
        shape = f"{call.kernel}<<<{sizes}, {call.shared_bytes}>>>"
        entry = self.entries.get(call.kernel)
        if entry is None or tuple(map(len, call.arguments)) != entry.parameters:
            yield "invalid_launch", f"{shape}: there is no such kernel with such arguments"
            return
        yield from _stream(shape, call.stream)
        for number, _ in call.attributes:
            if number not in _ALLOWED_ATTRIBUTES:
                yield "forbidden", f"{shape}: launch attribute {number} is not allowed"
        if not entry.waits and any(n == BEFORE_THE_END and x[0] for n, x in call.attributes):
            yield (
                "race",
                f"{shape}: launched with programmatic stream serialization, it begins before the "
                "launch ahead of it has ended, and never waits for that "
                "(cudaGridDependencySynchronize())",
            )
        wrong = "invalid launch configuration: "
        x, y, z = call.block
        threads = x * y * z
        if x > 1024 or y > 1024 or z > 64 or not 0 < threads <= 1024:
            yield "invalid_launch", f"{wrong}{shape} has {threads} threads per block"
            return
        if not (0 < call.grid[0] < 1 << 31 and 0 < call.grid[1] < 1 << 16
                and 0 < call.grid[2] < 1 << 16):  # fmt: skip
            yield (
                "invalid_launch",
                f"{wrong}the grid of {shape} is not within 1..2147483647, 1..65535, 1..65535",
            )
            return
        if threads > entry.max_threads:
            yield (
                "invalid_launch",
                f"{wrong}{shape} has {threads} threads per block, its __launch_bounds__ allow "
                f"{entry.max_threads}",
            )
        elif entry.block and (*entry.block, 1, 1)[:3] != call.block:
            yield (
                "invalid_launch",
                f"{wrong}{shape}, its __block_size__ is {entry.block}",
            )
        yield from self._resources(call, shape, threads)

    def _resources(self, call: Launch, shape: str, threads: int) -> Iterator[Fault]:
        limits, static = self.gpu.limits, self._static(call.kernel)
        limit = self.dynamic_shared.get(call.kernel, limits.shared_default)
        total = call.shared_bytes + static
        too_much = limit <= limits.shared_default and total > limits.shared_default
        if call.shared_bytes > limit or too_much:
            yield (
                "invalid_launch",
                f"invalid launch configuration: {shape} asks for {call.shared_bytes} bytes of "
                f"dynamic beside {static} of static shared memory, over its limit of {limit} "
                f"(cudaFuncSetAttribute raises it up to {limits.shared_bytes_optin - static})",
            )
            return
        known = self.resources.get(call.kernel)
        registers = known.registers if known else 32
        held = occupancy(limits, threads, registers, total)
        if not held.by_limit["registers"]:
            yield (
                "invalid_launch",
                f"too many resources requested for launch: {shape} needs {registers} registers "
                f"for each of {threads} threads, an SM has {limits.registers}",
            )
            return
        blocks = call.grid[0] * call.grid[1] * call.grid[2]
        if is_cooperative(call.attributes) and blocks > held.blocks * self.gpu.sms:
            yield (
                "invalid_launch",
                f"cudaLaunchCooperativeKernel: {call.kernel} with {blocks} blocks, the GPU holds "
                f"{held.blocks} on each of {self.gpu.sms} multiprocessors",
            )

    def _transfer(self, call: Transfer) -> Iterator[Fault]:
        what = ("cudaMemcpy" if call.copy else "cudaMemset") + (
            "Async" if call.height == 1 else "2DAsync"
        )
        yield from _stream(what, call.stream)

    def _static(self, kernel: str) -> int:
        known = self.resources.get(kernel)
        return known.static_shared_bytes if known else 0


def _stream(what: str, stream: int) -> Iterator[Fault]:
    if stream != STREAM:
        other = "the default stream" if stream in _DEFAULT_STREAMS else "another stream"
        yield "forbidden", f"{what} on {other} instead of the stream given to launch()"
