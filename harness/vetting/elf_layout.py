"""Where a shared object keeps what the dynamic linker works with: its tables and pointer slots."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .elf import (
    DYNAMIC,
    DYNSYM,
    FINI_ARRAY,
    HASH,
    INIT_ARRAY,
    NOTE,
    RELA,
    STRTAB,
    Section,
    read_dynamic,
    read_relocations,
    read_sections,
    read_segments,
    section_name,
)

_GNU_FIRST, _GNU_LAST = 0x6FFFFFF5, 0x6FFFFFFF
"""Section types of GNU's hash and version tables."""
_TABLES = {STRTAB, RELA, HASH, DYNAMIC, NOTE, DYNSYM}
_ALLOCATED, _EXECUTABLE = 2, 4
_PT_GNU_RELRO = 0x6474E552
_DT_PLTGOT = 3
_SLOTS = {6, 7, 1025, 1026}
"""Relocations that fill a slot with the address of a symbol, on x86-64 and arm64."""
_RELATIVE = {8, 1027}
"""Relocations that fill a place with an address of the object's own."""


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
    initialisers: tuple[int, ...] = ()
    """Functions that run when the object is loaded, in this order."""
    finalisers: tuple[int, ...] = ()
    """Functions that run when it is unloaded."""

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


def code_bytes(library: Path) -> int:
    """Return how much machine code a shared object has. Raises ValueError where it is damaged."""
    try:
        sections = read_sections(library.read_bytes())
    except struct.error as error:
        raise ValueError(f"{library.name} is a damaged ELF file") from error
    return sum(section.size for section in sections if section.flags & _EXECUTABLE)


def _parse(data: bytes) -> Layout:
    sections = read_sections(data)
    allocated = [section for section in sections if section.flags & _ALLOCATED]
    slots: dict[int, Slot] = {}
    tables = [(0, min((section.address for section in allocated), default=0))]
    resolver = 0
    relative: dict[int, int] = {}
    for section in allocated:
        name = section_name(data, sections, section)
        of_the_linker = section.kind in _TABLES or _GNU_FIRST <= section.kind <= _GNU_LAST
        if of_the_linker or name in (".got", ".got.plt"):
            tables.append((section.address, section.address + section.size))
        if section.kind == RELA and sections[section.link].kind == DYNSYM:
            for place, kind, symbol, addend in read_relocations(data, sections, section):
                if kind in _SLOTS and symbol:
                    slots[place] = Slot(symbol.name, symbol.section != 0)
                elif kind in _RELATIVE:
                    relative[place] = addend
        elif section.kind == DYNAMIC:
            for tag, value in read_dynamic(data, section):
                resolver = value + 16 if tag == _DT_PLTGOT else resolver
    sealed = [
        (segment.address, segment.address + segment.size)
        for segment in read_segments(data)
        if segment.kind == _PT_GNU_RELRO
    ]
    initialisers, finalisers = (
        tuple(_pointers(data, allocated, kind, relative)) for kind in (INIT_ARRAY, FINI_ARRAY)
    )
    return Layout(slots, tuple(tables), tuple(sealed), resolver, initialisers, finalisers)


def _pointers(
    data: bytes, sections: Sequence[Section], kind: int, relative: Mapping[int, int]
) -> Iterator[int]:
    """Yield the addresses in tables of functions; 0 for one that is a symbol's of elsewhere."""
    for section in sections:
        if section.kind == kind:
            for at in range(0, section.size, 8):
                (written,) = struct.unpack_from("<Q", data, section.offset + at)
                # Packed relocations leave the address in the table itself.
                yield relative.get(section.address + at, written)
