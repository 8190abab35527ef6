"""What came of one technique, in arrays: how much a row counts depends on its origin."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...harness.records import Outcome
from ..records import Evidence
from .facts import Fact

NOISE_SCALE = 0.1
"""Standard error of a log speedup at which its weight is halved."""


class Origin(NamedTuple):
    """All of a row that says how much it counts elsewhere."""

    state: str
    op_class: str
    dtype: str
    harness: str
    arch: str
    family: str
    signature: tuple[float, ...] = ()
    """Only where nobody knows the state."""


class Tries(NamedTuple):
    """What came of one technique as of one sequence number, each fact once."""

    origins: list[Origin]
    """Each once; the arrays of counts go by them."""
    failed: NDArray[np.int64]
    not_applicable: NDArray[np.int64]
    slower: NDArray[np.int64]
    """How many of those that passed lost time."""
    facts: list[Fact]
    """Those that passed; the next four are theirs, in the same order."""
    passed: list[Evidence]
    under: NDArray[np.int64]
    """Index of the origin."""
    log_gains: NDArray[np.float64]
    precisions: NDArray[np.float64]
    """1 for a gain without noise, less the noisier it was."""
    tuned: list[tuple[int, str, Evidence]]
    """Passed or failed with parameters: index of the origin, name of the setting, row."""


def tries_of(facts: Iterable[Fact], at: int, states: Container[str]) -> Tries:
    """Return what facts about a technique say as of a sequence number; `states` are the known."""
    numbers: dict[Origin, int] = {}
    failed: list[int] = []
    not_applicable: list[int] = []
    slower: list[int] = []
    kept: list[Fact] = []
    passed: list[Evidence] = []
    under: list[int] = []
    tuned: list[tuple[int, str, Evidence]] = []
    for fact in facts:
        row = fact.row(at)
        if not row.outcome.is_verdict:
            continue
        like = Origin(
            row.state_before,
            row.op_class,
            row.dtype,
            row.harness,
            row.arch,
            row.family,
            () if row.state_before in states else row.signature_before,
        )
        number = numbers.setdefault(like, len(numbers))
        if row.outcome is Outcome.NOT_APPLICABLE:
            not_applicable.append(number)
            continue
        if row.log_gain is None:
            failed.append(number)
        else:
            kept.append(fact)
            passed.append(row)
            under.append(number)
            if row.log_gain < 0.0:
                slower.append(number)
        if row.parameters:
            tuned.append((number, str(sorted(row.parameters.items())), row))
    return Tries(
        origins=list(numbers),
        failed=_counts(failed, len(numbers)),
        not_applicable=_counts(not_applicable, len(numbers)),
        slower=_counts(slower, len(numbers)),
        facts=kept,
        passed=passed,
        under=np.array(under, dtype=np.int64),
        log_gains=np.array([row.log_gain for row in passed], dtype=np.float64),
        precisions=np.array(
            [1.0 / (1.0 + (row.standard_error / NOISE_SCALE) ** 2) for row in passed],
            dtype=np.float64,
        ),
        tuned=tuned,
    )


def _counts(numbers: list[int], length: int) -> NDArray[np.int64]:
    return np.bincount(np.array(numbers, dtype=np.int64), minlength=length)
