"""What orders accesses: code that the CUDA programming guide allows is accused of nothing."""

from __future__ import annotations

import numpy as np
import pytest
from simt_support import compile_ptx, execute, kinds

from kernelblaster.harness.simt.ptx.parser import Module
from kernelblaster.harness.simt.run.core import Memory

SOURCE = r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
// Lanes exchange values through memory, ordered by one thing or another.
template <int HOW> __global__ void exchange(const float *a, float *c) {
    __shared__ float s[64];
    int t = threadIdx.x, lane = t % 32;
    s[t] = a[t];
    if (HOW == 0) __syncwarp();
    if (HOW == 1) __shfl_sync(~0u, t, 0);
    if (HOW == 2) __ballot_sync(~0u, t > 3);
    if (HOW == 3) __syncwarp(0xffu << (lane & 24));
    if (HOW == 4) cg::tiled_partition<8>(cg::this_thread_block()).sync();
    if (HOW == 5) { if (lane < 16) __syncwarp(0xffff); else __syncwarp(0xffff0000); }
    if (HOW == 6) { if (lane & 1) { s[t] += 1.f; __syncwarp(); } else { __syncwarp(); } }
    if (HOW == 7) __syncthreads();
    if (HOW == 8) __match_any_sync(~0u, t / 2);
    if (HOW == 9) __reduce_add_sync(~0u, t);
    c[t] = s[t ^ 7];
}
#define EXCHANGE(HOW) template __global__ void exchange<HOW>(const float *, float *);
EXCHANGE(0) EXCHANGE(1) EXCHANGE(2) EXCHANGE(3) EXCHANGE(4) EXCHANGE(5) EXCHANGE(6) EXCHANGE(7)
EXCHANGE(8) EXCHANGE(9) EXCHANGE(10)
// What lanes 0 to 7 wrote reaches lane 31 by way of lane 16, and not without the second meeting.
__global__ void chain(const float *a, float *c, int whole) {
    __shared__ float s[32];
    int lane = threadIdx.x;
    s[lane] = a[lane];
    if (lane < 17) __syncwarp(0x1ffff);
    if (whole && lane >= 16) __syncwarp(0xffff0000);
    if (lane == 31) c[0] = s[3];
}
// Members of a vote are those of its mask, though all lanes execute it together.
__global__ void tile_votes(int *ballots, int *alls, int *matches) {
    int lane = threadIdx.x;
    unsigned mask = 0xffu << (lane & 24);
    ballots[lane] = __ballot_sync(mask, lane % 3 == 0);
    alls[lane] = __all_sync(mask, lane >= 8);
    matches[lane] = __match_any_sync(mask, lane % 2);
}
// Half the warp takes a longer way; both halves then shuffle.
__global__ void meets_again(float *c, int n) {
    int lane = threadIdx.x;
    float v = lane;
    if (lane < 16) for (int i = 0; i < n; i++) v = v * 0.5f + 1.f;
    c[lane] = __shfl_xor_sync(~0u, v, 16);
}
__global__ void returned_lanes(const float *a, float *c, int n) {
    int lane = threadIdx.x;
    if (lane >= n) return;
    c[lane] = __shfl_xor_sync(~0u, a[lane], 1);
}
// One warp copies the first word of each vector of four, the other writes the second.
__global__ void copies_a_part(float *a, float *c) {
    __shared__ float4 s[32];
    int t = threadIdx.x;
    if (t < 32) {
        unsigned at = (unsigned)__cvta_generic_to_shared(s + t);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16, 4;" :: "r"(at), "l"(a + 4 * t));
        asm volatile("cp.async.wait_all;");
        c[t] = s[t].x + s[t].y;
    } else {
        a[4 * (t - 32) + 1] = 7.f;
    }
}
__global__ void leaves_early(const float *a, float *c, int n) {
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t >= n) return;
    s[t] = a[t];
    __syncthreads();
    c[t] = s[n - 1 - t];
}
// A lock of the block in shared memory, taken by one lane of each warp.
__global__ void lock(const float *a, float *c) {
    __shared__ int taken;
    __shared__ float sum;
    if (threadIdx.x == 0) taken = 0, sum = 0.f;
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        while (atomicCAS(&taken, 0, 1) != 0) {}
        __threadfence_block();
        sum += a[threadIdx.x];
        __threadfence_block();
        atomicExch(&taken, 0);
    }
    __syncthreads();
    if (threadIdx.x == 0) c[0] = sum;
}
// Each lane takes one of some locks in its turn, and releases it with one thing or another.
__global__ void lane_locks(const float *a, float *sums, int *locks, int count, int in_shared,
                           int stores) {
    __shared__ int own[32];
    __shared__ float of_block[32];
    int t = threadIdx.x;
    own[t] = 0, of_block[t] = 0.f;
    __syncwarp();
    int *lock = (in_shared ? own : locks) + t % count;
    float *sum = (in_shared ? of_block : sums) + t % count;
    for (bool done = false; !done;) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *sum += a[t];
            __threadfence();
            if (stores) *(volatile int *)lock = 0; else atomicExch(lock, 0);
            done = true;
        }
    }
    __syncwarp();
    if (in_shared && t < count) sums[t] = of_block[t];
}
// The lane that counts last reads what all wrote.
__global__ void last_lane(const float *a, float *c, float *through, int *counted, int in_shared) {
    __shared__ float s[32];
    __shared__ int count;
    int t = threadIdx.x;
    if (t == 0) count = 0;
    __syncwarp();
    float *p = in_shared ? s : through;
    p[t] = a[t];
    __threadfence();
    if (atomicAdd(in_shared ? &count : counted, 1) == 31)
        for (int i = 0; i < 32; i++) c[0] += p[i];
}
// A fence, and then looks that see nothing of anybody else.
template <int HOW> __global__ void looks_at_its_own(const float *a, float *c, float *through,
                                                    int *slots, int in_shared) {
    __shared__ float s[32];
    __shared__ int own[32];
    int t = threadIdx.x, got = 0;
    float *p = in_shared ? s : through;
    int *slot = (in_shared ? own : slots) + t;
    p[t] = a[t];
    __threadfence();
    if (HOW == 0) *(volatile int *)slot = 0, got = *(volatile int *)slot;
    if (HOW == 1) *slot = 0, got = atomicAdd(slot, 0);
    if (HOW == 2) *slot = 0, got = atomicExch(slot, 0), got += atomicCAS(slot, 0, 0);
    c[t] = got + p[t ^ 1];
}
#define OWN(HOW) \
    template __global__ void looks_at_its_own<HOW>(const float *, float *, float *, int *, int);
