"""Runs inside the reference child: one case at full dimensions, with as little memory as it can.

Its rows differ in their distribution, so that a kernel wrong on one of them is found at the size at
which it is timed. Every page that a process touches for the first time costs more than most of the
arithmetic: nothing is copied that need not be, and the answer in double precision is left for where
it is asked for.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...records.tensors import Tolerance
from ...records.variations import Variation
from ...task.rules import NOT_COMPARED, OFFSETS, PEAKS, TOLERANCES
from ..drawing.draws import Draw, draw, redrawn
from ..drawing.orders import PIECE
from ..loading.model import Instance, Reference
from ..precision.rounding import OperationsSeen
from ..precision.steps import Steps
from ..precision.ties import hang_on_ties
from ..precision.tolerances import all_finite, tolerance_of, with_steps
from .case import Case, is_cast, write_tensor
from .distributions import seed_of

SEED = 11
"""None of the seeds of the cases at shrunken dimensions."""

OWN_ERROR_FACTOR = 32.0
"""As rules.OWN_ERROR_FACTOR, at full dimensions, where sums are longer."""

ROWS = ("large", "offset", "constant", "zeros", "uniform", "gaussian")
UNLIKE_ROWS = ("large", "gaussian", "large", "gaussian", "large", "gaussian")
"""Where an answer hangs on which of equal elements comes first."""
KINDS = 1 + len(ROWS)
EQUAL_ROWS = ("constant", "zeros")
"""Kinds of rows of which many terms are the same number."""

STRETCH = 256
"""Elements of an input that are scaled alike where an answer is a single number."""

FACTORS = (128.0, 8.0)
"""Of rows of large magnitude: the first that PyTorch survives is used."""

PARTS = ("absolute", "relative")
"""Of a tolerance, one of each kind of rows."""


class _Rows(NamedTuple):
    """What counts the rows of inputs and outputs; nothing where all are alike."""

    sizes: tuple[int, ...] = ()
    """Of axes that lead,"""
    length: int = 0
    """or of one axis wherever it stands, the only one of this length: such rows are columns."""

    def __bool__(self) -> bool:
        return any(self)

    def are_of(self, shape: Sequence[int]) -> bool:
        """Say whether a tensor has such rows."""
        if self.length:
            return list(shape).count(self.length) == 1
        return bool(self.sizes) and tuple(shape[: len(self.sizes)]) == self.sizes

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a contiguous tensor that has such rows with one leading axis that counts them."""
        if self.length:
            return tensor.movedim(tensor.shape.index(self.length), 0)
        return tensor.reshape(math.prod(self.sizes), *tensor.shape[len(self.sizes) :])

    def elements(self, shape: Sequence[int]) -> int:
        """Return how many elements that follow each other are of one row."""
        axes = list(shape).index(self.length) + 1 if self.length else len(self.sizes)
        return max(1, math.prod(shape[axes:]))


class _How(NamedTuple):
    """How the case was drawn: enough to draw it again."""

    factor: float
    """0 where all rows are of one kind."""
    distribution: str
    """Of what is no row of floating numbers: a name of draws.Draw."""
    still: bool
    alike: bool = True
    """Whether elements are equal by intent: in rows of some kinds, and in lines of others."""
    trained: bool = False
    """Whether parameters are as training may leave them, as far as they may."""
    flags: bool = True
    """Whether lines of flags may have none set, or all."""
    near_one: bool = False
    """Whether rows are of the distribution of which long products are numbers, and of no other."""

    @property
    def rows(self) -> tuple[str, ...]:
        """Distributions of rows, after one that get_inputs() gives: they take turns."""
        if self.near_one:
            return ("uniform",) * len(ROWS)
        return ROWS if self.alike else UNLIKE_ROWS


_HOW = (
    *(_How(factor, "full", False, alike) for alike in (True, False) for factor in FACTORS),
    *(_How(1.0, "full", False, alike, near_one=True) for alike in (True, False)),
    *(_How(0.0, "full", False, alike) for alike in (True, False)),
    _How(0.0, "normal", False), _How(0.0, "normal", True),
)  # fmt: skip
"""From the most demanding to the least; what holds no equal elements only where a case before hung
on them."""


