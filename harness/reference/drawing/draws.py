"""What the tensors of a case hold: every value varies that forward() lets vary.

How far (`Variation.levels`), the freest first that forward() survives (exploration.py):

    floating inputs     any; positive; range: from the smallest to the largest of its own
    integer inputs      any: all bits of the type; below: from 0 to its largest; range; order
    boolean inputs      any; some: one in ten is another; order
    parameters that the seed does not choose    any: noise is added; scaled: multiplied by noise,
        and in some cases all parameters are drawn anew, as if trained (trained.py)

and, where none is survived, own: as get_inputs() and the model have them. Buffers that do not
depend on the seed are constants of the task and stay. Of an input's structure is kept what the task
may be about: matrices that are triangular or symmetric, integers that are sorted or all different.
Lines of three distributions are put in order (orders.py), and among the exact zeros of one lie the
numbers that forward() compares its inputs with (borders.py); there, and at full dimensions,
integers hold what forward() names beyond their level (cases/named.py), and what stays within a
range the ends of what forward() accepts (cases/ends.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import torch

from ...judge.tensor_comparison import parts
from ...records.parts import Part, slices_of
from ...records.variations import Level, Variation
from ..loading.model import Instance, Reference
from .borders import (
    FROM,
    NAMED_FROM,
    NAMED_SHARE,
    RARE_SHARE,
    SHARE,
    beside,
    put_borders,
    put_each_once,
    put_ends,
    put_past,
)
from .orders import (
    EVEN,
    EVEN_POSITIVE,
    NORMAL,
    ORDERED,
    PIECE,
    POSITIVE,
    Order,
    level_lines,
    pad_lines,
    put_flags_in_order,
    put_in_order,
)
from .peaks import add_peaks
from .structure import FREE, Structure, ends_of, stays_sorted, structure_of, structured, whole_ends
from .trained import retrain

LADDERS: dict[str, tuple[Level, ...]] = {
    "float": ("any", "positive", "range"),
    "integer": ("any", "below", "range", "order"),
    "boolean": ("any", "some", "order"),
    "parameter": ("any", "scaled"),
}
"""Levels of each kind of tensor, the freest first."""

CONSTANTS = tuple(each * (1 + 2.0**-8) for each in (-1.25, 0.5, 2.0, 0.75))
"""Of the first input, the second and so on: with all below zero it shows that a maximum is begun
with zero. Sums of thousands of them are exact in single precision, and no bfloat16 holds one."""

NOISE = 0.25
"""Of a parameter's root mean square: how much it is disturbed."""

FLAGS_OF_A_LINE = {"uniform": "last", "zeros": "none", "offset": "first"}
"""What is set of flags that are a single line, by the distribution; of "constant" all are."""

NEAR_ONE = 2.0
"""How far numbers lie from one whose product is asked for, over the root of their number: such
products are between a thirtieth and thirty."""

TIMED_SPAN = 16
"""One in this many elements of a timed input is of another distribution than get_inputs()'s: where
its own values alone tell nothing (a loss of random numbers is the same each time), they do."""

LEAST_SHARE = 2.0**-6
"""Of integers of all bits, which are the least of their type."""

CROWDED = 16
"""Of numbers in order all but one step lie within this part of their span, where one is long."""

BY_BORDERS = ("zeros", "full")
"""Distributions in which even numbers tell where a border lies."""

UNDEFINED_FROM, UNDEFINED_SHARE = 0.75, 2.0**-5
"""As borders.FROM and borders.SHARE, of what is no number."""



class Draw(NamedTuple):
    """How a case is chosen: enough to choose it again."""

    seed: int
    distribution: str
    """Of the inputs: a name of rules.CASES, "timed", or "full": floating numbers that the seed
    chooses stay as they are."""
    factor: float = 1.0
    """By which floating inputs are scaled, or moved away from zero; of "zeros", as large as a peak
    among them is at most, where that is more than 1."""
    tame: bool = False
    """Whether no value leaves the range of get_inputs()'s own."""
    still: bool = False
    """Whether parameters that the seed does not choose stay as they are."""
    trained: bool = False
    """Whether parameters are drawn anew as far as `Variation.trained` says: of "zeros" only those
    that are one number."""
    flags: bool = False
    """Whether lines of "full" flags may have none set, or all."""
    lines: Literal["any", "unlike", "drawn"] = "any"
    """How lines are put in order: "unlike" ones hold no equal elements by intent, and some flag
    that is set; "drawn" ones are as each element by itself makes them."""


