"""Assembly and sections of the host half, found in what was built, whatever the lines claim."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernelblaster.harness.vetting.host_object import check_sections, host_assembly

COMPILER = shutil.which("g++") or shutil.which("c++") or "c++"


def compiled(folder: Path, text: str) -> tuple[list[str], list[str]]:
    """Return what is refused of the assembly, and of the object's sections."""
    (folder / "candidate.cu").write_text(text)
    command = [COMPILER, "-x", "c++", "-O3", "-fPIC", "-save-temps", "-c", "candidate.cu"]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    found = host_assembly((folder / "candidate.s").read_text())
    return (
        [f"{each.line}: {each.message}" for each in found],
        [each.message for each in check_sections(folder / "candidate.o")],
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('int f() {\n  asm volatile("nop");\n  return 1; }', "2"),
        ('#line 1 "/usr/include/stdio.h"\nvoid f() { asm volatile("nop"); }', "None"),
        ('# 1 "task.cuh" 1\nvoid f() { asm volatile("nop"); }\n# 2 "candidate.cu" 2', "None"),
        ('asm(".globl x");', "None"),
        ('auto s = R"(")"; void f() { asm("nop" "\\n#NO_APP"); }', "1"),
        ("int a = 1'000; void f() { __asm__ __volatile__(\"nop\"); } char b = 'c';", "1"),
        ('#define A(x) __a##x##m__\nvoid f() { A(s)("nop"); }', "2"),
        ('void f(int a) { asm goto("jmp %l0" :::: end); end:; }', "1"),
    ],
)
def test_assembly_is_found(tmp_path: Path, text: str, line: str) -> None:
    assembly, _ = compiled(tmp_path, text)
    assert f"{line}: inline assembly in host code" in assembly


@pytest.mark.parametrize(
    "text",
    [
        'extern "C" int renamed() __asm__("other"); int f() { return renamed(); }',
        'inline void unused() { asm volatile("nop"); } int f() { return 1; }',
        '// asm("nop")\nconst char* f() { return "asm(\\"nop\\") #APP"; }',
        'void f(int* a) { *a = 1; asm volatile("" ::: "memory"); *a = 2; }',
        '#include <iostream>\n#include <vector>\nstruct A { virtual ~A() {} };\n'
        "A* f() { static A a; return &a; } thread_local int t; const double d[9] = {1};"
        "template <class T> T g(T x) { static T once = x; return once; } int h() { return g(3); }",
        'int f(int a) { if (__builtin_expect(a, 0)) __builtin_abort(); return a; }',
    ],
)
def test_plain_host_code_is_not_refused(tmp_path: Path, text: str) -> None:
    assert compiled(tmp_path, text) == ([], [])


@pytest.mark.parametrize(
    ("text", "section"),
    [
        ('__attribute__((section(".init"))) void f() {}', ".init"),
        ('__attribute__((section(".fini"))) void f() {}', ".fini"),
        ('#line 3 "/usr/include/x.h"\n[[gnu::section(".text.odd")]] void f() {}', ".text.odd"),
        ('__attribute__((section("code"))) void f() {}', "code"),
        ('static void f() {} __attribute__((section(".preinit_array"), used)) '
         "static void (*p)() = f;", ".preinit_array"),
        ('static void f() {} __attribute__((section(".ctors"), used)) static void (*p)() = f;',
         ".ctors"),
        ("__attribute__((constructor(101))) void f() {}", ".init_array.00101"),
        ("struct A { A(); }; __attribute__((init_priority(200))) A a;", ".init_array.00200"),
        ("int s; __attribute__((destructor)) void f() { s = 1; }", ".fini_array"),
        ('asm(".section .rodata,\\"ax\\"; nop");', ".rodata"),
        ('asm(".section .gnu.warning.f,\\"a\\"; .ascii \\"x\\"");', ".gnu.warning.f"),
    ],
)
def test_sections_of_its_own_are_found(tmp_path: Path, text: str, section: str) -> None:
    _, sections = compiled(tmp_path, text)
    assert f"a section of its own in host code: {section}" in sections


NVCC = """
#APP
	.section .nv_fatbin, "a"
.align 8
fatbinData:
.quad 0x00100001ba55ed50,0x0000000000001b18
.quad 0x0000000000000000, 0x0000000000000001
.text

#NO_APP
	ret
"""


@pytest.mark.parametrize(
    ("before", "after", "clean"),
    [
        ("", "", True),
        (".text\n\n", ".text\n.quad 0x0000000000c3050f\n", False),
        (".text\n\n", NVCC.replace("#NO_APP\n\tret\n", ""), False),
        ("fatbinData:", "fatbinData:\nsyscall", False),
        ('"a"\n.align', '"a"\n.quad 0x1\n.align', False),
        (".quad 0x0000000000000000,", ".quad 0x0; syscall; .quad", False),
    ],
)
def test_only_what_nvcc_inserts_itself_is_let_through(
    before: str, after: str, clean: bool
) -> None:
    text = NVCC.replace(before, after) if before else NVCC
    assert (host_assembly(text) == ()) is clean


@pytest.mark.parametrize("cut", [0, 3, 64, 200])
def test_what_is_no_object_raises(tmp_path: Path, cut: int) -> None:
    compiled(tmp_path, "int f() { return 1; }")
    path = tmp_path / "candidate.o"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError):
        check_sections(path)
