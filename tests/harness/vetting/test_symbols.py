"""The allow-list of host calls, read from built objects."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernelblaster.harness.vetting.symbols import (
    UNNAMED,
    bare_name,
    check_library,
    check_symbols,
    defined_symbols,
    readable,
    undefined_symbols,
)

LAUNCH = 'extern "C" void launch() {}\n'


def library(folder: Path, text: str) -> Path:
    """Compile host code to a shared object."""
    source, target = folder / "host.cpp", folder / "host.so"
    source.write_text(text)
    compiler = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    assert compiler, "these tests need a host compiler"
    # No optimisation: each call stays a call.
    command = [compiler, "-O0", "-shared", "-fPIC", str(source), "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True)
    return target


def test_reads_both_sides_of_an_object(tmp_path: Path) -> None:
    path = library(
        tmp_path,
        'extern "C" int getpid(); extern "C" double sin(double);'
        'extern "C" void launch() { getpid(); volatile double x = 1; x = sin(x); }'
        "static int hidden() { return 1; } int shown() { return hidden(); }",
    )
    assert {"getpid", "sin"} <= set(undefined_symbols(path))
    assert {"launch", "_Z5shownv"} <= set(defined_symbols(path))
    assert not any("hidden" in name for name in defined_symbols(path))
    assert [found.message for found in check_library(path)] == ["getpid: environment"]


def test_a_plain_launch_is_allowed(tmp_path: Path) -> None:
    assert check_library(library(tmp_path, LAUNCH)) == ()


@pytest.mark.parametrize(
    "text, reason",
    [
        ("#include <cstdio>\n" + LAUNCH + 'void f() { fopen("x", "r"); }', "file access"),
        ("#include <cstdio>\n" + LAUNCH + 'void f() { printf("%d", 3); }', "printing"),
        ("#include <iostream>\n" + LAUNCH + "void f() { std::cout << 1; }", "printing"),
        ("#include <thread>\n" + LAUNCH + "void f() { std::thread t([]{}); t.join(); }", "threads"),
        ("#include <cstdlib>\n" + LAUNCH + 'void f() { system("true"); }', "processes"),
        ("#include <chrono>\n" + LAUNCH + "auto f() { return std::chrono::steady_clock::now(); }",
         "timers"),
        ("#include <dlfcn.h>\n" + LAUNCH + 'void f() { dlopen("x", 1); }', "dynamic loading"),
        ("#include <cstdlib>\n" + LAUNCH + "void* f() { return malloc(8); }", "allocation"),
        (LAUNCH + "int* f() { return new int(3); }", "operator new: host memory allocation"),
        ("#include <unistd.h>\n" + LAUNCH + "void f() { syscall(1); }", "system calls"),
        ("#include <sys/mman.h>\n" + LAUNCH + "void f() { mprotect(0, 0, 0); }", "memory"),
        ("#include <sys/socket.h>\n" + LAUNCH + "void f() { socket(1, 1, 1); }", "network"),
        (LAUNCH + "void f() { throw 3; }", "exceptions"),
        (LAUNCH + 'extern "C" int cudaDeviceSynchronize(); void f() { cudaDeviceSynchronize(); }',
         "waits for the device"),
        (LAUNCH + 'extern "C" int cudaMalloc(); void f() { cudaMalloc(); }', "workspace"),
        (LAUNCH + 'extern "C" int cudaStreamCreate(); void f() { cudaStreamCreate(); }', "stream"),
        (LAUNCH + 'extern "C" int cudaLaunchCooperativeKernelMultiDevice(); '
         "void f() { cudaLaunchCooperativeKernelMultiDevice(); }", "stream"),
        (LAUNCH + 'extern "C" void _Unwind_Resume(void*); void f() { _Unwind_Resume(0); }',
         "exceptions"),
        (LAUNCH + 'extern "C" int cuLaunchKernel(); void f() { cuLaunchKernel(); }', "driver"),
        (LAUNCH + 'extern "C" int nobody_knows(); void f() { nobody_knows(); }',
         "not on the allow"),
        (LAUNCH + 'extern "C" int cudaLaunchKernel() { return 0; }', "belongs to the runtime"),
        (LAUNCH + 'extern "C" void* memcpy(void* a, const void*, unsigned long) { return a; }',
         "belongs to the runtime"),
        (LAUNCH + 'extern "C" void* dlopen(const char*, int) { return 0; }', "belongs to the"),
        (LAUNCH + 'extern "C" int pthread_create() { return 0; }', "belongs to the"),
        (LAUNCH + "void* operator new(unsigned long) { return 0; }", "belongs to the"),
        ("static void g() {} extern \"C\" { void (*pick())() { return g; } "
         "void f() __attribute__((ifunc(\"pick\"))); }" + LAUNCH, "indirect function"),
        (LAUNCH + 'asm(".section .note.GNU-stack,\\"x\\"");', "writable and executable"),
        (LAUNCH + 'asm(".section .code,\\"awx\\",@progbits; .zero 8");', "writable and executable"),
        ("#include <cmath>\n#include <cstring>\n" + LAUNCH + "void* volatile p; void f(char* a) { "
         "memset(a, (int)sin(a[0]), a[1]); p = (void*)memset; }", "memset: its address is taken"),
        (LAUNCH + 'extern "C" int memset(); extern "C" void __cxa_finalize(void*); '
         "void f() { memset(); } void* volatile p = (void*)&__cxa_finalize;",
         "__cxa_finalize: its address is taken"),
        ("int other() { return 1; }", "does not define"),
        ("void launch() {}", "does not define"),
        ('static void launch() {} void f() { launch(); }', "does not define"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, text: str, reason: str) -> None:
    found = check_library(library(tmp_path, text))
    assert any(reason in diagnostic.message for diagnostic in found), found
    assert {diagnostic.kind for diagnostic in found} <= {"forbidden_symbol", "missing_launch"}


def test_names_of_ones_own_are_allowed(tmp_path: Path) -> None:
    own = 'extern "C" { int statistics() { return 1; } int send_tile() { return 2; } }\n'
    assert check_library(library(tmp_path, LAUNCH + own + "int time() { return 3; }\n")) == ()


def test_a_library_is_allowed_only_by_name() -> None:
    assert "--libraries" in check_symbols(["cublasSgemm_v2"])[0].message
    assert check_symbols(["cublasSgemm_v2"], ["cublas"]) == ()
    assert check_symbols(["cudnnCreate"], ["cublas"]) != ()


def test_what_a_build_needs_is_allowed() -> None:
    needed = ["__cudaRegisterFatBinary", "__cudaPopCallConfiguration", "cudaLaunchKernel",
              "cudaFuncSetAttribute", "cudaLaunchCooperativeKernel", "expf",
              "__cxa_guard_acquire", "memset"]  # fmt: skip
    assert check_symbols(needed) == ()


@pytest.mark.parametrize(
    "symbol, text",
    [
        ("_ZSt4cout", "std::cout"),
        ("_ZNSt6thread15_M_start_threadEv", "std::thread::_M_start_thread"),
        ("_ZNK3abc3defEv", "abc::def"),
        ("_Z5shownv", "shown"),
        ("_Znwm", "operator new"),
        ("getenv", "getenv"),
        ("_Z", "_Z"),
    ],
)
def test_readable(symbol: str, text: str) -> None:
    assert readable(symbol) == text


@pytest.mark.parametrize(
    "symbol, text",
    [
        ("_ZN45_GLOBAL__N__{}_12_candidate_cu_57f012b45scaleILi2EEEvPKfPf", "{}::scale"),
        ("_ZN5named45_GLOBAL__N__{}_12_candidate_cu_57f012b45scaleEPf", "named::{}::scale"),
        (
            "_ZN45_GLOBAL__N__{0}_12_candidate_cu_57f012b44deep"
            "45_GLOBAL__N__{0}_12_candidate_cu_57f012b45innerEPf", "{0}::deep::{0}::inner",
        ),
        ("_ZN12_GLOBAL__N_16helperEv", "{}::helper"),
        ("_Z5scalePf", "scale"),
    ],
)  # fmt: skip
def test_a_kernel_has_one_name_in_each_version_of_its_file(symbol: str, text: str) -> None:
    # As nvcc 13 named them in two files that differ in a comment.
    names = {readable(symbol.format(version)) for version in ("c0a31356", "181505c0")}
    assert names == {text.format(UNNAMED)}


@pytest.mark.parametrize("cut", [0, 3, 64, 500])
def test_what_is_no_library_raises(tmp_path: Path, cut: int) -> None:
    path = library(tmp_path, LAUNCH)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError):
        undefined_symbols(path)


@pytest.mark.parametrize(
    "around", ["", "space::", "(anonymous namespace)::", "space::(anonymous namespace)::",
               "<unnamed>::", "_GLOBAL__N__28537430_12_candidate_cu_57f012b4::"],
)  # fmt: skip
@pytest.mark.parametrize("form", ["void {}k<16>(const float*)", "{}k<(int)4>", "{}k"])
def test_a_bare_name_is_what_the_source_calls_it(around: str, form: str) -> None:
    assert bare_name(form.format(around)) == "k"
