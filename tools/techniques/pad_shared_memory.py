"""pad_shared_memory: longer rows of shared tiles, so that columns spread over the banks."""

from __future__ import annotations

import re

from ...harness.records.tasks import Task
from ..rewriting.records import Inapplicable, Kernels, Outcome, Parameters, Rewritten
from ..rewriting.source.constants import Constants
from ..rewriting.source.syntax import Source, descendants, text_of
from .conditions import no_conflicts
from .technique import Technique

_BANKS = 32


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="pad_shared_memory",
        moves=("-bank_conflicts",),
        description=(
            "Add one element to each row of a shared-memory tile so that a column lies in "
            "different banks."
        ),
        applies_when=(
            "Shared wavefronts exceed the ideal: a warp reads or writes a tile by columns with a "
            "row length that is a multiple of 32 words."
        ),
        avoid_when=(
            "No conflicts are reported, or rows must stay 16-byte aligned for vector or "
            "tensor-core loads (swizzle instead, or pad by 4 words)."
        ),
        side_effects="A little more shared memory.",
        notes=(
            "tile[32][33] for 4-byte elements. For 128-bit reads pad by 4 words to keep alignment."
        ),
        sources=('NVIDIA Technical Blog, "An Efficient Matrix Transpose in CUDA C/C++" (2013)',),
        change=_apply,
        unfit=no_conflicts,
    )


def _apply(source: str, task: Task, parameters: Parameters, _: Kernels) -> Outcome:
    parsed = Source(source)
    constants = Constants(parsed, task)
    padded = []
    for node in descendants(parsed.root, "declaration"):
        text = text_of(node)
        if "__shared__" not in text:
            continue
        for array in descendants(node, "array_declarator"):
            inner, size = (array.child_by_field_name(part) for part in ("declarator", "size"))
            if inner is None or size is None or inner.type != "array_declarator":
                continue
            pair = constants.pair(text_of(size))
            if pair is None or _BANKS % pair.full and pair.full % _BANKS:
                continue
            if pair.full < 8:
                continue
            # rows that are read four floats at a time stay aligned to 16 bytes
            extra = 4 if re.search(r"align(as|__)?\(16\)", text) else 1
            parsed.replace(size, f"{text_of(size)} + {extra}")
            padded.append(text_of(inner).split("[")[0])
    if not padded:
        return Inapplicable(reason="no shared array has rows of a whole number of banks")
    return Rewritten(source=parsed.result(), note=f"padded rows of {', '.join(padded)}")
