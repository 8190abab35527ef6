"""What is known of a kernel at hand, and conditions on it that several techniques share.

A condition returns in a few words why a technique cannot act, None where nothing says so. For
prompts alone: it shortens what a model reads. What may be tried is the proposal table's matter.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...harness.records import Profile, Task

WITH_PRODUCTS = ("matmul", "mixed")
"""Classes of operation that tensor cores can serve."""
OVER_ROWS = ("softmax", "normalization", "reduction", "mixed")
"""Classes of operation that go over whole rows."""
APPLIED_GAIN = 1.01
"""Gain above which a technique counts as applied to a file."""
FULL_SECTOR = 31.0
"""Bytes used of the 32 of a sector from which none are wasted."""
CONSECUTIVE = 4.5
"""Sectors of a request up to which the lanes of a warp read consecutive words, or shared ones."""
SMALL_SHARED = 1024
"""Bytes of shared memory of a block below which no tiles are staged there."""


class AtHand(NamedTuple):
    """What is known of a kernel."""

    task: Task
    source: str
    profile: Profile
    applied: frozenset[str]
    """Techniques that gained on the way to it."""

    def metric(self, name: str) -> float | None:
        """Return a metric of the longest launch."""
        return self.profile.dominant.metrics.get(name)


def one_launch(at_hand: AtHand) -> str | None:
    """Return that nothing is there to be joined."""
    return "there is one launch" if len(at_hand.profile.launches) == 1 else None


def no_waste(at_hand: AtHand) -> str | None:
    """Return that global accesses use all they fetch."""
    known = 0
    for kind in ("ld", "st"):
        operation = f"mem_global_op_{kind}.ratio"
        used = at_hand.metric(f"smsp__sass_average_data_bytes_per_sector_{operation}")
        sectors = at_hand.metric(f"l1tex__average_t_sectors_per_request_pipe_lsu_{operation}")
        consecutive = sectors is not None and 0 < sectors <= CONSECUTIVE
        if used and used < FULL_SECTOR and not consecutive:
            return None
        if not used and sectors and not consecutive:
            return None  # a measured profile does not count the bytes that were used
        known += bool(used or consecutive)
    one = known and len(at_hand.profile.launches) == 1
    return "no bytes of the sectors are wasted" if one else None


def no_conflicts(at_hand: AtHand) -> str | None:
    """Return that shared memory is read and written in as few turns as can be."""
    actual = at_hand.metric("memory_l1_wavefronts_shared")
    ideal = at_hand.metric("memory_l1_wavefronts_shared_ideal")
    if actual is None or ideal is None or len(at_hand.profile.launches) > 1:
        return None
    return "there are no bank conflicts" if actual <= 1.01 * ideal else None


def no_atomics(at_hand: AtHand) -> str | None:
    """Return that the file has no atomic operation."""
    return None if "atomic" in at_hand.source else "the file has no atomics"


def rows_shared(at_hand: AtHand) -> str | None:
    """Return that threads meet over rows by shuffles already."""
    meets = "__shfl" in at_hand.source and len(at_hand.profile.launches) == 1
    return "threads share rows already" if meets else None


def copied_ahead(at_hand: AtHand) -> str | None:
    """Return that tiles are copied ahead already, or that there are none."""
    ahead = re.search(r"pipeline_commit|cp\.async\.(commit|bulk)|memcpy_async", at_hand.source)
    return "tiles are copied ahead already" if ahead else _nothing_staged(at_hand)


def _nothing_staged(at_hand: AtHand) -> str | None:
    static = at_hand.metric("launch__shared_mem_per_block_static") or 0.0
    shared = static + at_hand.profile.dominant.dynamic_shared_bytes
    small = shared < SMALL_SHARED and len(at_hand.profile.launches) == 1
    return "no tiles are staged in shared memory" if small else None
