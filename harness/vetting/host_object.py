"""What the host compiler's assembler read and wrote: assembly and sections that it did not make.

Judged on what was built, so it does not matter which lines or files the text claims to stand in.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from ..records.builds import Diagnostic
from .elf import RELA, read_sections, require_elf, section_name

_APP = re.compile(r"\s*(?:#|//|@)\s*(APP|NO_APP)\b")
_PLACE = re.compile(r'# (\d+) "([^"]*)"')
_DATA = re.compile(r"\.quad 0x[0-9a-f]+(?:, ?0x[0-9a-f]+)*")
_FATBIN = ('.section .nv_fatbin, "a"', ".align 8", "fatbinData:")
"""What nvcc itself puts into the host half by assembly: the device code, as data."""
_OF_HEADERS = frozenset((".globl _ZSt21ios_base_library_initv",))
"""What the standard library's own headers say there: <iostream> of GCC 13 names a symbol."""

_EXECUTABLE, _WRITABLE = 4, 1
_CODE = re.compile(r"\.text(?:\.(?:startup|unlikely|hot|exit|split)(?:\.[\w.$]*)?|\._Z[\w.$]*)?|"
                   r"\.text\.__clang_call_terminate")  # fmt: skip
_PLAIN = re.compile(
    r"|\.(?:data|bss|rodata|tdata|tbss)(?:\.[\w.$]+)?|\.init_array|\.comment|\.eh_frame|\.group|"
    r"\.note\.GNU-stack|\.note\.gnu\.property|\.gcc_except_table(?:\.[\w.$]+)?|\.debug_\w+|"
    r"\.symtab|\.strtab|\.shstrtab|\.symtab_shndx|\.llvm_addrsig|"
    r"\.nv_fatbin|\.nvFatBinSegment|__nv_module_id|__nv_relfatbin|\.nvHRDE|\.nvHRKI"
)


def host_assembly(text: str) -> tuple[Diagnostic, ...]:
    """Return one diagnostic for each place of the host code that holds assembly.

    `text` is what the assembler read. The compiler itself marks what it was told to insert.
    Assembly could make system calls, which leave no symbol to be seen.
    """
    found: dict[Diagnostic, None] = {}
    device_code_at = -1
    inside = False
    line: int | None = None
    for row in text.splitlines():
        if mark := _APP.match(row):
            inside, line = mark[1] == "APP", None
            continue
        if not inside:
            continue
        words = row.strip()
        if place := _PLACE.match(words):
            line = int(place[1]) if place[2].endswith("candidate.cu") else None
            continue
        if not words or words in _OF_HEADERS:
            continue
        # The device code stands there once: its three lines, its numbers, the way back to the code.
        if device_code_at + 1 < len(_FATBIN) and words == _FATBIN[device_code_at + 1]:
            device_code_at += 1
        elif device_code_at + 1 == len(_FATBIN) and _DATA.fullmatch(words):
            continue
        elif device_code_at + 1 == len(_FATBIN) and words == ".text":
            device_code_at += 1
        else:
            message = "inline assembly in host code"
            found[Diagnostic(kind="forbidden_symbol", message=message, line=line)] = None
    return tuple(found)


def check_sections(host_object: Path) -> tuple[Diagnostic, ...]:
    """Return one diagnostic for each section that a compiler makes of no plain host code.

    What the linker joins to `.init`, the tables of constructors and the like runs at load. Raises
    ValueError where the file is no 64-bit little-endian ELF object.
    """
    data = host_object.read_bytes()
    require_elf(data)
    try:
        names = dict.fromkeys(_unknown_sections(data))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"{host_object.name} is a damaged ELF file") from error
    return tuple(
        Diagnostic(
            kind="forbidden_symbol",
            message=f"a section of its own in host code: {ascii(name)[1:-1][:80]}",
        )
        for name in names
    )


def _unknown_sections(data: bytes) -> Iterator[str]:
    sections = read_sections(data)
    for section in sections:
        name = section_name(data, sections, section)
        plain = name.removeprefix(".rela") if section.kind == RELA else name
        executable = section.flags & _EXECUTABLE
        known = _CODE.fullmatch(plain) or (not executable and _PLAIN.fullmatch(plain))
        if not known or (executable and section.flags & _WRITABLE):
            yield name
