"""Macros: all steps on one kernel, which is the one that the whole is aimed at."""

from __future__ import annotations

import pytest
from builtin_support import initial, product_task

from kernelblaster.harness.records.tasks import Task
from kernelblaster.memory.records.optimizations import MacroStep
from kernelblaster.tools.rewriting.records import Inapplicable, Rewritten
from kernelblaster.tools.rewriting.rewrite import Rewrite
from kernelblaster.tools.rewriting.target import target_of
from kernelblaster.tools.techniques.catalogue import rewrites, techniques
from kernelblaster.tools.techniques.macros import macro_rewrite

TILED = {"tile": 64, "thread_tile": 4}


def macro(first: str) -> Rewrite:
    card = techniques()["register_tiling"].card.model_copy(
        update={"technique": f"{first}_then_register_tiling",
                "steps": (MacroStep(technique=first),
                          MacroStep(technique="register_tiling", parameters=TILED))}
    )  # fmt: skip
    whole = macro_rewrite(card, rewrites())
    assert whole is not None
    return whole


ROWS = """\
__global__ void rows_kernel(float* out0, const float* a) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= A_SIZE_0) return;
    float sum = 0.0f;
    for (int c = 0; c < A_SIZE_1; ++c) {
        sum += a[row * A_SIZE_1 + c];
    }
    out0[row] = sum;
}

"""
LAUNCH = "    rows_kernel<<<(A_SIZE_0 + 255) / 256, 256, 0, stream>>>(out0, a);\n"


def rows_and_product() -> tuple[str, Task]:
    """A file of two kernels, of which the second is a product."""
    task = product_task()
    source = initial(task).replace("constexpr int M", f"{ROWS}constexpr int M", 1)
    return source.replace("    const dim3 block", f"{LAUNCH}    const dim3 block", 1), task


@pytest.mark.parametrize("first", ["unroll_loop", "read_only_cache"])
def test_a_macro_that_begins_with_every_kernel_is_aimed_at_the_one_of_its_last_step(
    first: str,
) -> None:
    source, task = rows_and_product()
    rows, product = "rows_kernel", "product_kernel"
    whole = macro(first)
    made = whole.apply(source, task, kernels=[rows, product])
    assert isinstance(made, Rewritten), made
    assert target_of(made, source, [rows, product]) == made.kernel == product
    again = whole.apply(source, task, kernels=[product])
    assert again == made, "who writes it is given the kernel that it was aimed at"
    assert isinstance(whole.apply(source, task, kernels=[rows]), Inapplicable)
