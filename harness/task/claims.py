"""An input on which somebody claims a kernel to be wrong: typed, bounded, built from its words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from ..records.identity import sha256_of
from ..records.record import Record
from ..records.tasks import Task
from ..records.tensors import TensorSpec
from ..records.variations import Beyond, Level
from .rules import LARGEST_CLAIMED, LEVELS

MOST_TENSORS, MOST_PLACES = 16, 16
WIDEST = 8.0
"""Deviations of a normal distribution that must stay within LARGEST_CLAIMED."""


NOT_AN_INPUT = "not_an_input"
"""Fact of a pass on a claimed input that is none of the task's: why."""


class Place(Record):
    """Elements of a tensor that hold one value."""

    index: tuple[int | None, ...] = Field(max_length=8)
    """One number an axis, counted from 0; null: all along it."""
    value: float
    """What they hold."""


class Fill(Record):
    """What one tensor of a claimed input holds."""

    tensor: str
    """Its name in the signature of launch."""
    kind: Literal["own", "normal", "uniform", "constant"]
    """own: as get_inputs() and the model have it; normal: mean and deviation; uniform: low and
    high; constant: the value."""
    first: float = 0.0
    """The mean, the low end, or the value."""
    second: float = 1.0
    """The deviation, or the high end."""
    places: tuple[Place, ...] = Field(default=(), max_length=MOST_PLACES)
    """Elements that hold something else."""

    def __str__(self) -> str:
        holds = {
            "own": "its own values",
            "normal": f"normal around {self.first:g}, deviation {self.second:g}",
            "uniform": f"uniform in [{self.first:g}, {self.second:g})",
            "constant": f"{self.first:g} everywhere",
        }[self.kind]
        places = [
            f"{place.value:g} at [{', '.join(':' if i is None else str(i) for i in place.index)}]"
            for place in self.places
        ]
        return f"{self.tensor}: {holds}{''.join(f', {words}' for words in places)}"


class ClaimedInput(Record):
    """An input of a task; tensors that are not named hold their own values."""

    tensors: tuple[Fill, ...] = Field(min_length=1, max_length=MOST_TENSORS)
    """What each of those named holds."""

    @property
    def id(self) -> str:
        """What tells it from others: the same claim is the same input."""
        return sha256_of(self.model_dump_json())[:12]

    def __str__(self) -> str:
        return "; ".join(map(str, self.tensors))


class NotAnInput(ValueError):
    """A claimed input is none that the task's rules allow: one sentence says why."""


def require_claimable(task: Task, claim: ClaimedInput) -> None:
    """Check a claim against the rules, as far as can be said without PyTorch.

    Raises:
        NotAnInput: a tensor is unknown or may not hold that.
    """
    known = {
        tensor.name: tensor
        for tensor in task.verify.of_role("input", "parameter", "buffer")
        if not tensor.constant
    }
    for fill in claim.tensors:
        if fill.tensor not in known:
            raise NotAnInput(f"{fill.tensor[:60]} is none of {', '.join(known) or 'no tensors'}")
        level = task.variation.levels.get(fill.tensor, "any")
        _require_fill(known[fill.tensor], level, fill, task.variation.beyond(fill.tensor))


def _require_fill(
    tensor: TensorSpec, level: Level, fill: Fill, beyond: Sequence[Beyond]
) -> None:
    name = fill.tensor
    if level in ("own", "order", "scaled") and (fill.kind != "own" or fill.places):
        raise NotAnInput(f"{name} cannot be chosen: {LEVELS[level]}")
    values = [place.value for place in fill.places]
    if fill.kind == "normal":
        reach = WIDEST * abs(fill.second)
        values += [fill.first - reach, fill.first + reach] if level == "any" else [fill.first]
    elif fill.kind != "own":
        values += [fill.first, fill.second] if fill.kind == "uniform" else [fill.first]
    for value in values:
        if not math.isfinite(value) or abs(value) > LARGEST_CLAIMED:
            raise NotAnInput(
                f"{name}: {value:g} is outside of what inputs hold (finite, at most "
                f"{LARGEST_CLAIMED:g} in size)"
            )
        is_beyond = any(low <= value <= high for low, high, _ in beyond)
        if level in ("positive", "below") and value < 0 and not is_beyond:
            raise NotAnInput(f"{name}: {value:g}, but {LEVELS[level]}")
    if fill.kind == "uniform" and fill.first >= fill.second:
        raise NotAnInput(f"{name}: uniform from {fill.first:g} to {fill.second:g} is empty")
    for place in fill.places:
        fits = len(place.index) == len(tensor.shape) and all(
            at is None or 0 <= at < size
            for at, size in zip(place.index, tensor.shape, strict=False)
        )
        if not fits:
            raise NotAnInput(
                f"{name}: no place {list(place.index)} in its smaller shape {list(tensor.shape)}"
            )