OWN(0) OWN(1) OWN(2)
// As the programming guide adds doubles: the first look is plain, the swap is what counts.
__device__ void add(double *at, double v) {
    unsigned long long *word = (unsigned long long *)at, old = *word, assumed;
    do {
        assumed = old;
        double sum = __longlong_as_double(assumed) + v;
        old = atomicCAS(word, assumed, (unsigned long long)__double_as_longlong(sum));
    } while (assumed != old);
}
__global__ void add_by_swapping(const double *a, double *c) {
    __shared__ double sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    add(&sum, a[blockIdx.x * 64 + threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) add(c, sum);
}
// Several lanes share a word; each keeps to its own bytes, or takes its neighbour's.
template <typename T> __global__ void in_place(T *x, int first, int n, int neighbour) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        T value = x[first + i];
        x[first + (i ^ neighbour)] = (T)(value + 3);
    }
}
template <typename T> __global__ void in_place_shared(T *x, int first, int n, int neighbour) {
    __shared__ T s[256];
    int i = threadIdx.x;
    s[first + i] = x[first + i];
    __syncwarp();
    T value = s[first + i];
    if (neighbour < 0) value += s[first + (i ^ 1)], __syncwarp();
    s[first + (neighbour < 0 ? i : i ^ neighbour)] = (T)(value + 3);
    __syncthreads();
    x[first + i] = s[first + i];
}
#define IN_PLACE(T) template __global__ void in_place<T>(T *, int, int, int); \
    template __global__ void in_place_shared<T>(T *, int, int, int);
