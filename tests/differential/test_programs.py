"""Random kernels on the C core and on the reference: results and counters equal.

DIFFERENTIAL_EXAMPLES=5000 runs that many, each time others; without it the same few every time.
"""

from __future__ import annotations

import os

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from differential.comparing import run_both
from differential.random_kernels import COUNTERS, SLOT, kernels
from kernelblaster.harness.simt.ptx.parser import parse

_ASKED = int(os.environ.get("DIFFERENTIAL_EXAMPLES", "0"))
_WORDS = 8192


def input_words(seed: int) -> NDArray[np.uint32]:
    """Return integers, and from byte 16384 on f32 numbers with awkward ones among them."""
    random = np.random.default_rng(seed)
    words = random.integers(0, 1 << 32, _WORDS, np.uint32)
    small = random.random(_WORDS) < 0.3
    words[small] &= 15
    numbers = (random.standard_normal(_WORDS) * 2.0 ** random.integers(-3, 12, _WORDS)).astype("f4")
    odd = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-39, 3.4e38, 1, -1], np.float32)
    chosen = random.random(_WORDS) < 0.2
    numbers[chosen] = random.choice(odd, int(chosen.sum()))
    words[4096:] = numbers[4096:].view(np.uint32)
    return words


def same_output(ours: NDArray[np.uint8], theirs: NDArray[np.uint8]) -> bool:
    """Compare bit for bit, but for the payloads of NaNs in the floating-point columns."""
    if not np.array_equal(ours[: 4 * COUNTERS], theirs[: 4 * COUNTERS]):
        return False
    x, y = (a[4 * COUNTERS :].reshape(-1, SLOT) for a in (ours, theirs))
    columns = (("f4", 32, 52), ("f2", 52, 58), ("f8", 64, 88))
    rest = np.ones(SLOT, bool)
    for kind, start, end in columns:
        rest[start:end] = False
        p, q = (np.ascontiguousarray(a[:, start:end]) for a in (x, y))
        bits = f"u{kind[1]}"
        nan = np.isnan(p.view(kind)) & np.isnan(q.view(kind))
        if not np.array_equal(np.where(nan, 0, p.view(bits)), np.where(nan, 0, q.view(bits))):
            return False
    return np.array_equal(x[:, rest], y[:, rest])


@settings(
    max_examples=_ASKED or 50, derandomize=not _ASKED, database=None, deadline=None,
    suppress_health_check=list(HealthCheck), print_blob=True,
)  # fmt: skip
@given(kernels(), st.integers(1, 2), st.integers(0, 9), st.sampled_from((0, 1, 2)))
def test_random_kernels(kernel: tuple[str, int], blocks: int, data: int, seed: int) -> None:
    text, threads = kernel
    output = np.zeros(4 * COUNTERS + SLOT * threads * blocks, np.uint8)
    both = run_both(
        parse(text), "k", blocks, threads, [input_words(data), output], seed=seed
    )
    assert not both.reports()
    found = [line for line in both.differing_counters() if seed == 0 or "first warp" not in line]
    assert not found, "\n".join(found)
    assert same_output(both.core_arrays[1], both.reference_arrays[1])
