"""What of a cubin a GPU executes: code, constants, initial values, and the memory they ask for."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from ...vetting.elf import Section, read_sections, read_text, require_elf, section_name

_EXECUTED = (".text", ".nv.constant", ".nv.global", ".nv.shared", ".nv.local")
_NO_BITS = 8
_REL, _RELA = 9, 4
_OBJECT, _FUNCTION = 1, 2


def machine_image(cubin: bytes) -> dict[str, object]:
    """Return what is executed, by section: two cubins whose images are equal are the same program.

    Debug information, notes and the tables that describe kernels to the driver are left out.

    Raises:
        ValueError: the bytes are no whole cubin.
    """
    require_elf(cubin)
    try:
        sections = read_sections(cubin)
        names = [section_name(cubin, sections, section) for section in sections]
        found: dict[str, object] = {}
        for name, section in zip(names, sections, strict=True):
            if name.startswith(_EXECUTED):
                found[name] = section.size if section.kind == _NO_BITS else _data(cubin, section)
            elif name.startswith((".rel.", ".rela.")) and _told_of(name).startswith(_EXECUTED):
                found[name] = sorted(_relocations(cubin, sections, section))
            elif name == ".symtab":
                found[name] = sorted(_places(cubin, sections, names, section))
        return found
    except (struct.error, IndexError) as problem:
        raise ValueError(f"a damaged cubin: {problem}") from problem


def first_difference(one: Mapping[str, object], other: Mapping[str, object]) -> str:
    """Return the section in which two images differ; "" where they are equal."""
    names = sorted({*one, *other}, key=lambda name: (not name.startswith(".text"), name))
    return next((name for name in names if one.get(name) != other.get(name)), "")


def _told_of(name: str) -> str:
    """Return the section that a section of relocations speaks of."""
    return "." + name.split(".", 2)[2]


def _data(cubin: bytes, section: Section) -> bytes:
    return cubin[section.offset : section.offset + section.size]


def _relocations(
    cubin: bytes, sections: list[Section], table: Section
) -> Iterator[tuple[int, int, str, int]]:
    """Yield place, type, symbol and addend; symbols by name, for their numbers may differ."""
    size = 24 if table.kind == _RELA else 16
    symbols = sections[table.link]
    for at in range(table.offset, table.offset + table.size, size):
        place, info = struct.unpack_from("<QQ", cubin, at)
        addend = struct.unpack_from("<q", cubin, at + 16)[0] if table.kind == _RELA else 0
        row = symbols.offset + 24 * (info >> 32)
        (name_at,) = struct.unpack_from("<I", cubin, row)
        name = read_text(cubin, sections[symbols.link].offset + name_at)
        yield place, info & 0xFFFFFFFF, name, addend


def _places(
    cubin: bytes, sections: list[Section], names: list[str], table: Section
) -> Iterator[tuple[str, str, int, int]]:
    """Yield name, section, place and size of each function and variable."""
    for at in range(table.offset + 24, table.offset + table.size, 24):
        name_at, info, place_of, value, size = struct.unpack_from("<IBxHQQ", cubin, at)
        if info & 15 in (_OBJECT, _FUNCTION):
            section = names[place_of] if place_of < len(names) else ""
            name = read_text(cubin, sections[table.link].offset + name_at)
            yield name, section, value, size
