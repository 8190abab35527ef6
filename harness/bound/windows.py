"""Operators that slide a window, along each axis: what they read, and how many taps they take."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .flow import Flow, Operation

_CONVOLUTION = re.compile(r"conv[123]d|conv_transpose[123]d|convolution")
_POOL = re.compile(r"(max|avg)_pool[123]d(_with_indices)?")


@dataclass(frozen=True)
class Axis:
    """One axis along which a window slides: element o of the long side meets o * stride - padding
    + tap * dilation of the other."""

    steps: int
    """Positions of the window."""
    reach: int
    """Elements that it slides over."""
    taps: int
    stride: int
    padding: int
    dilation: int

    @property
    def pairs(self) -> int:
        """Of position and tap, those that lie on an element and not on padding."""
        return sum(len(self._positions(tap)) for tap in range(self.taps))

    @property
    def touched(self) -> int:
        """Elements that some tap reads."""
        seen = bytearray(self.reach)
        for tap in range(self.taps):
            positions = self._positions(tap)
            if positions:
                first = positions[0] * self.stride - self.padding + tap * self.dilation
                end = first + (len(positions) - 1) * self.stride + 1
                seen[first : end : self.stride] = b"\1" * len(positions)
        return sum(seen)

    def read(self, steps: int) -> int:
        """Return how many elements so many positions of the window read at least."""
        if steps == self.steps:
            return self.touched
        # An element is lost with all positions that read it.
        return max(min(steps, self.reach), self.touched - (self.steps - steps) * self.taps)

    def met(self, elements: int) -> int:
        """Return how many positions of the window so many elements meet at least."""
        most = -(-self.taps // self.stride)
        return max(-(-elements // self.taps), self.steps - (self.reach - elements) * most)

    @property
    def phases(self) -> int:
        """Multiplications without which no algorithm gets a result, of long signals.

        A window of stride s is s windows of stride 1 over every s-th element, and one of those
        costs at least one multiplication a result (Winograd), however many taps it has.
        """
        return min(self.stride, self.taps)

    def _positions(self, tap: int) -> range:
        offset = tap * self.dilation - self.padding
        first = max(0, -(offset // self.stride))
        end = min(self.steps, (self.reach - 1 - offset) // self.stride + 1)
        return range(first, max(first, end))


@dataclass(frozen=True)
class Convolution:
    """A convolution's sizes; a transposed one slides over its result."""

    axes: tuple[Axis, ...]
    transposed: bool
    channels: int
    """Pairs of an input channel and an output channel that meet, in the whole batch."""
    groups: int
    channels_in: int
    channels_out: int

    def channels_read(self, made: int) -> int:
        """Return how many input channels so many of the output's read at least."""
        groups = -(-made // (self.channels_out // self.groups))
        return groups * self.channels_in // self.groups


def convolution_of(operation: Operation, flow: Flow) -> Convolution | None:
    """Return the sizes of a convolution; None of another operator."""
    op = operation.op
    if not _CONVOLUTION.fullmatch(op):
        return None
    given, weight = (flow.shapes[name] for name in operation.values[:2])
    result, rank = flow.shapes[operation.name], len(weight) - 2
    if op == "convolution":
        stride, padding, dilation, transposed = operation.args[3:7]
    elif op.startswith("conv_transpose"):
        transposed = True
        stride, padding = operation.argument(3, "stride", 1), operation.argument(4, "padding", 0)
        dilation = operation.argument(7, "dilation", 1)
    else:
        transposed = False
        stride, padding = operation.argument(3, "stride", 1), operation.argument(4, "padding", 0)
        dilation = operation.argument(5, "dilation", 1)
    strides, dilations = _each(stride, rank), _each(dilation, rank)
    if isinstance(padding, str):
        same = padding == "same"
        paddings = [
            d * (taps - 1) // 2 if same else 0
            for d, taps in zip(dilations, weight[2:], strict=True)
        ]
    else:
        paddings = _each(padding, rank)
    small, large = (given, result) if transposed else (result, given)
    axes = tuple(
        Axis(small[-rank + k], large[-rank + k], weight[2 + k], strides[k], paddings[k],
             dilations[k])
        for k in range(rank)
    )  # fmt: skip
    batch = given[0] if len(given) == rank + 2 else 1
    wide = result if transposed else given
    groups = wide[-rank - 1] // weight[1]
    return Convolution(
        axes, bool(transposed), batch * weight[0] * weight[1], groups,
        channels_in=given[-rank - 1], channels_out=result[-rank - 1],
    )  # fmt: skip


def pool_axes(operation: Operation, flow: Flow) -> tuple[Axis, ...] | None:
    """Return the axes of a pool; None of another operator."""
    if not _POOL.fullmatch(operation.op):
        return None
    given, result = flow.shapes[operation.values[0]], flow.shapes[operation.name]
    found = re.search(r"[123]", operation.op)
    assert found
    rank = int(found[0])
    taps = _each(operation.args[1], rank)
    strides = _each(operation.argument(2, "stride") or taps, rank)
    paddings = _each(operation.argument(3, "padding", 0), rank)
    largest = operation.op.startswith("max")
    dilations = _each(operation.argument(4, "dilation", 1) if largest else 1, rank)
    return tuple(
        Axis(result[-rank + k], given[-rank + k], taps[k], strides[k], paddings[k], dilations[k])
        for k in range(rank)
    )


def _each(value: Any, rank: int) -> list[int]:
    values = list(value) if isinstance(value, list | tuple) else [value]
    return [int(each) for each in (values if len(values) == rank else values * rank)]
