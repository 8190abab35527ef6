"""A candidate loaded into this process: its host half, its PTX, its tensors in the arena."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...gpus import Gpu, find_gpu
from ..decode.operands import function_address
from ..occupancy import occupancy
from ..ptx.parser import parse
from ..ptx.records import Module
from . import core
from .runtime import Allocation, Runtime

HARMLESS = ("race_benign", "shuffle_inactive", "barrier_exited")
"""Reports that fail no candidate: a shuffle beyond its mask is common where only lane 0's sum is
used, and threads may leave before a barrier. They are told beside a wrong answer."""

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\([^)]*\)([^{]*)\{")
_MAX_THREADS = re.compile(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")


class WorkspaceTooLarge(Exception):
    """workspace_bytes() asks for more than the run allows."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of the launch signature: what the child needs of a TensorSpec."""

    name: str
    role: str
    dtype: str
    nbytes: int


@dataclass(frozen=True)
class KernelLaunch:
    """A launch as the host code asked for it, and the memory it may touch."""

    launch: core.Launch
    memory: core.Memory


@dataclass
class Candidate:
    """The loaded candidate. `on_launch` runs each launch and says whether it succeeded."""

    gpu: Gpu
    module: Module
    runtime: Runtime
    tensors: dict[Tensor, Allocation]
    workspace: Allocation | None
    addresses: dict[str, int] = field(default_factory=dict)
    """Of module variables."""
    initialised: NDArray[np.uint8] | None = None
    """As in core.Memory; None where reads of unwritten memory are not looked for."""

    def call(self) -> list[tuple[str, str]]:
        """Call launch() once and return the faults (kind, message) of its host calls."""
        addresses = [allocation.address for allocation in self.tensors.values()]
        return self.runtime.call(addresses, self.workspace.address if self.workspace else 0)


def load_candidate(
    request: dict[str, Any], on_launch: Callable[[Candidate, KernelLaunch], bool]
) -> Candidate:
    """Load the candidate that a request names and lay out its tensors.

    Raises:
        PtxError: its PTX cannot be parsed.
        WorkspaceTooLarge: it asks for more workspace than the request allows.
    """
    gpu = find_gpu(request["gpu"])
    text = Path(request["ptx"]).read_text()
    module = parse(text)
    holder: list[Candidate] = []

    registers = {kernel["kernel"]: int(kernel["registers"]) for kernel in request["kernels"]}
    static = {kernel["kernel"]: int(kernel["static_shared_bytes"]) for kernel in request["kernels"]}
    grid_workspace: list[Allocation] = []

    def launched(
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        read: Callable[[Sequence[int]], list[bytes]],
    ) -> bool:
        candidate = holder[0]
        function = module.functions[kernel]
        held = occupancy(gpu.limits, block[0] * block[1] * block[2], registers.get(kernel, 32),
                         static.get(kernel, 0) + shared)  # fmt: skip
        workspace = 0
        if runtime.cooperative and grid_workspace:
            runtime.view(grid_workspace[0])[:] = 0
            workspace = grid_workspace[0].address
        return on_launch(
            candidate,
            KernelLaunch(
                core.Launch(
                    module=module,
                    kernel=kernel,
                    grid=grid,
                    block=block,
                    dynamic_shared_bytes=shared,
                    parameters=read([parameter.size for parameter in function.parameters]),
                    global_addresses=candidate.addresses,
                    resident_blocks=gpu.sms * max(1, held.blocks),
                    grid_workspace=workspace,
                ),
                memory_of(candidate.runtime, candidate.initialised),
            ),
        )

    runtime = Runtime(Path(request["runtime"]), gpu, launched)
    runtime.load(Path(request["library"]))
    max_threads = _max_threads(text)
    for kernel in request["kernels"]:
        runtime.describe_kernel(
            kernel["kernel"], kernel["registers"], kernel["static_shared_bytes"],
            max_threads.get(kernel["kernel"], 1024),
        )  # fmt: skip
    tensors = {}
    for spec in request["tensors"]:
        tensor = Tensor(spec["name"], spec["role"], spec["dtype"], spec["nbytes"])
        tensors[tensor] = runtime.allocate(tensor.name, tensor.nbytes)
    size = runtime.workspace_bytes()
    if size > request["workspace_limit"]:
        raise WorkspaceTooLarge(
            f"workspace_bytes() asks for {size} bytes; at these dimensions "
            f"{request['workspace_limit']} are allowed"
        )
    workspace = runtime.allocate("workspace", size) if size else None
    candidate = Candidate(gpu, module, runtime, tensors, workspace)
    candidate.addresses = place_variables(module, runtime)
    if "%envreg2" in text:  # cooperative groups ask for it there
        grid_workspace.append(runtime.allocate("grid workspace", core.GRID_WORKSPACE_BYTES))
    holder.append(candidate)
    return candidate


def memory_of(runtime: Runtime, initialised: NDArray[np.uint8] | None = None) -> core.Memory:
    """Return the arena as the core sees it, with what is allocated now."""
    allocations = runtime.allocations
    end = allocations[-1].address + allocations[-1].size if allocations else runtime.base
    return core.Memory(
        base=runtime.base,
        size=end - runtime.base + 4096,
        starts=[allocation.address for allocation in allocations],
        ends=[allocation.address + allocation.size for allocation in allocations],
        initialised=initialised,
    )


def place_variables(module: Module, runtime: Runtime) -> dict[str, int]:
    """Put __device__ and __constant__ variables into the arena, with their initial values."""
    addresses: dict[str, int] = {}
    placed: list[tuple[Allocation, bytes, tuple[tuple[int, str], ...]]] = []
    for variable in module.variables.values():
        if variable.space not in ("global", "const") or not variable.size:
            continue
        allocation = runtime.allocate(variable.name, variable.size)
        addresses[variable.name] = allocation.address
        runtime.place_variable(variable.name, allocation.address)
        placed.append((allocation, variable.initial or b"", variable.relocations))
    for allocation, initial, relocations in placed:
        data = bytearray(initial)
        for offset, symbol in relocations:
            address = addresses.get(symbol) or function_address(module, symbol)
            data[offset : offset + 8] = address.to_bytes(8, "little")
        if data:
            runtime.view(allocation)[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    return addresses


def _max_threads(ptx: str) -> dict[str, int]:
    """Return the `__launch_bounds__` of each kernel that has any."""
    found = {}
    for name, directives in _ENTRY.findall(ptx):
        bounds = _MAX_THREADS.search(directives)
        if bounds:
            x, y, z = (int(number or 1) for number in bounds.groups())
            found[name] = x * y * z
    return found
