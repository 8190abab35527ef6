"""pad_shared_memory: longer rows of shared tiles, so that columns spread over the banks."""

from __future__ import annotations

import re

from ...harness.records import Task
from ..rewriting.constants import Constants
from ..rewriting.records import Inapplicable, Outcome, Parameters, Rewritten
from ..rewriting.rewrite import Rewrite
from ..rewriting.syntax import Source, descendants, text_of

_BANKS = 32


def rewrite() -> Rewrite:
    """Return the technique."""
    return Rewrite("pad_shared_memory", _apply)


def _apply(source: str, task: Task, parameters: Parameters) -> Outcome:
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
            extra = 4 if re.search(r"align\w*\(16\)", text) else 1
            parsed.replace(size, f"{text_of(size)} + {extra}")
            padded.append(text_of(inner).split("[")[0])
    if not padded:
        return Inapplicable(reason="no shared array has rows of a whole number of banks")
    return Rewritten(source=parsed.result(), note=f"padded rows of {', '.join(padded)}")