Survives = Callable[[Variation, Sequence[Draw]], bool]
"""Says whether forward() survives draws of what may vary."""


def draw(reference: Reference, how: Draw, variation: Variation) -> Instance:
    """Return the model and the inputs of a case, the same each time. Raises ReferenceFault."""
    instance = read_only_of(reference.instance(how.seed), variation)
    generator = torch.Generator(reference.device).manual_seed(how.seed + 1000)
    if not how.still:
        with torch.no_grad():
            for name in variation.fixed:
                if name in instance.parameters:
                    disturb(instance.parameters[name], variation.levels[name], generator)
            if how.trained:
                _retrain(instance, how, variation, generator)
    if how.distribution != "normal":
        change = _Inputs(how, variation, generator)
        for name, tensor in instance.inputs.items():
            tensor.copy_(change(name, tensor))
    return instance


def _retrain(
    instance: Instance, how: Draw, variation: Variation, generator: torch.Generator
) -> None:
    kept = instance.parameters | instance.buffers
    for name, level in variation.trained.items():
        if name in kept and (how.distribution != "zeros" or name in variation.alone):
            drawn = name not in variation.fixed
            own = kept[name].detach().clone()
            retrain(kept[name], level, how.distribution, generator, drawn=drawn)
            kept[name].copy_(structured(kept[name], own, name, variation))


def read_only_of(instance: Instance, variation: Variation) -> Instance:
    """Return an instance without the parameters and buffers that no output depends on."""
    if not variation.unread:
        return instance
    return replace(
        instance,
        parameters=_without(instance.parameters, variation.unread),
        buffers=_without(instance.buffers, variation.unread),
    )


def _without(
    tensors: dict[str, torch.Tensor], names: tuple[str, ...]
) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name not in names}


def redrawn(
    own: torch.Tensor,
    how: Draw,
    variation: Variation,
    name: str,
    generator: torch.Generator,
    *,
    apart: bool = True,
) -> torch.Tensor:
    """Return new values of a draw's distribution for a part of an input, of rows that lie `apart`
    or not."""
    return _Inputs(how, variation, generator, apart=apart)(name, own)


def kind_of(tensor: torch.Tensor, parameter: bool = False) -> str:
    """Return the ladder of a tensor."""
    if tensor.is_floating_point():
        return "parameter" if parameter else "float"
    return "boolean" if tensor.dtype is torch.bool else "integer"


def disturb(tensor: torch.Tensor, level: Level, generator: torch.Generator) -> None:
    """Change the finite elements of a tensor in place by noise, integers and flags as inputs."""
    if level == "own":
        return
    shape, device = tuple(tensor.shape), generator.device
    if not tensor.is_floating_point() or level == "order":
        structure = structure_of(tensor, "", Variation())
        tensor.copy_(_discrete(tensor, level, generator, structure))
        return
    noise = torch.randn(shape, generator=generator, device=device) * NOISE
    if level == "scaled":
        changed = tensor.double() * (1 + noise.abs().double())
    else:
        finite = torch.where(tensor.isfinite(), tensor.double(), 0.0)
        size = float(finite.square().mean().sqrt())
        changed = tensor.double() + noise.double() * (size or 1.0)
    tensor.copy_(changed.to(tensor.dtype))


