"""A host half's plan: what launch() asks for, the same wherever tensors lie and however often."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import simulated_kernels as kernels
from often_or_seldom import every

from kernelblaster.harness.build.toolchain import build_now, find_toolchain
from kernelblaster.harness.gpus import find_gpu
from kernelblaster.harness.host.checks import HOST_COPY_BYTES, MOST_CALLS
from kernelblaster.harness.host.plan import (
    WORKSPACE,
    Place,
    Plan,
    PlannedLaunch,
    PlannedTransfer,
    variable,
)
from kernelblaster.harness.host.planning import Asked, plan_launch
from kernelblaster.harness.host.process import host_program
from kernelblaster.harness.host.properties import properties_of
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.contract import header
from kernelblaster.harness.task.loading import load_task
from kernelblaster.harness.vetting.symbols import _RUNTIME, defined_symbols

KERNELS = """
#include "task.cuh"
struct Pair { const float* from; long long count; float* to; };
__device__ float table[1024];
__constant__ float factors[2] = {2.0f, 1.0f};
__global__ void scale(const float* x, float* y, long long n) {
    long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < n) y[i] = x[i] * 2.0f + 1.0f;
}
__global__ void scale_pair(Pair pair) {
    long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < pair.count) pair.to[i] = pair.from[i] * 2.0f + 1.0f;
}
__global__ void wide(float* y) { extern __shared__ float s[]; s[threadIdx.x] = 1; y[0] = s[0]; }
__global__ void __launch_bounds__(64) narrow(float* y) { y[0] = table[0]; }
"""
RUN = "scale<<<(X_NUMEL + 255) / 256, 256, 0, stream>>>(x, out0, X_NUMEL);"


only_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="calls of arm64 are refused")


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("task") / "scale.py"
    path.write_text(kernels.SCALE_TASK.replace("N = 4194304", "N = 65536"))
    return asyncio.run(load_task(path))


LAUNCH = "(float* out0, const float* x, void* workspace, cudaStream_t stream)"


@pytest.fixture(scope="module")
def planned(task: Task) -> Callable[..., Plan | StageResult]:
    toolchain = find_toolchain()
    program = host_program(toolchain.cuda_headers())

    def planned(source: str, **properties: int) -> Plan | StageResult:
        built = build_now(toolchain, KERNELS + source, header(task.full), "sm_90")
        assert built.succeeded, built.diagnostics
        gpu = replace(properties_of(find_gpu("H100")), **properties)
        return plan_launch(program, Asked(built, task.full.tensors, gpu, 1 << 20))

    return planned


@pytest.fixture(scope="module")
def plan(planned: Callable[..., Plan | StageResult]) -> Callable[..., Plan | StageResult]:
    def plan(body: str, workspace: int = 0) -> Plan | StageResult:
        source = f'extern "C" void launch{LAUNCH} {{\n{body}\n}}\n'
        return planned(
            f'{source}extern "C" size_t workspace_bytes() {{ return {workspace}; }}\n'
        )

    return plan


def only(found: Plan | StageResult) -> PlannedLaunch | PlannedTransfer:
    assert isinstance(found, Plan), found.reason
    (step,) = found.steps
    return step


def test_arguments_are_told_from_addresses(plan: Callable[..., Plan | StageResult]) -> None:
    step = only(plan(RUN))
    assert isinstance(step, PlannedLaunch)
    assert step.grid == (256, 1, 1) and step.block == (256, 1, 1)
    x, out0, count = step.arguments
    assert x.addresses == ((0, Place("x", 0)),) and out0.addresses == ((0, Place("out0", 0)),)
    assert count.at({}) == (65536).to_bytes(8, "little")
    assert out0.at({"out0": 0x1234, "x": 0}) == (0x1234).to_bytes(8, "little")


def test_addresses_in_records_and_beyond_a_buffers_start(
    plan: Callable[..., Plan | StageResult],
) -> None:
    step = only(plan("Pair p{x - 4, 7, out0 + 100}; "
                     "scale_pair<<<4, 256, 0, stream>>>(p);"))  # fmt: skip
    assert isinstance(step, PlannedLaunch)
    (pair,) = step.arguments
    assert pair.addresses == ((0, Place("x", -16)), (16, Place("out0", 400)))


def test_addresses_among_what_is_copied_from_the_host(
    plan: Callable[..., Plan | StageResult],
) -> None:
    found = plan(
        "const float* both[2] = {x, out0 + 1};"
        "cudaMemcpyAsync(workspace, both, sizeof both, cudaMemcpyHostToDevice, stream);" + RUN,
        workspace=4096,
    )
    assert isinstance(found, Plan), found
    assert found.workspace_bytes == 4096
    copied = found.steps[0]
    assert isinstance(copied, PlannedTransfer) and copied.target == Place(WORKSPACE, 0)
    assert copied.content.addresses == ((0, Place("x", 0)), (8, Place("out0", 4)))


def test_variables_are_buffers_by_name(plan: Callable[..., Plan | StageResult]) -> None:
    found = plan(
        "float one[2] = {1, 2}; cudaMemcpyToSymbolAsync(factors, one, 8, 0, "
        "cudaMemcpyHostToDevice, stream); void* place; cudaGetSymbolAddress(&place, table);"
        "cudaMemsetAsync((float*)place + 4, 7, 64, stream);" + RUN
    )
    assert isinstance(found, Plan), found
    copied, filled, _ = found.steps
    assert isinstance(copied, PlannedTransfer) and isinstance(filled, PlannedTransfer)
    assert copied.target == Place(variable("factors"), 0) and copied.source is None
    assert filled.target == Place(variable("table"), 16) and not filled.copy


def test_what_launch_sets_up_once_stays_allowed(plan: Callable[..., Plan | StageResult]) -> None:
    found = plan(
        "static bool ready; if (!ready) { cudaFuncSetAttribute(wide, "
        "cudaFuncAttributeMaxDynamicSharedMemorySize, 100000); ready = true; }"
        "wide<<<1, 64, 100000, stream>>>(out0);"
    )
    assert isinstance(found, Plan), found
    assert found.dynamic_shared == {"_Z4widePf": 100000}


def test_a_kernel_chosen_by_occupancy_and_properties(
    plan: Callable[..., Plan | StageResult],
) -> None:
    found = plan(
        "int held = 0; cudaOccupancyMaxActiveBlocksPerMultiprocessor(&held, scale, 256, 0);"
        "cudaDeviceProp p; cudaGetDeviceProperties(&p, 0);"
        "dim3 grid(held * p.multiProcessorCount, p.major, p.minor + 1);"
        "scale<<<grid, 256, 0, stream>>>(x, out0, X_NUMEL);"
    )
    step = only(found)
    assert isinstance(step, PlannedLaunch) and step.grid == (8 * 132, 9, 1)


REFUSED: dict[str, tuple[str, Outcome, str]] = {
    "another stream": (RUN.replace("stream>>>", "(cudaStream_t)64>>>"), Outcome.FORBIDDEN,
                       "on another stream"),
    "the default stream": (RUN.replace("stream>>>", "0>>>"), Outcome.FORBIDDEN,
                           "on the default stream"),
    "a copy to the host": ("float h; cudaMemcpyAsync(&h, x, 4, cudaMemcpyDefault, stream);",
                           Outcome.FORBIDDEN, "device memory to the host"),
    "a fill before a buffer": ("cudaMemsetAsync(out0 - 1, 0, 8, stream);", Outcome.OUT_OF_BOUNDS,
                               "outside an allocation"),
    "rows that overlap": ("cudaMemset2DAsync(out0, 8, 0, 16, 4, stream);", Outcome.OUT_OF_BOUNDS,
                          "outside an allocation"),
    "a copy past a buffer": ("cudaMemcpyAsync(out0 + 1, x, X_NUMEL * 4, cudaMemcpyDefault, "
                             "stream);", Outcome.OUT_OF_BOUNDS, "outside an allocation"),
    "a copy from past a buffer": ("cudaMemcpyAsync(out0, x + 1, X_NUMEL * 4, cudaMemcpyDefault, "
                                  "stream);", Outcome.OUT_OF_BOUNDS, "outside an allocation"),
    "an attribute that keeps lines": (
        "cudaLaunchAttribute a; a.id = cudaLaunchAttributeAccessPolicyWindow; "
        "cudaLaunchConfig_t c = {}; c.gridDim = 4; c.blockDim = 256; c.stream = stream; "
        "c.attrs = &a; c.numAttrs = 1; "
        "cudaLaunchKernelEx(&c, scale, x, out0, (long long)X_NUMEL);",
        Outcome.FORBIDDEN, "launch attribute 1"),
    "too many threads": (RUN.replace("256, 0", "2048, 0"), Outcome.CRASHED, "2048 threads"),
    "more than the bounds": ("narrow<<<1, 128, 0, stream>>>(out0);", Outcome.CRASHED,
                             "__launch_bounds__ allow 64"),
    "an empty grid": (RUN.replace("(X_NUMEL + 255) / 256", "0"), Outcome.CRASHED, "the grid of"),
    "too much shared memory": ("wide<<<1, 64, 100000, stream>>>(out0);", Outcome.CRASHED,
                               "over its limit of 49152"),
    "too large a limit": ("cudaFuncSetAttribute(wide, cudaFuncAttributeMaxDynamicSharedMemorySize, "
                          "300000);" + RUN, Outcome.CRASHED, "the GPU allows 232448"),
    "an answer from the host": (
        "static float y[8]; cudaMemcpyAsync(out0, y, sizeof y, cudaMemcpyHostToDevice, stream);"
        + RUN, Outcome.FORBIDDEN, "an output is computed on the GPU"),
    "a large table": (
        f"static float y[{HOST_COPY_BYTES // 4 + 1}]; "
        "cudaMemcpyAsync(workspace, y, sizeof y, cudaMemcpyHostToDevice, stream);" + RUN,
        Outcome.FORBIDDEN, "from the host"),
    "tables in rows": (
        f"static float y[{HOST_COPY_BYTES // 8 + 16}]; for (int i = 0; i < 2; i++) "
        f"cudaMemcpy2DAsync(workspace, 16, y, 16, 16, {HOST_COPY_BYTES // 32 + 1}, "
        "cudaMemcpyHostToDevice, stream);" + RUN, Outcome.FORBIDDEN, "from the host"),
    "every second call": ("static int n; if (n++ % 2) return;" + RUN, Outcome.FORBIDDEN,
                          "called again"),
    "every hundredth call": ("static int n; if (++n % 100 == 0) return;" + RUN, Outcome.FORBIDDEN,
                             "with every call"),
    "a call counted in a thread's own variable": (
        "static thread_local int n; if (++n % 100 == 0) return;" + RUN, Outcome.FORBIDDEN,
        "with every call"),
    "the last address": ("static const void* last; if (last == x) return; last = x;" + RUN,
                         Outcome.FORBIDDEN, "called again"),
    "work by address": ("if ((size_t)x & 512) return;" + RUN.replace("X_NUMEL + 255", "X_NUMEL"),
                        Outcome.FORBIDDEN, ""),
    "half an address": ("scale<<<256, 256, 0, stream>>>(x, out0, (long long)(size_t)x >> 9);",
                        Outcome.FORBIDDEN, "hangs on addresses"),
    "a difference of addresses": ("scale<<<256, 256, 0, stream>>>(x, out0, out0 - x);",
                                  Outcome.FORBIDDEN, "hangs on addresses"),
    "reads device memory": ("if (x[0] > 0)" + RUN, Outcome.CRASHED, "device memory"),
    "writes device memory": ("out0[5] = 1;" + RUN, Outcome.CRASHED, "device memory"),
    "too much workspace": (RUN, Outcome.CRASHED, "1048576 are allowed"),
    "works itself": ("volatile double a = 1; for (int i = 0; i < 20000000; i++) a = a * 1.0001;"
                     + RUN, Outcome.TIMED_OUT, "on the host"),
    "without end": ("volatile int a = 1; while (a);", Outcome.TIMED_OUT, "did not return"),
    "calls without end": ("for (;;) cudaMemsetAsync(out0, 0, 4, stream);", Outcome.TIMED_OUT, ""),
    "too many calls": (f"for (int i = 0; i <= {MOST_CALLS}; i++) cudaMemsetAsync(out0, 0, 4, "
                       "stream);", Outcome.TIMED_OUT, f"makes {MOST_CALLS + 1} calls"),
    "a crash": ("volatile int* p = nullptr; *p = 1;", Outcome.CRASHED, "SIGSEGV"),
    "endless recursion": ("struct R { static int f(volatile int n) { return n + f(n + 1) + n; } };"
                          "out0 += R::f(1);" + RUN, Outcome.CRASHED, "SIGSEGV"),
}  # fmt: skip


def of_one_build(
    planned: Callable[..., Plan | StageResult], bodies: dict[str, str], before: str = ""
) -> Callable[[str], Plan | StageResult]:
    """Plan launch() with one of the bodies: they are one build, which asks the GPU's clock."""
    tables = dict.fromkeys(("a large table", "tables in rows"), 1 << 20)
    workspaces = tables | {"too much workspace": 2 << 20}
    source = before + (
        "static int asked() { int n; cudaDeviceGetAttribute(&n, cudaDevAttrClockRate, 0);"
        " return n; }\n"
    )
    launches, sizes = "", ""
    for number, (name, body) in enumerate(bodies.items(), 1):
        source += f"static void body_{number}{LAUNCH} {{\n{body}\n}}\n"
        launches += f"    case {number}: return body_{number}(out0, x, workspace, stream);\n"
        sizes += f"    case {number}: return {workspaces.get(name, 0)};\n"
    source += (
        f'extern "C" void launch{LAUNCH} {{\n    switch (asked()) {{\n{launches}    }}\n}}\n'
        f'extern "C" size_t workspace_bytes() {{\n    switch (asked()) {{\n{sizes}    }}\n'
        "    return 0;\n}\n"
    )
    numbers = {name: number for number, name in enumerate(bodies, 1)}
    return lambda name: planned(source, clock_khz=numbers[name])


