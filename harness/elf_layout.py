"""Where a shared object keeps what the dynamic linker works with: its tables and pointer slots."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

_STRTAB, _RELA, _HASH, _DYNAMIC, _NOTE, _DYNSYM = 3, 4, 5, 6, 7, 11
_GNU_FIRST, _GNU_LAST = 0x6FFFFFF5, 0x6FFFFFFF
"""Section types of GNU's hash and version tables."""
_TABLES = {_STRTAB, _RELA, _HASH, _DYNAMIC, _NOTE, _DYNSYM}
_ALLOCATED = 2
_PT_GNU_RELRO = 0x6474E552
_DT_PLTGOT = 3
_SLOTS = {6, 7, 1025, 1026}
"""Relocations that fill a slot with the address of a symbol, on x86-64 and arm64."""


class Slot(NamedTuple):
    """A place that the linker fills with a symbol's address."""

    symbol: str
    defined: bool
    """The symbol is the object's own."""


class Layout(NamedTuple):
    """What `read_layout` finds; all addresses as the object numbers them."""

    slots: dict[int, Slot]
    tables: tuple[tuple[int, int], ...]
    """[first, end) of the headers, symbol, string and relocation tables, .dynamic, .got."""
    sealed: tuple[tuple[int, int], ...]
    """[first, end) of what is read-only once the object is loaded."""
    resolver: int
    """The slot through which the first stub of the PLT jumps; 0 where there is none."""

    def in_table(self, address: int) -> bool:
        """Say whether an address belongs to the linker."""
        return any(first <= address < end for first, end in self.tables)

    def is_sealed(self, address: int) -> bool:
        """Say whether a slot cannot be written after loading."""
        return any(first <= address < end for first, end in self.sealed)


def read_layout(library: Path) -> Layout:
    """Read a 64-bit little-endian shared object. Raises ValueError where it is damaged."""
    data = library.read_bytes()
    try:
        return _parse(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"{library.name} is a damaged ELF file") from error


def _parse(data: bytes) -> Layout:
    header_offset, section_offset = struct.unpack_from("<QQ", data, 32)
    header_size, headers, section_size, count, names = struct.unpack_from("<5H", data, 54)
    sections = [
        # name, type, flags, address, file offset, size, linked section
        struct.unpack_from("<IIQQQQI", data, section_offset + index * section_size)
        for index in range(count)
    ]
    allocated = [section for section in sections if section[2] & _ALLOCATED]
    slots: dict[int, Slot] = {}
    tables = [(0, min((section[3] for section in allocated), default=0))]
    resolver = 0
    for name_at, kind, _, address, offset, size, link in allocated:
        name = _text(data, sections[names][4] + name_at)
        if kind in _TABLES or _GNU_FIRST <= kind <= _GNU_LAST or name in (".got", ".got.plt"):
            tables.append((address, address + size))
        if kind == _RELA and sections[link][1] == _DYNSYM:
            _, _, _, _, symbols, _, strings = sections[link]
            for position in range(offset, offset + size, 24):
                place, info = struct.unpack_from("<QQ", data, position)
                if info & 0xFFFFFFFF in _SLOTS and info >> 32:
                    at, own = struct.unpack_from("<I2xH", data, symbols + 24 * (info >> 32))
                    slots[place] = Slot(_text(data, sections[strings][4] + at), own != 0)
        elif kind == _DYNAMIC:
            for position in range(offset, offset + size, 16):
                tag, value = struct.unpack_from("<QQ", data, position)
                resolver = value + 16 if tag == _DT_PLTGOT else resolver
    sealed = []
    for index in range(headers):
        kind, _, _, address, _, _, size = struct.unpack_from(
            "<IIQQQQQ", data, header_offset + index * header_size
        )
        if kind == _PT_GNU_RELRO:
            sealed.append((address, address + size))
    return Layout(slots, tuple(tables), tuple(sealed), resolver)


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()
