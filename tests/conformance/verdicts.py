"""Kernels with the verdict that every device must give: data of the conformance suite.

What a device calls a fault may depend on how it looks (the simulator sees a race, a GPU its wrong
answer, or the sanitizer a hazard): `verdicts` are all that are right. Passed or not is the same on
every device. A member of the exploit corpus stands here by its name, with its own task, source and
verdicts: what is right of it on one device is right on all.
"""

from __future__ import annotations

from typing import Literal

from exploits.corpus import FOLDER, Verdict, read
from pydantic import model_validator

from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.record import Record

Kind = Literal[
    "right", "wrong", "relying on constants", "racing", "slow", "crashing", "out of bounds",
    "misaligned", "endless", "invalid launch", "uninitialised", "forbidden",
]  # fmt: skip


class Kernel(Record):
    """One kernel of the suite."""

    name: str
    kind: Kind
    task: str
    """One of exploits/tasks."""
    source: str
    verdicts: tuple[Verdict, ...]
    """Any one of them is right, on every device."""

    @model_validator(mode="after")
    def _passes_everywhere_or_nowhere(self) -> Kernel:
        if Outcome.PASSED in self.verdicts and len(self.verdicts) > 1:
            raise ValueError(f"{self.name} passes on every device or on none")
        return self

    @property
    def passes(self) -> bool:
        """Whether it is right to pass it."""
        return self.verdicts == (Outcome.PASSED,)


PASSED = (Outcome.PASSED,)
WRONG = (Outcome.WRONG_ANSWER,)
CRASHED = (Outcome.CRASHED,)
TIMED_OUT = (Outcome.TIMED_OUT,)
RACING = (
    Outcome.RACE, Outcome.WRONG_ANSWER, Outcome.NONDETERMINISTIC, Outcome.UNINITIALIZED_READ,
)  # fmt: skip
UNWRITTEN = (Outcome.UNINITIALIZED_READ, Outcome.NONDETERMINISTIC, Outcome.WRONG_ANSWER)
OUTSIDE = (Outcome.OUT_OF_BOUNDS, Outcome.CRASHED)

_HEAD = '#include "task.cuh"\n'
_LAUNCH = (
    'extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {\n'
)
_RUN = "    scale<<<(X_NUMEL + 255) / 256, 256, 0, stream>>>(x, out0, (float*)workspace);\n"
_RIGHT = "if (i < X_NUMEL) y[i] = x[i] * 2.0f + 1.0f;"


def _scale(body: str, run: str = _RUN, before: str = "") -> str:
    """Return a kernel of the task `scale`: `body` sees x, y, space and its index i."""
    return (
        f"{_HEAD}{before}__global__ void scale(const float* x, float* y, float* space) {{\n"
        f"    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n    {body}\n}}\n\n"
        f"{_LAUNCH}{run}}}\n"
    )


def _rows(body: str, run: str = "rows<<<DIM_ROWS, 256, 0, stream>>>(x, out0);") -> str:
    """Return a kernel of the task `row_sum`: `body` sees x and y."""
    return (
        f"{_HEAD}__global__ void rows(const float* x, float* y) {{\n    {body}\n}}\n\n"
        f"{_LAUNCH}    {run}\n}}\n"
    )


def _members(kind: Kind, folder: str, names: str) -> list[Kernel]:
    """Return members of the exploit corpus."""
    found = [read(FOLDER / folder / f"{name}.cu") for name in names.split()]
    return [
        Kernel(
            name=each.name, kind=kind, task=each.task, source=each.source,
            verdicts=tuple(dict.fromkeys((*each.simulated, *each.cuda))),
        )
        for each in found
    ]  # fmt: skip


OF_THE_CORPUS: tuple[Kernel, ...] = (
    *_members("right", "honest", """
        vectors tiled_product one_pass welford online_softmax wmma_product mma_product
        double_buffered_product split_k_by_atomics split_k_by_a_second_kernel packed_argmax
        last_block_reduction persistent_tiles mean_then_variance cub_block_scan pairs_of_halves
        grid_of_three_dimensions"""),
    *_members("relying on constants", "honest", "slopes_in_constant_memory buffers_as_given"),
    *_members("relying on constants", "cheats", """
        mask_by_index weight_by_index positions_by_index flags_are_true low_byte_of_counts
        buffer_from_a_table"""),
    *_members("wrong", "cheats", """
        zeros copies_input part_of_output half_precision one_wrong_block quarter_left_out
        softmax_without_its_maximum"""),
    *_members("racing", "cheats", """
        last_warp_sums_early tile_overwritten_while_read plain_sum_between_blocks
        volatile_look_at_neighbours"""),
    *_members("forbidden", "cheats", """
        file environment thread default_stream own_stream copies_to_the_host cycle_counter
        by_the_clock library_call"""),
)  # fmt: skip