IN_PLACE(short) IN_PLACE(char)
// A warp has a row of 33 halves to itself: every other row shares a word with the next.
__global__ void odd_rows(short *x, int neighbour) {
    __shared__ short s[4 * 33];
    int t = threadIdx.x, row = t / 32, lane = t % 32;
    for (int i = t; i < 132; i += 128) s[i] = x[i];
    asm volatile("bar.sync 1, 128;" ::: "memory");
    short more = neighbour ? s[(row + 1) % 4 * 33] : 1;
    for (int i = lane; i < 33; i += 32) s[row * 33 + i] += more;
    asm volatile("bar.sync 1, 128;" ::: "memory");
    for (int i = t; i < 132; i += 128) x[i] = s[i];
}
// What a lane did to one half of a word before the lanes met was not done with what it does to the
// other half later.
__global__ void half_then_half(short *x, int *c, int in_shared, int write, int meet) {
    __shared__ short s[64];
    short *p = in_shared ? s : x;
    int t = threadIdx.x, seen = 0;
    if (in_shared) s[2 * t] = s[2 * t + 1] = 1;
    __syncwarp();
    if (write) p[2 * t] = t; else seen = p[2 * t];
    if (meet) __syncwarp();
    if (write) p[2 * t + 1] = t; else seen += p[2 * t + 1];
    p[2 * t + 2 & 63] = t;
    c[t] = seen;
}
// Every lane takes what the first lane of its word wrote.
__global__ void first_of_a_word(const char *x, char *y, char *through, int in_shared, int meet) {
    __shared__ char s[32];
    char *p = in_shared ? s : through;
    int t = threadIdx.x;
    p[t] = x[t];
    if (meet) __syncwarp();
    y[t] = p[t & ~3];
}
struct Best { float value; long long index; };
struct Wide { double value; int index; };
struct Narrow { short value; int index; };
// The largest of 128, by copying whole structures; their padding is nobody's.
template <typename T> __global__ void largest(const int *x, T *through, int *c) {
    __shared__ T s[64];
    int t = threadIdx.x;
    through[t].value = x[t], through[t].index = t;
    through[t + 64].value = x[t + 64], through[t + 64].index = t + 64;
    __syncthreads();
    s[t] = through[127 - t].value > through[t].value ? through[127 - t] : through[t];
    for (int half = 32; half; half /= 2) {
        __syncthreads();
        if (t < half && s[t + half].value > s[t].value) s[t] = s[t + half];
    }
    if (t == 0) c[0] = s[0].index;
}
template __global__ void largest<Best>(const int *, Best *, int *);
template __global__ void largest<Wide>(const int *, Wide *, int *);
template __global__ void largest<Narrow>(const int *, Narrow *, int *);
// Three numbers kept in a vector of four: nobody writes the fourth, and nobody reads it.
template <typename V> __global__ void three_of_four(const int *x, V *through, int *c) {
    __shared__ V s[64];
    int t = threadIdx.x;
    s[t].x = through[t].x = x[t];
    s[t].y = through[t].y = x[t] + 1;
    s[t].z = through[t].z = x[t] + 2;
    __syncthreads();
    V p = s[63 - t], q = through[63 - t];
    c[t] = p.x * p.y + p.z + q.x * q.y + q.z;
}
template __global__ void three_of_four<float4>(const int *, float4 *, int *);
template __global__ void three_of_four<short4>(const int *, short4 *, int *);
template __global__ void three_of_four<uchar4>(const int *, uchar4 *, int *);
template <typename V> __global__ void fourth_never_written(const int *x, int *c) {
    __shared__ V s[64];
    int t = threadIdx.x;
    s[t].x = s[t].y = s[t].z = x[t];
    __syncthreads();
    V p = s[63 - t];
    c[t] = p.x + p.y + p.z + p.w;
}
template __global__ void fourth_never_written<float4>(const int *, int *);
template __global__ void fourth_never_written<uchar4>(const int *, int *);
__global__ void index_never_written(const int *x, int *c) {
    __shared__ Best s[64];
    int t = threadIdx.x;
    s[t].value = x[t];
    __syncthreads();
    if (t < 32 && s[t + 32].value > s[t].value) s[t] = s[t + 32];
    __syncthreads();
    c[t] = (int)s[t].index;
}
__global__ void struct_with_padding(const int *which, double *c) {
    struct Item { char tag; double value; } items[4];
    for (int i = 0; i < 4; i++) items[i].tag = i, items[i].value = i * 0.5;
    Item mine = items[which[threadIdx.x] & 3];
    items[which[threadIdx.x] & 1] = mine;
    c[threadIdx.x] = items[which[31 - threadIdx.x] & 3].value + mine.tag;
}
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return compile_ptx(SOURCE)


