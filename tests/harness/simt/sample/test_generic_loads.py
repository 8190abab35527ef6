"""A load by a generic address waits as long as the memory that it is of, as those of wmma are."""

from __future__ import annotations

import pytest
from support.timed_kernels import TimedKernels

SOURCE = r"""
#define CHASE(OPCODE, CONSTRAINT, AT, ...) \
    unsigned at = threadIdx.x * 4; float sum = 0; \
    _Pragma("unroll 1") for (int i = 0; i < n; i++) { \
        unsigned next; \
        asm volatile(OPCODE " %0, [%1]" __VA_ARGS__ ";" : "=r"(next) : CONSTRAINT(AT)); \
        sum += next, at = (at + next + 128) & 4095; \
    } \
    y[blockIdx.x * 32 + threadIdx.x] = sum;
#define IN_SHARED \
    __shared__ __align__(16) unsigned s[1024]; \
    for (int i = threadIdx.x; i < 1024; i += 32) s[i] = (unsigned)x[i]; \
    __syncthreads();
extern "C" __global__ void by_shared(const float *x, float *y, int n) {
    IN_SHARED CHASE("ld.shared.u32", "r", (unsigned)__cvta_generic_to_shared(s) + at)
}
extern "C" __global__ void by_generic(const float *x, float *y, int n) {
    IN_SHARED CHASE("ld.u32", "l", (const char *)s + at)
}
extern "C" __global__ void by_generic_of_both(const float *x, float *y, int n) {
    IN_SHARED CHASE("ld.u32", "l", i & 1 ? (const char *)s + at : (const char *)x + at)
}
extern "C" __global__ void count_shared(const float *x, float *y, int n) {
    IN_SHARED CHASE("atom.shared.or.b32", "r", (unsigned)__cvta_generic_to_shared(s) + at, ", 0")
}
extern "C" __global__ void count_generic(const float *x, float *y, int n) {
    IN_SHARED CHASE("atom.or.b32", "l", (const char *)s + at, ", 0")
}
extern "C" __global__ void by_local(const float *x, float *y, int n) {
    unsigned s[1024]; for (int i = 0; i < 1024; i++) s[i] = (unsigned)x[i];
    CHASE("ld.local.u32", "r", (unsigned)__cvta_generic_to_local(s) + at)
}
extern "C" __global__ void by_generic_of_local(const float *x, float *y, int n) {
    unsigned s[1024]; for (int i = 0; i < 1024; i++) s[i] = (unsigned)x[i];
    CHASE("ld.u32", "l", (const char *)s + at)
}
extern "C" __global__ void by_global(const float *x, float *y, int n) {
    IN_SHARED CHASE("ld.u32", "l", (const char *)x + at)
}
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> TimedKernels:
    return TimedKernels(SOURCE, tmp_path_factory.mktemp("generic"), floats=1 << 16)


def test_a_generic_load_takes_what_its_memory_takes(kernels: TimedKernels) -> None:
    shared, generic, both, elsewhere, local, generic_local = (
        kernels.run(name, 132, 32, 2000).profile.microseconds
        for name in ("by_shared", "by_generic", "by_generic_of_both", "by_global", "by_local",
                     "by_generic_of_local")  # fmt: skip
    )
    assert generic == pytest.approx(shared, rel=0.3)  # addresses are twice as wide
    assert both == pytest.approx((generic + elsewhere) / 2, rel=0.2)
    assert elsewhere > 1.3 * generic
    assert generic_local == pytest.approx(local, rel=0.3)


def test_a_generic_atomic_takes_what_one_of_shared_memory_takes(kernels: TimedKernels) -> None:
    shared, generic, loads = (
        kernels.run(name, 132, 32, 2000).profile.microseconds
        for name in ("count_shared", "count_generic", "by_generic")
    )
    assert generic == pytest.approx(shared, rel=0.3)
    assert generic > 1.3 * loads
