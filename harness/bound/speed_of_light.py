"""The speed of light: what no kernel of a task can be faster than, and where a time stands to it.

A lower bound, of memory (what must be read and written, once) and of arithmetic (what the
operators' definitions need, less what is known to spare some), at peaks that nothing exceeds.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from pydantic import Field

from ..gpus import Gpu
from ..records.programs import Program
from ..records.record import Record
from ..records.tasks import Task
from ..records.tensors import DTYPE_BYTES
from .flow import Flow
from .needs import Needs
from .operations import count_operations

_SEEN_BANDWIDTH = {"H200": 4560.0}
"""Gigabytes per second of DRAM: 1 % above the fastest that was seen (8.6 GB read in 1.904 ms, where
a repetition differs by about as much). Of other GPUs the data sheet's: nobody has measured."""
MOST_UNKNOWN = 8
"""Lines of what depends on data; a number tells of more."""
PRODUCTS_FOR_FP32 = 3
"""Products of half types that make one of fp32's accuracy: each factor is scaled and split in
two, and the product of the two lower halves is left out."""


class SpeedOfLight(Record):
    """What no kernel of a task can be faster than on a GPU."""

    gpu: str
    """Whose peaks it is for."""
    bytes_read: int
    """Of inputs, parameters and buffers, what an output depends on, once; constants are not."""
    bytes_written: int
    """Of the outputs, once."""
    operations: dict[str, int] = Field(default_factory=dict)
    """By kind (matrix product, convolution, attention, recurrence, element): what the operators
    are defined by, an addition and a multiplication being two."""
    spared: int = 0
    """Of these, what an algorithm need not do: no time below holds them."""
    memory_us: float
    """Microseconds for the bytes."""
    fp32_us: float
    """Microseconds for the operations where products are as accurate as the task's types are."""
    tensor_us: float
    """Microseconds for them on tensor cores at the rate of half types (TF32 is slower)."""
    defined_us: float
    """What `fp32_us` would be with every operation of the definitions: no bound, but what a kernel
    that goes by them can reach."""
    known: bool = True
    """Whether the operations, and which inputs are needed, could be told."""
    unknown: tuple[str, ...] = ()
    """What depends on data, and is not in the bound; a line each."""
    source: str
    """Where the peaks come from."""

    @property
    def microseconds(self) -> float:
        """The bound for arithmetic as accurate as the task's types."""
        return max(self.memory_us, self.fp32_us)

    @property
    def tensor_microseconds(self) -> float:
        """The bound where products may be those of half types."""
        return max(self.memory_us, self.tensor_us)

    @property
    def binds(self) -> Literal["memory", "arithmetic"]:
        """What sets the bound."""
        return "memory" if self.memory_us >= self.fp32_us else "arithmetic"

    def share(self, microseconds: float) -> float:
        """Return the share of the bound that a time reaches: 1 at the bound, less above it."""
        return self.microseconds / microseconds

    def __str__(self) -> str:
        moved = (self.bytes_read + self.bytes_written) / 1e6
        if not self.known:
            return f"{self.microseconds:.2f} us (its outputs alone: {moved:.2f} MB)"
        done, left = sum(self.operations.values()) / 1e9, self.spared / 1e9
        spared = f", {left:.2f} G of them can be spared" if left else ""
        return (
            f"{self.microseconds:.2f} us ({self.binds}: {moved:.2f} MB, {done:.2f} G operations"
            f"{spared}), {self.tensor_microseconds:.2f} us with half types on tensor cores"
        )


def speed_of_light(task: Task, gpu: Gpu) -> SpeedOfLight:
    """Return the bound of a task at full dimensions; of its outputs alone where its program cannot
    be counted."""
    if task.program is None:
        return _outputs_alone(task, gpu, "there is no exported program")
    try:
        return _counted(task, task.program, gpu)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # Operators come in forms that nobody here has met: no reason for a run to end.
        return _outputs_alone(
            task, gpu, f"the program cannot be counted ({type(error).__name__}: {error})"
        )


