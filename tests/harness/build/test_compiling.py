"""The compiler shut off and limited: what a source makes it read, write, print and need."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelblaster.harness.build import compiling, toolchain
from kernelblaster.harness.build.compiling import denied_files, foreign_files
from kernelblaster.harness.build.toolchain import Toolchain, build, find_toolchain
from kernelblaster.harness.isolation import landlock
from kernelblaster.harness.isolation.kernel import Refused
from kernelblaster.harness.judge.findings import judge_build
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome

HEADER = """#pragma once
#include <cuda_runtime.h>
extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream);
"""
LAUNCH = """
__global__ void copy(float* out, const float* x) { out[threadIdx.x] = x[threadIdx.x]; }
extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
  copy<<<1, 256, 0, stream>>>(out0, x);
}
"""


def has_landlock() -> bool:
    try:
        return landlock.version() > 0
    except Refused:
        return False


needs_landlock = pytest.mark.skipif(not has_landlock(), reason="this kernel has no Landlock")


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELBLASTER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def tools() -> Toolchain:
    return find_toolchain()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "answers.h"
    path.write_text("constexpr int STOLEN = 7;\n")
    return path


def judged(tools: Toolchain, source: str) -> StageResult | None:
    built = asyncio.run(build(tools, '#include "task.cuh"\n' + source + LAUNCH, HEADER, "sm_90"))
    return judge_build(built, source)


READS = {
    "behind a form feed": '\f#include "SECRET"\n',
    "through a macro": '#define FILE_NAME "SECRET"\n#include FILE_NAME\n',
    "through a macro of angle brackets": "#define F <SECRET>\n#include F\n",
    "by a directive that a macro makes": '#define HASH #\nHASH include "SECRET"\n',
    "by a digraph that a macro makes": '#define HASH %:\nHASH include "SECRET"\n',
    "behind a raw string": 'auto s = R"(")";\n#include "SECRET"\n//"\n',
    "behind a separator of digits": "int d = 1'0;\n#include \"SECRET\"\n// '\n",
    "by a splice with white space": '#inc\\ \t\nlude "SECRET"\n',
    "as seen from a header's folder": '#include_next <../../../../../../../../../../..SECRET>\n',
    "by a pragma": '_Pragma("GCC dependency \\"SECRET\\"")\n',
    "by a probe that a macro makes": "#define P(a, b) a##b\n#if P(__has_, include)(\"SECRET\")\n"
    "#endif\n",
    "by the assembler": 'asm(".section .rodata\\n.incbin \\"SECRET\\"\\n.text");\n',
    "by the assembler's include": 'asm(".include \\"SECRET\\"");\n',
    "by a name for the assembler": 'int f() __asm__("f\\n.incbin \\"SECRET\\"\\n");\n'
    "int f() { return 1; }\n",
}


@needs_landlock
@pytest.mark.parametrize("how", list(READS))
def test_no_file_of_the_machine_is_read(tools: Toolchain, secret: Path, how: str) -> None:
    stage = judged(tools, READS[how].replace("SECRET", str(secret)))
    assert stage is not None
    outcomes = {Outcome.FORBIDDEN}
    if how == "by a name for the assembler":
        outcomes.add(Outcome.COMPILE_ERROR)
    assert stage.outcome in outcomes, stage.reason
    assert "STOLEN" not in stage.model_dump_json()
    if "assembler" not in how:
        assert "answers.h" in stage.reason, stage.reason


@needs_landlock
@pytest.mark.parametrize(
    "path", ["/proc/self/environ", "/proc/self/cmdline", "/dev/urandom", "/etc/hostname"]
)
def test_nothing_of_the_system_beside_headers_is_read(tools: Toolchain, path: str) -> None:
    stage = judged(tools, f'#define F "{path}"\n#include F\n')
    assert stage is not None and stage.outcome is Outcome.FORBIDDEN
    assert path in stage.reason


@pytest.mark.parametrize(
    "source",
    [
        "#define PART <cuda_fp16.h>\n#include PART\n",
        "#if __has_include(<cuda_bf16.h>)\n#include <cuda_bf16.h>\n#endif\n#define P <nowhere.h>\n"
        "#if __has_include(P)\n#error there\n#endif\n",
        "// step\n/*\n # 1 load\n # line 2\n*/\n#pragma GCC diagnostic push\n",
        "#define STR(x) #x\nconst char* s = STR(# include \"x\"); auto r = R\"(/etc)\";\n",
        "#include <cooperative_groups.h>\n#include <mma.h>\n"
        "#include <algorithm>\n#include <cmath>\n",
        # A header of this includes <iostream>.
        "#include <cub/block/block_load.cuh>\n",
        "#include <iostream>\n",
        "#include <cstdio>\n#include <cstdlib>\n#define CHECK(call) do { cudaError_t e = (call); "
        "if (e != cudaSuccess) { fprintf(stderr, \"%s:%d: %s\\n\", __FILE__, __LINE__, "
        "cudaGetErrorString(e)); exit(EXIT_FAILURE); } } while (0)\n"
        "void checked() { CHECK(cudaGetLastError()); }\n",
        "#include <cstdio>\nvoid note() { std::fprintf(stderr, \"plain\\n\"); fflush(stderr); }\n",
    ],
)
def test_honest_sources_are_built(tools: Toolchain, source: str) -> None:
    stage = judged(tools, source)
    assert stage is None, stage.reason


@pytest.mark.parametrize("call", ['printf("passed");', 'puts("x");', 'fprintf(stdout, "x");'])
def test_what_would_reach_a_log_is_refused(tools: Toolchain, call: str) -> None:
    stage = judged(tools, f"#include <cstdio>\nvoid f() {{ {call} }}\n")
    assert stage is not None
    words = [found.message for found in stage.diagnostics]
    assert any("fprintf to stderr is let through and dropped" in each for each in words)


def test_what_a_build_keeps_is_limited(tools: Toolchain) -> None:
    stage = judged(tools, "__device__ char big[24 << 20] = {1};\n")
    assert stage is not None and stage.outcome is Outcome.COMPILE_ERROR
    assert "MiB" in stage.reason and "limit" in stage.reason, stage.reason
    assert len(os.listdir(Path(os.environ["KERNELBLASTER_CACHE"]))) < 10


def test_memory_is_limited(tools: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "MEMORY_KIB", 120 << 10)
    stage = judged(tools, "int memory;\n")
    assert stage is not None and stage.outcome is Outcome.COMPILE_ERROR, stage


def test_what_is_printed_is_limited(tools: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "LOG_BYTES", 20_000)
    words = "x" * 3000
    source = "".join(f'#pragma message("{words}{number}")\n' for number in range(40))
    stage = judged(tools, source)
    assert stage is not None and "printed more than" in stage.reason


def test_files_are_limited(tools: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "FILE_BYTES", 1 << 19)
    stage = judged(tools, "int files;\n")
    assert stage is not None and "wrote a file of more than" in stage.reason


def test_where_the_kernel_does_not_shut_it_off_the_list_holds(
    tools: Toolchain, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "enclose_compiler", lambda programs, writable: ["all"])
    stage = judged(tools, f'#define F "{secret}"\n#include F\nint a[STOLEN], unconfined;\n')
    assert stage is not None and stage.outcome is Outcome.FORBIDDEN
    assert "answers.h" in stage.reason


def test_what_was_opened_is_read_from_both_lists(tmp_path: Path) -> None:
    build_folder, headers = tmp_path / "build", tmp_path / "tool kit"
    for folder in (build_folder, headers / "deep", tmp_path / "toolkit-of-others"):
        folder.mkdir(parents=True)
    for name in ("x.h", "y.h", "toolkit-of-others/z.h", "tool kit/a$b.h", "tool kit/c.h",
                 "build/task.cuh", "build/candidate.cu"):  # fmt: skip
        (tmp_path / name).touch()
    opened = build_folder / "opened.d"
    escaped = str(headers).replace(" ", "\\ ")
    names = [f"{escaped}/a$$b.h", f"{escaped}/deep/../c.h", "task.cuh", "./candidate.cu"]
    opened.write_text("candidate.o: " + " \\\n ".join(names) + "\ncandidate.o: \\\n task.cuh\n")
    assert foreign_files(build_folder, [headers]) == ()
    outside = ["../x.h", f"{escaped}/../y.h", f"{tmp_path}/toolkit-of-others/z.h", "/etc/passwd"]
    for name in outside:
        opened.write_text(f"candidate.o: task.cuh {name}\n")
        (found,) = foreign_files(build_folder, [headers])
        assert found.kind == "forbidden_include"
    # As two that write at once leave it.
    cut = f"candidate.o: task.cuh {tmp_path}/toolkit-of-ocandidate.o: \\\n task.cuh\nthers/z.h\n"
    opened.write_text(cut)
    assert foreign_files(build_folder, [headers]) == ()
    marks = (
        f'# 1 "candidate.cu"\n# 1 "<built-in>" 1\n# 1 "{headers}/c.h" 1\n# 7 "/named/by/line.h"\n'
    )
    marked = build_folder / "candidate.cpp4.ii"
    marked.write_text(marks)
    assert foreign_files(build_folder, [headers]) == ()
    # Whatever this process finds there: another has another folder of its own.
    for name in ("/etc/passwd", "/proc/self/cwd/../../../answers.h", "../" + "./" * 3000 + "x.h"):
        marked.write_text(f'{marks}# 1 "{name}" 1\n')
        (found,) = foreign_files(build_folder, [headers])
        assert found.message.startswith(name[:200])


@pytest.mark.parametrize("how", ["by a folder of its own", "by a name as long as can be"])
def test_no_name_hides_a_file(
    tools: Toolchain, secret: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(compiling, "enclose_compiler", lambda programs, writable: ["all"])
    up = "../" * 12 + str(secret).lstrip("/")
    longest = "./" * ((4090 - len(up)) // 2) + up  # With its folder before it, it is too long.
    path = longest if "long" in how else f"/proc/self/cwd/{up}"
    stage = judged(tools, f'#define F "{path}"\n#include F\nint hidden[STOLEN];\n')
    assert stage is not None and stage.outcome is Outcome.FORBIDDEN, stage


MARKED = "auto g = [] __device__ (int i) { return i; };"
NEEDED = f"__device__ int use() {{ {MARKED} return g(2); }}\n"


def test_lambdas_marked_for_the_device_are_built(tools: Toolchain) -> None:
    assert judged(tools, NEEDED) is None


def test_a_second_compilation_hides_nothing_of_the_first(
    tools: Toolchain, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "enclose_compiler", lambda programs, writable: ["all"])
    # The second one's runtime includes <functional>.
    alone = f'#ifndef _GLIBCXX_FUNCTIONAL\n#define F "{secret}"\n#include F\n#endif\n'
    stage = judged(tools, alone + NEEDED)
    assert stage is not None and stage.outcome is Outcome.FORBIDDEN


def test_a_second_compilation_finds_nothing_of_the_first(
    tools: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = []

    def noted(command: Sequence[str], directory: Path, *more: Any) -> tuple[int, str]:
        there.append({path.name for path in directory.iterdir()})
        return compiling.run_nvcc(command, directory, *more)

    monkeypatch.setattr(toolchain, "run_nvcc", noted)
    assert judged(tools, f"// Found anew.\n{NEEDED}") is None
    assert len(there) == 2 and there[0] == there[1]


HIDDEN_STD = "#define JOINED(a, b) a##b\n#define S JOINED(s, td)\n"


@pytest.mark.parametrize(
    "code, compilations",
    [
        ("int largest() { return std::max(1, 2); }\n", 1),
        (f"{HIDDEN_STD}int largest() {{ return S::max(1, 2); }}\n", 2),
        (f"{HIDDEN_STD}{NEEDED}float f = S::numeric_limits<float>::max();\n", 2),
        (f"#include <cmath>\n{HIDDEN_STD}double b(double x) {{ return S::beta(x, 2.0); }}\n", 2),
        (f"{HIDDEN_STD}{NEEDED}int nothing() {{ return S::no_such_name; }}\n", 2),
        ("int nothing() { return no_such_name; }\n", 1),
        ("#define max(a, b) ((a) > (b) ? (a) : (b))\n#include <limits>\n", 2),
        (f"#ifndef __CUDACC_EXTENDED_LAMBDA__\n#error by this flag\n#endif\n{NEEDED}", 1),
        ("int nothing() { return std::no_such_name; }\n", 1),
    ],
)
def test_what_a_source_needs_of_the_standard_library_is_there(
    tools: Toolchain, monkeypatch: pytest.MonkeyPatch, code: str, compilations: int
) -> None:
    run = []

    def noted(*given: Any) -> tuple[int, str]:
        run.append(given[-1])
        return compiling.run_nvcc(*given)

    monkeypatch.setattr(toolchain, "run_nvcc", noted)
    stage = judged(tools, f"// Needs, and how often it is compiled: {compilations}.\n{code}")
    assert (stage is not None) == ("no_such_name" in code), stage
    assert len(run) == compilations
    assert run == sorted(run, reverse=True), "seconds that are left, of one limit"


def test_refused_reading_names_file_and_line() -> None:
    (found,) = denied_files("candidate.cu:3:10: fatal error: /a/b.h: Permission denied\n")
    assert (found.line, found.message[:7]) == (3, "/a/b.h:")
    (found,) = denied_files("cc1plus: fatal error: /etc/hostname: Permission denied\n")
    assert (found.line, found.kind) == (None, "forbidden_include")
    assert denied_files("candidate.cu:3:10: error: 'x' was not declared: Permission\n") == ()


@pytest.mark.parametrize(
    "header", ["cub/cub.cuh", "cub/device/device_radix_sort.cuh", "thrust/sort.h"]
)
def test_headers_for_host_code_are_named(tools: Toolchain, header: str) -> None:
    stage = judged(tools, f"#include <{header}>\n{USES[header]}")
    assert stage is not None and stage.outcome is not Outcome.PASSED
    assert "cub/block/ and cub/warp/" in stage.reason, stage.reason


USES = {
    "cub/cub.cuh": "",
    "cub/device/device_radix_sort.cuh": (
        "extern \"C\" void sorted(float* y, const float* x, void* w, cudaStream_t s) {\n"
        "  size_t n = 1 << 20;\n"
        "  cub::DeviceRadixSort::SortKeys(w, n, x, y, 1 << 10, 0, 32, s);\n}\n"
    ),
    "thrust/sort.h": (
        "#include <thrust/execution_policy.h>\n"
        "extern \"C\" void sorted(float* y) { thrust::sort(thrust::device, y, y + 9); }\n"
    ),
}
