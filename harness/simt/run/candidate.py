"""A candidate's kernels in this process: its PTX, tensors in the arena, its plan carried out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from ...gpus import Gpu, find_gpu
from ...host.plan import (
    WORKSPACE,
    Plan,
    PlannedLaunch,
    PlannedTransfer,
    first_alike,
    is_cooperative,
    variable,
)
from ...occupancy import occupancy
from ...vetting.ptx_tokens import read_ptx
from ..decode.decoder import Programs
from ..decode.operands import function_address
from ..ptx.parser import parse
from ..ptx.records import Module
from . import core
from .arena import Allocation, Arena, Transfer

HARMLESS = ("race_benign", "shuffle_inactive", "barrier_exited")
"""Reports that fail no candidate: a shuffle beyond its mask is common where only lane 0's sum is
used, and threads may leave before a barrier. They are told beside a wrong answer."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of the launch signature: what the child needs of a TensorSpec."""

    name: str
    role: str
    dtype: str
    nbytes: int
    constant: bool = False
    """A kernel may rely on its values."""


@dataclass(frozen=True)
class KernelLaunch:
    """A launch as the plan asks for it, and the memory it may touch."""

    launch: core.Launch
    memory: core.Memory
    like: int = 0
    """Place among the call's launches of the first that is the same but for addresses."""


@dataclass
class Candidate:
    """The loaded candidate. `on_launch` runs a launch; `on_transfer` is told of each transfer."""

    gpu: Gpu
    module: Module
    arena: Arena
    plan: Plan
    tensors: dict[Tensor, Allocation]
    workspace: Allocation | None
    on_launch: Callable[[Candidate, KernelLaunch], bool]
    resources: dict[str, dict[str, Any]]
    """What ptxas says of each kernel, by its name."""
    programs: Programs
    addresses: dict[str, int]
    """Of module variables."""
    on_transfer: Callable[[Transfer], None] | None = None
    only_accounts: bool = False
    """Large copies and fills are told of and not really made."""
    grid_workspace: Allocation | None = None
    initialised: NDArray[np.uint8] | None = None
    """As in core.Memory; None where reads of unwritten memory are not looked for."""

    def call(self) -> None:
        """Carry out the plan once. Raises ValueError where it does not fit these kernels."""
        base = self._buffers()
        if unknown := {place.buffer for place in self.plan.places()} - base.keys():
            raise ValueError(f"there is no {', '.join(sorted(unknown))} in the PTX")
        self.plan.require_inside(self._sizes())
        memory = memory_of(self.arena, self.initialised)
        likes = iter(self.likes())
        for step in self.plan.steps:
            if isinstance(step, PlannedLaunch):
                self.on_launch(self, self._kernel_launch(step, base, memory, next(likes)))
            else:
                self._transfer(step, base)

    def likes(self) -> list[int]:
        """Return for each launch the place of the first that is the same but for addresses."""
        return first_alike(self.plan.launches, self._sizes())

    def _buffers(self) -> dict[str, int]:
        """Return where each buffer lies that the plan may name."""
        base = {tensor.name: allocation.address for tensor, allocation in self.tensors.items()}
        base |= {variable(name): address for name, address in self.addresses.items()}
        if self.workspace is not None:
            base[WORKSPACE] = self.workspace.address
        return base

    def _sizes(self) -> dict[str, int]:
        sizes = {allocation.address: allocation.size for allocation in self.arena.allocations}
        return {name: sizes[address] for name, address in self._buffers().items()}

    def _kernel_launch(
        self, step: PlannedLaunch, base: dict[str, int], memory: core.Memory, like: int
    ) -> KernelLaunch:
        kernel = self.resources[step.kernel]
        x, y, z = step.block
        held = occupancy(
            self.gpu.limits, x * y * z, kernel["registers"],
            kernel["static_shared_bytes"] + step.shared_bytes,
        )  # fmt: skip
        workspace = 0
        if is_cooperative(step.attributes) and self.grid_workspace is not None:
            self.arena.view(self.grid_workspace)[:] = 0
            workspace = self.grid_workspace.address
        return KernelLaunch(
            core.Launch(
                module=self.programs.part(step.kernel)[0],
                kernel=step.kernel,
                grid=step.grid,
                block=step.block,
                dynamic_shared_bytes=step.shared_bytes,
                parameters=[argument.at(base) for argument in step.arguments],
                global_addresses=self.addresses,
                resident_blocks=self.gpu.sms * max(1, held.blocks),
                grid_workspace=workspace,
                programs=self.programs,
            ),
            memory,
            like,
        )

    def _transfer(self, step: PlannedTransfer, base: dict[str, int]) -> None:
        source = step.source.at(base) if step.source else 0
        asked = Transfer(step.copy, step.value, source, step.source_pitch, step.target.at(base),
                         step.target_pitch, step.width, step.height)  # fmt: skip
        self.arena.transfer(asked, step.content.at(base), accounted=self.only_accounts)
        if self.on_transfer is not None:
            self.on_transfer(asked)

    def account_transfers(
        self, on_transfer: Callable[[Transfer], None], *, in_place_of_moving: bool = True
    ) -> None:
        """Call `on_transfer` for each copy and fill, after it.

        Large ones then move as little as possible, unless they are only to be told.
        """
        self.on_transfer, self.only_accounts = on_transfer, in_place_of_moving


