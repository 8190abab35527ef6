"""What a technique is worth that only prepares the next: what came after it and not without it."""

from __future__ import annotations

from collections.abc import Iterable

from ..records import Evidence

DISCOUNT = 0.9
"""Of what later steps of a trajectory gained, when credited to the step that prepared them."""
HORIZON = 4
"""How many later steps are looked at."""


class Preparation:
    """The graph of a task's sources on one GPU: which technique led from which to which."""

    def __init__(self, rows: Iterable[Evidence]) -> None:
        """Take the evidence of one task on one GPU."""
        self._from: dict[str, list[Evidence]] = {}
        self._known: dict[tuple[str, int, str | None], float] = {}
        for row in rows:
            if row.log_gain is not None and row.child_sha256 not in (None, row.parent_sha256):
                self._from.setdefault(row.parent_sha256, []).append(row)

    def credit(self, row: Evidence) -> float:
        """Return the discounted log gain that followed a step, over the best to be had without it.

        A tile in shared memory that still has bank conflicts earns what padding it gains, and
        still does when another path took the tile one step later. Where paths without the
        technique lead from the parent to as much, the step prepared nothing and earns 0.
        """
        if row.child_sha256 is None:
            return 0.0
        after = DISCOUNT * self._best(row.child_sha256, HORIZON)
        if after <= 0.0:
            return 0.0
        return max(0.0, after - self._best(row.parent_sha256, HORIZON, without=row.technique))

    def _best(self, source_sha256: str, steps: int, without: str | None = None) -> float:
        """Return the best discounted log gain seen from a source on, 0 where none was.

        Steps of the technique `without`, first or later, are left out.
        """
        if steps == 0 or source_sha256 not in self._from:
            return 0.0
        asked = source_sha256, steps, without
        if asked not in self._known:
            self._known[asked] = max(
                (
                    (row.log_gain or 0.0)
                    + DISCOUNT * self._best(row.child_sha256 or "", steps - 1, without)
                    for row in self._from[source_sha256]
                    if row.technique != without
                ),
                default=0.0,
            )
        return max(0.0, self._known[asked])