def write_full_case(
    reference: Reference,
    inputs: Path,
    answers: Path,
    shapes: Sequence[Sequence[int]],
    variation: Variation,
    secret: int = 0,
) -> None:
    """Write what `launch` is given, and apart from it the answers. Raises ReferenceFault.

    `shapes` are the outputs'; what rows an input has in common with them may differ.

    answers/case.json holds {"tolerances": one of each output, "rows": what rows hold, "drawn": how
    the case was drawn, "exact": false, "seconds": of this thread, to make it}: PyTorch's own
    error is not in these tolerances yet.
    """
    began = time.thread_time()  # It takes part in all that PyTorch computes.
    hung = has_flags = mixes = False
    for how in _ways(variation):
        if how.distribution == "full" and (how.alike == hung or not how.flags and not has_flags):
            continue
        if how.factor and mixes:
            continue
        instance, rows = _draw(reference, how, shapes, variation, secret)
        has_flags = any(each.dtype is torch.bool for each in instance.inputs.values())
        if how.factor and not rows:
            continue
        # forward() may change its inputs: they are written before.
        for tensors in (instance.inputs, instance.parameters, instance.buffers):
            for name, tensor in tensors.items():
                write_tensor(inputs / f"{name}.bin", tensor)
        with OperationsSeen() as seen:
            outputs = reference.outputs(instance.model, instance.arguments)
        if all_finite(outputs):
            again = partial(_draw, reference, how, shapes, variation, secret)
            if rows.length and _mixes(reference, outputs, rows, again()[0], variation):
                mixes = True
                continue
            if not (seen.places and _hang_on_ties(reference, again()[0])):
                break
            hung = True
    for index, answer in enumerate(outputs):
        write_tensor(answers / f"out{index}.bin", answer)
    tolerances = [
        _tolerance(answer, None, rows, cast=is_cast(instance, answer)) for answer in outputs
    ]
    described = {
        "tolerances": tolerances, "rows": ("own", *(how.rows if rows else ())),
        "drawn": how, "shapes": shapes, "exact": False,
        "seconds": time.thread_time() - began,
    }  # fmt: skip
    (answers / "case.json").write_text(json.dumps(described), encoding="utf-8")


def _ways(variation: Variation) -> Iterator[_How]:
    for how in _HOW:
        if how.near_one and not variation.multiplies:
            continue
        trained = (True, False) if variation.trained and how.distribution == "full" else (False,)
        for each in trained:
            yield how._replace(trained=each)
            if how.distribution == "full" and how.alike:
                yield how._replace(trained=each, flags=False)


def _hang_on_ties(reference: Reference, instance: Instance) -> bool:
    return hang_on_ties(reference, instance.model, instance.arguments)


def widen_tolerances(
    reference: Reference, answers: Path, variation: Variation, secret: int = 0
) -> None:
    """Answer the case again in double precision, and give its tolerances room for PyTorch's error.

    Raises ReferenceFault.
    """
    described = json.loads((answers / "case.json").read_text(encoding="utf-8"))
    how, shapes = _How(*described["drawn"]), described["shapes"]
    instance, rows = _draw(reference, how, shapes, variation, secret)
    case = Case(reference, instance)
    # Rows of equal numbers are rounded alike, all others up and down.
    by_rows = bool(rows)
    unlike, is_example = case.plain(0.0 if by_rows else None, by_rows=by_rows)
    alike = unlike
    if by_rows and not is_example:
        alike, _ = case.plain(1.0, by_rows=True)
    wider = []
    for answer, exact, steps, *plain in zip(
        case.outputs, case.exact, case.steps, unlike, alike, strict=True
    ):
        exact = steps.exact if steps and exact is not None else exact
        first, second = (
            _tolerance(
                answer, exact, rows, cast=is_cast(instance, answer), plain=each,
                is_example=is_example,
            )
            for each in plain
        )  # fmt: skip
        stepped = first and _stepped(first, steps)
        wider.append(None if first is None or second is None or stepped is None else first | {
            part: [
                (second if described["rows"][kind] in EQUAL_ROWS else first)[part][kind]
                for kind in range(len(first[part]))
            ]
            for part in PARTS
        } | stepped)  # fmt: skip
    described |= {
        "tolerances": [
            new and old and new | {part: [*map(max, old[part], new[part])] for part in PARTS}
            for old, new in zip(described["tolerances"], wider, strict=True)
        ],
        "exact": True,
    }  # fmt: skip
    new = answers / f"case.json.{os.getpid()}"
    new.write_text(json.dumps(described), encoding="utf-8")
    new.replace(answers / "case.json")


def _stepped(tolerance: dict[str, Any], steps: Steps | None) -> dict[str, Any] | None:
    """Return what of a tolerance is another where elements make steps; None as `with_steps`."""
    plain = Tolerance(absolute=max(tolerance["absolute"]), relative=max(tolerance["relative"]))
    found = with_steps(plain, steps)
    if found is None:
        return None
    if found == plain:
        return {}
    if found.share:
        return {"step": found.step, "least_step": found.least_step, "share": found.share}
    return {"absolute": [found.absolute], "relative": [found.relative]}


