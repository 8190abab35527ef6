"""skip_masked_work: tiles that a mask or a triangle leaves empty are not computed."""

from __future__ import annotations

from .conditions import computes
from .operators import ATTENTION, MASKS
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="skip_masked_work",
        description=(
            "Leave out tiles and loop iterations whose result is known to be zero or masked: the "
            "other half of a triangle, the future of a causal mask, padding."
        ),
        applies_when=(
            "Triangular factors or results, causal attention, tril, triu, diagonal and banded "
            "structure that the reference's operations themselves make."
        ),
        avoid_when="The zeros are only in the values of inputs: those differ in every check.",
        side_effects="Unequal work for blocks: hand out long tiles first or pair long with short.",
        notes=(
            "Bound the K loop by the tile's own rows and columns (for lower times lower: k from "
            "column to row), return early after writing zeros where a tile is empty (outputs hold "
            "poison before), mask inside tiles on the diagonal only. A diagonal factor is a "
            "scaling of rows, not a product."
        ),
        sources=(
            'Charara, Ltaief and Keyes, "Redesigning Triangular Dense Matrix Computations on '
            'GPUs" (Euro-Par 2016)',
        ),
        conditions=(computes(*MASKS, *ATTENTION),),
    )
