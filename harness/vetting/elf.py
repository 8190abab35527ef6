"""Reads sections, symbols and strings of a 64-bit little-endian ELF file (System V ABI)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

SYMTAB, STRTAB, RELA, HASH, DYNAMIC, NOTE, DYNSYM, INIT_ARRAY, FINI_ARRAY = (
    2, 3, 4, 5, 6, 7, 11, 14, 15
)  # fmt: skip
"""Section types."""


class Section(NamedTuple):
    """A row of the section table."""

    name_at: int
    """Place of the name in the section of names."""
    kind: int
    flags: int
    address: int
    offset: int
    """Where it lies in the file."""
    size: int
    link: int
    """Number of the section that this one belongs with: a symbol table's strings, for example."""


class Symbol(NamedTuple):
    """A row of a symbol table."""

    name: str
    name_at: int
    """Where the name lies in the file."""
    kind: int
    section: int
    """Number of the section that defines it; 0 where it is undefined."""


class Relocation(NamedTuple):
    """A row of a relocation table: what is written where when the object is loaded."""

    place: int
    kind: int
    symbol: Symbol | None
    addend: int


class Segment(NamedTuple):
    """A row of the program headers: what is mapped, or how."""

    kind: int
    flags: int
    address: int
    size: int


def require_elf(data: bytes) -> None:
    """Raise ValueError where the bytes are no 64-bit little-endian ELF file."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")


def read_sections(data: bytes) -> list[Section]:
    """Return the section table. Raises struct.error where it is cut off."""
    (start,) = struct.unpack_from("<Q", data, 40)
    row_size, count = struct.unpack_from("<HH", data, 58)
    return [
        Section(*struct.unpack_from("<IIQQQQI", data, start + index * row_size))
        for index in range(count)
    ]


def read_segments(data: bytes) -> list[Segment]:
    """Return the program headers. Raises struct.error where they are cut off."""
    (start,) = struct.unpack_from("<Q", data, 32)
    row_size, count = struct.unpack_from("<HH", data, 54)
    return [
        Segment(*struct.unpack_from("<II8xQ16xQ", data, start + index * row_size))
        for index in range(count)
    ]


def section_name(data: bytes, sections: Sequence[Section], section: Section) -> str:
    """Return a section's name. Raises ValueError, IndexError or struct.error where it has none."""
    (names,) = struct.unpack_from("<H", data, 62)
    return read_text(data, sections[names].offset + section.name_at)


def read_symbols(data: bytes, sections: Sequence[Section], table: Section) -> Iterator[Symbol]:
    """Yield the symbols of a symbol table, without its empty first row."""
    for position in range(table.offset + 24, table.offset + table.size, 24):
        yield _symbol(data, sections, table, position)


def read_relocations(
    data: bytes, sections: Sequence[Section], table: Section
) -> Iterator[Relocation]:
    """Yield the relocations of a table."""
    symbols = sections[table.link]
    for position in range(table.offset, table.offset + table.size, 24):
        place, info, addend = struct.unpack_from("<QQq", data, position)
        number = info >> 32
        symbol = _symbol(data, sections, symbols, symbols.offset + 24 * number) if number else None
        yield Relocation(place, info & 0xFFFFFFFF, symbol, addend)


def read_dynamic(data: bytes, table: Section) -> Iterator[tuple[int, int]]:
    """Yield tags and values of a dynamic section."""
    for position in range(table.offset, table.offset + table.size, 16):
        yield struct.unpack_from("<QQ", data, position)


def read_text(data: bytes, start: int) -> str:
    """Return the string that starts at a place of the file. Raises ValueError where none ends."""
    return data[start : data.index(b"\0", start)].decode()


def _symbol(data: bytes, sections: Sequence[Section], table: Section, position: int) -> Symbol:
    name_at, info, section = struct.unpack_from("<IBxH", data, position)
    start = sections[table.link].offset + name_at
    return Symbol(read_text(data, start), start, info & 15, section)
