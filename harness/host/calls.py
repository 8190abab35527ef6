"""The calls that a host half made, as the stand-in runtime recorded them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .plan import Attributes

LAUNCH, DYNAMIC_SHARED, TRANSFER = 1, 2, 3
LONGEST_NAME = 1 << 14
MOST_ARGUMENTS = 4096
LARGEST_ARGUMENT = 1 << 16


class NotACall(ValueError):
    """A record is none that the stand-in runtime writes."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    stream: int
    attributes: Attributes
    arguments: tuple[bytes, ...]


@dataclass(frozen=True)
class DynamicShared:
    """A call of cudaFuncSetAttribute that allows a kernel more dynamic shared memory."""

    kernel: str
    limit: int


@dataclass(frozen=True)
class Transfer:
    """An asynchronous copy or fill: `height` rows of `width` bytes, a pitch apart."""

    copy: bool
    value: int
    """Byte that a fill writes."""
    target: int
    target_pitch: int
    source: int
    source_pitch: int
    width: int
    height: int
    stream: int
    content: bytes
    """What is copied from the host, rows adjoining; empty where it was too much to record."""


Call = Launch | DynamicShared | Transfer


class _Reader:
    def __init__(self, record: bytes) -> None:
        self._record, self._at = record, 0

    def number(self) -> int:
        return int.from_bytes(self.bytes(8), "little")

    def numbers(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}Q", self.bytes(8 * count))

    def bytes(self, count: int) -> bytes:
        found = self._record[self._at : self._at + count]
        if len(found) != count:
            raise NotACall("it ends early")
        self._at += count
        return found

    def text(self) -> str:
        length = self.number()
        if length > LONGEST_NAME:
            raise NotACall("a name without end")
        return self.bytes(length).decode("utf-8", "replace")

    def end(self) -> None:
        if self._at != len(self._record):
            raise NotACall("it does not end where it should")


def read_call(record: bytes) -> Call:
    """Return one record as a call. Raises NotACall: its writer may have been tampered with."""
    reader = _Reader(record)
    kind = reader.number()
    found: Call
    if kind == LAUNCH:
        found = _launch(reader)
    elif kind == DYNAMIC_SHARED:
        name = reader.text()
        found = DynamicShared(name, struct.unpack("<q", reader.bytes(8))[0])
    elif kind == TRANSFER:
        copy, value, to, to_pitch, start, pitch, width, height, stream = reader.numbers(9)
        content = reader.bytes(reader.number())
        found = Transfer(
            bool(copy), value & 255, to, to_pitch, start, pitch, width, height, stream, content
        )
    else:
        raise NotACall(f"number {kind} names no call")
    reader.end()
    return found


def read_calls(records: bytes) -> list[Call]:
    """Return records that follow each other, each behind its length. Raises NotACall."""
    reader, found = _Reader(records), []
    left = len(records)
    while left > 0:
        length = reader.number()
        found.append(read_call(reader.bytes(length)))
        left -= 8 + length
    return found


def _launch(reader: _Reader) -> Launch:
    name = reader.text()
    *shape, shared, stream, count = reader.numbers(9)
    if count > MOST_ARGUMENTS:
        raise NotACall("attributes without end")
    attributes = []
    for _ in range(count):
        identity, *value = reader.numbers(4)
        attributes.append((identity, (value[0], value[1], value[2])))
    arguments = []
    count = reader.number()
    if count > MOST_ARGUMENTS:
        raise NotACall("arguments without end")
    for _ in range(count):
        size = reader.number()
        if size > LARGEST_ARGUMENT:
            raise NotACall("an argument without end")
        arguments.append(reader.bytes(size))
    return Launch(
        name, (shape[0], shape[1], shape[2]), (shape[3], shape[4], shape[5]), shared, stream,
        tuple(attributes), tuple(arguments),
    )  # fmt: skip
