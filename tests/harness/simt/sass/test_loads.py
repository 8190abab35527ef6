"""Loads that ptxas lifts out of loops, joins or drops count as the machine code makes them.

What is expected is read off the listing alone: every load stands in so many loops, and those turn
as often as the kernel's arguments say (nothing unrolls them).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

import numpy as np
import pytest
from often_or_seldom import every
from simt_support import compile_ptx, compile_ptx_text, execute, kernel_named

from kernelblaster.harness.build.toolchain import find_toolchain
from kernelblaster.harness.simt.counters import Counts
from kernelblaster.harness.simt.ptx.parser import parse
from kernelblaster.harness.simt.run.records import Result
from kernelblaster.harness.simt.sample.instructions.instruction_counts import count_by_kind
from kernelblaster.harness.simt.sass.labelled import machine_listing
from kernelblaster.harness.simt.sass.listing import read_listing
from kernelblaster.harness.simt.sass.sums import KernelCode

# Assembly, so that it is ptxas alone that lifts, joins and drops.
HEAD = r"""
__device__ __forceinline__ float load(const float* p) {
    float v; asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(p)); return v;
}
__device__ __forceinline__ float load_nc(const float* p) {
    float v; asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(p)); return v;
}
__device__ __forceinline__ float load_shared(const float* p) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"((unsigned)__cvta_generic_to_shared(p)));
    return v;
}
#define LOOP(i, n) _Pragma("unroll 1") for (int i = 0; i < n; i++)
extern "C" __global__ void k(const float* a, float* out, int n, int m) {
    __shared__ __align__(16) float s[256];
    int t = threadIdx.x;
    float x = 0.f;
"""

INVARIANT = "LOOP(i, n) x = x * 0.5f + load(a + t);"
READ_ONLY = "LOOP(i, n) { x = x * 0.5f + load_nc(a + t); out[i * 64 + t] = x; }"
STORE_BETWEEN = "LOOP(i, n) { x = x * 0.5f + load(a + t); out[i * 64 + t] = x; }"
VOLATILE = "LOOP(i, n) x = x * 0.5f + *(const volatile float*)(a + t);"
RESTRICTED = "LOOP(i, n) { x = x * 0.5f + __ldg(a + t); out[i * 64 + t] = x; }"
MOVING = "LOOP(i, n) x = x * 0.5f + load(a + i * 64 + t);"
INNER = "LOOP(i, n) LOOP(j, m) x = x * load(a + i * 64 + t) + load(a + j * 64 + t);"
MIDDLE = "LOOP(i, n) { LOOP(j, m) x = x * 0.5f + load(a + i * 64 + t); x += load(a + t); }"
BOTH = "LOOP(i, n) LOOP(j, m) x = x * 0.5f + load(a + t);"
SHARED = "s[t] = a[t]; __syncthreads(); LOOP(i, n) x = x * 0.5f + load_shared(s + (t ^ 1));"
SHARED_BARRIER = """
    s[t] = a[t];
    LOOP(i, n) {
        __syncthreads(); x = x * 0.5f + load_shared(s + (t ^ 1)); __syncthreads(); s[t] = x;
    }
"""
OUTER_PRODUCT = """
    s[t] = a[t]; s[t + 64] = a[t + 64];
    __syncthreads();
    float u[4], v[4], sum[4][4] = {};
    LOOP(r, n) {
#pragma unroll
        for (int i = 0; i < 4; i++) u[i] = load_shared(s + (t & 7) * 4 + i);
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = load_shared(s + 64 + (t >> 3) * 4 + i) + r;
#pragma unroll
        for (int i = 0; i < 16; i++) sum[i / 4][i % 4] += u[i / 4] * v[i % 4];
    }
#pragma unroll
    for (int i = 0; i < 16; i++) x += sum[i / 4][i % 4];
"""
NEIGHBOURS = """
    s[t] = a[t]; s[t + 64] = a[t + 64]; s[t + 128] = a[t + 128]; s[t + 192] = a[t + 192];
    __syncthreads();
    x = load_shared(s + t * 4) * load_shared(s + t * 4 + 1);
    x += load_shared(s + t * 4 + 2) - load_shared(s + t * 4 + 3);
"""
TABLE = """
    s[t] = a[t]; __syncthreads();
    int v = t;
    LOOP(i, n) { x += load_shared(s + (v & 63)); v = v * 5 + 3; }
"""
TWICE = "x = load(a + t); x = x * x + load(a + t);"
TWICE_STORE = "x = load(a + t); out[t + 64] = x; x = x * x + load(a + t);"
REPEATED = """
    LOOP(i, n) {
        const float* p = a + i * 64 + t;
        x = x * load(p) + 1.f; x = x * load(p) + 2.f; x = x * load(p + 64) + load(p);
    }
"""
SIDES = """
    LOOP(i, n) {
        const float* p = a + i * 64 + t;
        if ((i + t) & 1) x += load(p); else x -= load(p) * 2.f;
    }
"""
UNIFORM_SIDES = SIDES.replace("(i + t) & 1", "i & 1")


@dataclass(frozen=True)
class Case:
    """A kernel body; its loops turn `turns` times, the outermost first."""

    body: str
    turns: tuple[int, ...] = (12,)
    fewer: bool = True
    """GpuSession code makes fewer requests than PTX asks for."""


CASES = {
    "invariant": Case(INVARIANT),
    "read_only": Case(READ_ONLY),
    "store_between": Case(STORE_BETWEEN, fewer=False),
    "volatile": Case(VOLATILE, fewer=False),
    "restricted": Case(RESTRICTED),
    "moving": Case(MOVING, fewer=False),
    "inner": Case(INNER, (6, 5)),
    "middle": Case(MIDDLE, (6, 5)),
    "both": Case(BOTH, (6, 5)),
    "shared": Case(SHARED),
    "shared_barrier": Case(SHARED_BARRIER, fewer=False),
    "outer_product": Case(OUTER_PRODUCT),
    "neighbours": Case(NEIGHBOURS, ()),
    "table": Case(TABLE, fewer=False),
    "twice": Case(TWICE, ()),
    "twice_store": Case(TWICE_STORE, (), fewer=False),
    "repeated": Case(REPEATED),
    "sides": Case(SIDES),
    "uniform_sides": Case(UNIFORM_SIDES, fewer=False),
}
WARPS = 2


def _counted(source: str, *sizes: int) -> tuple[Counts, Counts, str]:
    """Return what PTX asks for, what the machine code makes of it, and the listing."""
    path = compile_ptx_text(source)
    module = parse(path.read_text())
    listing = machine_listing(find_toolchain(), path, "sm_90")
    if listing is None:
        pytest.skip("ptxas or nvdisasm is missing")
    name = kernel_named(module, "k")
    result: Result = execute(
        module, "k", 1, 64, np.ones(8192, np.float32), np.zeros(8192, np.float32), *sizes,
        outputs=(1,),
    )[0]  # fmt: skip
    assert not result.reports
    code = KernelCode(module, module.functions[name], read_listing(listing)[name])
    executions = code.executions(result, 1.0, WARPS)
    shares = code.shares(executions, result, 1.0)
    made = count_by_kind(module, result, 1.0, shares)
    made = code.replace(made, executions, result, 1.0, WARPS, shares)
    return count_by_kind(module, result, 1.0), made, listing


def _by_listing(listing: str, opcode: str, turns: tuple[int, ...]) -> int:
    """Return how often a warp runs instructions with an opcode, by the loops they stand in."""
    lines = listing.splitlines()
    labels = {match[1]: at for at, line in enumerate(lines) if (match := re.match(r"(\S+):", line))}
    loops = [
        (labels[match[1]], at)
        for at, line in enumerate(lines)
        if (match := re.search(r"@!?U?P\d BRA `\((\.L\w+)\)", line)) and labels[match[1]] < at
    ]
    found = 0
    for at, line in enumerate(lines):
        if re.search(rf"\*/\s+{opcode}\b", line):
            depth = sum(first < at < last for first, last in loops)
            found += prod(turns[:depth])
    return found


@pytest.mark.parametrize("name", every(3, CASES))
def test_loads_count_as_often_as_the_machine_code_makes_them(name: str) -> None:
    case = CASES[name]
    source = HEAD + case.body + "\n    out[t] = x;\n}\n"
    asked, made, listing = _counted(source, *(*case.turns, 1, 1)[:2])
    assert made.load_requests == WARPS * _by_listing(listing, "LDG", case.turns)
    assert made.shared_requests == WARPS * (
        _by_listing(listing, "LDS", case.turns) + _by_listing(listing, "STS", case.turns)
    )
    before = asked.load_requests + asked.shared_requests
    after = made.load_requests + made.shared_requests
    assert (after < before) is case.fewer, (before, after)
    # Every load asks for the same lanes and words each time it runs.
    assert made.load_sectors == 4 * made.load_requests


UNROLLED = HEAD + """
    for (int i = 0; i < n; i++) x = x * 0.5f + load(a + t);
    out[t] = x;
}
"""


@pytest.mark.parametrize("turns", [0, 1, 3, 4, 7, 16, 29, 32])
def test_a_load_lifted_out_of_an_unrolled_loop_is_made_once_for_each_part(turns: int) -> None:
    """The front end makes a loop of four turns and the rest; ptxas unrolls each of them again."""
    asked, made, listing = _counted(UNROLLED, turns, 1)
    assert asked.load_requests == WARPS * turns
    parts = (turns >= 4) + (turns % 4 > 0)
    places = listing.count("LDG.E")
    assert places > 2
    # Sixteen turns at once, eight, four: one load for each way that is taken.
    ways = (turns >= 16) + (turns // 4 % 4 >= 2) + (turns // 4 % 2 > 0) + (turns % 4 > 0)
    assert WARPS * parts <= made.load_requests <= WARPS * max(ways, parts)
    assert made.load_sectors == 4 * made.load_requests


COPIES = """
#include <cuda_pipeline.h>
extern "C" __global__ void k(const float* a, float* out, int row, int pitch, int step) {
    __shared__ __align__(128) float s[1024];
    int t = threadIdx.x, in_row = row / 4;
    const float* from = a + t / in_row * step + t % in_row * 4;
    __pipeline_memcpy_async(s + t / in_row * pitch + t % in_row * 4, from, 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    out[t] = s[t / in_row * pitch + t % in_row * 4];
}
"""


@pytest.mark.parametrize(
    ("row", "pitch", "asked", "counted", "fetched"),
    [
        (16, 16, 16, 16, 16),
        # Rows of 64 bytes, 80 apart: every other begins in the middle of a sector. With 16 sectors
        # of the other operand's request each, ncu counts 18 and 20 on average (mm_cp_async).
        (16, 20, 16, 20, 24),
        # Rows of 256 bytes, 272 apart: ncu counts 19 and 24, with the rows above (mm_ldmatrix).
        (64, 68, 16, 18, 24),
        (64, 64, 16, 16, 16),
    ],
)
def test_asynchronous_copies_are_cut_at_the_sectors_of_both_sides(
    row: int, pitch: int, asked: int, counted: int, fetched: int
) -> None:
    module = compile_ptx(COPIES)
    data = np.arange(1024, dtype=np.float32)
    result, (_, out) = execute(
        module, "k", 1, 32, data, np.zeros(32, np.float32), row, pitch, 128, outputs=(1,)
    )
    assert not result.reports and out[0] == 0 and out[1] == 4
    copy = next(each.index for each in module.instructions if "shared" in each.text[:30]
                and each.opcode == "cp" and each.modifiers[-1] != "commit_group")  # fmt: skip
    counters = result.counters[copy]
    assert counters["sectors"] == asked
    assert (counters["copy_sectors"], counters["copy_fetched"]) == (counted, fetched)
    counts = count_by_kind(module, result, 1.0)
    assert (counts.load_requests, counts.load_sectors, counts.copy_fetched) == (1, counted, fetched)