@pytest.mark.parametrize("how", range(10))
@pytest.mark.parametrize("seed", (0, 1))
def test_lanes_that_met_are_ordered(module: Module, how: int, seed: int) -> None:
    name = f"_Z8exchangeILi{how}EEvPKfPf"
    a = np.arange(64, dtype=np.float32)
    result, (_, got) = execute(module, name, 1, 64, a, np.zeros(64, np.float32), seed=seed)
    assert result.reports == ()
    odd = (np.arange(64) ^ 7) % 2 if how == 6 else 0
    np.testing.assert_array_equal(got, a[np.arange(64) ^ 7] + odd)


def test_lanes_that_did_not_meet_race(module: Module) -> None:
    data = (np.zeros(64, np.float32), np.zeros(64, np.float32))
    result, _ = execute(module, "_Z8exchangeILi10EEvPKfPf", 1, 64, *data)
    assert kinds(result) == {"race"}
    assert "no __syncwarp() between" in result.reports[0].detail


@pytest.mark.parametrize("in_shared", [0, 1])
@pytest.mark.parametrize("seed", (0, 1, 2))
def test_lanes_that_hand_a_lock_on_are_ordered(module: Module, in_shared: int, seed: int) -> None:
    a, zeros = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    for count in (1, 4):
        for stores in range(1 if in_shared else 2):
            result, (_, sums, _) = execute(
                module, "lane_locks", 1, 32, a, zeros, np.zeros(32, np.int32), count, in_shared,
                stores, seed=seed,
            )  # fmt: skip
            assert result.reports == ()
            np.testing.assert_array_equal(sums[:count], a.reshape(-1, count).sum(0))
    result, (_, got, *_) = execute(
        module, "last_lane", 1, 32, a, zeros, zeros, np.zeros(1, np.int32), in_shared, seed=seed
    )
    assert result.reports == () and got[0] == a.sum()


@pytest.mark.parametrize("in_shared", [0, 1])
@pytest.mark.parametrize("how", range(3))
def test_a_lane_that_looks_at_its_own_hears_of_nobody(
    module: Module, how: int, in_shared: int
) -> None:
    """A fence and looks order nothing where nobody sees what another stored."""
    zeros = np.zeros(32, np.float32)
    result, _ = execute(
        module, f"_Z16looks_at_its_ownILi{how}EEvPKfPfS2_Pii", 1, 32, zeros, zeros, zeros,
        np.zeros(32, np.int32), in_shared,
    )  # fmt: skip
    assert kinds(result) == {"race"}


SUB_WORDS = [(np.int16, "s"), (np.int8, "c")]


@pytest.mark.parametrize(("dtype", "letter"), SUB_WORDS, ids=["halves", "bytes"])
@pytest.mark.parametrize("first", range(4))
def test_lanes_that_share_a_word_and_keep_to_their_bytes(
    module: Module, dtype: type, letter: str, first: int
) -> None:
    """Also where a word lies across two warps or two blocks."""
    x = np.arange(200).astype(dtype)
    result, (got, *_) = execute(module, f"_Z8in_placeI{letter}EvPT_iii", 3, 64, x, first, 190, 0)
    assert result.reports == ()
    np.testing.assert_array_equal(got[first : first + 190], x[first : first + 190] + dtype(3))
    name = f"_Z15in_place_sharedI{letter}EvPT_iii"
    assert execute(module, name, 1, 128, x, first, 128, 0)[0].reports == ()
    result, (got, *_) = execute(module, name, 1, 128, x, first, 128, -1)
    pairs = (x[first + (np.arange(128) ^ 1)] + x[first : first + 128] + 3).astype(dtype)
    assert result.reports == () and np.array_equal(got[first : first + 128], pairs)


