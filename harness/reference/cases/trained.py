"""Which parameters may be as training may leave them, of any size and sign? Tried on the CPU.

All are, where forward() survives it with numbers that still tell one input from another and are as
exact as before; else what the seed does not choose and buffers, as far as it survives these (a
variance stays positive), and its matrices: biases may drown what a deep chain of layers is given.
"""

from __future__ import annotations

import copy

import torch

from ...records.variations import Level, Variation
from ..drawing.draws import Draw, Survives, draw, read_only_of
from ..loading.model import Reference, ReferenceFault, clone_arguments
from ..precision.tolerances import root_mean_square
from .case import Case, fresh

MOST_TRIES = 16
"""Sets of parameters that are tried."""
TELLS = 3e-4
"""Times the root mean square of an answer: elements that differ by more say what they were given.
"""
TELLING_SIZE = 0.01
"""The same of all elements together, where they all tell."""
LEAST_TELLING = 0.5
"""Of the share of elements that tell with the file's parameters, and of what they tell by: as much
has to with others."""


def with_trained(reference: Reference, variation: Variation, survives: Survives) -> Variation:
    """Return what may vary, with the parameters and buffers that may be as if trained."""
    instance = read_only_of(reference.instance(0), variation)
    kept = instance.parameters | {
        name: each for name, each in instance.buffers.items()
        if name not in variation.constants and name not in variation.updated
    }  # fmt: skip
    sizes = {name: each.numel() for name, each in kept.items() if each.is_floating_point()}
    if not sizes:
        return variation
    trial = _Trial(reference, variation, survives, [n for n, size in sizes.items() if size == 1])
    whole = trial.with_levels(dict.fromkeys(sizes, "any"))
    if trial.is_good(whole):
        return whole
    fixed = [name for name in sizes if name in variation.fixed]
    buffers = [name for name in sizes if name in instance.buffers]
    matrices = [
        name for name in sizes
        if name not in variation.fixed and name not in buffers and kept[name].squeeze().dim() > 1
    ]  # fmt: skip
    found = _most(trial, [each for each in (buffers, fixed) if each])
    more = trial.with_levels(found | dict.fromkeys(matrices, "any"))
    return more if matrices and trial.is_good(more) else trial.with_levels(found)


def _most(trial: _Trial, parts: list[list[str]]) -> dict[str, Level]:
    """Return levels of as many as a few tries find, the last part first."""
    taken: dict[str, Level] = {}
    tries = 0
    while parts and tries < MOST_TRIES:
        part = parts.pop()
        for level in ("any", "positive") if len(part) == 1 else ("any",):
            tries += 1
            more = taken | dict.fromkeys(part, level)
            if trial.is_good(trial.with_levels(more)):
                taken = more
                break
        else:
            half = len(part) // 2
            parts += [part[half:], part[:half]] if half else []
    return taken


class _Trial:
    def __init__(
        self, reference: Reference, variation: Variation, survives: Survives, alone: list[str]
    ) -> None:
        self._reference, self._variation = reference, variation
        self._survives, self._alone = survives, alone
        self._usual: list[tuple[float, float]] | None = None

    def with_levels(self, levels: dict[str, Level]) -> Variation:
        alone = tuple(name for name in self._alone if name in levels)
        return self._variation.model_copy(update={"trained": levels, "alone": alone})

    def is_good(self, variation: Variation) -> bool:
        """Say whether forward() survives such parameters and its answers tell as much as before."""
        draws = [Draw(1, "gaussian", trained=True, lines="unlike")]
        if variation.alone:
            draws.append(Draw(2, "zeros", trained=True, lines="unlike"))
        if not self._survives(variation, draws):
            return False
        try:
            if self._usual is None:
                self._usual = self._telling(self._variation, trained=False)
            found = self._telling(variation, trained=True)
        except (ReferenceFault, RuntimeError):
            return False
        pairs = zip(found, self._usual, strict=True)
        return all(
            share >= LEAST_TELLING * usual and size >= min(TELLING_SIZE, LEAST_TELLING * usual_size)
            for (share, size), (usual, usual_size) in pairs
        )

    def _telling(self, variation: Variation, *, trained: bool) -> list[tuple[float, float]]:
        """Return the share of each answer's elements that are others for other inputs, and how far
        they are, relative to the answer; less than nothing where answers are not exact."""
        how = Draw(1, "gaussian", trained=trained, lines="unlike")
        one, other = (
            draw(self._reference, how._replace(seed=seed), variation) for seed in (1, 2)
        )
        case = Case(self._reference, one)
        answers = self._reference.outputs(
            copy.deepcopy(case.model), clone_arguments(other.arguments, fresh)
        )
        if trained and not case.is_precise:
            return [(-1.0, -1.0)] * len(answers)
        return [*map(_differing, case.outputs, answers)]


def _differing(one: torch.Tensor, other: torch.Tensor) -> tuple[float, float]:
    if not one.numel() or one.shape != other.shape:
        return 0.0, 0.0
    if not one.is_floating_point():
        return float((one != other).float().mean()), 1.0
    off, size = (one.double() - other.double()).abs(), root_mean_square(one)
    share = float((off > TELLS * size).float().mean())
    return share, root_mean_square(off) / size if size else 0.0
