"""System calls and clocks in host machine code are found, however they are written."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from kernelblaster.harness.errors import UserError
from kernelblaster.harness.machine_code import check_machine_code
from kernelblaster.harness.source_rules import device_code

OBJDUMP = Path(shutil.which("objdump") or "objdump")
only_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="x86 instructions")


def messages(folder: Path, text: str) -> list[str]:
    """Compile host code and return what is refused of it."""
    source, library = folder / "host.cpp", folder / "host.so"
    source.write_text(text)
    compiler = shutil.which("g++") or "c++"
    command = [compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(command, check=True, capture_output=True)
    return [found.message for found in check_machine_code(library, OBJDUMP)]


def code(text: str) -> str:
    """Return a function of assembly."""
    lines = text.replace(";", "\\n")
    return f'asm(".text\\n.globl f\\n.type f, @function\\nf:\\n{lines}\\n.size f, . - f\\n");'


@only_x86
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('long f() { long r; asm("syscall" : "=a"(r) : "a"(39)); return r; }', "system call"),
        (code("mov $20, %eax; .byte 0xcd, 0x80; ret"), "system call (int"),
        (code("sysenter; ret"), "system call (sysenter"),
        (code("rep; syscall; ret"), "system call"),
        (code("rdtsc; ret"), "cycle counter"),
        ("unsigned long long f() { return __builtin_ia32_rdtsc(); }", "cycle counter"),
        (code("rdrand %rax; ret"), "random"),
        (code("cpuid; ret"), "which machine"),
        (code("lretq"), "leaves the program"),
        (code(".byte 0x06; ret"), "no instruction"),
        # jmp over one byte, into the end of a constant
        (code("jmp 1f + 2; 1: movabs $0xc3050f9090909090, %rax; ret"), "into the middle"),
        ("long f(long a) { return a ^ 0x00c3050f90909090; }", "spells a system call"),
        ("int f(int a) { return a == 0x050f9090; }", "spells a system call"),
        ("int f(int* a) { return a[(0x340f9090 - 0) / 4]; }", "spells a system call"),
        ("int f(int* a) { return a[-0x1ebebc40]; }", "spells a system call"),
    ],
)
def test_refused(tmp_path: Path, text: str, words: str) -> None:
    found = messages(tmp_path, text)
    assert any(words in message for message in found), found


@only_x86
@pytest.mark.parametrize(
    "text",
    [
        # 0x50f, 0x80cd and 0x340f are dimensions as good as any.
        "int f(int a) { return a * 1295 + (a == 32973) + a / 13327; }",
        "int f(int a) { switch (a) { case 0: return 3; case 1: return 9; case 2: return 4; "
        "case 3: return 7; case 4: return 1; case 5: return 8; } return 0; }",
        "int g(); int f() { static int once = g(); return once; }",
        "struct A { virtual int h(); }; int f(A* a) { return a->h(); }",
        "double f(double* a, int n) { double s = 0; for (int i = 0; i < n; i++) s += a[i]; "
        "return s; }",
    ],
)
def test_what_compilers_make_is_not_refused(tmp_path: Path, text: str) -> None:
    assert messages(tmp_path, text) == []


def test_without_a_disassembler_the_remedy_is_told(tmp_path: Path) -> None:
    messages(tmp_path, "int f() { return 1; }")
    with pytest.raises(UserError, match="binutils"):
        check_machine_code(tmp_path / "host.so", None)


PTX = """
	.loc	{file} 12 5
	mov.u64 %rd1, {register};
	call.uni (retval0),
	{function},
	(
	.file	1 "/builds/candidate.cu"
	.file	2 "/toolkit/atomic"
"""


@pytest.mark.parametrize(
    ("file", "register", "function", "words"),
    [
        (1, "%globaltimer", "vprintf", ["%globaltimer: device code reads"]),
        (1, "%clock64", "vprintf", ["%clock64: device code reads"]),
        (1, "%clock_rate", "vprintf", []),
        (2, "%globaltimer", "vprintf", []),
        (1, "%rd7", "malloc", ["malloc in device code"]),
        (2, "%rd7", "free", ["free in device code"]),
    ],
)
def test_device_code(file: int, register: str, function: str, words: list[str]) -> None:
    text = PTX.format(file=file, register=register, function=function)
    found = device_code(text)
    assert len(found) == len(words)
    for diagnostic, beginning in zip(found, words, strict=True):
        assert diagnostic.message.startswith(beginning)
        assert diagnostic.line == (12 if file == 1 else None)
