"""The simulated GPU's memory: one stretch of address space, buffers, guard bands between them."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

GUARD_BYTES = 4096
GUARD_VALUE = 0xA5
FILL_TILE = 4 << 20
LARGEST_REAL_COPY = 1 << 30
"""Where copies are only accounted, larger ones are not really made."""
_PLACE = 0x7000_0000_0000
"""Where possible: addresses, and so cache sets, do not vary between runs."""
_READ_WRITE = 3
_PRIVATE, _FIXED, _ANONYMOUS, NO_RESERVE = 2, 16, 32, 0x4000
_FAILED = 2**64 - 1


class NoAddressSpace(MemoryError):
    """The simulated GPU's memory cannot be reserved: a limit of this machine, not the candidate."""


@dataclass(frozen=True)
class Transfer:
    """One asynchronous copy or fill: `height` rows of `width` bytes, a pitch apart."""

    is_copy: bool
    value: int
    """Byte that a fill writes."""
    source: int
    """0 where it is no device memory."""
    source_pitch: int
    target: int
    target_pitch: int
    width: int
    height: int


@dataclass(frozen=True)
class Allocation:
    """One buffer of the arena: [address, address + size)."""

    name: str
    address: int
    size: int


class Arena:
    """Device memory in this process; device addresses are addresses of it."""

    def __init__(self, memory_bytes: int) -> None:
        """Reserve address space; pages are backed where touched. Raises NoAddressSpace."""
        arena_bytes = memory_bytes // GUARD_BYTES * GUARD_BYTES
        base = _map(_PLACE, arena_bytes, _PRIVATE | _ANONYMOUS | NO_RESERVE, -1)
        if base is None:
            raise NoAddressSpace(f"cannot reserve {arena_bytes} bytes of address space")
        self.base, self.arena_bytes = base, arena_bytes
        bytes_type = ctypes.c_uint8 * arena_bytes
        self.memory: npt.NDArray[np.uint8] = np.ctypeslib.as_array(bytes_type.from_address(base))
        self.allocations: list[Allocation] = []
        self._next = base + GUARD_BYTES

    def allocate(self, name: str, size: int) -> Allocation:
        """Reserve a page-aligned buffer with a guard band on both sides."""
        allocation = Allocation(name, self._next, size)
        end = self._next + size
        self._next = -(-(end + GUARD_BYTES) // GUARD_BYTES) * GUARD_BYTES
        if self._next > self.base + self.arena_bytes:
            raise MemoryError("the simulated GPU's memory is too small for the task's tensors")
        self.allocations.append(allocation)
        return allocation

    def view(self, allocation: Allocation) -> npt.NDArray[np.uint8]:
        """Return the bytes of a buffer, writable in place."""
        return self._bytes(allocation.address, allocation.size)

    def paint_guards(self) -> None:
        """Fill every guard band with the guard value."""
        for start, end in self._guards():
            self.memory[start:end] = GUARD_VALUE

    def broken_guards(self) -> list[str]:
        """Return, for each buffer whose guard band was written, where the first write fell."""
        found = []
        for index, (start, end) in enumerate(self._guards()):
            wrong = np.flatnonzero(self.memory[start:end] != GUARD_VALUE)
            if len(wrong) == 0:
                continue
            if index == 0:
                before = self.allocations[0]
                distance = before.address - self.base - start - int(wrong[-1])
                found.append(f"{distance} bytes before the start of {before.name}")
            else:
                found.append(f"{int(wrong[0])} bytes past the end of "
                             f"{self.allocations[index - 1].name}")  # fmt: skip
        return found

    def back_with_tile(self, allocation: Allocation, descriptor: int, tile_bytes: int) -> None:
        """Let a buffer repeat the first `tile_bytes` of a file, copied only where written.

        A tile as long as the buffer, or longer, maps the file as it is.
        """
        page_end = -(-allocation.size // GUARD_BYTES) * GUARD_BYTES
        if not _repeat(allocation.address, page_end, descriptor, tile_bytes):
            raise MemoryError(f"cannot map {allocation.name}")

    def transfer(self, asked: Transfer, content: bytes, *, accounted: bool) -> None:
        """Make a copy or fill.

        Args:
            asked: what, between allocated buffers.
            content: what is copied from the host, rows adjoining.
            accounted: it is to be counted; gigabytes are not really moved.
        """
        if not asked.is_copy:
            for row in range(asked.height):
                start = asked.target + row * asked.target_pitch
                self._fill(start, asked.value, asked.width, lazily=accounted)
            return
        if accounted and asked.width * asked.height > LARGEST_REAL_COPY:
            return
        for row in range(asked.height):
            target = self._bytes(asked.target + row * asked.target_pitch, asked.width)
            if asked.source:
                source = asked.source + row * asked.source_pitch
                target[:] = self._bytes(source, asked.width)
            else:
                part = content[row * asked.width : (row + 1) * asked.width]
                target[:] = np.frombuffer(part, dtype=np.uint8)

    def _fill(self, start: int, value: int, size: int, *, lazily: bool) -> None:
        first = -(-start // GUARD_BYTES) * GUARD_BYTES
        last = (start + size) // GUARD_BYTES * GUARD_BYTES
        if not lazily or size < 2 * FILL_TILE or not _fill_pages(first, last, value):
            self._bytes(start, size)[:] = value
            return
        self._bytes(start, first - start)[:] = value
        self._bytes(last, start + size - last)[:] = value

    def _bytes(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        start = address - self.base
        return self.memory[start : start + size]

    def _guards(self) -> list[tuple[int, int]]:
        edges = [0]
        for allocation in self.allocations:
            edges += [allocation.address - self.base, allocation.address - self.base
                      + allocation.size]  # fmt: skip
        edges.append(self._next - self.base)
        return list(zip(edges[::2], edges[1::2], strict=True))


def _fill_pages(first: int, last: int, value: int) -> bool:
    """Fill whole pages by mapping one filled tile again and again; say whether that worked."""
    descriptor = os.memfd_create("fill")
    try:
        os.write(descriptor, bytes([value]) * FILL_TILE)
        return _repeat(first, last - first, descriptor, FILL_TILE)
    finally:
        os.close(descriptor)


def _repeat(start: int, size: int, descriptor: int, tile: int) -> bool:
    flags = _PRIVATE | _FIXED | NO_RESERVE
    return all(
        _map(start + offset, min(tile, size - offset), flags, descriptor) is not None
        for offset in range(0, size, tile)
    )


def _map(address: int, size: int, flags: int, descriptor: int) -> int | None:
    """Map memory to read and write; None where that fails. mmap of the module has no place."""
    function = ctypes.CDLL(None).mmap
    function.restype = ctypes.c_uint64
    function.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                         ctypes.c_int64]  # fmt: skip
    found = int(function(address, size, _READ_WRITE, flags, descriptor, 0))
    return None if found == _FAILED else found
