"""Records of calls: each is read as it was written, or refused."""

from __future__ import annotations

import struct

import pytest

from kernelblaster.harness.host.calls import (
    DynamicShared,
    Launch,
    NotACall,
    Transfer,
    read_call,
    read_calls,
)


def words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


LAUNCH = (
    words(1, 1) + b"k" + words(2, 3, 4, 5, 6, 7, 8, 9, 1) + words(4, 2, 1, 3) + words(2)
    + words(4) + b"abcd" + words(0)
)  # fmt: skip
LIMIT = words(2, 1) + b"k" + struct.pack("<q", -5)
COPY = words(3, 1, 0x105, 10, 11, 12, 13, 14, 15, 16, 2) + b"xy"
READ = [
    Launch("k", (2, 3, 4), (5, 6, 7), 8, 9, ((4, (2, 1, 3)),), (b"abcd", b"")),
    DynamicShared("k", -5),
    Transfer(True, 5, 10, 11, 12, 13, 14, 15, 16, b"xy"),
]


def test_calls_are_read() -> None:
    records = [LAUNCH, LIMIT, COPY]
    assert [read_call(record) for record in records] == READ
    assert read_calls(b"".join(words(len(record)) + record for record in records)) == READ
    assert read_calls(b"") == []


@pytest.mark.parametrize("record", [LAUNCH, LIMIT, COPY])
def test_what_is_cut_or_too_long_is_no_call(record: bytes) -> None:
    for end in range(len(record)):
        with pytest.raises(NotACall):
            read_call(record[:end])
    with pytest.raises(NotACall, match="where it should"):
        read_call(record + b"\0")
    with pytest.raises(NotACall):
        read_calls(words(len(record)) + record + b"\0")


def head(attributes: int) -> bytes:
    return words(1, 1) + b"k" + words(1, 1, 1, 1, 1, 1, 0, 0, attributes)


@pytest.mark.parametrize(
    ("record", "fine"),
    [
        (words(0), False),
        (words(4), False),
        (words(2, 1 << 14) + b"k" * (1 << 14) + words(0), True),
        (words(2, (1 << 14) + 1) + b"k" * ((1 << 14) + 1) + words(0), False),
        (head(4096) + words(1, 0, 0, 0) * 4096 + words(0), True),
        (head(4097) + words(1, 0, 0, 0) * 4097 + words(0), False),
        (head(0) + words(4096) + words(0) * 4096, True),
        (head(0) + words(4097) + words(0) * 4097, False),
        (head(0) + words(1, 1 << 16) + bytes(1 << 16), True),
        (head(0) + words(1, (1 << 16) + 1) + bytes((1 << 16) + 1), False),
    ],
    ids=range(10),
)
def test_nothing_is_without_end(record: bytes, fine: bool) -> None:
    if fine:
        read_call(record)
    else:
        with pytest.raises(NotACall, match="without end|names no call"):
            read_call(record)
