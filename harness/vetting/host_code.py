"""What a candidate's host machine code must not hold: system calls, clocks, computed calls.

Allowed calls leave a symbol; an instruction that asks the kernel or reads a clock leaves none. So
the built object is taken apart by the disassembler of the host compiler's own binutils. What it
cannot see is code that is reached by a return to an address that was overwritten in memory; the
sandbox holds there.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import UserError
from ..process.children import run_process, scrubbed_environment
from ..records.builds import Diagnostic
from .elf_layout import code_bytes, read_layout
from .host_flow import (
    BRANCH,
    COMPUTED,
    PREFIXES,
    Instruction,
    check_arm_flow,
    check_flow,
    harmless_initialisers,
)

SECONDS = 60.0
MOST_CODE_BYTES = 1 << 20
"""Of host machine code; what launches a thousand kernels has half of that."""
_LISTING_BYTES = 128 * MOST_CODE_BYTES

_X86, _ARM = 62, 183
_REFUSED: dict[int, tuple[tuple[str, str], ...]] = {
    # regular expression on the instruction's words: what it does
    _X86: (
        (r"syscall|sysenter|sysexit|sysret\w*|int\b(?!3)", "a system call"),
        (r"rdtscp?|rdpmc", "reads the processor's cycle counter"),
        (r"rdrand|rdseed", "draws random numbers"),
        (r"cpuid|rdpid|xgetbv|sgdt|sidt|sldt|smsw|str\b", "asks which machine this is"),
        (r"(?:rd|wr)[fg]sbase|wrpkru|xrstor\w*", "changes the thread's own registers"),
        (r"l(?:jmp|call|ret)\w*|iret\w*|in[sbwl]?\b|out[sbwl]*\b|hlt|vm(?:m?call|func)",
         "leaves the program"),
        (r"\(bad\)", "bytes that are no instruction"),
    ),
    _ARM: (
        (r"svc|hvc|smc", "a system call"),
        (r"mrs\b.*\b(?:cntv?p?ct_el0|cntvctss_el0|pmccntr_el0)", "reads the processor's clock"),
        (r"mrs\b.*\brndr", "draws random numbers"),
        (r"msr\b.*\btpidr_el0", "changes the thread's own registers"),
        (r"udf\b|\.inst\b", "bytes that are no instruction"),
    ),
}  # fmt: skip
_HIDDEN = (b"\x0f\x05", b"\x0f\x34", b"\xcd\x80")
"""syscall, sysenter, int 0x80 on x86."""
_LARGE = 1 << 24
"""A smaller number fills too little of its four bytes to lead anywhere from a hidden call."""

_AT_LOAD = (
    "code that runs at load or unload (a static object with a constructor, or a "
    "constructor/destructor function): host work belongs in launch"
)
_INSTEAD = (
    "; a kernel that is chosen at run time is started by cudaLaunchKernel((const void*)kernel, "
    "grid, block, arguments, shared, stream)"
)
_LINE = re.compile(r"^ *([0-9a-f]+):\t((?:[0-9a-f]{2} )+) *(?:\t(.*))?$")
_SECTION = re.compile(r"^Disassembly of section (.*):$")
_FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
_NUMBER = re.compile(r"(\$)?(-)?0x([0-9a-f]+)(\(%[re]ip\))?")


def check_machine_code(library: Path, objdump: Path | None) -> tuple[Diagnostic, ...]:
    """Return one `forbidden_symbol` for each thing in a shared object's code that is refused.

    Raises UserError where there is no disassembler, or it does not know this kind of processor.
    """
    machine = _machine(library)
    if machine not in _REFUSED:
        raise UserError(
            f"host code of ELF machine {machine} cannot be checked: use x86-64 or arm64"
        )
    size = code_bytes(library)
    if size > MOST_CODE_BYTES:
        message = f"{size >> 10} KiB of host machine code; the limit is {MOST_CODE_BYTES >> 10} KiB"
        return (Diagnostic(kind="forbidden_symbol", message=message),)
    if objdump is None:
        raise UserError(
            "objdump is missing, and without it no candidate's host code can be checked: "
            "apt-get install binutils"
        )
    instructions = list(_parse(_disassembly(library, objdump)))
    if not instructions:
        raise UserError(f"{objdump} shows no instruction of {library.name}: install GNU binutils")
    found = [*_refused(instructions, machine)]
    layout = read_layout(library)
    harmless: set[int] = set()
    if machine == _X86:
        found += [*_misplaced(instructions), *_hidden(instructions)]
        harmless = harmless_initialisers(instructions, layout)
        flow = check_flow(instructions, layout)
    else:
        flow = check_arm_flow(instructions)
    for instruction, meaning in flow:
        told = _diagnostic(instruction, meaning)
        if meaning == COMPUTED:
            told = told.model_copy(update={"message": told.message + _INSTEAD})
        found.append(told)
    # The compiler's start-up files and nvcc's registration; the start-up files' end.
    own = [address for address in layout.initialisers if address not in harmless]
    if len(own) > 2 or len(layout.finalisers) > 1:
        found.append(Diagnostic(kind="forbidden_symbol", message=_AT_LOAD))
    return tuple(dict.fromkeys(found))


def _machine(library: Path) -> int:
    with library.open("rb") as file:
        header = file.read(20)
    return int(struct.unpack_from("<H", header, 18)[0])


def _disassembly(library: Path, objdump: Path) -> str:
    log = library.parent / "objdump.log"
    # Wide, so that an instruction is a line; zeros are decoded like all else.
    command = [str(objdump), "-d", "-w", "-z", str(library)]
    environment = scrubbed_environment(library.parent)
    status = run_process(
        command, directory=library.parent, environment=environment, log=log, seconds=SECONDS,
        most_log_bytes=_LISTING_BYTES,
    )  # fmt: skip
    text = log.read_text(errors="replace")
    log.unlink()
    if status != 0:
        raise UserError(f"{objdump} cannot read {library.name}: {text.strip()[-200:]}")
    return text


def _parse(text: str) -> Iterator[Instruction]:
    function = section = ""
    for line in text.splitlines():
        if match := _LINE.match(line):
            address, data, words = match.groups()
            # What follows # is objdump's own remark.
            words = (words or "(bad)").split("#")[0].strip()
            yield Instruction(int(address, 16), bytes.fromhex(data), words, function, section)
        elif match := _FUNCTION.match(line):
            function = match.group(1)
        elif match := _SECTION.match(line):
            function, section = "", match.group(1)


def _refused(instructions: Sequence[Instruction], machine: int) -> Iterator[Diagnostic]:
    patterns = [
        (re.compile(PREFIXES + f"(?:{pattern})"), meaning)
        for pattern, meaning in _REFUSED[machine]
    ]
    for instruction in instructions:
        for pattern, meaning in patterns:
            match = pattern.match(instruction.text)
            if match and not re.match(r"[\w.]", instruction.text[match.end() :]):
                yield _diagnostic(instruction, meaning)


def _misplaced(instructions: Sequence[Instruction]) -> Iterator[Diagnostic]:
    """Yield the branches that do not lead to the start of an instruction."""
    starts = {instruction.address for instruction in instructions}
    for instruction in instructions:
        match = BRANCH.match(instruction.text)
        if match and int(match.group(1), 16) not in starts:
            yield _diagnostic(instruction, "jumps into the middle of an instruction")


def _hidden(instructions: Sequence[Instruction]) -> Iterator[Diagnostic]:
    """Yield the constants that spell a system call: one can be jumped into."""
    for instruction in instructions:
        if BRANCH.match(instruction.text):
            continue
        for _, negative, digits, relative in _NUMBER.findall(instruction.text):
            value = int(digits, 16)
            # The linker, not the candidate, chooses an address relative to the instruction.
            if relative or value < _LARGE:
                continue
            bits = (1 << 64) - value if negative else value
            spelt = bits.to_bytes(8, "little")
            if any(code in spelt and code in instruction.data for code in _HIDDEN):
                yield _diagnostic(instruction, "a constant that spells a system call")


def _diagnostic(instruction: Instruction, meaning: str) -> Diagnostic:
    words = " ".join(instruction.text.split())
    where = f" in {instruction.function}" if instruction.function else ""
    return Diagnostic(
        kind="forbidden_symbol", message=f"host machine code{where}: {meaning} ({words[:60]})"
    )
