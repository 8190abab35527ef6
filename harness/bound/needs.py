"""What of each value the outputs depend on: a lower bound, from the outputs back to the inputs.

What is needed of a value is held as a box: so many places along each dimension, each with all of
the others. Where a part is needed that is no box, the box is smaller than it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from .boxes import Box, broadcast, covered, larger, permuted, reshaped
from .flow import MOVES, PARTS, SPLITS, Flow, Operation
from .windows import convolution_of, pool_axes

LOOKUPS = frozenset({
    "embedding", "index", "gather", "index_select", "take", "take_along_dim", "grid_sampler",
    "grid_sampler_2d", "grid_sampler_3d", "embedding_bag",
})  # fmt: skip
"""Operators that read of their first argument what the data say."""
_FILLS = frozenset({
    "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full",
    "new_empty", "rand_like", "randn_like",
})  # fmt: skip
_JOINS = frozenset({
    "cat", "stack", "pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "written_over", "scatter",
    "index_put", "index_copy", "masked_scatter",
})  # fmt: skip
"""Operators whose result holds their arguments beside or over one another."""
_ALONG = {"softmax": 1, "log_softmax": 1, "sort": 1, "topk": 2, "glu": 1, "normalize": 2}
"""Operators whose results need all of a dimension, and the place of the argument that names it."""
_PRODUCTS = {"mm": 0, "bmm": 0, "matmul": 0, "addmm": 1, "baddbmm": 1}
_KEEPS_HOLES = MOVES | PARTS | frozenset({
    "mul", "div", "add", "sub", "rsub", "neg", "exp", "tanh", "relu", "gelu", "getitem", "clamp",
    "tril", "triu", "masked_fill", "where",
})  # fmt: skip
"""Operators that read, for an element of their result, no more than one of an argument."""
_KEEPS_ZEROS = MOVES | PARTS | frozenset({"softmax", "exp", "relu", "mul", "div"})


class Needs:
    """What of each value is needed.

    `filled` holds the share of a box that is needed where a triangle or a mask leaves holes in it,
    `nonzero` the share of a value that structure leaves, `unknown` what depends on data, in words.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._boxes: dict[str, Box] = {}
        self._parts: dict[str, list[tuple[int, range, Box]]] = {}
        self.filled: dict[str, Fraction] = {}
        self.unknown: dict[str, None] = {}
        self.nonzero = _structures(flow)
        for name in flow.outputs:
            self._boxes[name] = flow.shapes[name]
        for operation in reversed(flow.operations):
            box = self.box(operation.name)
            if box is None:
                continue
            share = self.filled.get(operation.name, Fraction(1))
            if operation.op not in _KEEPS_HOLES:
                share = Fraction(1)  # Of each row something is needed, and that reads all of it.
            for name, wanted, left in self._demanded(operation, box):
                self._add(name, wanted, share * left)

    def box(self, name: str) -> Box | None:
        """Return how many places along each dimension of a value are needed; None where none is."""
        shape = self._flow.shapes[name]
        best = self._boxes.get(name)
        together: dict[int, list[range]] = {}
        for dimension, places, box in self._parts.get(name, ()):
            best = larger(best, box)
            if box == (*shape[:dimension], len(places), *shape[dimension + 1 :]):
                together.setdefault(dimension, []).append(places)
        for dimension, parts in together.items():
            total = covered(parts)
            best = larger(best, (*shape[:dimension], total, *shape[dimension + 1 :]))
        return best

    def count(self, name: str) -> int:
        """Return how many elements of a value are needed at least."""
        box = self.box(name)
        return 0 if box is None else math.ceil(math.prod(box) * self.filled.get(name, Fraction(1)))

    def reach(self, name: str, dimension: int) -> tuple[int, int]:
        """Return from where to where a value is needed along a dimension."""
        parts = [part for part in self._parts.get(name, ()) if part[0] == dimension]
        if name in self._boxes or not parts:
            return 0, self._flow.shapes[name][dimension]
        ends = [(places[0], places[-1] + 1) for _, places, _ in parts]
        return min(start for start, _ in ends), max(stop for _, stop in ends)

    def _add(self, name: str, box: Sequence[int], share: Fraction) -> None:
        shape = self._flow.shapes[name]
        wanted = tuple(max(0, min(n, size)) for n, size in zip(box, shape, strict=True))
        if not all(wanted):
            return
        before = self._boxes.get(name)
        self._boxes[name] = larger(before, wanted)
        least = self.filled.get(name, Fraction(1)) if before is not None else Fraction(0)
        self.filled[name] = max(least, share)

    def _demanded(
        self, operation: Operation, box: Box
    ) -> Iterator[tuple[str, Sequence[int], Fraction]]:
        """Yield what the box of a result needs of each argument: a box, and how full it is."""
        flow, op, given = self._flow, operation.op, operation.values
        whole = Fraction(1)
        if op in _FILLS or op in SPLITS or not given:
            return  # Of what is split, those who take a part have said so.
        first = given[0]
        if op == "getitem":
            yield from self._of_several(operation, box)
        elif op in PARTS:
            dimension, places = _part(operation, flow)
            inner = box
            if op == "select":
                inner = (*box[:dimension], 1, *box[dimension:])
            self._parts.setdefault(first, []).append((dimension, places, inner))
            share = self.filled.get(operation.name, whole)
            self.filled[first] = max(self.filled.get(first, Fraction(0)), share)
        elif op in _JOINS:
            yield from ((name, joined, whole) for name, joined in self._joined(operation, box))
        elif op in ("tril", "triu"):
            rows = sorted(count for count in _triangle(operation, flow) if count)
            fewest = rows[: box[-2]]  # Whichever rows they are.
            side = (len(fewest), min(box[-1], max(rows, default=0)))
            held = sum(fewest) if box[-1] == flow.shapes[first][-1] else 1
            yield first, (*box[:-2], *side), Fraction(held, max(1, math.prod(side)))
        elif op in ("masked_fill", "where"):
            # Of a row that a mask leaves nothing of nobody asks: one element of each at least.
            mask = given[1] if op == "masked_fill" else first
            self.unknown[f"{operation.name}: which elements its mask leaves"] = None
            for name in given:
                kept = whole if name == mask else Fraction(1, flow.shapes[operation.name][-1])
                yield name, broadcast(box, flow.shapes[name]), kept
        elif op in LOOKUPS:
            self.unknown[f"{operation.name}: which elements its indices name"] = None
            for name in given[1:]:
                yield name, self._alike(operation, name, box), whole
            yield first, [1] * len(flow.shapes[first]), whole
        elif op in _ALONG and flow.shapes[first][operation.argument(_ALONG[op], "dim", -1)] == 1:
            return  # 1, or 0, whatever it is given.
        else:
            for name, wanted in self._read(operation, box):
                yield name, wanted, whole

    def _read(self, operation: Operation, box: Box) -> Iterator[tuple[str, Sequence[int]]]:
        flow, op, given = self._flow, operation.op, operation.values
        shapes = [flow.shapes[name] for name in given]
        first = given[0]
        if op in _PRODUCTS and all(len(shape) > 1 for shape in shapes):
            place = _PRODUCTS[op]
            left, right = shapes[place], shapes[place + 1]
            met = [self._met(given[place + k], left[-1], -1 - k) for k in (0, 1)]
            rows, columns = (*box[:-1], met[1]), (*box[:-2], met[0], box[-1])
            yield given[place], broadcast(rows, left)
            yield given[place + 1], broadcast(columns, right)
            for name in given[:place]:
                yield name, broadcast(box, flow.shapes[name])
        elif op == "linear":
            yield first, (*box[:-1], shapes[0][-1])
            yield given[1], (box[-1], *shapes[1][1:])
            for name in given[2:]:
                yield name, box[-1:]
        elif op == "einsum" and "..." not in str(operation.args[0]):
            yield from _by_letters(operation, flow, box)
        elif op == "scaled_dot_product_attention":
            yield first, (*box[:-1], shapes[0][-1])
            yield given[1], (*box[:-2], *shapes[1][-2:])
            yield given[2], (*box[:-2], shapes[2][-2], box[-1])
            for name in given[3:]:
                yield name, [1] * len(flow.shapes[name])
        elif (convolution := convolution_of(operation, flow)) is not None:
            rank = len(convolution.axes)
            outer, inner = box[: -rank - 1], zip(convolution.axes, box[-rank:], strict=True)
            slid = [axis.met(n) if convolution.transposed else axis.read(n) for axis, n in inner]
            channels = convolution.channels_read(box[-rank - 1])
            yield first, (*outer, channels, *slid)
            weight = shapes[1]
            made = min(weight[1], box[-rank - 1]) if convolution.transposed else box[-rank - 1]
            side = (channels, made) if convolution.transposed else (made, weight[1])
            yield given[1], (*side, *weight[2:])
            for name in given[2:]:
                yield name, (box[-rank - 1],)
        elif (axes := pool_axes(operation, flow)) is not None:
            rank = len(axes)
            wanted = [axis.read(n) for axis, n in zip(axes, box[-rank:], strict=True)]
            yield first, (*box[:-rank], *wanted)
        elif re.fullmatch(r"lstm|gru|rnn_tanh|rnn_relu", op):
            for name in given:
                yield name, flow.shapes[name]
        else:
            for name in given:
                yield name, self._alike(operation, name, box)

    def _met(self, name: str, size: int, side: int) -> int:
        """Return how many places of a summed dimension a factor is not zero at, at least."""
        maker = self._flow.by_name.get(name)
        if maker is not None and maker.op in ("tril", "triu"):
            rows = [count for count in _triangle(maker, self._flow) if count]
            return max(rows, default=0) if side == -1 else len(rows)
        return math.ceil(size * (self.nonzero.get(name) or 1))

    def _alike(self, operation: Operation, name: str, box: Box) -> Sequence[int]:
        """Return what of an argument is needed by an operator that goes element by element, along
        a dimension, or from one shape to another."""
        flow = self._flow
        shape, made = flow.shapes[name], flow.shapes[operation.name]
        if box == made:
            return shape
        op = operation.op
        if op in ("permute", "transpose", "t", "numpy_T", "mT", "swapaxes"):
            return permuted(operation, box)
        if op in ("movedim", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle"):
            return [1] * len(shape)
        if op in MOVES and math.prod(shape) == math.prod(made):
            return reshaped(shape, made, box)
        if op in _ALONG:
            dimension = operation.argument(_ALONG[op], "dim", -1) % len(shape)
            return (*box[:dimension], shape[dimension], *box[dimension + 1 :])
        if op in ("layer_norm", "native_layer_norm", "rms_norm") and name == operation.values[0]:
            outer = len(shape) - len(operation.args[1])
            return (*box[:outer], *shape[outer:])
        if op in ("batch_norm", "instance_norm", "group_norm") and name == operation.values[0]:
            if op == "batch_norm" and not operation.argument(5, "training", False):
                return box
            rest = shape[2:]
            return (shape[0] if op == "batch_norm" else box[0], box[1], *rest)
        if len(shape) == len(made):  # A dimension that is summed has one place in the result.
            return [
                n if size == its else size if its == 1 else min(1, n)
                for n, size, its in zip(box, shape, made, strict=True)
            ]
        if len(shape) < len(made):
            return broadcast(box, shape)
        summed = operation.argument(1, "dim")
        dimensions = {d % len(shape) for d in (summed if isinstance(summed, tuple) else (summed,))
                      if isinstance(d, int)}  # fmt: skip
        if len(shape) - len(dimensions) != len(made):
            return [1] * len(shape)
        kept = iter(box)
        return [size if d in dimensions else next(kept) for d, size in enumerate(shape)]

    def _joined(self, operation: Operation, box: Box) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield what is needed of values side by side, less what may lie elsewhere or beneath."""
        flow, made = self._flow, self._flow.shapes[operation.name]
        for name in operation.values:
            shape = flow.shapes[name]
            if operation.op == "stack":
                dimension = operation.argument(1, "dim", 0) % len(made)
                if box[dimension] == made[dimension]:
                    yield name, (*box[:dimension], *box[dimension + 1 :])
            elif len(shape) == len(made):
                yield name, [
                    max(0, n - (its - min(size, its)))
                    for n, size, its in zip(box, shape, made, strict=True)
                ]

    def _of_several(
        self, item: Operation, box: Box
    ) -> Iterator[tuple[str, Sequence[int], Fraction]]:
        """Yield what an element of several results needs of what made them."""
        flow = self._flow
        source, index = item.values[0], item.args[1]
        maker = flow.by_name.get(source)
        if maker is None:
            return
        if maker.op in SPLITS:
            whole = maker.values[0]
            dimension = _dimension(maker, flow.shapes[whole])
            places = _places(maker, flow.shapes[whole][dimension], index)
            if maker.op == "unbind":
                box = (*box[:dimension], 1, *box[dimension:])
            self._parts.setdefault(whole, []).append((dimension, places, box))
            share = self.filled.get(item.name, Fraction(1))
            self.filled[whole] = max(self.filled.get(whole, Fraction(0)), share)
        elif flow.shapes[source] == flow.shapes[item.name]:
            yield source, box, Fraction(1)
        else:
            shape, full = flow.shapes[source], box == flow.shapes[item.name]
            yield source, shape if full else [1] * len(shape), Fraction(1)


def _by_letters(
    operation: Operation, flow: Flow, box: Box
) -> Iterator[tuple[str, Sequence[int]]]:
    left, _, right = str(operation.args[0]).replace(" ", "").partition("->")
    wanted = dict(zip(right, box, strict=True))
    for letters, name in zip(left.split(","), operation.values, strict=True):
        shape = flow.shapes[name]
        yield name, [wanted.get(letter, size) for letter, size in zip(letters, shape, strict=True)]


def _dimension(operation: Operation, shape: tuple[int, ...]) -> int:
    place = 1 if operation.op in ("unbind", *PARTS) else 2
    found: int = operation.argument(place, "dim", 0)
    return found % max(len(shape), 1)


def _places(split: Operation, size: int, index: int) -> range:
    """Return the places along its dimension of one part of what is split."""
    if split.op == "unbind":
        return range(index, index + 1)
    sizes: Any = split.args[1]
    if isinstance(sizes, tuple):
        start = sum(sizes[:index])
        return range(start, start + sizes[index])
    step = -(-size // sizes) if split.op in ("chunk", "tensor_split") else sizes
    return range(index * step, min(size, (index + 1) * step))


def _part(operation: Operation, flow: Flow) -> tuple[int, range]:
    """Return which part of its argument an operator takes: the dimension, and places along it."""
    shape = flow.shapes[operation.values[0]]
    dimension = _dimension(operation, shape)
    size = shape[dimension]
    if operation.op == "select":
        index = operation.argument(2, "index", 0) % size
        return dimension, range(index, index + 1)
    if operation.op == "narrow":
        start = operation.args[2] % size
        return dimension, range(start, start + operation.args[3])
    wanted = [operation.argument(2 + k, name) for k, name in enumerate(("start", "end", "step"))]
    return dimension, range(size)[slice(*wanted)]


def _triangle(operation: Operation, flow: Flow) -> list[int]:
    """Return how many elements tril or triu leave of each row."""
    *_, rows, columns = flow.shapes[operation.name]
    diagonal = operation.argument(1, "diagonal", 0)
    if operation.op == "tril":
        return [min(columns, max(0, row + diagonal + 1)) for row in range(rows)]
    return [columns - min(columns, max(0, row + diagonal)) for row in range(rows)]


def _structures(flow: Flow) -> dict[str, Fraction]:
    """Return the share of each value that is not zero whatever the inputs: of triangles, diagonals
    and masks. 0 where the program does not show what a mask holds."""
    found: dict[str, Fraction] = {}
    for each in flow.operations:
        given = each.values
        known = [found[name] for name in given if name in found]
        if each.op in ("tril", "triu"):
            columns = flow.shapes[each.name][-1]
            rows = _triangle(each, flow)
            found[each.name] = Fraction(sum(rows), len(rows) * columns)
        elif each.op in ("diag", "diag_embed") and len(flow.shapes[each.name]) >= 2:
            found[each.name] = Fraction(1, flow.shapes[each.name][-1])
        elif known and each.op in ("logical_not", "bitwise_not"):
            found[each.name] = 1 - known[0]
        elif each.op == "masked_fill" and given[1] not in flow.varying:
            found[each.name] = 1 - found.get(given[1], Fraction(1))
        elif each.op == "where" and given[0] not in flow.varying and len(given) < 3:
            found[each.name] = Fraction(0)
        elif known and each.op in _KEEPS_ZEROS:
            found[each.name] = min(known)
    return found