@pytest.fixture(scope="module")
def refused(planned: Callable[..., Plan | StageResult]) -> Callable[[str], Plan | StageResult]:
    return of_one_build(planned, {name: body for name, (body, *_) in REFUSED.items()})


@pytest.mark.parametrize("name", every(3, REFUSED))
def test_what_no_launch_may_do(
    refused: Callable[[str], Plan | StageResult], name: str
) -> None:
    _, outcome, words = REFUSED[name]
    # Two places drawn at random differ in this bit every second time: two draws on average.
    for _ in range(64 if name == "work by address" else 1):
        found = refused(name)
        if isinstance(found, StageResult):
            break
    assert isinstance(found, StageResult), found
    assert found.outcome is outcome and words in found.reason, found.reason


POINTERS = """
#include <cooperative_groups.h>
typedef void (*Kernel)(const float*, float*, long long);
template <int N> __global__ void by_template(const float* x, float* y, long long n) { y[N] = n; }
__global__ void together(const float* x, float* y, long long n) {
    cooperative_groups::this_grid().sync();
    y[0] = x[0];
}
// What no compiler knows: the GPU has 132.
static int sms() {
    int n;
    cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0);
    return n;
}
template <int N> static Kernel of(int n) {
    if constexpr (N == 8) return by_template<8>;
    else return n == N ? by_template<N> : of<2 * N>(n);
}
static void plain(const float* x, float* y, long long n) { ((volatile float*)&n)[0] = 1; }
struct Shape { virtual void area() = 0; };
struct Square : Shape { volatile int side; void area() override { side = 3; } };
struct Circle : Shape { volatile int side; void area() override { side = 4; } };
extern "C" void __cudaRegisterFunction(
    void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*);
"""
CALL = "k<<<4, 256, 0, stream>>>(x, out0, X_NUMEL);"
CHOSEN = {
    "a variable": (f"Kernel k = scale; if (sms() == 132) k = together; {CALL}", "together"),
    "a choice of two": (f"auto k = sms() > 200 ? together : scale; {CALL}", "scale"),
    "an array": (
        "static Kernel const all[] = {scale, together, by_template<3>};"
        "all[sms() % 3]<<<4, 256, 0, stream>>>(x, out0, X_NUMEL);", "scale"),
    "an instance of a template": (f"Kernel k = of<1>(sms() - 128); {CALL}", "by_template"),
    "an argument": (
        "struct R { static __attribute__((noinline)) void run(Kernel k, const float* x, float* "
        f"out0, cudaStream_t stream) {{ {CALL} }} }};"
        "R::run(sms() == 132 ? scale : together, x, out0, stream);", "scale"),
    "a call of the runtime": (
        "Kernel k = sms() == 132 ? scale : together; long long n = X_NUMEL;"
        "void* arguments[] = {&x, &out0, &n};"
        "cudaLaunchKernel((const void*)k, 4, 256, arguments, 0, stream);", "scale"),
    "a cooperative launch": (
        "Kernel k = sms() == 132 ? together : scale; long long n = X_NUMEL;"
        "void* arguments[] = {&x, &out0, &n};"
        "cudaLaunchCooperativeKernel((const void*)k, 4, 256, arguments, 0, stream);", "together"),
}  # fmt: skip
ELSEWHERE = {
    "a function": f"Kernel k = sms() == 132 ? plain : scale; {CALL}",
    "inside a kernel's function": f"Kernel k = (Kernel)((char*)scale + sms() / 132); {CALL}",
    "nothing": f"Kernel k = sms() == 132 ? nullptr : scale; {CALL}",
    "a virtual function": "Square a; Circle b; (sms() == 132 ? (Shape*)&a : (Shape*)&b)->area();",
    "what is registered late": (
        '__cudaRegisterFunction(nullptr, (const char*)plain, nullptr, "_Z5scalePKfPfx", -1, '
        f"nullptr, nullptr, nullptr, nullptr, nullptr); Kernel k = sms() == 132 ? plain : scale;"
        f"{CALL}"),
}  # fmt: skip


