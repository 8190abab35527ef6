"""Discovery of the compiler, cached builds, and errors on the candidate's own lines."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelblaster.harness.build import toolchain as module
from kernelblaster.harness.build.compiler_output import (
    compile_errors,
    kernel_resources,
    machine_fault,
)
from kernelblaster.harness.build.toolchain import Toolchain, build, find_toolchain
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.files import LARGEST_SOURCE_BYTES
from kernelblaster.harness.records.builds import Build
from kernelblaster.harness.records.tasks import TaskVariant
from kernelblaster.harness.records.tensors import TensorSpec
from kernelblaster.harness.task.contract import C_TYPES, header
from kernelblaster.harness.vetting.source_rules import check_source
from kernelblaster.harness.vetting.symbols import check_library

HEADER = """#pragma once
#include <cuda_runtime.h>
#include <cstddef>
constexpr long long OUT0_NUMEL = 1024;
extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream);
"""
COPY = """#include "task.cuh"
__global__ void copy(float* out, const float* x) {
  __shared__ float tile[256];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = x[i];
  __syncthreads();
  if (i < OUT0_NUMEL) out[i] = tile[threadIdx.x ^ 1];
}
extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
  copy<<<4, 256, 0, stream>>>(out0, x);
}
"""


@pytest.fixture(autouse=True, scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    previous = os.environ.get("KERNELBLASTER_CACHE")
    os.environ["KERNELBLASTER_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if previous is None:
        del os.environ["KERNELBLASTER_CACHE"]
    else:
        os.environ["KERNELBLASTER_CACHE"] = previous


@pytest.fixture(scope="module")
def tools() -> Toolchain:
    return find_toolchain()


def compiled(tools: Toolchain, source: str, task_header: str = HEADER) -> Build:
    return asyncio.run(build(tools, source, task_header, "sm_90"))


def test_a_build_leaves_all_three_files_and_is_cached(tools: Toolchain) -> None:
    first = compiled(tools, COPY)
    assert first.succeeded and first.diagnostics == ()
    folder = Path(first.directory)
    assert {path.name for path in folder.iterdir()} == {
        "candidate.cu", "task.cuh", "candidate.so", "candidate.ptx", "candidate.cubin",
        "nvcc.log", "build.json",
    }  # fmt: skip
    (kernel,) = first.kernels
    assert "copy" in kernel.kernel and kernel.registers > 0
    assert kernel.static_shared_bytes == 1024 and kernel.barriers == 1
    assert ".visible .entry " + kernel.kernel in (folder / "candidate.ptx").read_text()
    assert check_library(folder / "candidate.so") == ()
    start = time.monotonic()
    assert compiled(tools, COPY) == first
    assert time.monotonic() - start < 0.2


def test_a_damaged_entry_is_built_again(tools: Toolchain) -> None:
    folder = Path(compiled(tools, COPY).directory)
    (folder / "candidate.so").unlink()
    assert compiled(tools, COPY).succeeded
    assert (folder / "candidate.so").is_file()


def test_equal_builds_at_once_agree(tools: Toolchain) -> None:
    source = COPY + "// twice at once\n"

    async def both() -> list[Build]:
        return await asyncio.gather(*(build(tools, source, HEADER, "sm_80") for _ in range(2)))

    first, second = asyncio.run(both())
    assert first == second and first.succeeded
    leftovers = [path for path in Path(first.directory).parent.iterdir() if path.name[0] == "."]
    assert leftovers == []


def test_errors_name_the_candidates_lines_and_no_paths(tools: Toolchain) -> None:
    result = compiled(tools, COPY.replace("tile[threadIdx.x] = x[i];", "tile[threadIdx.x] = y[i];"))
    assert not result.succeeded
    assert [(d.kind, d.line) for d in result.diagnostics] == [("compile_error", 5)]
    assert (
        result.diagnostics[0].message == 'identifier "y" is undefined: `tile[threadIdx.x] = y[i];`'
    )
    assert os.environ["KERNELBLASTER_CACHE"] not in result.diagnostics[0].message
    start = time.monotonic()
    assert compiled(tools, COPY.replace("= x[i];", "= y[i];")) == result
    assert time.monotonic() - start < 0.2, "failures are cached too"


def test_another_signature_is_refused_by_the_compiler(tools: Toolchain) -> None:
    result = compiled(tools, COPY.replace("const float* x, void*", "const double* x, void*"))
    assert not result.succeeded
    assert result.diagnostics[0].line == 9 and "launch" in result.diagnostics[0].message


def test_a_generated_header_of_every_type_compiles(tools: Toolchain) -> None:
    tensors = [TensorSpec(name="out0", shape=(), dtype="float32", role="output")]
    for dtype in C_TYPES:
        fields = {"name": f"x_{dtype}", "shape": (2, 3), "dtype": dtype, "role": "input"}
        tensors.append(TensorSpec.model_validate(fields))
    variant = TaskVariant(
        name="verify", dimensions={"n": -3}, tensors=tuple(tensors),
        scalars={"low": -(2**63), "far": -math.inf, "odd": math.nan, "eps": 1e-5, "on": True},
    )  # fmt: skip
    text = header(variant)
    prototype = next(line for line in text.splitlines() if "launch(" in line).rstrip(";")
    source = (
        '#include "task.cuh"\n__global__ void k(float* o) {\n'
        "  o[0] = DIM_N + X_BOOL_SIZE_1 + OUT0_NUMEL + OUT0_RANK + LOW + FAR + ODD + EPS + ON;\n}\n"
        f"{prototype} {{ k<<<1, 1, 0, stream>>>(out0); }}\n"
        'extern "C" size_t workspace_bytes() { return X_FLOAT16_NUMEL * sizeof(__half); }\n'
    )
    result = compiled(tools, source, text)
    assert result.succeeded, result.diagnostics
    assert check_library(Path(result.directory, "candidate.so")) == ()


def test_ptxas_errors_are_found_on_source_lines(tools: Toolchain) -> None:
    wrong = '  asm volatile("bogus;");\n  __syncthreads();'
    result = compiled(tools, COPY.replace("  __syncthreads();", wrong))
    assert not result.succeeded
    assert result.diagnostics[0].line == 6 and "bogus" in result.diagnostics[0].message


def test_host_assembly_is_seen_and_device_assembly_is_not(tools: Toolchain) -> None:
    device = COPY.replace("  __syncthreads();", '  asm volatile("bar.sync 0;");')
    assert compiled(tools, device).diagnostics == ()
    host = COPY.replace("  copy<<<", '  asm volatile("syscall");\n  copy<<<')
    result = compiled(tools, host)
    # The line in the source, and the instruction in the object.
    assert [(d.kind, d.line) for d in result.diagnostics] == [
        ("forbidden_symbol", 10), ("forbidden_symbol", None)
    ]  # fmt: skip
    assert "launch: a system call (syscall)" in result.diagnostics[1].message


def test_host_assembly_is_seen_behind_a_lambda_of_a_kernel(tools: Toolchain) -> None:
    nested = (
        '  auto wait = [] { asm volatile("bar.sync 0;"); };\n  wait();\n'
        '  asm volatile("bar.sync 0;");'
    )
    device = COPY.replace("  __syncthreads();", nested)
    assert compiled(tools, device).diagnostics == ()
    host = device.replace("  copy<<<", '  asm volatile("nop");\n  copy<<<')
    (found,) = compiled(tools, host).diagnostics
    assert (found.kind, found.line) == ("forbidden_symbol", 12)


@pytest.mark.parametrize(
    "source, kind, line",
    [
        ("", "compile_error", None),
        ("  \n\t\n", "compile_error", None),
        ("int x;\n\0", "compile_error", 2),
        ("\x7fELF\x02\x01", "compile_error", 1),
        ("int \ud800;", "compile_error", 1),
        ("//" + "x" * LARGEST_SOURCE_BYTES, "compile_error", None),
        ('#include "/etc/passwd"', "forbidden_include", 1),
        ("int a;\n # include </etc/passwd>", "forbidden_include", 2),
        ('#include "../../secret.h"', "forbidden_include", 1),
        ('#inc\\\nlude "/etc/passwd"', "forbidden_include", 1),
        ('/* a\n b */ #include "/etc/passwd"', "forbidden_include", 2),
        ('#/**/include/**/"/etc/passwd"', "forbidden_include", 1),
        ('%:include "/etc/passwd"', "forbidden_include", 1),
        ('#include_next "/etc/passwd"', "forbidden_include", 1),
        ('#embed "/etc/passwd"', "forbidden_include", 1),
        ('\f#include "/etc/passwd"', "forbidden_include", 1),
        ("int a = 1'000; \v#\n \v# include </etc/passwd>", "forbidden_include", 2),
        ('auto s = R"(")";\n#include "/etc/passwd" // "', "forbidden_include", 2),
        ('#inc\\ \nlude "/etc/passwd"', "forbidden_include", 1),
        ('#if __has_include("/etc/passwd")\n#endif', "forbidden_include", 1),
        ('#line 1 "other.cu"', "forbidden_include", 1),
        ('# 1 "other.cu"', "forbidden_include", 1),
    ],
)
def test_refused_before_the_compiler(
    tools: Toolchain, source: str, kind: str, line: int | None
) -> None:
    result = compiled(tools, source)
    assert not result.succeeded and result.directory == ""
    assert (result.diagnostics[0].kind, result.diagnostics[0].line) == (kind, line)


@pytest.mark.parametrize(
    "source",
    [
        COPY,
        '#include "cuda_fp16.h"\n#include <cooperative_groups/reduce.h>\n',
        '// #include "/etc/passwd"\n/*\n#include "/etc/passwd"\n*/\nconst char* s = "/*";\n',
        '#pragma unroll\n#if 1\n#endif\nconst char* t = "#line // \\" x"; // é\n',
    ],
)
def test_plain_sources_are_not_refused(source: str) -> None:
    assert check_source(source) == ()


def test_a_source_cannot_blame_the_machine() -> None:
    text = "candidate.cu:1:2: error: #error nvcc fatal: No space left on device\n"
    assert machine_fault(text) is None
    assert machine_fault("nvcc fatal   : Unsupported gpu architecture 'sm_12'\n") is not None
    (error,) = compile_errors(text, Path("missing.ptx"))
    assert error.line == 1


def test_errors_in_headers_point_back_to_the_candidate() -> None:
    text = (
        '/opt/cuda/include/vector.h(99): error: static assertion failed with "no"\n'
        '          detected during instantiation of "f<T>" at line 7 of candidate.cu\n'
    )
    (error,) = compile_errors(text, Path("missing.ptx"))
    assert error.line == 7 and error.message.startswith("vector.h(99): ")


def test_at_most_ten_errors_are_kept() -> None:
    text = "".join(f"candidate.cu({line}): error: wrong\n" for line in range(1, 40)) * 2
    errors = compile_errors(text, Path("missing.ptx"))
    assert [error.line for error in errors] == list(range(1, 11))


def test_resources_of_several_kernels() -> None:
    text = """ptxas info    : Compiling entry function 'a' for 'sm_90'
