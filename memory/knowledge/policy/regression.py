"""Log gains of actions from the tries nearest to each: a Gaussian process, many cases at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FAILURE_COST = 0.05
"""What a try that fails costs, in log speedup: about what a small step would have gained."""

SHARED, SHARED_CLASS, LOCAL, TASK = 0.045, 0.03, 0.105, 0.03
"""Variances of log gains of one technique: what all tries share, those on one class of operation,
kernels with like profiles, and the effect of a task."""
BEFORE = SHARED + SHARED_CLASS + LOCAL + TASK
"""Variance before any try."""
NOISE = 0.003
"""Variance of a log gain that nothing of the context says."""
ONE_TRY = TASK + NOISE
"""Variance of what a task's tries say together of another: simulated ones of a measured kernel are
worth no more than one such, however many they are."""
UNHEARD = 1e6
"""Variance of what is not to count."""
PRIOR_SHARE = 0.5
"""Of what was believed without evidence, what is expected as long as nothing near was tried."""
REPEATED = 0.25
"""How far a first use speaks for a repetition, and back."""
OTHER_CLASS, OTHER_DTYPE, OTHER_WRITER, OTHER_GPU, OTHER_FAMILY = 0.5, 0.7, 0.6, 0.95, 0.85
"""How far kernels speak for one another that are alike but for this."""
DIGITS = 9
"""After the point, of a forecast."""
NEAREST = 32
"""Tries of a technique that a question is answered by."""
CONTRARY = 0.3
"""Difference of two log gains under like circumstances from which the later doubts the earlier."""

OF_TASK, OF_CLASS, OF_DTYPE, OF_GPU, OF_FAMILY, OF_HARNESS, OF_KIND, OF_WRITER, OF_REPEATED = range(
    9
)
"""Where each code of a try stands."""
ANY = -1
"""Code of a harness that nobody named."""

_FOREIGN = tuple(
    (code, float(np.log(factor)))
    for code, factor in (
        (OF_CLASS, OTHER_CLASS), (OF_DTYPE, OTHER_DTYPE), (OF_GPU, OTHER_GPU),
        (OF_FAMILY, OTHER_FAMILY), (OF_WRITER, OTHER_WRITER),
    )
)  # fmt: skip


class Case(NamedTuple):
    """What is asked of one technique on one launch, and the tries that it is answered by."""

    rows: NDArray[np.float32]
    """Of each question, what distances are taken of."""
    codes: NDArray[np.int32]
    """Of each question, what is alike or not."""
    near_rows: NDArray[np.float32]
    """The same of the tries, the earliest made first; at most `NEAREST`."""
    near_codes: NDArray[np.int32]
    told: NDArray[np.float64]
    """Of the tries: log gain (NaN where it failed), its standard error."""
    refuted: NDArray[np.bool_]
    """Of the tries, whether it counts no more."""


class Gain(NamedTuple):
    """What is expected of the questions of a case, before what was believed without evidence."""

    means: NDArray[np.float64]
    variances: NDArray[np.float64]
    tries: float
    """That passed."""


def gains(cases: Sequence[Case]) -> list[Gain]:
    """Return what to expect in each case; what else is asked about changes nothing."""
    if not cases:
        return []
    many = len(cases)
    most = max(len(case.rows) for case in cases)
    width = cases[0].rows.shape[1]
    here, marks = np.zeros((many, most, width)), np.zeros((many, most, 9), np.int32)
    # Always as many: how long an array is moves the last digits of sums.
    near, codes = np.zeros((many, NEAREST, width)), np.zeros((many, NEAREST, 9), np.int32)
    told, there = np.zeros((many, NEAREST, 2)), np.zeros((many, NEAREST), np.bool_)
    refuted = np.zeros((many, NEAREST), np.bool_)
    for place, case in enumerate(cases):
        asked, count = len(case.rows), len(case.near_rows)
        here[place, :asked], marks[place, :asked] = case.rows, case.codes
        near[place, :count], codes[place, :count] = case.near_rows, case.near_codes
        told[place, :count], refuted[place, :count] = case.told, case.refuted
        there[place, :count] = True
    among, alike = _covariance(near, codes, near, codes)
    across, _ = _covariance(here, marks, near, codes)
    both = there[:, :, None] & there[:, None, :]
    failed = np.isnan(told[:, :, 0])
    values = np.where(failed, 0.0, told[:, :, 0])
    noise = NOISE + told[:, :, 1] ** 2
    noise += _doubts(np.where(both, alike, 0.0), np.where(failed, -FAILURE_COST, values))
    foreign = foreign_to(codes, marks[:, :1]) & there
    worth = foreign.sum(axis=1, keepdims=True) * ONE_TRY
    noise = np.where(foreign, np.maximum(noise, worth), noise)
    noise[failed | refuted] = UNHEARD
    # Where there is no try stands one that has to do with none.
    among, across = np.where(both, among, 0.0), np.where(there[:, None, :], across, 0.0)
    among[:, range(NEAREST), range(NEAREST)] += np.where(there, noise, 1.0)
    right = np.concatenate([values[:, :, None], across.transpose(0, 2, 1)], axis=2)
    solved = np.linalg.solve(among, right)
    known = (across * solved[:, :, 1:].transpose(0, 2, 1)).sum(axis=2)
    variances = np.maximum(BEFORE - known, 1e-6)
    means = (across @ solved[:, :, :1])[:, :, 0]
    passed = (there & ~failed).sum(axis=1)
    return [
        Gain(means[place, : len(case.rows)], variances[place, : len(case.rows)],
             float(passed[place]))
        for place, case in enumerate(cases)
    ]  # fmt: skip


def with_priors(
    means: NDArray[np.float64], variances: NDArray[np.float64], priors: NDArray[np.float64]
) -> tuple[list[float], list[float]]:
    """Return means and spreads of log gains, what is believed without evidence taken in."""
    joined = means + PRIOR_SHARE * variances / BEFORE * priors
    spreads = np.sqrt(variances + NOISE)
    # How an array lies in memory moves the last digits of sums; a run and its repeat must not
    # differ by them.
    return joined.round(DIGITS).tolist(), spreads.round(DIGITS).tolist()


def foreign_to(codes: NDArray[np.int32], mark: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Say which tries were measured otherwise than what is asked about: on the other kind of
    device, or by another harness where one is named."""
    harness = mark[..., OF_HARNESS]
    other = (codes[..., OF_HARNESS] != harness) & (harness != ANY)
    found: NDArray[np.bool_] = (codes[..., OF_KIND] != mark[..., OF_KIND]) | other
    return found