@pytest.fixture(scope="module")
def through_a_pointer(
    planned: Callable[..., Plan | StageResult],
) -> Callable[[str], Plan | StageResult]:
    bodies = {name: body for name, (body, _) in CHOSEN.items()} | ELSEWHERE
    return of_one_build(planned, bodies, POINTERS)


@only_x86
@pytest.mark.parametrize("name", CHOSEN)
def test_a_kernel_is_chosen_by_a_pointer(
    through_a_pointer: Callable[[str], Plan | StageResult], name: str
) -> None:
    step = only(through_a_pointer(name))
    assert isinstance(step, PlannedLaunch) and CHOSEN[name][1] in step.kernel
    assert step.grid == (4, 1, 1) and step.block == (256, 1, 1)
    x, out0, count = step.arguments
    assert x.addresses == ((0, Place("x", 0)),) and out0.addresses == ((0, Place("out0", 0)),)
    assert count.at({}) == (65536).to_bytes(8, "little")
    assert bool(step.attributes) == (name == "a cooperative launch")


@only_x86
@pytest.mark.parametrize("name", ELSEWHERE)
def test_no_pointer_leads_elsewhere(
    through_a_pointer: Callable[[str], Plan | StageResult], name: str
) -> None:
    found = through_a_pointer(name)
    assert isinstance(found, StageResult) and found.outcome is Outcome.FORBIDDEN, found
    assert "what is no kernel" in found.reason


def test_the_runtime_offers_all_that_the_allow_list_names(tmp_path: Path) -> None:
    program = host_program(find_toolchain().cuda_headers())
    assert set(_RUNTIME) <= set(defined_symbols(program))


def test_other_names_of_the_runtime_are_hidden() -> None:
    program = host_program(find_toolchain().cuda_headers())
    linkers = {"_init", "_fini", "_edata", "_end", "__bss_start", "main", "_start", "data_start",
               "__data_start", "_IO_stdin_used", "__dso_handle", "__TMC_END__"}  # fmt: skip
    names = set(defined_symbols(program)) - linkers
    assert {name for name in names if not name.startswith(("kb_", "cuda", "__cuda"))} == set()