ptxas info    : Function properties for helper
    96 bytes stack frame, 1 bytes spill stores, 2 bytes spill loads
ptxas info    : Function properties for a
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 49152 bytes smem, 380 bytes cmem[0]
ptxas info    : Compiling entry function 'b' for 'sm_90'
ptxas info    : Function properties for b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""
    a, b = kernel_resources(text)
    assert (a.registers, a.stack_bytes, a.spill_store_bytes, a.spill_load_bytes) == (255, 16, 8, 12)
    assert (a.static_shared_bytes, a.barriers) == (49152, 1)
    assert (b.kernel, b.registers, b.static_shared_bytes) == ("b", 8, 0)


def sleeping(seconds: str) -> list[int]:
    """Return the processes that a fake compiler of `slow_nvcc` started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cmdline").read_bytes() == b"sleep\0" + seconds.encode() + b"\0":
                found.append(int(folder.name))
    return found


def slow_nvcc(tools: Toolchain, folder: Path, seconds: str) -> Toolchain:
    """Return a toolchain whose compiler sleeps; so many seconds tell it from all others."""
    slow = folder / "bin" / "nvcc"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\nsleep {seconds}\n")
    slow.chmod(0o755)
    return tools.model_copy(update={"nvcc": str(slow), "version": seconds})


def test_a_compiler_that_does_not_end_is_killed(
    tools: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = f"61.{os.getpid()}1"
    monkeypatch.setattr(module, "SECONDS", 0.5)
    result = compiled(slow_nvcc(tools, tmp_path, seconds), COPY)
    assert not result.succeeded and "past its limit" in result.diagnostics[0].message
    assert sleeping(seconds) == []


def test_cancelling_a_build_kills_the_compiler(tools: Toolchain, tmp_path: Path) -> None:
    seconds = f"61.{os.getpid()}2"
    broken = slow_nvcc(tools, tmp_path, seconds)

    async def cancel() -> None:
        running = asyncio.create_task(build(broken, COPY, HEADER, "sm_90"))
        while not sleeping(seconds) and not running.done():
            await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancel())
    assert sleeping(seconds) == []


def test_what_the_machine_lacks_is_said(
    tools: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="unknown architecture 'gfx90a'"):
        asyncio.run(build(tools, COPY, HEADER, "gfx90a"))
    with pytest.raises(UserError, match="Unsupported gpu architecture"):
        asyncio.run(build(tools, COPY, HEADER, "sm_12"))
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(UserError, match="CXX=/nowhere/c"):
        find_toolchain()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"apt-get install g\+\+"):
        find_toolchain()


@pytest.mark.parametrize(
    "printed, message",
    [
        ("release 12.2, V12.2.140", "12.2.140, too old"),
        ("something else", "pip install nvidia-cuda-nvcc"),
    ],
)
def test_an_old_or_strange_nvcc_is_refused(
    tools: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, message: str
) -> None:
    fake = tmp_path / "nvcc"
    fake.write_text(f"#!/bin/sh\necho '{printed}'\n")
    fake.chmod(0o755)
    monkeypatch.setattr(module, "_nvcc_of_wheels", lambda: [])
    monkeypatch.setenv("CXX", tools.host_compiler)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(UserError, match=message):
        find_toolchain()


def test_an_unwritable_cache_is_one_line(
    tools: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("KERNELBLASTER_CACHE", str(blocked / "cache"))
    with pytest.raises(UserError, match="KERNELBLASTER_CACHE"):
        compiled(tools, COPY)