def _draw(
    reference: Reference,
    how: _How,
    shapes: Sequence[Sequence[int]],
    variation: Variation,
    secret: int,
) -> tuple[Instance, _Rows]:
    """Return an instance, and what counts its rows."""
    seed = seed_of(SEED, secret)
    drawn = Draw(
        seed, how.distribution, still=how.still, trained=how.trained,
        lines="any" if how.alike else "unlike", flags=how.flags,
    )  # fmt: skip
    instance = draw(reference, drawn, variation)
    if not how.factor:
        if how.distribution == "full":
            if all(math.prod(shape) == 1 for shape in shapes):
                _make_unlike(reference, instance, variation, seed)
            else:
                _order_some(reference, instance, variation, drawn)
        return instance, _Rows()
    rows = _rows_of(instance, shapes, variation)
    generator = torch.Generator(reference.device).manual_seed(seed + 2000)
    factors = {"large": how.factor, "offset": OFFSETS[0], "zeros": PEAKS[how.factor < FACTORS[0]]}
    with torch.no_grad():
        for name, tensor in _mixed(instance, rows, variation).items():
            lines = rows.of(tensor)
            for kind, distribution in enumerate(how.rows, 1):
                if kind < len(lines):
                    change = drawn._replace(
                        distribution=distribution, factor=factors.get(distribution, 1.0)
                    )
                    _redraw(lines[kind::KINDS], change, variation, name, generator)
    return instance, rows


def _rows_of(
    instance: Instance, shapes: Sequence[Sequence[int]], variation: Variation
) -> _Rows:
    """Return what counts the rows that inputs have in common with outputs of these shapes."""
    # A loss beside an answer has no rows of its own.
    shapes = [shape for shape in shapes if math.prod(shape) > 1] or shapes
    may_be = [
        tensor.shape for name, tensor in instance.inputs.items()
        if _may_be_another(name, tensor, variation)
    ]  # fmt: skip
    mixed = [each for each in may_be if all(_shared_axes(each, shape) for shape in shapes)]
    if mixed:
        most = min(_shared_axes(each, shape) for each in mixed for shape in shapes)
        axes = next((n for n in range(1, most) if math.prod(mixed[0][:n]) >= KINDS), most)
        # A single row would be of get_inputs()'s kind.
        return _Rows(tuple(mixed[0][:axes])) if math.prod(mixed[0][:axes]) > 1 else _Rows()
    for length in shapes[0]:
        columns = _Rows(length=length)
        shared = all(map(columns.are_of, shapes)) and any(map(columns.are_of, may_be))
        if shared and length >= KINDS:
            return columns
    return _Rows()


def _mixed(instance: Instance, rows: _Rows, variation: Variation) -> dict[str, torch.Tensor]:
    """Return the inputs whose rows may be of several kinds."""
    return {
        name: tensor for name, tensor in instance.inputs.items()
        if rows.are_of(tensor.shape) and _may_be_another(name, tensor, variation)
    }  # fmt: skip


def _mixes(
    reference: Reference, outputs: Sequence[torch.Tensor], rows: _Rows, instance: Instance,
    variation: Variation,
) -> bool:  # fmt: skip
    """Say whether an output's columns hang on others of the inputs: then none may be by itself.

    `instance` is the one that was answered by `outputs`, again.
    """
    with torch.no_grad():
        for tensor in _mixed(instance, rows, variation).values():
            rows.of(tensor)[::KINDS].mul_(2)
    others = reference.outputs(instance.model, instance.arguments)
    return not all(
        torch.equal(rows.of(answer)[kind::KINDS], rows.of(other)[kind::KINDS])
        for answer, other in zip(outputs, others, strict=True) if rows.are_of(answer.shape)
        for kind in range(1, KINDS)
    )  # fmt: skip


def _redraw(
    part: torch.Tensor, change: Draw, variation: Variation, name: str, generator: torch.Generator,
    *, apart: bool = True,
) -> None:  # fmt: skip
    """Draw a part of an input anew, in place; the zeros of one that is sparse stay."""
    sparse = part == 0 if _is_sparse(part) else None
    part.copy_(redrawn(part, change, variation, name, generator, apart=apart))
    if sparse is not None:
        part.masked_fill_(sparse, 0)


def _order_some(
    reference: Reference, instance: Instance, variation: Variation, drawn: Draw
) -> None:
    """Put columns in order, one in four, of inputs that have no rows in common with an output.

    They stay between the ends of get_inputs()'s own numbers; one more in four is of both signs, and
    as large as these. Of a single row it is a quarter.
    """
    generator = torch.Generator(reference.device).manual_seed(drawn.seed + 4000)
    with torch.no_grad():
        for name, tensor in instance.inputs.items():
            if _may_be_another(name, tensor, variation) and tensor.dim():
                quarter = len(tensor) // 4
                ordered, signed = (
                    tensor[..., at::4] if tensor.dim() > 1
                    else tensor[at * quarter : (at + 1) * quarter] for at in (1, 2)
                )  # fmt: skip
                size = _rms(tensor)
                tame = drawn._replace(
                    distribution="large" if tensor.dim() > 1 else "gaussian", tame=True
                )
                free = drawn._replace(
                    distribution="gaussian", factor=size if 0 < size < math.inf else 1.0
                )
                for part, change in ((ordered, tame), (signed, free)):
                    if part.numel():
                        _redraw(part, change, variation, name, generator, apart=False)