@pytest.mark.parametrize(("dtype", "letter"), SUB_WORDS, ids=["halves", "bytes"])
@pytest.mark.parametrize("neighbour", [1, 16])
def test_lanes_that_take_their_neighbours_bytes_race(
    module: Module, dtype: type, letter: str, neighbour: int
) -> None:
    x = np.arange(200).astype(dtype)
    for name, grid in (("8in_place", 2), ("15in_place_shared", 1)):
        result, _ = execute(
            module, f"_Z{name}I{letter}EvPT_iii", grid, 64, x, 0, 128, neighbour
        )
        assert kinds(result) == {"race"}
        assert "overwrites what warp" in result.reports[0].detail


def test_words_that_two_warps_share_between_named_barriers(module: Module) -> None:
    x = np.arange(132).astype(np.int16)
    for seed in range(4):
        result, (got,) = execute(module, "odd_rows", 1, 128, x, 0, seed=seed)
        assert result.reports == () and np.array_equal(got, x + 1)
        assert "race" in kinds(execute(module, "odd_rows", 1, 128, x, 1, seed=seed)[0])


@pytest.mark.parametrize("in_shared", [0, 1])
def test_a_lane_that_wrote_beside_another_in_a_word(module: Module, in_shared: int) -> None:
    data = [np.arange(32).astype(np.int8), np.zeros(32, np.int8), np.zeros(32, np.int8), in_shared]
    result, _ = execute(module, "first_of_a_word", 1, 32, *data, 0)
    assert kinds(result) == {"race"}
    assert {report.thread for report in result.reports} & {1, 2, 3}
    assert "thread 0 (warp 0) wrote" in result.reports[0].detail
    result, (_, got, _) = execute(module, "first_of_a_word", 1, 32, *data, 1)
    assert result.reports == () and np.array_equal(got, np.arange(32) & ~3)


@pytest.mark.parametrize("in_shared", [0, 1])
@pytest.mark.parametrize("write", [0, 1])
def test_halves_of_a_word_at_different_times(module: Module, in_shared: int, write: int) -> None:
    data = (np.zeros(64, np.int16), np.zeros(32, np.int32), in_shared, write)
    assert execute(module, "half_then_half", 1, 32, *data, 1)[0].reports == ()
    assert "race" in kinds(execute(module, "half_then_half", 1, 32, *data, 0)[0])


@pytest.mark.parametrize("name", ["4Best", "4Wide", "6Narrow"])
def test_padding_is_copied_with_what_it_pads(module: Module, name: str) -> None:
    x = np.random.default_rng(0).permutation(128).astype(np.int32)
    result, (_, _, got) = execute(
        module, f"_Z7largestI{name}EvPKiPT_Pi", 1, 64, x, np.zeros(2048, np.uint8),
        np.zeros(1, np.int32), outputs=(1,),
    )  # fmt: skip
    assert result.reports == () and got[0] == x.argmax()


@pytest.mark.parametrize("name", ["6float4", "6short4", "6uchar4"])
def test_an_element_that_nobody_reads_need_not_be_written(module: Module, name: str) -> None:
    x = np.arange(64).astype(np.int32)
    result, (_, _, got) = execute(
        module, f"_Z13three_of_fourI{name}EvPKiPT_Pi", 1, 64, x, np.zeros(1024, np.uint8),
        np.zeros(64, np.int32), outputs=(1,),
    )  # fmt: skip
    assert result.reports == ()
    np.testing.assert_array_equal(got, 2 * (x * (x + 1) + x + 2)[::-1])


@pytest.mark.parametrize("name", ["6float4", "6uchar4"])
def test_an_element_that_is_read_must_be_written(module: Module, name: str) -> None:
    x = np.arange(64).astype(np.int32)
    result, _ = execute(module, f"_Z20fourth_never_writtenI{name}EvPKiPi", 1, 64, x, x)
    assert kinds(result) == {"uninitialized_read"}


def test_a_member_that_nobody_wrote_is_no_padding(module: Module) -> None:
    x = np.zeros(64, np.int32)
    assert kinds(execute(module, "index_never_written", 1, 64, x, x)[0]) == {"uninitialized_read"}


def test_order_is_passed_on(module: Module) -> None:
    data = (np.zeros(32, np.float32), np.zeros(1, np.float32))
    assert execute(module, "chain", 1, 32, *data, 1)[0].reports == ()
    result, _ = execute(module, "chain", 1, 32, *data, 0)
    assert kinds(result) == {"race"} and result.reports[0].other_thread == 3