def load_candidate(
    request: dict[str, Any], on_launch: Callable[[Candidate, KernelLaunch], bool]
) -> Candidate:
    """Read the kernels of the candidate that a request names and lay out its tensors.

    Raises:
        PtxError: its PTX cannot be parsed.
    """
    gpu = find_gpu(request["gpu"])
    text = read_ptx(Path(request["ptx"]))
    module = parse(text)
    plan = TypeAdapter(Plan).validate_python(request["plan"])
    arena = Arena(gpu.memory_bytes)
    tensors = {}
    for spec in request["tensors"]:
        tensor = Tensor(
            spec["name"], spec["role"], spec["dtype"], spec["nbytes"], spec.get("constant", False)
        )
        tensors[tensor] = arena.allocate(tensor.name, tensor.nbytes)
    size = plan.workspace_bytes
    workspace = arena.allocate(WORKSPACE, size) if size else None
    addresses = place_variables(module, arena)
    candidate = Candidate(
        gpu, module, arena, plan, tensors, workspace, on_launch,
        {kernel["kernel"]: kernel for kernel in request["kernels"]}, Programs(module, addresses),
        addresses,
    )  # fmt: skip
    if "%envreg2" in text:  # cooperative groups ask for it there
        candidate.grid_workspace = arena.allocate("grid workspace", core.GRID_WORKSPACE_BYTES)
    return candidate


def memory_of(arena: Arena, initialised: NDArray[np.uint8] | None = None) -> core.Memory:
    """Return the arena as the core sees it, with what is allocated now."""
    allocations = arena.allocations
    end = allocations[-1].address + allocations[-1].size if allocations else arena.base
    return core.Memory(
        base=arena.base,
        size=end - arena.base + 4096,
        starts=[allocation.address for allocation in allocations],
        ends=[allocation.address + allocation.size for allocation in allocations],
        initialised=initialised,
    )


def place_variables(module: Module, arena: Arena) -> dict[str, int]:
    """Put __device__ and __constant__ variables into the arena, with their initial values."""
    addresses: dict[str, int] = {}
    placed: list[tuple[Allocation, bytes, tuple[tuple[int, str], ...]]] = []
    for declared in module.variables.values():
        if declared.space not in ("global", "const") or not declared.size:
            continue
        allocation = arena.allocate(declared.name, declared.size)
        addresses[declared.name] = allocation.address
        placed.append((allocation, declared.initial or b"", declared.relocations))
    for allocation, initial, relocations in placed:
        data = bytearray(initial)
        for offset, symbol in relocations:
            address = addresses.get(symbol) or function_address(module, symbol)
            data[offset : offset + 8] = address.to_bytes(8, "little")
        if data:
            arena.view(allocation)[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    return addresses
