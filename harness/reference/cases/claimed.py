"""Runs inside the reference child: a claimed input built, with PyTorch's answers to it."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from ...records.parts import slices_of
from ...records.tensors import Tolerance
from ...records.variations import Level, Variation
from ...task.claims import ClaimedInput, Fill, NotAnInput
from ..drawing.draws import Draw, draw
from ..drawing.structure import structure_of, structured
from ..loading.model import Instance, Reference
from ..precision.tolerances import Scale
from .case import Case, forms
from .distributions import Usual, described_case

LARGE = 8.0
"""Size of a value from which a claimed input is judged as one of large inputs."""


def write_claimed(
    reference: Reference, directory: Path, variation: Variation, claim: ClaimedInput
) -> None:
    """Write a claimed input as the one case of a folder, as `write_cases` writes them.

    Raises NotAnInput where the rules do not allow it or PyTorch does not survive it,
    ReferenceFault.
    """
    case, tolerances = claimed_case(reference, variation, claim)
    described = described_case(case, tolerances, directory / "0") | {
        "name": f"claimed-{claim.id}",
        "inputs": str(claim),
        "factor": 1.0,
    }
    document = {
        "cases": [described], "constants": [], "degenerate": "", "weak_to": "",
        "torch": torch.__version__,
    }  # fmt: skip
    (directory / "cases.json").write_text(json.dumps(document, indent=1), encoding="utf-8")


def claimed_case(
    reference: Reference, variation: Variation, claim: ClaimedInput
) -> tuple[Case, tuple[Tolerance | None, ...]]:
    """Return the case of a claimed input, and what its outputs may differ by.

    Raises NotAnInput, ReferenceFault.
    """
    first = Case(reference, draw(reference, Draw(0, "normal"), variation))
    usual = Usual(False, first.finite, forms(first.outputs))
    case = Case(reference, claimed_instance(reference, variation, claim))
    if not usual.is_met_by(case):
        raise NotAnInput("PyTorch's own answer to it is not finite, or has another shape")
    tolerances = case.tolerances(scale_of_claim(claim))
    if all(each is None for each in tolerances):
        raise NotAnInput("PyTorch itself is not precise enough there for anything to be compared")
    return case, tolerances


def scale_of_claim(claim: ClaimedInput) -> Scale:
    """Return which way tolerances follow a claimed input's answers; see distributions.scale_of."""
    sizes = (
        abs(value)
        for fill in claim.tensors
        for value in (
            *((fill.first, fill.second) if fill.kind != "own" else ()),
            *(place.value for place in fill.places),
        )
    )
    return "up" if max(sizes, default=0.0) >= LARGE else "both"


def claimed_instance(
    reference: Reference, variation: Variation, claim: ClaimedInput
) -> Instance:
    """Return a model and inputs that hold what is claimed, the same each time.

    Raises NotAnInput, ReferenceFault.
    """
    instance = draw(reference, Draw(1, "normal"), variation)
    generator = torch.Generator(reference.device).manual_seed(1)
    given = instance.inputs | instance.parameters | instance.buffers
    with torch.no_grad():
        for fill in claim.tensors:
            if fill.tensor not in given:
                raise NotAnInput(f"the task has no {fill.tensor}")
            own = given[fill.tensor]
            value = _filled(own, fill, generator)
            _require_allowed(fill.tensor, own, value, variation)
            if own.is_floating_point():
                value = structured(value, own, fill.tensor, variation)
            own.copy_(value.to(own.dtype))
    return instance


def _filled(own: torch.Tensor, fill: Fill, generator: torch.Generator) -> torch.Tensor:
    shape, device = tuple(own.shape), generator.device
    if fill.kind == "own":
        value = own.double()
    elif fill.kind == "constant":
        value = torch.full(shape, fill.first, dtype=torch.float64, device=device)
    elif fill.kind == "normal":
        noise = torch.randn(shape, generator=generator, dtype=torch.float64, device=device)
        value = fill.first + fill.second * noise
    else:
        even = torch.rand(shape, generator=generator, dtype=torch.float64, device=device)
        value = fill.first + (fill.second - fill.first) * even
    value = value.clone()
    for place in fill.places:
        where = tuple(slice(None) if at is None else at for at in place.index)
        try:
            value[where] = place.value
        except IndexError as error:
            raise NotAnInput(f"{fill.tensor}: {error}") from error
    return value if own.is_floating_point() else value.floor()


def _require_allowed(
    name: str, own: torch.Tensor, value: torch.Tensor, variation: Variation
) -> None:
    """Refuse what a tensor of this level never holds in a case, but for stretches `beyond` it."""
    if torch.equal(value, own.double()):
        return
    level: Level = variation.levels.get(name, "own")
    if level in ("own", "order", "scaled"):
        raise NotAnInput(f"{name} cannot be chosen")
    allowed = torch.zeros_like(value, dtype=torch.bool)
    for low, high, part in variation.beyond(name):
        there = slices_of(part, value.shape)
        allowed[there] |= (value[there] >= low) & (value[there] <= high)
    usual = value[~allowed]
    if not usual.numel():
        return
    low, high = float(usual.min()), float(usual.max())
    if level == "positive" and low < 0:
        raise NotAnInput(f"{name} holds no negative values")
    if level == "range" and (low < float(own.min()) or high > float(own.max())):
        raise NotAnInput(f"{name} stays within {float(own.min()):g} and {float(own.max()):g}")
    if own.is_floating_point():
        return
    if own.dtype is torch.bool:
        if low < 0 or high > 1:
            raise NotAnInput(f"{name} holds flags: 0 or 1")
        return
    if level == "below" and (low < min(0, int(own.min())) or high > int(own.max())):
        raise NotAnInput(f"{name} stays within 0 and {int(own.max())}")
    if structure_of(own, name, variation).any:
        raise NotAnInput(f"{name} holds integers in an order that is part of the task")