def test_votes_of_tiles(module: Module) -> None:
    zeros = [np.zeros(32, np.int32) for _ in range(3)]
    result, (ballots, alls, matches) = execute(module, "tile_votes", 1, 32, *zeros)
    assert result.reports == ()
    lanes = range(32)
    tiles = [range(lane & 24, (lane & 24) + 8) for lane in lanes]
    assert [b & 0xFFFFFFFF for b in ballots.tolist()] == [
        sum(1 << k for k in tile if k % 3 == 0) for tile in tiles
    ]
    assert alls.tolist() == [int(lane >= 8) for lane in lanes]
    assert [m & 0xFFFFFFFF for m in matches.tolist()] == [
        sum(1 << k for k in tiles[lane] if k % 2 == lane % 2) for lane in lanes
    ]


def test_lanes_wait_for_those_that_their_mask_names(module: Module) -> None:
    result, (got,) = execute(module, "meets_again", 1, 32, np.zeros(32, np.float32), 3)
    v = np.arange(32, dtype=np.float32)
    for _ in range(3):
        v[:16] = v[:16] * np.float32(0.5) + np.float32(1)
    assert result.reports == ()
    np.testing.assert_array_equal(got, v[np.arange(32) ^ 16])


@pytest.mark.parametrize("seed", range(4))
def test_a_partial_copy_reads_no_more_than_its_bytes(module: Module, seed: int) -> None:
    a = np.arange(128, dtype=np.float32)
    zeros = np.zeros(32, np.float32)
    result, (_, got) = execute(module, "copies_a_part", 1, 64, a, zeros, seed=seed)
    assert result.reports == ()
    np.testing.assert_array_equal(got, a[::4])


def test_lanes_that_have_left_are_not_waited_for(module: Module) -> None:
    a = np.arange(32, dtype=np.float32)
    result, (_, got) = execute(module, "returned_lanes", 1, 32, a, np.zeros(32, np.float32), 20)
    assert result.reports == ()
    np.testing.assert_array_equal(got[:20], a[np.arange(20) ^ 1])


def test_leaving_before_a_barrier_is_noted_and_no_fault(module: Module) -> None:
    a = np.arange(64, dtype=np.float32)
    result, (_, got) = execute(module, "leaves_early", 1, 64, a, np.zeros(64, np.float32), 40)
    assert kinds(result) == {"barrier_exited"} and result.reports[0].thread == 40
    np.testing.assert_array_equal(got[:40], a[39::-1])


@pytest.mark.parametrize("seed", (0, 1, 2))
def test_a_lock_in_shared_memory_orders_warps(module: Module, seed: int) -> None:
    a = np.arange(128, dtype=np.float32)
    result, (_, got) = execute(module, "lock", 1, 128, a, np.zeros(1, np.float32), seed=seed)
    assert result.reports == () and got[0] == a[::32].sum()


@pytest.mark.parametrize("seed", (0, 1))
def test_a_swap_may_begin_with_a_plain_look(module: Module, seed: int) -> None:
    a = np.arange(256, dtype=np.float64)
    result, (_, got) = execute(module, "add_by_swapping", 4, 64, a, np.zeros(1), seed=seed)
    assert result.reports == () and got[0] == a.sum()


def test_padding_may_be_copied(module: Module) -> None:
    which = np.arange(32, dtype=np.int32)
    result, _ = execute(module, "struct_with_padding", 1, 32, which, np.zeros(32))
    assert result.reports == ()


def test_copies_carry_what_is_written() -> None:
    memory = Memory(1 << 34, 256, [1 << 34], [(1 << 34) + 256], np.zeros(65, np.uint8))
    assert memory.initialised is not None
    memory.mark_initialised((1 << 34) + 3, 6)
    memory.copy_initialised((1 << 34) + 1, (1 << 34) + 102, 9)
    bits = (memory.initialised[:, None] >> np.arange(4) & 1).ravel()
    assert np.flatnonzero(bits).tolist() == [*range(3, 9), *range(104, 110)]
    memory.copy_initialised(None, (1 << 34) + 40, 4)
    memory.copy_initialised((1 << 34) + 20, (1 << 34) + 3, 3)
    assert memory.initialised[10] == 15 and memory.initialised[0] == 0
