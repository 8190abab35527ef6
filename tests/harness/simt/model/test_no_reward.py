"""Edits that a red team was rewarded for, and stages of copies that had none for what they save."""

from __future__ import annotations

import pytest
from often_or_seldom import every

from tests.support.edited_kernels import HEAD
from tests.support.timed_kernels import TimedKernels

HERE = "const int t = threadIdx.x, b = blockIdx.x, i = b * blockDim.x + t;"
SCATTER = "float v = x[i]; {edit} y[(i * 2654435761u) >> 9] = v + 1.f;"
SAME_PLACE = """asm volatile("st.global.v4.f32 [%0], {%1, %1, %1, %1};"
    :: "l"(y + (1 << 24) + 8 * b), "f"(1.f) : "memory");"""
TICKET = "if (t == 0 && atomicAdd((int*)y + (1 << 24), 0) == -7) y[0] = 2.f;"
LONG_BLOCK = """float v = x[i]; {edit}
    int turns = b == 77 ? 12 * n : n;
    for (int k = 0; k < turns; k++) v = sqrtf(v + 1.f) + __sinf(v);
    y[i] = v;"""
OWN_TABLE = """float a[64]; for (int k = 0; k < 64; k++) a[k] = x[i + k]; {edit}
    float s = 0.f;
    for (int k = 0; k < n; k++) { int j = (t * 7 + k * 5) & 63; s += a[j] * a[(j + k * k) & 63]; }
    y[i] = s;"""
WALK = """const int once = (n & 1) ? 2 : 1; float v = 0.f, s = 0.f; int j = scattered(i);
    _Pragma("unroll 1") for (int k = 0; k < n; k++) { j = scattered(j + (int)v); s += v;
    {edit} asm volatile("ld.volatile.global.f32 %0, [%1];" : "=f"(v) : "l"(x + j)); }
    y[i] = s + v;"""
NEST = "".join(
    f'_Pragma("unroll 1") for (int q{level} = 0; q{level} < once; q{level}++) '
    for level in range(9)
)
COPIES = """__shared__ float4 rows[STAGES][128], other[STAGES][128];
    float s = 0.f; const float4* from = (const float4*)x;
    for (int k = 0; k < STAGES - 1; k++) {
        __pipeline_memcpy_async(&rows[k][t], from + (k * gridDim.x + b) * 128 + t, 16);
        __pipeline_commit();
    }
    for (int k = 0; k < n; k++) {
        int next = k + STAGES - 1;
        if (next < n)
            __pipeline_memcpy_async(
                &rows[next % STAGES][t], from + (next * gridDim.x + b) * 128 + t, 16);
        {edit}
        __pipeline_commit(); __pipeline_wait_prior(STAGES - 1);
        s += rows[k % STAGES][t].x + rows[k % STAGES][t].w;
    }
    y[i] = s;"""
PHASES = """__shared__ unsigned long long barrier; __shared__ float part[960]; float v = 0.f;
    unsigned at = (unsigned)__cvta_generic_to_shared(&barrier);
    if (t == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 960;" :: "r"(at) : "memory");
    __syncthreads();
    for (int k = 0; k < n; k++) {
        part[t] = x[(b * n + k) * 960 + t]; {edit}
        for (int q = 0; q < 8; q++) v += part[(t + q * 33) % 960] * v + part[(t + 32) % 960]; {edit}
    }
    y[i] = v;"""
MET = "__syncthreads();"
ARRIVED = """asm volatile("{ .reg .b64 state; .reg .pred done;"
    " mbarrier.arrive.shared.b64 state, [%0];"
    " AGAIN: mbarrier.test_wait.shared.b64 done, [%0], state; @!done bra AGAIN; }"
    :: "r"(at) : "memory");"""
COLUMN = """if (blockIdx.y) { {quick} }
    float s = 0.f;
    _Pragma("unroll 4") for (int k = 0; k < n; k++) { {edit} s += x[k * 8192 + i]; }
    y[i] = s;"""
ROOTS = """if (blockIdx.y) return;
    float v = x[i]; for (int k = 0; k < n; k++) v = sqrtf(v + 1.f) + __sinf(v);
    y[i] = v;"""
SWEEPS = """if (blockIdx.y) return;
    float s = 0.f; for (int k = 0; k < n; k++) for (int j = t; j < 32768; j += 256)
        s += x[b * 32768 + j];
    y[i] = s;"""
WANDER = """int j = scattered(i); float s = 0.f;
    for (int k = 0; k < n; k++) { {edit} s += v; j = scattered(j + (int)v); }
    y[i] = s;"""
COMPUTES = """int u = t; _Pragma("unroll 1") for (int k = 0; k < n / 5; k++) u = scattered(u) ^ k;
    if (u == -5) y[0] = 1.f; return;"""
LOADS = """float s = 0.f;
    _Pragma("unroll 16") for (int k = 0; k < n; k++) s += x[(1 << 24) + (k * 64 + b) * 256 + t];
    if (s == -5.f) y[0] = 1.f; return;"""
