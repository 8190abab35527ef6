"""What bounds a task on a GPU, in words: its bytes, and its products on each arithmetic."""

from __future__ import annotations

from ...harness.bound.arithmetic import product_times
from ...harness.gpus import Gpu, known_gpu
from ...harness.records.tasks import Task
from .contract import compulsory_bytes
from .device import peaks_of
from .units import in_bytes, in_microseconds

SPARED = 0.05
"""Share of the products that can be spared from which it is told."""


def bounds_text(task: Task, gpu: str) -> str:
    """Return what no kernel of a task is faster than, before there is one.

    Empty for a GPU whose peaks are not known.
    """
    known = known_gpu(gpu)
    if known is None:
        return ""
    return " ".join(part for part in (_bytes(task, known), products_text(task, known)) if part)


def dram_microseconds(task: Task, gpu: Gpu) -> float:
    """Return the time of moving every tensor once at the DRAM's peak."""
    return compulsory_bytes(task) / peaks_of(gpu).dram_bytes * 1e6


def products_text(task: Task, gpu: Gpu) -> str:
    """Return the task's products and their time on each arithmetic; empty where it has none."""
    times = product_times(task, gpu)
    if times is None:
        return ""
    each = [f"{name} {in_microseconds(value)}" for name, value in times.microseconds.items()]
    text = f"Its products are {times.operations / 1e9:.3g} GFLOP; at peak: {', '.join(each)}"
    # Where moving the tensors takes longer on each arithmetic nobody asks for fewer products.
    matter = max(times.microseconds.values()) > dram_microseconds(task, gpu)
    if matter and times.fewest < (1 - SPARED) * times.operations:
        convolves = any("conv" in node.op for node in task.program.nodes) if task.program else False
        ways = "are of masked or zero elements, or end in sums"
        if convolves:
            ways += ", or are what a fast convolution (Winograd, FFT) does without"
        text += f". {1 - times.fewest / times.operations:.0%} of them {ways}, and can be spared"
    return f"{text}."


def _bytes(task: Task, gpu: Gpu) -> str:
    return (
        f"All tensors moved once are {in_bytes(compulsory_bytes(task))}: "
        f"{in_microseconds(dram_microseconds(task, gpu))} at the DRAM's peak."
    )
