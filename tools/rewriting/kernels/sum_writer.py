"""Writes a sum of products anew, for a thread that computes several results along two axes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from ..records import NotRecognised
from ..source.launches import GRID, ceiling, fresh_constant, host_text, set_components
from ..source.syntax import indented, uses
from .sum_kernel import Coordinate, Step, SumKernel


def written(found: SumKernel, pixels: int, channels: int) -> str:
    """Return the source with a thread that computes so many results along each of two axes.

    Along the first a weight is used again, along the second an input.

    Raises:
        NotRecognised: the factors have no such axes.
    """
    return _Writer(found, pixels, channels).text()


@dataclass
class _Writer:
    found: SumKernel
    pixels: int
    channels: int

    def __post_init__(self) -> None:
        """Find the axes. Raises NotRecognised."""
        body, source = self.found.body, self.found.source
        self._pixels = fresh_constant(source, "PIXELS")
        self._channels = fresh_constant(source, "CHANNELS")
        self._reads = {each.name: each.text for each in (*body.named, *body.steps) if each.name}
        fast = body.coordinates[-1].name
        moving = [factor for factor in body.factors if self._depends(factor, fast)]
        if len(moving) != 1:
            raise NotRecognised("not one of the factors is read by neighbouring threads in order")
        (self._input,) = moving
        self._weight = next(each for each in body.factors if each != self._input)
        self._channel = self._axis(body.coordinates[:-1], [self._weight], [self._input])
        self._pixel = self._pixel_axis()
        self._strided = self._pixel is body.coordinates[-1]

    def text(self) -> str:
        source, body, kernel = self.found.source, self.found.body, self.found.kernel
        source.insert_before(
            self._first(),
            f"constexpr int {self._pixels} = {self.pixels};\n"
            f"constexpr int {self._channels} = {self.channels};\n",
        )
        lines = [*body.constants, *self._places(), *self._sums()]
        source.replace(kernel.node, "\n".join([f"{kernel.head} {{", *indented(lines), "}"]))
        sizes = " * ".join(self._split(each) for each in body.coordinates)
        count = host_text(kernel, self.found.launch, sizes)
        grid = ceiling(count, self.found.block)
        set_components(source, self.found.launch, GRID, [grid])
        return source.result()

    def _first(self) -> Node:
        """Return what constants stand before: the kernel, or the comment above it."""
        node = self.found.kernel.node
        above = node.prev_named_sibling
        return above if above is not None and above.type == "comment" else node

    def _places(self) -> Iterator[str]:
        """Yield where a thread's results begin."""
        body = self.found.body
        thread = self._fresh("thread")
        for coordinate in body.coordinates:
            if coordinate in (self._pixel, self._channel):
                name = self._parts(coordinate)
                yield f"const {coordinate.type} {name} = {self._split(coordinate)};"
        sizes = [self._parts(each) for each in body.coordinates]
        yield f"const {body.type} {thread} = {body.place};"
        yield f"if ({thread} >= {' * '.join(sizes)}) return;"
        for place in reversed(range(len(sizes))):
            coordinate = body.coordinates[place]
            faster = " * ".join(sizes[place + 1 :])
            faster = f"({faster})" if "*" in faster else faster
            value = f"{thread} / {faster}" if faster else thread
            value = f"{value} % {sizes[place]}" if place else value
            name = coordinate.name
            if coordinate in (self._pixel, self._channel):
                name = self._begins(coordinate)
                together = not (coordinate is self._pixel and self._strided)
                value = f"{value} * {self._many(coordinate)}" if together else value
            yield f"const {coordinate.type} {name} = {value};"

    def _sums(self) -> Iterator[str]:
        body, pixels, channels = self.found.body, self._pixels, self._channels
        p, c = self._fresh("p"), self._fresh("m")
        sums, weights, value = self._fresh("sums"), self._fresh("weights"), self._fresh("value")
        moved: dict[str, list[Step]] = {self._pixel.name: [], self._channel.name: []}
        outside = self._kept(body.named, moved)
        yield from (each.text for each in outside)
        yield f"float {sums}[{pixels}][{channels}] = {{}};"
        kept = self._kept(body.steps, moved)
        depth = 0
        for step in kept:
            lines = [step.text] if step.kind == "name" else [
                *([step.pragma] if step.pragma else []),
                f"{step.text} {{" if step.kind == "loop" else f"if ({step.text}) {{",
            ]  # fmt: skip
            yield from indented(lines, depth)
            depth += step.kind != "name"
        each_p = ["#pragma unroll", f"for (int {p} = 0; {p} < {pixels}; ++{p}) {{"]
        each_c = ["#pragma unroll", f"for (int {c} = 0; {c} < {channels}; ++{c}) {{"]
        of_channel, of_pixel = moved[self._channel.name], moved[self._pixel.name]
        inner = [
            f"float {weights}[{channels}];",
            *each_c,
            *indented([
                self._clamped(self._channel, c), *(each.text for each in of_channel),
                f"{weights}[{c}] = {self._weight};",
            ]),
            "}",
            *each_p,
            *indented([self._clamped(self._pixel, p)]),
        ]  # fmt: skip
        conditions = 0
        for step in of_pixel:
            line = f"if ({step.text}) {{" if step.kind == "condition" else step.text
            inner += indented([line], 1 + conditions)
            conditions += step.kind == "condition"
        inner += indented([
            f"const float {value} = {self._input};", *each_c,
            f"    {sums}[{p}][{c}] += {value} * {weights}[{c}];", "}",
        ], 1 + conditions)  # fmt: skip
        for level in reversed(range(1 + conditions)):
            inner += indented(["}"], level)
        yield from indented(inner, depth)
        for level in reversed(range(depth)):
            yield from indented(["}"], level)
        yield from self._stores(each_p, each_c, f"{sums}[{p}][{c}]", p, c, outside)

    def _stores(
        self, each_p: list[str], each_c: list[str], total: str, p: str, c: str,
        outside: Sequence[Step],
    ) -> Iterator[str]:  # fmt: skip
        """Yield what is done with each sum, at its own place."""
        body, pixel, channel = self.found.body, self._pixel, self._channel
        again = [each.text for each in body.named if each not in outside]
        index = body.coordinates[0].name
        for coordinate in body.coordinates[1:]:
            index = f"({index})" if "+" in index else index
            index = f"{index} * {coordinate.size} + {coordinate.name}"
        lines = [
            f"const {body.type} {body.index} = {index};", *again,
            f"float {body.accumulator} = {total};", *body.epilogue,
        ]  # fmt: skip
        yield from each_p
        yield from indented([
            f"const {pixel.type} {pixel.name} = {self._at(pixel, p)};", *each_c,
            f"    const {channel.type} {channel.name} = {self._at(channel, c)};",
            f"    if ({pixel.name} < {pixel.size} && {channel.name} < {channel.size}) {{",
            *indented(lines, 2), "    }", "}",
        ])  # fmt: skip
        yield "}"

    def _kept(self, steps: Iterable[Step], moved: dict[str, list[Step]]) -> list[Step]:
        """Return the steps that stay where they are; the others go to where their axis is known.

        Raises:
            NotRecognised: a loop goes over another part for each result of a thread, or what is
                read from memory would be read without its condition.
        """
        kept = []
        for step in steps:
            of_pixel = self._depends(step.text, self._pixel.name)
            of_channel = self._depends(step.text, self._channel.name)
            if step.kind == "loop" and (of_pixel or of_channel):
                raise NotRecognised("a loop is of another length for each result")
            if of_channel and (of_pixel or step.kind == "condition"):
                raise NotRecognised("what is added depends on both axes in another way")
            guarded = any(each.kind == "condition" for each in moved[self._pixel.name])
            if guarded and "[" in step.text and not of_pixel:
                raise NotRecognised("something is read under a condition of one result")
            if of_pixel or of_channel:
                moved[(self._pixel if of_pixel else self._channel).name].append(step)
            else:
                kept.append(step)
        return kept

    def _pixel_axis(self) -> Coordinate:
        """Return the axis of inputs that share a weight.

        Rather one that no loop or condition depends on, which would be asked for each product; then
        the one beside the fastest, whose rows overlap, and the fastest itself if there is none.
        """
        body = self.found.body
        asked = [each.text for each in body.steps if each.kind != "name"]
        free = [
            each for each in body.coordinates[:-1]
            if self.found.has_several(each)
            and not any(self._depends(text, each.name) for text in asked)
        ]  # fmt: skip
        beside = [each for each in body.coordinates[-2:] if each != self._channel]
        with contextlib.suppress(NotRecognised):
            return self._axis(free, [self._input], [self._weight])
        return self._axis(beside[:1] or beside, [self._input], [self._weight])

    def _axis(
        self, among: Sequence[Coordinate], reading: Sequence[str], others: Sequence[str]
    ) -> Coordinate:
        """Return the fastest axis that some factors depend on, and others do not."""
        for coordinate in reversed(among):
            name = coordinate.name
            if all(self._depends(each, name) for each in reading) and not any(
                self._depends(each, name) for each in others
            ):
                return coordinate
        raise NotRecognised("the factors have no axis along which one is used again")

    def _depends(self, text: str, name: str) -> bool:
        """Whether code depends on a name, also by what is computed of it."""
        seen, waiting = set[str](), re.findall(r"[A-Za-z_]\w*", text)
        while waiting:
            first = waiting.pop()
            if first == name:
                return True
            if first in self._reads and first not in seen:
                seen.add(first)
                waiting += re.findall(r"[A-Za-z_]\w*", self._reads[first])
        return False

    def _many(self, coordinate: Coordinate) -> str:
        return self._pixels if coordinate is self._pixel else self._channels

    def _split(self, coordinate: Coordinate) -> str:
        """Return how many threads there are along an axis."""
        if coordinate not in (self._pixel, self._channel):
            return coordinate.size
        return f"({ceiling(coordinate.size, self._many(coordinate))})"

    def _parts(self, coordinate: Coordinate) -> str:
        """Return the same as the kernel names it."""
        if coordinate not in (self._pixel, self._channel):
            return coordinate.size
        return self._fresh(f"{coordinate.name}_parts")

    def _begins(self, coordinate: Coordinate) -> str:
        return self._fresh(f"first_{coordinate.name}")

    def _at(self, coordinate: Coordinate, number: str) -> str:
        """Return the place of one of a thread's results.

        Along the fastest axis they lie apart, so that neighbouring threads have neighbours.
        """
        strided = coordinate is self._pixel and self._strided
        by = f"{number} * {self._parts(coordinate)}" if strided else number
        return f"{self._begins(coordinate)} + {by}"

    def _clamped(self, coordinate: Coordinate, number: str) -> str:
        """Return the declaration of a result's place, the last one's where it lies beyond."""
        at = self._at(coordinate, number)
        return (
            f"const {coordinate.type} {coordinate.name} = "
            f"{at} < {coordinate.size} ? {at} : {coordinate.size} - 1;"
        )

    def _fresh(self, wanted: str) -> str:
        name = wanted
        while uses(self.found.source.text, name):
            name += "_"
        return name