MEETS = "for (int k = 0; k < n / 2; k++) __syncthreads(); return;"
LOOKS_AT = """{ float v; asm volatile("ld.volatile.global.f32 %0, [%1];" : "=f"(v) : "l"({})); }"""
FLAG = "if (b == 0 && t == 0) *(volatile float*)(y + (1 << 24)) = 1.f;"
FLAGS = "for (int q = 0; q < 8; q++) " + LOOKS_AT.replace("{}", "y + (1 << 24)")
LOOK = "float v = *(volatile const float*)(x + j);"
TABLE = "__pipeline_memcpy_async(&other[k % 2][t], from + t % 2, 16);"

KERNELS = {
    "scatter": (SCATTER, 8192, 256, 0),
    "long_block": (LONG_BLOCK, 132, 1024, 20),
    "own_table": (OWN_TABLE, 1056, 256, 64),
    "walk": (WALK, 132, 32, 100),
    "copies": (COPIES.replace("STAGES", "2"), 132, 128, 32),
    "phases": (PHASES.replace("{edit}", MET), 132, 960, 16),
    "arrivals": (PHASES.replace("{edit}", ARRIVED), 132, 960, 16),
    "column": (COLUMN.replace("{quick}", "return;"), 32, 256, 512),
    "roots": (ROOTS, 150, 1024, 60),
    "sweeps": (SWEEPS, 1024, 256, 4),
    "wander": (WANDER, 132, 64, 24),
    "copies_4": (COPIES.replace("STAGES", "4"), 132, 128, 32),
}
EDITS = {
    ("scatter", "counted"): "if (t == 0) atomicAdd(y + b, 0.f);",
    ("scatter", "counted_by_some"): "if (t == 0 && b % 16 == 0) atomicAdd(y + b, 0.f);",
    ("scatter", "same_place"): SAME_PLACE,
    ("long_block", "ticket"): TICKET,
    ("own_table", "ticket"): TICKET,
    ("walk", "nest"): NEST,
    ("copies", "table"): TABLE,
    ("column", "idle"): "",
    ("column", "computing"): COMPUTES,
    ("column", "loading"): LOADS,
    ("column", "meeting"): MEETS,
    ("roots", "idle"): "",
    ("sweeps", "idle"): "",
    ("column", "other_warp"): LOOKS_AT.replace("{}", "x + k * 8192 + (i ^ 32)"),
    ("column", "other_warps"): LOOKS_AT.replace("{}", "x + k * 8192 + (i ^ 32)")
    + LOOKS_AT.replace("{}", "x + k * 8192 + (i ^ 64)"),
    ("column", "half_the_warps"): "if (t / 32 & 1) "
    + LOOKS_AT.replace("{}", "x + k * 8192 + (i ^ 32)"),
    ("wander", "atomic"): "float v = __int_as_float(atomicOr((int*)x + j, 0));",
    ("wander", "flags"): FLAGS + LOOK,
    ("scatter", "added"): "atomicAdd(y + ((i * 2654435761u) >> 9), v + 1.f); return;",
    ("scatter", "some_added"): "if (t & 1) { atomicAdd(y + ((i * 2654435761u) >> 9), v); return; }",
}
BLOCKS = {"idle": 10, "computing": 4, "loading": 4, "meeting": 4}
"""Rows of blocks, of which the first does the work."""
FOR_A_LOAD = {"wander": "float v = x[j];"}
"""What an edit takes the place of."""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> TimedKernels:
    sources = [HEAD]
    for name, what in [*((name, "plain") for name in KERNELS), *EDITS]:
        edit = EDITS.get((name, what), FOR_A_LOAD.get(name, ""))
        body = KERNELS[name][0]
        if what in ("computing", "loading", "meeting"):
            body, edit = body.replace("{ return; }", f"{{ {edit} }}", 1), ""
        if what == "flags":
            body = FLAG + body
        body = body.replace("{edit}", edit)
        sources.append(
            f'extern "C" __global__ void {name}__{what}('
            f"const float* __restrict__ x, float* __restrict__ y, int n) {{ {HERE} {body} }}\n"
        )
    return TimedKernels("".join(sources), tmp_path_factory.mktemp("no_reward"))


def _microseconds(kernels: TimedKernels, name: str, what: str = "plain") -> float:
    _, grid, threads, n = KERNELS[name]
    blocks = (grid, BLOCKS.get(what, 1), 1)
    return kernels.run(f"{name}__{what}", blocks, threads, n).profile.microseconds


@pytest.mark.parametrize(("name", "what"), every(4, EDITS))
def test_it_gains_nothing(kernels: TimedKernels, name: str, what: str) -> None:
    # A ticket has all blocks run: what a sample had told of the longest is known then.
    least = 0.9 if what == "ticket" else 0.97
    assert _microseconds(kernels, name, what) > least * _microseconds(kernels, name)


def test_more_stages_of_copies_wait_less(kernels: TimedKernels) -> None:
    assert _microseconds(kernels, "copies_4") < 0.8 * _microseconds(kernels, "copies")


def test_asking_an_mbarrier_in_vain_costs_nothing(kernels: TimedKernels) -> None:
    met, arrived = _microseconds(kernels, "phases"), _microseconds(kernels, "arrivals")
    assert 0.8 * met < arrived < 3.5 * met  # Each lane's arrival is a wavefront.
