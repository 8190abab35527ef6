"""System calls and clocks in host machine code are found, however they are written."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from kernelblaster.harness import build
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.vetting.host_code import check_machine_code
from kernelblaster.harness.vetting.host_flow import Instruction, check_arm_flow

OBJDUMP = Path(shutil.which("objdump") or "objdump")
only_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="x86 instructions")


def messages(folder: Path, text: str, *options: str) -> list[str]:
    """Compile host code and return what is refused of it."""
    source, library = folder / "host.cpp", folder / "host.so"
    source.write_text(text)
    compiler = shutil.which("g++") or "c++"
    flags = ["-O2", "-shared", "-fPIC", "-fno-jump-tables", "-fno-exceptions"]
    sealed = "-Wl,-z,relro,-z,now"
    command = [compiler, *flags, sealed, *options, str(source), "-o", str(library)]
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
        ("int f(int (*g)(int)) { return g(1) + 1; }", "computed or read from memory (call"),
        ("int f(int (*g)(int)) { return g(1); }", "computed or read from memory (jmp"),
        ("struct A { virtual int h(); }; int f(A* a) { return a->h(); }", "computed"),
        (code("push %rax; notrack jmp *(%rdi,%rax,8)"), "computed or read from memory"),
        (code("mov slot(%rip), %rax; test %rax, %rax; je 1f; call *%rax; 1: ret; "
              ".local slot; .comm slot,8,8"), "computed or read"),
        # like the start-up files' own call, but entered past the load of what is called
        (code("mov %rdi, %rax; jmp 1f; mov __gmon_start__@GOTPCREL(%rip), %rax; "
              "1: test %rax, %rax; je 2f; call *%rax; 2: ret"), "computed or read"),
        ("extern char _DYNAMIC[] __attribute__((visibility(\"hidden\"))); "
         "int f() { return _DYNAMIC[8]; }", "dynamic linker"),
        (code("lea _GLOBAL_OFFSET_TABLE_(%rip), %rax; ret"), "dynamic linker"),
        (code("mov __cxa_finalize@GOTPCREL(%rip), %rax; ret"), "dynamic linker"),
        (code("mov __gmon_start__@GOTPCREL(%rip), %rax; ret"), "dynamic linker"),
        ("extern const char __ehdr_start[] __attribute__((visibility(\"hidden\"))); "
         "int f() { return __ehdr_start[1]; }", "dynamic linker"),
        ("extern \"C\" int atexit(void (*)()); int f(void (*g)()) { return atexit(g); }",
         "whose address is computed"),
        ("extern \"C\" int __cxa_atexit(void (*)(void*), void*, void*);"
         "int f(void (*g)(void*)) { return __cxa_atexit(g, 0, 0); }", "whose address is computed"),
        ("void* f() { return __builtin_return_address(0); }", "return address"),
        (code("push %rbp; mov %rsp, %rbp; sub $32, %rsp; leave; mov (%rsp), %rax; ret"),
         "return address"),
        ("void f(long* a) { ((void* volatile*)__builtin_frame_address(0))[1] = a; }",
         "return address"),
        ("void f(void* a, long b) { __builtin_eh_return(b, a); }", "computed or read"),
        ('#pragma GCC optimize("O0")\nvoid f(void* a, long b) { __builtin_eh_return(b, a); }',
         "computed or read"),
        ("void f(void** a) { __builtin_longjmp(a, 1); }", "computed or read"),
        ("long g(long*); long f() { long a[40]; g(a); long b = (long)__builtin_return_address(0); "
         "return b + a[3]; }", "return address"),
    ],
)
def test_refused(tmp_path: Path, text: str, words: str) -> None:
    found = messages(tmp_path, text)
    assert any(words in message for message in found), found
    for message in found:
        computed = "is computed or read from memory" in message
        assert ("cudaLaunchKernel" in message) is computed, message


THROUGH = ("-mindirect-branch=thunk-extern", "-mindirect-branch-register")
ASKS = Path(build.__file__).with_name("pointer_calls.c")
POINTERS = (
    "struct A { virtual int h(); }; int f(int (*g)(int)) { return g(1) + 1; }"
    "int g(A* a) { return a->h(); }"
)


@only_x86
def test_pointers_are_called_where_the_runtime_is_asked(tmp_path: Path) -> None:
    assert messages(tmp_path, POINTERS, *THROUGH, str(ASKS)) == []


@only_x86
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("call kb_require_kernel@PLT", "call memcpy@PLT"),
        ("mov 0xd0(%rsp), %rdi", "mov 0xc0(%rsp), %rdi"),
        ("pop %rcx\\npop %rax\\nret", "pop %rax\\npop %rcx\\nret"),
        ("call kb_only_kernels", "call kb_others"),
        ("push %\" #register", "push %rbx\""),
        ("jmp *%\" #register", "jmp *%rbx\""),
    ],
)
def test_what_asks_otherwise_calls_no_pointer(tmp_path: Path, old: str, new: str) -> None:
    other = tmp_path / "other.c"
    text = ASKS.read_text()
    assert old in text
    other.write_text(text.replace(old, new) + '__asm__("kb_others: ret");\n')
    found = messages(tmp_path, POINTERS, *THROUGH, str(other))
    assert any("computed or read from memory" in message for message in found), found


@only_x86
@pytest.mark.parametrize("place", ["__x86_indirect_thunk_rax + 6", "kb_only_kernels + 0x48"])
def test_nobody_comes_in_behind_the_question(tmp_path: Path, place: str) -> None:
    found = messages(tmp_path, f"{POINTERS}\n" + code(f"jmp {place}"), *THROUGH, str(ASKS))
    assert any("computed or read from memory" in message for message in found), found


@only_x86
@pytest.mark.parametrize("last", ["g(a); abort();", "g(a); h();"])
def test_a_function_behind_one_that_never_returns(tmp_path: Path, last: str) -> None:
    """What lies before a function in memory says nothing of the depth of its stack."""
    text = (
        '#include <stdlib.h>\n#pragma GCC optimize("no-reorder-functions")\nint g(char*); '
        "[[noreturn]] void h(); void e() { char a[80]; %s } void* f() { char a[40]; g(a); "
        "return (char*)__builtin_return_address(0) + a[3]; }"
    )
    for options in ([], ["-fcf-protection", "-fstack-protector-all"]):
        found = messages(tmp_path, text % last, *options)
        assert any("return address" in message for message in found), found


@only_x86
@pytest.mark.parametrize(
    "text",
    [
        # 0x50f, 0x80cd and 0x340f are dimensions as good as any.
        "int f(int a) { return a * 1295 + (a == 32973) + a / 13327; }",
        "int f(int a) { switch (a) { case 0: return 3; case 1: return 9; case 2: return 4; "
        "case 3: return 7; case 4: return 1; case 5: return 8; } return 0; }",
        "int g(); int f() { static int once = g(); return once; }",
        "extern \"C\" int atexit(void (*)()); void g() {} int f() { return atexit(g); }",
        "struct A { int v; ~A() { v = 0; } }; int g(A*); int f() { static A a; return g(&a); }",
        "int shared; int f() { return ++shared; }",
        "int g(int*, int, int, int, int, int, int, int); int f(int a, int b, int c, int d, int e, "
        "int h, int i, int j) { int k[64]; return g(k, a, b, c, d, e, h, i) + k[j] + j; }",
        "#include <stdarg.h>\nint f(int n, ...) { va_list a; va_start(a, n); int s = 0; "
        "while (n--) s += va_arg(a, int); va_end(a); return s; }",
        "int g(char*); int f(int n) { char a[n]; return g(a); }",
        "int g(char*); int f(int n) { alignas(64) char a[64]; char b[n]; return g(a) + g(b); }",
        "int g(char*); int f(int n) { alignas(64) char a[64]; return g(a) + n; }",
        "int g(char*); int f(int n) { int s = 0; for (int i = 1; i < n; i++) { char a[i]; "
        "s += g(a); } return s; }",
        "double f(double* a, int n) { double s = 0; for (int i = 0; i < n; i++) s += a[i]; "
        "return s; }",
        "int g(char*); int e() { char a[64]; return g(a); } int f(int b, int c, int d, int i, "
        "int j, int k, int l, int m, int n, int o, int p, int q, int r, int s, int t, int u, "
        "int v) { return l + m + n + o + p + q + r + s + t + u + v; }",
    ],
)
def test_what_compilers_make_is_not_refused(tmp_path: Path, text: str) -> None:
    assert messages(tmp_path, text) == []
    registers = "atexit" in text or "~A" in text
    assert registers or messages(tmp_path, text, "-O0") == []
    assert messages(tmp_path, text, "-fcf-protection", "-fstack-protector-all") == []


OWN = (
    "#pragma GCC visibility push(hidden)\n#define APART __attribute__((noipa))\n"
    "int s; struct A { A(); ~A(); }; "
)
REGISTERS = "__attribute__((constructor)) static void r() { s = 5; } "
"""In the place of nvcc's registration; the first initialiser is the start-up files'."""


@only_x86
@pytest.mark.parametrize(
    "text",
    [
        "",
        # A header's static object whose constructor and destructor are empty functions.
        "APART A::A() {} APART A::~A() {} static A a;",
    ],
)
def test_initialisers_that_do_nothing(tmp_path: Path, text: str) -> None:
    assert messages(tmp_path, OWN + REGISTERS + text) == []


@only_x86
@pytest.mark.parametrize(
    "text",
    [
        "__attribute__((constructor)) static void f() { s = 2; }",
        "__attribute__((destructor)) static void f() { s = 2; }",
        "static void f() {} "
        '__attribute__((section(".init_array"), used)) static void (*p)() = f;',
        # One of them does something: at load, or in the end.
        "APART A::A() { s = 1; } APART A::~A() {} static A a;",
        "APART A::A() {} APART A::~A() { s = 1; } static A a;",
        "APART A::A() {} APART A::~A() {} static A a; APART int g() { return s; } int t = g();",
        "APART A::A() {} APART A::~A() {} static A a; int* t = &s + (long)&s % 3;",
        # What a call leaves in the register of the function to register, nobody knows.
        code("lea g(%rip), %rdi; call __cxa_atexit@PLT; call __cxa_atexit@PLT; ret; g: ret")
        + 'extern "C" void f(); '
        '__attribute__((section(".init_array"), used)) static void (*p)() = f;',
    ],
)
def test_code_that_runs_at_load_is_refused(tmp_path: Path, text: str) -> None:
    found = messages(tmp_path, OWN + REGISTERS + text)
    assert any("at load or unload" in message for message in found), found


def test_much_host_code_is_refused_before_it_is_read(tmp_path: Path) -> None:
    found = messages(tmp_path, 'asm(".text\\n.fill 1200000, 1, 0x90\\n");')
    assert len(found) == 1 and "KiB of host machine code; the limit is 1024 KiB" in found[0]


@only_x86
def test_slots_that_stay_writable_are_no_way_to_call(tmp_path: Path) -> None:
    text = "int g(); int f() { return g() + 1; }"
    assert messages(tmp_path, text) == []
    assert messages(tmp_path, text, "-Wl,-z,norelro")


def test_branches_of_arm_code() -> None:
    def one(text: str, function: str, section: str = ".text") -> Instruction:
        return Instruction(0, b"1234", text, function, section)

    code = [
        one("br\tx17", "*ABS*@plt", ".plt"), one("br\tx16", "register_tm_clones"),
        one("bl\t738 <launch>", "launch"), one("ret", "launch"),
    ]  # fmt: skip
    assert list(check_arm_flow(code)) == []
    for text in ("br\tx16", "blr\tx3", "braa\tx1, x2"):
        assert [found for found, _ in check_arm_flow([*code, one(text, "launch")])] == [
            one(text, "launch")
        ]
    assert list(check_arm_flow([*code, one("br\tx1", "register_tm_clones")]))


def test_without_a_disassembler_the_remedy_is_told(tmp_path: Path) -> None:
    messages(tmp_path, "int f() { return 1; }")
    with pytest.raises(UserError, match="binutils"):
        check_machine_code(tmp_path / "host.so", None)
