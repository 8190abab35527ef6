"""Which kernels may wait for what other blocks write: only what is read in a loop can change."""

from __future__ import annotations

import pytest
from simt_support import compile_ptx

from kernelblaster.harness.simt.decode.decoder import decode
from kernelblaster.harness.simt.ptx.parser import Module
from kernelblaster.harness.simt.ptx.registers import atomics_read

SOURCE = r"""
#define KERNEL extern "C" __global__ void
KERNEL counts_in_a_loop(int *c, int n) {
    for (int i = threadIdx.x; i < n; i += 32) atomicAdd(c + (i & 7), 1);
}
KERNEL takes_turns(int *c, int n) {
    for (int i = atomicAdd(c, 1); i < n; i = atomicAdd(c, 1)) c[1 + i] = i;
}
KERNEL takes_a_turn(int *c, int n) { int i = atomicAdd(c, 1); if (i < n) c[1 + i] = i; }
KERNEL looks(volatile int *c, int n) { while (c[0] < n) { } c[1] = 1; }
KERNEL looks_once(volatile int *c, int n) { if (c[0] < n) c[1] = 1; }
KERNEL locks(int *c, int n) { while (atomicCAS(c, 0, 1)) { } c[1] = n; atomicExch(c, 0); }
KERNEL within_a_block(int *c, int n) {
    __shared__ int turns;
    if (threadIdx.x == 0) turns = 0;
    __syncthreads();
    for (int i = atomicAdd(&turns, 1); i < n; i = atomicAdd(&turns, 1)) c[i] = i;
}
KERNEL maximum(float *c, const float *x, int n) {
    for (int i = threadIdx.x; i < n; i += 32) {
        int *p = (int *)(c + (i & 7)), old = *p, seen;
        do {
            seen = old;
            old = atomicCAS(p, seen, __float_as_int(fmaxf(x[i], __int_as_float(seen))));
        } while (old != seen);
    }
}
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return compile_ptx(SOURCE)


@pytest.mark.parametrize(
    ("kernel", "waits"),
    [
        ("counts_in_a_loop", False), ("takes_turns", True), ("takes_a_turn", False),
        ("looks", True), ("looks_once", False), ("locks", True), ("within_a_block", False),
        ("maximum", True),
    ],
)  # fmt: skip
def test_what_is_read_in_a_loop_may_be_waited_for(
    module: Module, kernel: str, waits: bool
) -> None:
    assert decode(module, kernel, 0, {}).may_wait is waits


def test_an_atomic_whose_answer_nobody_reads_is_told_from_others(module: Module) -> None:
    read = atomics_read(module)
    atomics = {
        kernel: [
            each.index in read for each in module.instructions[function.first : function.last]
            if each.opcode == "atom"
        ]
        for kernel, function in module.functions.items()
    }  # fmt: skip
    assert atomics["takes_turns"] and all(atomics["takes_turns"])
    assert not any(atomics["counts_in_a_loop"]) and any(atomics["locks"])