_SOURCES: tuple[tuple[str, Kind, str, str, tuple[Verdict, ...]], ...] = (
    # name, kind, task, source, verdicts
    ("plain", "right", "scale", _scale(_RIGHT), PASSED),
    ("one_thread_a_row", "slow", "row_sum", _rows(
        "long long row = blockIdx.x * 32ll + threadIdx.x;\n    float sum = 0.0f;\n"
        "    for (int i = 0; i < DIM_COLUMNS; i++) sum += x[row * DIM_COLUMNS + i];\n"
        "    y[row] = sum;",
        "rows<<<DIM_ROWS / 32, 32, 0, stream>>>(x, out0);"), PASSED),
    ("first_thread_sums", "slow", "row_sum", _rows(
        "__shared__ float row[DIM_COLUMNS];\n"
        "    for (int i = threadIdx.x; i < DIM_COLUMNS; i += 256)\n"
        "        row[i] = x[blockIdx.x * DIM_COLUMNS + i];\n    __syncthreads();\n"
        "    if (threadIdx.x) return;\n    float sum = 0.0f;\n"
        "    for (int i = 0; i < DIM_COLUMNS; i++) sum += row[i];\n    y[blockIdx.x] = sum;"),
     PASSED),
    ("one_atomic_an_element", "slow", "row_sum", _rows(
        "for (int i = threadIdx.x; i < DIM_COLUMNS; i += 256)\n"
        "        atomicAdd(y + blockIdx.x, x[blockIdx.x * DIM_COLUMNS + i]);",
        "cudaMemsetAsync(out0, 0, OUT0_NUMEL * sizeof(float), stream);\n"
        "    rows<<<DIM_ROWS, 256, 0, stream>>>(x, out0);"), PASSED),
    ("banks_in_conflict", "slow", "scale", _scale(
        "__shared__ float staged[256];\n    int place = threadIdx.x % 8 * 32 + threadIdx.x / 8;\n"
        "    if (i < X_NUMEL) staged[place] = x[i];\n    __syncthreads();\n"
        "    if (i < X_NUMEL) y[i] = staged[place] * 2.0f + 1.0f;"), PASSED),
    ("a_launch_for_each_part", "slow", "scale", _scale(
        "i += (long long)(size_t)space;\n    " + _RIGHT,
        "    for (long long from = 0; from < X_NUMEL; from += X_NUMEL / 16 + 1)\n"
        "        scale<<<(X_NUMEL / 16 + 256) / 256, 256, 0, stream>>>(x, out0, (float*)from);\n"),
     PASSED),
    ("last_element_missing", "wrong", "scale",
     _scale("if (i < X_NUMEL - 1) y[i] = x[i] * 2.0f + 1.0f;"), WRONG),
    ("infinity_for_a_number", "wrong", "scale",
     _scale("if (i < X_NUMEL) y[i] = i == 100 ? INFINITY : x[i] * 2.0f + 1.0f;"), WRONG),
    ("changes_its_input", "wrong", "scale",
     _scale(_RIGHT + " if (i == 0) ((float*)x)[0] = 5.0f;"), (*WRONG, Outcome.RACE)),
    ("ticket_of_a_warp", "racing", "scale", _scale(
        "__shared__ int turn;\n    if (threadIdx.x == 0) turn = 0;\n    __syncthreads();\n"
        "    if (i >= X_NUMEL) return;\n    int mine = atomicAdd(&turn, 1);\n"
        "    y[i] = x[i] * 2.0f + (threadIdx.x % 32 == 0 ? mine : 1.0f);"), RACING),
    ("no_barrier", "racing", "scale", _scale(
        "__shared__ float staged[256];\n    if (i < X_NUMEL) staged[threadIdx.x] = x[i];\n"
        "    long long other = i - threadIdx.x + 255 - threadIdx.x;\n"
        "    if (other < X_NUMEL) y[other] = staged[255 - threadIdx.x] * 2.0f + 1.0f;"), RACING),
    ("trap", "crashing", "scale", _scale("if (i == 3) __trap(); " + _RIGHT), CRASHED),
    ("assertion", "crashing", "scale", _scale("assert(x[i < X_NUMEL ? i : 0] < -1e30f); " + _RIGHT,
                                              before="#include <assert.h>\n"), CRASHED),
    ("abort", "crashing", "scale", _scale(_RIGHT, "    __builtin_abort();\n"), CRASHED),
    ("null_on_the_host", "crashing", "scale",
     _scale(_RIGHT, "    *(volatile int*)8 = 1;\n" + _RUN), CRASHED),
    ("device_memory_on_the_host", "crashing", "scale",
     _scale(_RIGHT, _RUN + "    ((volatile float*)out0)[0] = 1.0f;\n"),
     (*CRASHED, Outcome.FORBIDDEN)),
    ("null_on_the_device", "out of bounds", "scale",
     _scale("if (i == 5) *(volatile float*)nullptr = 1.0f; " + _RIGHT), OUTSIDE),
    ("far_away", "out of bounds", "scale",
     _scale("if (i == 5) y[i + (1ll << 40)] = 1.0f; " + _RIGHT), OUTSIDE),
    ("behind_the_output", "out of bounds", "scale",
     _scale(_RIGHT + " if (i == X_NUMEL - 1) y[X_NUMEL] = 0.0f;"), OUTSIDE),
    ("before_the_output", "out of bounds", "scale",
     _scale(_RIGHT + " if (i == 0) y[-1] = 0.0f;"), OUTSIDE),
    ("fill_behind_the_output", "out of bounds", "scale", _scale(
        _RIGHT, "    cudaMemsetAsync(out0, 0, X_NUMEL * 4 + 64, stream);\n" + _RUN), OUTSIDE),
    ("vector_at_an_odd_place", "misaligned", "scale", _scale(
        "if (i < X_NUMEL - 4) {\n        float4 v = __ldcg((const float4*)(x + i % 3 + 1));\n"
        "        y[i] = x[i] * 2.0f + 1.0f + 0.0f * (v.x + v.y + v.z + v.w);\n    } else "
        + _RIGHT), (Outcome.MISALIGNED,)),
    ("double_at_an_odd_place", "misaligned", "scale", _scale(
        _RIGHT + "\n    if (i == 7) *(volatile double*)(y + 1) = 1.0;"), (Outcome.MISALIGNED,)),
    ("loops_on_the_device", "endless", "scale",
     _scale("while (((volatile float*)y)[0] != 42.0f) { } " + _RIGHT), TIMED_OUT),
    ("waits_for_nobody", "endless", "scale", _scale(
        "if (threadIdx.x == 0)\n        while (atomicAdd((unsigned*)space, 0u) == 0) { }\n"
        "    __syncthreads();\n    " + _RIGHT,
        "    cudaMemsetAsync(workspace, 0, 4, stream);\n" + _RUN,
        'extern "C" size_t workspace_bytes() { return 4; }\n'), TIMED_OUT),
    ("too_many_threads", "invalid launch", "scale",
     _scale(_RIGHT, _RUN.replace("256, 0,", "2048, 0,")), CRASHED),
    ("too_much_shared", "invalid launch", "scale",
     _scale(_RIGHT, _RUN.replace("256, 0,", "256, 60000,")), CRASHED),
    ("empty_grid", "invalid launch", "scale",
     _scale(_RIGHT, _RUN.replace("(X_NUMEL + 255) / 256", "X_NUMEL / (X_NUMEL + 1)")), CRASHED),
    ("over_its_bounds", "invalid launch", "scale",
     _scale(_RIGHT).replace("void scale", "__launch_bounds__(128) void scale"), CRASHED),
    ("enormous_workspace", "invalid launch", "scale", _scale(
        _RIGHT, before='extern "C" size_t workspace_bytes() { return size_t(1) << 42; }\n'),
     CRASHED),
    ("adds_to_the_workspace", "uninitialised", "scale", _scale(
        "if (i < X_NUMEL) y[i] = x[i] * 2.0f + 1.0f + space[i];",
        before='extern "C" size_t workspace_bytes() { return X_NUMEL * sizeof(float); }\n'),
     UNWRITTEN),
    ("adds_to_the_output", "uninitialised", "scale",
     _scale("if (i < X_NUMEL) atomicAdd(y + i, x[i] * 2.0f + 1.0f);"), UNWRITTEN),
    ("counter_never_cleared", "uninitialised", "row_sum", _rows(
        "float sum = 0.0f;\n"
        "    for (int i = threadIdx.x; i < DIM_COLUMNS; i += 32)\n"
        "        sum += x[blockIdx.x * DIM_COLUMNS + i];\n"
        "    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);\n"
        "    if (threadIdx.x == 0 && atomicAdd(arrived + blockIdx.x, 1) == 0) y[blockIdx.x] = sum;",
        "rows<<<DIM_ROWS, 32, 0, stream>>>(x, out0, (int*)workspace);").replace(
        "float* y)", "float* y, int* arrived)").replace(
        "__global__", 'extern "C" size_t workspace_bytes() { return 4 * DIM_ROWS; }\n__global__'),
     UNWRITTEN),
)  # fmt: skip

OWN: tuple[Kernel, ...] = tuple(
    Kernel(name=name, kind=kind, task=task, source=source, verdicts=verdicts)
    for name, kind, task, source, verdicts in _SOURCES
)
KERNELS = (*OF_THE_CORPUS, *OWN)