class _Inputs:
    """Draws new values for one input after another; keeps the structure of the old."""

    def __init__(
        self, how: Draw, variation: Variation, generator: torch.Generator, *, apart: bool = False
    ) -> None:
        self.how = how
        self.variation = variation
        self.generator = generator
        self.apart = apart
        self.drawn = 0

    def __call__(self, name: str, own: torch.Tensor) -> torch.Tensor:
        level: Level = self.variation.levels.get(name, "own")
        if level == "own":
            return own
        fixed = name in self.variation.fixed
        if own.is_floating_point() and self.how.distribution == "full" and not fixed:
            ends = self.variation.ends.get(name, ())
            kept = stays_sorted(own, name, self.variation)
            if ends and own.is_contiguous() and not kept:
                put_ends(own, ends, self.generator)
            return own
        if own.is_floating_point():
            value = self._floating(name, own, "range" if self.how.tame else level)
            return self._with_infinities(structured(value, own, name, self.variation), own)
        if self.how.tame:
            within = level in ("any", "below", "range") and own.dtype is not torch.bool
            level = "range" if within else "order"
        return self._discrete(name, own, level, fixed)

    def _with_infinities(self, value: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return values with infinities where lines of flags are set, as in a mask that is added.

        In one case, of an input that has infinities of one sign; elsewhere none are drawn.
        """
        if self.how.distribution != "gaussian" or self.how.tame or self.how.lines == "drawn":
            return value
        infinite = own.isinf()
        if not infinite.any() or own[infinite].unique().numel() > 1:
            return value
        flags = _discrete(infinite, "any", self.generator)
        put_flags_in_order(flags, Order("gaussian", alike=False), self.generator)
        return value.masked_fill(flags, float(own[infinite][0]))

    def _floating(self, name: str, own: torch.Tensor, level: Level) -> torch.Tensor:
        shape, device = tuple(own.shape), self.generator.device
        distribution, factor = self.how.distribution, self.how.factor
        if distribution == "timed":
            return self._mixed(own, level)
        even = torch.rand(shape, generator=self.generator, device=device)
        order, positive = self._order(), level == "positive"
        if level == "range":
            low, high = ends_of(own)
            if order:
                put_in_order(even, EVEN, order, self.generator)
            # Borders are put by what is left of the even numbers.
            spread = even.clone() if distribution in BY_BORDERS else even
            value = spread.mul_(high - low).add_(low)
            if distribution == "constant" and value.numel():
                value = value.flatten()[0].expand(shape)
        elif distribution == "uniform" and self.variation.multiplies:
            width = NEAR_ONE / math.sqrt(max(shape, default=1))
            value = even.mul_(2 * width).add_(1 - width)
        elif distribution == "uniform":
            # Of magnitudes the numbers from 0 to 1 are as even as those from -1.
            if order:
                put_in_order(even, EVEN_POSITIVE if positive else EVEN, order, self.generator)
            value = even if positive else even.mul_(2).sub_(1)
            value *= self.variation.uniform_width
        elif distribution == "constant":
            value = torch.full(shape, CONSTANTS[self.drawn % len(CONSTANTS)], device=device)
            if self.variation.guarded and not self.apart:
                value.zero_()
        else:
            if distribution not in BY_BORDERS:
                del even
            noise = torch.randn(shape, generator=self.generator, device=device)
            if distribution == "zeros":
                for part, numbers in zip(parts(noise), parts(even), strict=True):
                    part.mul_(numbers < 0.5)
                value = noise
                if factor > 1.0:
                    add_peaks(value, factor, self.generator)
            else:
                if positive:
                    noise.abs_()
                if order:
                    put_in_order(noise, POSITIVE if positive else NORMAL, order, self.generator)
                if distribution == "large" and own.dim() > 1 and not positive:
                    # One sample lies far below zero: what begins a maximum with zero shows.
                    noise[-1] = -1 - noise[-1].abs()
                if distribution == "offset" and self.variation.guarded and not self.apart:
                    factor = factor if positive else -factor  # Nothing else is so as a whole.
                value = noise.add_(factor) if distribution == "offset" else noise.mul_(factor)
        self.drawn += 1
        value = (value.abs_() if positive else value).to(own.dtype)
        if distribution == "zeros" and self.variation.borders:
            found = beside(self.variation.borders, own.dtype)
            if level != "any":
                low, high = (0.0, torch.inf) if positive else (low, high)
                found = [each for each in found if low <= each <= high]
            put_borders(value, found, even)
        if distribution in ("zeros", "full") and level == "range":
            ends = self.variation.ends.get(name, ())
            put_borders(value, ends, even, (NAMED_FROM, RARE_SHARE))
        if distribution == "zeros" and level != "range":
            odd = [float(each) for each in self.variation.undefined.get(name, ())]
            odd = [each for each in odd if not (positive and each < 0)]
            if odd:
                self._put_undefined(name, value, odd, even)
        padded = distribution == "zeros" and level != "range" and not self.apart
        if padded and self.how.lines == "any" and value.numel():
            pad_lines(value)
        return value

    def _put_undefined(
        self, name: str, value: torch.Tensor, odd: Sequence[float], even: torch.Tensor
    ) -> None:
        """Put what is no number into an input, of several such ones where no other has any.

        `even`, numbers from 0 to 1 that nothing else is told by any more, is changed.
        """
        turns = list(self.variation.undefined)
        for turn, other in enumerate(turns):
            if other != name:
                even.view(-1)[turn :: len(turns)] = 0.0
        put_borders(value, odd, even, (UNDEFINED_FROM, UNDEFINED_SHARE))

    def _order(self) -> Order | None:
        """Return how lines are put in order; None where they are drawn element by element."""
        distribution = self.how.distribution
        if distribution not in ORDERED or self.how.lines == "drawn":
            return None
        alike = self.how.lines == "any" and distribution != "large"
        return Order("rows" if self.apart and distribution == "large" else distribution, alike)

    def _mixed(self, own: torch.Tensor, level: Level) -> torch.Tensor:
        """Return the tensor's own values, a span of them of another distribution."""
        flat = own.clone().reshape(-1)
        count = -(-flat.numel() // TIMED_SPAN)
        begin = self._number(flat.numel() - count + 1)
        span = flat[begin : begin + count]
        noise = torch.randn(count, generator=self.generator, device=flat.device)
        if level == "range":
            low, high = ends_of(own)
            span.copy_(low + (noise * 0.5).sigmoid() * (high - low))
        else:
            size = float(span.double().square().mean().sqrt())
            noise *= 2.0 ** self._number(4) / 2 * (size if 0 < size < torch.inf else 1.0)
            span.copy_(noise.abs() if level == "positive" else noise)
        return flat.reshape(own.shape)

    def _discrete(
        self, name: str, own: torch.Tensor, level: Level, fixed: bool
    ) -> torch.Tensor:
        distribution = self.how.distribution
        if distribution == "full":
            distribution = "offset"
        structure = structure_of(own, name, self.variation)
        if distribution == "timed":
            # What the seed varies is varied enough; the time of an index hangs on its range.
            narrow = _narrow(own, level)
            return _discrete(own, narrow, self.generator, structure) if fixed else own
        if own.dtype is torch.bool:
            all_set = distribution == "constant" and level == "any"
            value = torch.ones_like(own) if all_set else _discrete(own, level, self.generator)
            if level == "any" and own.squeeze().dim() < 2:
                self._set_in_a_line(value.view(-1))
            elif level == "any" and self.how.distribution in ("gaussian", "full"):
                if self.how.lines != "drawn":
                    every = self.how.distribution != "full" or self.how.flags
                    alike = self.how.lines == "any" and every
                    put_flags_in_order(value, Order("gaussian", alike), self.generator)
            return value
        if level == "any" and distribution not in ("large", "offset"):
            level = "below"
        kept = level == "order" or structure.any
        if (order := self._order()) and level != "any" and not kept:
            return self._whole_in_order(own, level, replace(order, level=order.alike))
        value = _discrete(own, level, self.generator, structure)
        if kept:
            in_range = level in ("below", "range") and not structure.differs
            if distribution == "large" and in_range:
                self._crowd(value)
            once = dict(self._named(name))
            if distribution == "zeros" and level == "below" and not structure.rises:
                once[()] = [*once.get((), ()), *self._whole_borders(own, level)]
            if any(once.values()) and self.how.distribution in ("zeros", "full"):
                value, even = value.contiguous(), self._even(own)
                for part, numbers in once.items():
                    there = slices_of(part, own.shape)
                    put_each_once(value[there], numbers, even[there])
            return value
        if level == "any" and self.variation.least and own.dtype.is_signed:
            value.masked_fill_(self._even(own) < LEAST_SHARE, torch.iinfo(own.dtype).min)
        if distribution == "constant":
            return own.flatten()[self._number(own.numel())].expand(own.shape).clone()
        if distribution == "zeros" and level == "below":
            value = value * (self._even(own) < 0.5)
        if distribution == "offset" and level == "any":
            value = torch.where(self._even(own) < 0.5, value, own)
        if distribution == "offset" and self.how.lines == "any" and own.numel():
            value = value.contiguous()
            level_lines(value, int(own.max()), self.generator)
        if self.how.distribution not in ("zeros", "full"):
            return value
        rare = self.how.distribution == "full"
        borders = self._whole_borders(own, level) if level in ("below", "range") else []
        if borders:
            put_borders(value, borders, self._even(own), (FROM, RARE_SHARE if rare else SHARE))
        if named := self._named(name):
            span, even = (NAMED_FROM, RARE_SHARE if rare else NAMED_SHARE), self._even(own)
            for part, numbers in named.items():
                there = slices_of(part, own.shape)
                put_borders(value[there], numbers, even[there], span)
            put_past(value, self.variation.past.get(name, ()), self.generator)
        return value

    def _named(self, name: str) -> dict[Part, list[int]]:
        """Return the integers that forward() names of an input, by the part where alone they are.
        """
        if self.how.tame:
            return {}
        parts, found = self.variation.parts.get(name, {}), dict[Part, list[int]]()
        for number in self.variation.named.get(name, ()):
            found.setdefault(parts.get(number, ()), []).append(number)
        return found

    def _whole_borders(self, own: torch.Tensor, level: Level) -> list[int]:
        """Return the whole numbers that forward() compares with, and those beside them."""
        low, high = whole_ends(own, level)
        return sorted({
            near for each, _ in self.variation.borders if each == int(each)
            for near in (int(each) - 1, int(each), int(each) + 1) if low <= near <= high
        })  # fmt: skip

    def _set_in_a_line(self, flags: torch.Tensor) -> None:
        """Have flags that are a single line be none, the first or the last, each in a case."""
        kind = FLAGS_OF_A_LINE.get(self.how.distribution)
        if self.how.lines == "drawn" or kind is None or not len(flags):
            return
        if kind == "none" and self.how.lines != "any":
            return
        flags.zero_()
        length = 1 + self._number(max(1, len(flags) - 1))
        if kind == "first":
            flags[:length] = True
        elif kind == "last":
            flags[len(flags) - length :] = True

    def _crowd(self, value: torch.Tensor) -> None:
        """Have one step of integers in order be most of their span, in place."""
        low, high = value[..., :1].clone(), value[..., -1:].clone()
        behind = torch.arange(value.shape[-1], device=value.device)
        before = behind <= self._number(value.shape[-1] - 1)
        near_low = low + (value - low).div(CROWDED, rounding_mode="floor")
        near_high = high - (high - value).div(CROWDED, rounding_mode="floor")
        value.copy_(torch.where(before, near_low, near_high))
        value[..., :1], value[..., -1:] = low, high

    def _whole_in_order(self, own: torch.Tensor, level: Level, order: Order) -> torch.Tensor:
        """Return integers whose lines are in order."""
        low, high = whole_ends(own, level)
        even = self._even(own)
        put_in_order(even, EVEN, order, self.generator)
        value = torch.empty_like(own, memory_format=torch.contiguous_format)
        pieces = zip(value.view(-1).split(PIECE), even.view(-1).split(PIECE), strict=True)
        for piece, share in pieces:
            steps = share.double().mul_(high - low + 1).floor_().clamp_(max=high - low)
            piece.copy_(steps.to(torch.int64).add_(low))
        return value

    def _even(self, own: torch.Tensor) -> torch.Tensor:
        return torch.rand(tuple(own.shape), generator=self.generator, device=own.device)

    def _number(self, below: int) -> int:
        device = self.generator.device
        return int(torch.randint(below, (), generator=self.generator, device=device))


def _discrete(
    own: torch.Tensor, level: Level, generator: torch.Generator, structure: Structure = FREE
) -> torch.Tensor:
    """Return integers or flags that are as free as the level says, in the structure of the old."""
    shape, device = tuple(own.shape), own.device
    even = torch.rand(shape, generator=generator, device=device)
    if level == "order":
        return own.flatten()[even.flatten().argsort()].reshape(shape)
    if own.dtype is torch.bool:
        if level == "some":
            return own ^ (even < 0.1)
        return even < float(own.double().mean().clamp(0.2, 0.8))
    if level == "any":
        bits = torch.randint(0, 256, (own.numel() * own.element_size(),), dtype=torch.uint8,
                             generator=generator, device=device)  # fmt: skip
        value = bits.view(own.dtype).reshape(shape)
        return value.sort(dim=-1).values if structure.rises else value
    if structure.differs:
        return own.gather(-1, even.argsort(dim=-1))
    low, high = whole_ends(own, level)
    value = torch.randint(low, high + 1, shape, generator=generator, device=device)
    value = value.to(own.dtype)
    if structure.rises:  # The ends of offsets into something stay.
        value[..., 0], value[..., -1] = own[..., 0], own[..., -1]
        value = value.sort(dim=-1).values
    return value


def _narrow(own: torch.Tensor, level: Level) -> Level:
    """Return the level at which the time of a kernel hardly hangs on the values."""
    if level == "order":
        return "order"
    return "some" if own.dtype is torch.bool else "range"