def _outputs_alone(task: Task, gpu: Gpu, why: str) -> SpeedOfLight:
    written = sum(each.nbytes for each in task.full.of_role("output"))
    bandwidth, source = _bandwidth(gpu)
    return SpeedOfLight(
        gpu=gpu.name,
        bytes_read=0,
        bytes_written=written,
        memory_us=written / bandwidth,
        fp32_us=0.0,
        tensor_us=0.0,
        defined_us=0.0,
        known=False,
        unknown=(f"{why}: only the outputs are counted",),
        source=source,
    )


def _counted(task: Task, program: Program, gpu: Gpu) -> SpeedOfLight:
    flow = Flow(program, task.full.tensors)
    needs = Needs(flow)
    given = task.full.of_role("input", "parameter", "buffer")
    read = sum(
        needs.count(each.name) * each.nbytes // each.numel for each in given if not each.constant
    )
    written = sum(each.nbytes for each in task.full.of_role("output"))
    bandwidth, source = _bandwidth(gpu)
    operations: Counter[str] = Counter()
    # Microseconds of products and of the rest.
    accurate, half, defined = ({True: 0.0, False: 0.0} for _ in range(3))
    spared = 0
    for count in count_operations(flow, needs):
        is_product = count.kind != "element"
        operations[count.kind] += count.defined
        if is_product:
            spared += count.defined - count.fewest
        rate, tensor_rate = _rates(gpu, count.dtype, is_product)
        accurate[is_product] += count.fewest / rate
        half[is_product] += count.fewest / tensor_rate
        defined[is_product] += count.defined / rate
    return SpeedOfLight(
        gpu=gpu.name,
        bytes_read=read,
        bytes_written=written,
        operations=dict(operations),
        spared=spared,
        memory_us=(read + written) / bandwidth,
        # Tensor cores and the other units work side by side.
        fp32_us=max(accurate.values()),
        tensor_us=max(half.values()),
        defined_us=max(defined.values()),
        unknown=_shortened(tuple(needs.unknown)),
        source=source,
    )


def _shortened(lines: tuple[str, ...]) -> tuple[str, ...]:
    more = len(lines) - MOST_UNKNOWN
    return (*lines[:MOST_UNKNOWN], f"and {more} more") if more > 0 else lines


def score(microseconds: float, bound_us: float, base_us: float) -> float | None:
    """Return 1 / (1 + (T - T_sol) / (T_base - T_sol)): 0.5 at the base's time, 1 at the bound.

    A time at the bound or below has 1: the bound holds for what the operators define, and an
    algorithm may need less. None where the base is at its bound or below: nothing is left to win,
    and the quotient says nothing.
    """
    if base_us <= bound_us:
        return None
    return 1 / (1 + max(0.0, microseconds - bound_us) / (base_us - bound_us))


def _bandwidth(gpu: Gpu) -> tuple[float, str]:
    """Return bytes per microsecond of DRAM, and where all the peaks come from."""
    seen = _SEEN_BANDWIDTH.get(gpu.name)
    if seen is None:
        return gpu.dram_gigabytes_per_second * 1e3, f"peaks by {gpu.source}"
    return seen * 1e3, f"bandwidth as measured ({seen:,.0f} GB/s); other peaks by {gpu.source}"


def _rates(gpu: Gpu, dtype: str, is_product: bool) -> tuple[float, float]:
    """Return operations per microsecond as accurate as a type, and at half precision."""
    clocks = 2 * gpu.sms * gpu.clock_ghz * 1e3
    rates = gpu.throughput
    half = clocks * rates.tensor_fp16
    if not is_product:
        # Of narrow types four bytes at a time.
        packed = max(1, 4 // DTYPE_BYTES.get(dtype, 4))
        rate = clocks * (rates.fp64 if dtype == "float64" else rates.fp32 * packed)
        return rate, rate
    if dtype == "float64":
        return 2 * clocks * rates.fp64, 2 * clocks * rates.fp64  # Tensor cores have twice as much.
    if dtype in ("float16", "bfloat16"):
        return half, half
    if dtype in ("int8", "uint8"):
        return 2 * half, 2 * half
    return max(clocks * rates.fp32, half / PRODUCTS_FOR_FP32), half
