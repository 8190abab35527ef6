"""What one call of launch() puts on the GPU: launches, copies and fills on named buffers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

COOPERATIVE, CLUSTER, BEFORE_THE_END = 2, 4, 6
"""Of cudaLaunchAttributeID, which the driver numbers the same."""
WORKSPACE = "workspace"
_VARIABLE = "variable "
_LINE = 128
"""Bytes: addresses as far from the start of one are alike to a cache."""


def variable(name: str) -> str:
    """Return what a module's variable is called among buffers: no tensor's name has a space."""
    return _VARIABLE + name


def variable_name(buffer: str) -> str | None:
    """Return the variable that a buffer is; None where it is a tensor or the workspace."""
    return buffer.removeprefix(_VARIABLE) if buffer.startswith(_VARIABLE) else None


Attributes = tuple[tuple[int, tuple[int, int, int]], ...]
"""Numbers of cudaLaunchAttributeID, and the first three words of their values."""


def is_cooperative(attributes: Attributes) -> bool:
    """Say whether the blocks of a launch may wait for each other at the grid's barrier."""
    return any(number == COOPERATIVE and value[0] for number, value in attributes)


@dataclass(frozen=True)
class Place:
    """An address: so many bytes from the first one of a buffer, before it where negative."""

    buffer: str
    offset: int

    def at(self, base: Mapping[str, int]) -> int:
        """Return the address where buffers lie at these."""
        return base[self.buffer] + self.offset


@dataclass(frozen=True)
class Content:
    """Bytes, some of which are addresses."""

    hexadecimal: str
    addresses: tuple[tuple[int, Place], ...] = ()
    """Which eight bytes, from the start, and what they point to."""

    def at(self, base: Mapping[str, int]) -> bytes:
        """Return the bytes where buffers lie at these addresses."""
        data = bytearray.fromhex(self.hexadecimal)
        for start, place in self.addresses:
            data[start : start + 8] = (place.at(base) & (1 << 64) - 1).to_bytes(8, "little")
        return bytes(data)


@dataclass(frozen=True)
class PlannedLaunch:
    """One kernel launch."""

    kernel: str
    """Mangled name."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    attributes: Attributes
    arguments: tuple[Content, ...]

    @property
    def cluster(self) -> int:
        """Blocks of a cluster; 1 without."""
        sizes = [value for number, value in self.attributes if number == CLUSTER]
        return max((x * max(1, y) * max(1, z) for x, y, z in sizes if x), default=1)


@dataclass(frozen=True)
class PlannedTransfer:
    """An asynchronous copy or fill: `height` rows of `width` bytes, a pitch apart."""

    copy: bool
    value: int
    """Byte that a fill writes."""
    target: Place
    target_pitch: int
    source: Place | None
    """None for a fill and for a copy from the host."""
    source_pitch: int
    width: int
    height: int
    content: Content
    """What is copied from the host, rows adjoining."""

    def sides(self) -> Iterator[tuple[Place, int]]:
        """Yield each place on the device with the end of what is touched there in its buffer."""
        for place, pitch in ((self.target, self.target_pitch), (self.source, self.source_pitch)):
            if place is not None:
                yield place, place.offset + pitch * (self.height - 1) + self.width


Step = PlannedLaunch | PlannedTransfer


@dataclass(frozen=True)
class Plan:
    """All that one call of launch() does, in order, whatever the addresses and the call."""

    steps: tuple[Step, ...]
    workspace_bytes: int
    dynamic_shared: dict[str, int]
    """Kernels that may have so much dynamic shared memory (cudaFuncSetAttribute)."""
    host_microseconds: float
    """Processor time of launch() itself."""
    isolation_missing: tuple[str, ...] = ()
    """What of its isolation this machine does not offer to the host half's process."""

    def places(self) -> Iterator[Place]:
        """Yield every place that a step names."""
        for step in self.steps:
            if isinstance(step, PlannedTransfer):
                yield from (place for place, _ in step.sides())
            contents = step.arguments if isinstance(step, PlannedLaunch) else (step.content,)
            for content in contents:
                yield from (place for _, place in content.addresses)

    def require_inside(self, sizes: Mapping[str, int]) -> None:
        """Refuse copies and fills that go beyond the bytes of these buffers. Raises ValueError.

        Those of tensors were refused when the plan was made; of variables only the host half's
        process had told how large they are.
        """
        for step in self.steps:
            for place, end in step.sides() if isinstance(step, PlannedTransfer) else ():
                if end > sizes.get(place.buffer, end):
                    raise ValueError(f"a copy or fill goes outside {place.buffer}")

    @property
    def launches(self) -> list[PlannedLaunch]:
        """The kernel launches, in order."""
        return [step for step in self.steps if isinstance(step, PlannedLaunch)]


def first_alike(launches: Sequence[PlannedLaunch], sizes: Mapping[str, int]) -> list[int]:
    """Return for each launch the place of the first that is the same but for addresses.

    Those lie in buffers of the same sizes, are the same distance from a line's start, and the same
    ones of them are equal.
    """
    first: dict[Hashable, int] = {}
    return [first.setdefault(_kind(step, sizes), at) for at, step in enumerate(launches)]


def _kind(step: PlannedLaunch, sizes: Mapping[str, int]) -> Hashable:
    buffers: dict[str, int] = {}
    places: dict[Place, int] = {}
    arguments = tuple(
        (content.hexadecimal, tuple(
            (at, buffers.setdefault(place.buffer, len(buffers)), sizes.get(place.buffer),
             places.setdefault(place, len(places)), place.offset % _LINE)
            for at, place in content.addresses
        ))
        for content in step.arguments
    )  # fmt: skip
    return step.kernel, step.grid, step.block, step.shared_bytes, step.attributes, arguments
