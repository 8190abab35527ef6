"""What a task's products take on each arithmetic of a GPU that is accurate enough for its types."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from ..gpus import Gpu
from ..records.record import Record
from ..records.tasks import Task
from .flow import Flow
from .needs import Needs
from .operations import Count, count_operations
from .speed_of_light import PRODUCTS_FOR_FP32

TF32_SHARE = 0.5
"""Of the tensor cores' rate for half types, what TF32 has."""


class ProductTimes(Record):
    """Products of a task at full dimensions, and how long they take at each arithmetic's peak."""

    operations: int
    """As the operators define them, an addition and a multiplication being two. What a causal mask
    leaves out is not among them; what any other mask hides is."""
    fewest: int
    """Those of them that no algorithm is known to spare: zeros, masks and sums taken off."""
    microseconds: Mapping[str, float] = Field(default_factory=dict)
    """For `operations`, by arithmetic: `fp32`, and in three products `TF32x3`, `fp16x3`, `bf16x3`;
    or the task's own type."""


def product_times(task: Task, gpu: Gpu) -> ProductTimes | None:
    """Return what a task's products take; None where there are none, or they cannot be counted."""
    counts = _products(task)
    operations = sum(each.defined for each in counts)
    if not operations:
        return None
    widest = max((each.dtype for each in counts), key=_width)
    return ProductTimes(
        operations=operations,
        fewest=sum(each.fewest for each in counts),
        microseconds={name: operations / rate for name, rate in _rates(gpu, widest).items()},
    )


def multiplies(task: Task) -> bool:
    """Say whether a task has products; of one without a program, whether it may."""
    return task.op_class in ("matmul", "mixed") if task.program is None else bool(_products(task))


def _products(task: Task) -> list[Count]:
    if task.program is None:
        return []
    try:
        flow = Flow(task.program, task.full.tensors)
        return [each for each in count_operations(flow, Needs(flow)) if each.kind != "element"]
    except (ArithmeticError, LookupError, TypeError, ValueError):  # As in speed_of_light.
        return []


def _width(dtype: str) -> int:
    order = ("int8", "uint8", "float16", "bfloat16", "float32", "float64")
    return order.index(dtype) if dtype in order else len(order) - 2


def _rates(gpu: Gpu, dtype: str) -> dict[str, float]:
    """Return operations a microsecond of each arithmetic that is as accurate as a type."""
    clocks = 2 * gpu.sms * gpu.clock_ghz * 1e3
    half = clocks * gpu.throughput.tensor_fp16
    if dtype == "float64":
        return {"fp64": clocks * gpu.throughput.fp64}
    if dtype in ("float16", "bfloat16"):
        return {f"{dtype} tensor cores": half, "fp32": clocks * gpu.throughput.fp32}
    if dtype in ("int8", "uint8"):
        return {"int8 tensor cores": 2 * half}
    return {
        "fp32": clocks * gpu.throughput.fp32,
        "TF32x3": half * TF32_SHARE / PRODUCTS_FOR_FP32,
        "fp16x3": half / PRODUCTS_FOR_FP32,
        "bf16x3": half / PRODUCTS_FOR_FP32,
    }
