"""Memory that a candidate is given: guard bands round every tensor, poison in every output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...records.tensors import TensorSpec

GUARD_BYTES = 1 << 20
"""On either side of each tensor."""
STEP_BYTES = 512
WORD = 8
"""Bytes of the widest integers that are compared."""
PLACES = 8
"""A tensor stands at one of these many places, so that its address differs between two runs."""


@dataclass(frozen=True)
class Painting:
    """What the bytes hold that nobody may read before they are written."""

    output: int
    guard: int
    workspace: int


PAINTINGS = (Painting(0xFF, 0xFF, 0xFF), Painting(0x00, 0xA5, 0x5A))
"""Of the first and the second run on the same input. All ones are NaN in every float type. What
depends on poison, or on memory past an end, differs between the two."""


class Buffers:
    """The tensors of one launch signature in memory of their own."""

    def __init__(
        self, tensors: Sequence[TensorSpec], workspace_bytes: int, device: torch.device
    ) -> None:
        """Allocate. Raises torch.OutOfMemoryError."""
        self.tensors = tuple(tensors)
        self._sizes = {spec.name: spec.nbytes for spec in tensors}
        if workspace_bytes:
            self._sizes["workspace"] = workspace_bytes
        slack = 2 * GUARD_BYTES + PLACES * STEP_BYTES
        self._raw = {
            name: torch.empty(size + slack, dtype=torch.uint8, device=device)
            for name, size in self._sizes.items()
        }
        self._place = 0
        self._painting = PAINTINGS[0]

    def fill(self, values: Mapping[str, torch.Tensor], place: int, painting: Painting) -> None:
        """Move to a place, paint guards, outputs and workspace, and copy everything else in."""
        self._place, self._painting = place % PLACES, painting
        for raw in self._raw.values():
            raw.fill_(painting.guard)
        for spec in self.tensors:
            if spec.role != "output":
                self.view(spec).copy_(values[spec.name])
        self.poison()

    def poison(self) -> None:
        """Paint outputs and workspace again."""
        for spec in self.tensors:
            if spec.role == "output":
                self._bytes(spec.name).fill_(self._painting.output)
        if "workspace" in self._sizes:
            self._bytes("workspace").fill_(self._painting.workspace)

    def view(self, spec: TensorSpec) -> torch.Tensor:
        """Return a tensor as the candidate sees it."""
        return self._bytes(spec.name).view(getattr(torch, spec.dtype)).view(spec.shape)

    def addresses(self) -> dict[str, int]:
        """Return where each tensor lies, and the workspace where there is one."""
        return {name: self._bytes(name).data_ptr() for name in self._sizes}

    def damage(self) -> list[str]:
        """Return where a guard band was written, in words; empty where none was."""
        found = []
        for name, raw in self._raw.items():
            start = self._start()
            end = start + self._sizes[name]
            before = (raw[:start] != self._painting.guard).nonzero()
            after = (raw[end:] != self._painting.guard).nonzero()
            if len(after):
                found.append(f"{int(after[0]) + 1} bytes past the end of {name}")
            if len(before):
                found.append(f"{start - int(before[-1])} bytes before the start of {name}")
        return found

    def modified(self, values: Mapping[str, torch.Tensor]) -> list[str]:
        """Return the names of inputs, parameters and buffers that are not what they were."""
        return [
            spec.name
            for spec in self.tensors
            if spec.role != "output"
            and not _same_bits(self._bytes(spec.name), as_bytes(values[spec.name]))
        ]

    def outputs(self) -> list[torch.Tensor]:
        """Return the outputs, not copied."""
        return [self.view(spec) for spec in self.tensors if spec.role == "output"]

    def output_bytes(self) -> list[torch.Tensor]:
        """Return the outputs' bytes, not copied."""
        return [self._bytes(spec.name) for spec in self.tensors if spec.role == "output"]

    def _start(self) -> int:
        return GUARD_BYTES + self._place * STEP_BYTES

    def _bytes(self, name: str) -> torch.Tensor:
        start = self._start()
        return self._raw[name][start : start + self._sizes[name]]


def _same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Say whether two flat tensors of bytes agree, a word at a time: what is compared is noted in a
    byte for each element."""
    if all(each.numel() % WORD == 0 and each.data_ptr() % WORD == 0 for each in (first, second)):
        first, second = first.view(torch.int64), second.view(torch.int64)
    return bool(torch.equal(first, second))


def as_bytes(tensor: Any) -> torch.Tensor:
    """Return a tensor's elements as flat bytes."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