def _covariance(
    x: NDArray[np.float64], c: NDArray[np.int32], y: NDArray[np.float64], d: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the covariances of log gains of two lots of tries of each case, and how alike the
    kernels are."""
    squares = (x * x).sum(axis=2)[:, :, None] + (y * y).sum(axis=2)[:, None, :]
    squares -= 2.0 * (x @ y.transpose(0, 2, 1))

    first, second = (np.ascontiguousarray(np.moveaxis(codes, 2, 0)) for codes in (c, d))

    def differs(code: int) -> NDArray[np.bool_]:
        apart: NDArray[np.bool_] = first[code, :, :, None] != second[code, :, None, :]
        return apart

    logarithm = -0.5 * np.maximum(squares, 0.0)
    for code, factor in _FOREIGN:
        logarithm += factor * differs(code)
    alike = np.exp(logarithm)
    shared = SHARED + SHARED_CLASS + TASK + LOCAL * alike
    shared -= SHARED_CLASS * differs(OF_CLASS) + TASK * differs(OF_TASK)
    other = differs(OF_REPEATED)
    shared[other] *= REPEATED
    alike[other] *= REPEATED
    return shared, alike


def _doubts(alike: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the noise that later, contrary results under like circumstances add to each try.

    A later failure is contrary to a gain too. Tries are in order of arrival.
    """
    apart = (values[:, :, None] - values[:, None, :]) / CONTRARY
    doubts = np.triu(alike, 1) * np.maximum(apart * apart - 1.0, 0.0)
    noise: NDArray[np.float64] = NOISE * doubts.sum(axis=2)
    return noise