def _rms(tensor: torch.Tensor) -> float:
    """Return the root mean square of a contiguous tensor, a piece at a time: it may be most of the
    memory."""
    pieces = tensor.view(-1).split(PIECE)
    squares = sum(float(piece.double().square().sum()) for piece in pieces)
    return math.sqrt(squares / tensor.numel())


def _may_be_another(name: str, tensor: torch.Tensor, variation: Variation) -> bool:
    """Say whether any part of an input may be drawn anew by itself."""
    return (
        tensor.is_floating_point() and tensor.is_contiguous() and tensor.numel() > 0
        and not _has_structure(tensor) and variation.levels.get(name) in ("any", "positive")
    )  # fmt: skip


def _make_unlike(
    reference: Reference, instance: Instance, variation: Variation, seed: int
) -> None:
    """Scale stretches of the inputs of a task that answers with single numbers.

    Of terms that are all alike a part gives the same mean as the whole.
    """
    generator = torch.Generator(reference.device).manual_seed(seed + 3000)
    with torch.no_grad():
        for name, tensor in instance.inputs.items():
            if _may_be_another(name, tensor, variation):
                count = -(-tensor.numel() // STRETCH)
                sizes = torch.randn(count, generator=generator, device=reference.device).exp()
                each = sizes.repeat_interleave(STRETCH)[: tensor.numel()]
                tensor.view(-1).mul_(each.to(tensor.dtype))


def _shared_axes(shape: Sequence[int], output: Sequence[int]) -> int:
    """Return how many leading axes of an input are an output's too: its last axis is no row."""
    shared = 0
    for mine, its in zip(shape, output, strict=False):
        if mine != its:
            break
        shared += 1
    return min(shared, max(1, len(shape) - 1))


def _is_sparse(tensor: torch.Tensor) -> bool:
    """Say whether zeros of a tensor are what the task is about."""
    return float((tensor == 0).float().mean()) > 0.1


def _has_structure(tensor: torch.Tensor) -> bool:
    """Say whether symmetry is what the task is about, or zeros beside infinities."""
    if _is_sparse(tensor) and not bool(tensor.isfinite().all()):
        return True
    square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1]
    return square and bool(torch.equal(tensor, tensor.T))


def _tolerance(
    answer: torch.Tensor,
    exact: torch.Tensor | None,
    rows: _Rows,
    *,
    cast: bool,
    plain: torch.Tensor | None = None,
    is_example: bool = False,
) -> dict[str, Any] | None:
    """Return the tolerance of an output, for each kind of row; None for one that PyTorch itself
    does not meet.

    Each is as `tolerance_of` says of such rows, and no narrower than that of the rows that
    get_inputs() gives.

    Args:
        answer: PyTorch's.
        exact: the same in double precision; None where there is none, or it is not known yet.
        rows: what counts them.
        cast: the task computes in float, and the output was cast to half precision.
        plain, is_example: the same as plain sums make it; see `tolerance_of`.
    """
    has_rows = rows.are_of(answer.shape)
    row = rows.elements(answer.shape) if has_rows else max(1, answer.numel())
    if TOLERANCES.get(str(answer.dtype).removeprefix("torch.")) is None or not answer.numel():
        return {"absolute": [0.0], "relative": [0.0], "row": row}

    def lines(each: torch.Tensor | None) -> torch.Tensor | None:
        return None if each is None else rows.of(each) if has_rows else each.unsqueeze(0)

    values, precise, added = lines(answer), lines(exact), lines(plain)
    assert values is not None
    kinds = min(KINDS, len(values))
    found = [
        tolerance_of(
            values[kind::kinds], None if precise is None else precise[kind::kinds],
            None if added is None else added[kind::kinds], scale="both", cast=cast,
            factor=OWN_ERROR_FACTOR, is_example=is_example,
        )
        for kind in range(kinds)
    ]  # fmt: skip
    if not any(found):
        return None
    least = found[0].absolute if found[0] is not None else 0.0
    return {
        "absolute": [NOT_COMPARED if each is None else max(least, each.absolute) for each in found],
        "relative": [0.0 if each is None else each.relative for each in found],
        "row": row,
        "rows": rows.length if has_rows else 0,
    }
