"""Find the performance states nearest to a signature: Chroma where it is owned, exact otherwise."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .chroma_index import RETRIEVED, ChromaIndex
from .signature import embed, to_text


class IndexedState(NamedTuple):
    """One state as it entered the knowledge base; seed states have sequence 0."""

    state_id: str
    primary: str
    secondary: str
    """Empty where the state has none."""
    sequence: int
    centroid: tuple[float, ...]

    @property
    def key(self) -> str:
        """Identity in the index."""
        return f"{self.state_id}@{self.sequence}"

    @property
    def document(self) -> str:
        """What is embedded."""
        return to_text(self.centroid)

    @property
    def metadata(self) -> Mapping[str, str | int]:
        """What a query may ask for besides."""
        return {
            "state": self.state_id,
            "primary": self.primary,
            "secondary": self.secondary,
            "sequence": self.sequence,
        }


def nearest_exact(
    states: Sequence[IndexedState], values: Sequence[float], bottlenecks: Sequence[str], at: int
) -> list[str]:
    """Return the ids of the nearest states by direct computation, nearest first, ties by id.

    Only states up to sequence `at` that agree about the bottleneck: the state's primary is among
    `bottlenecks` (first the primary one), or the state's secondary is the first of them.
    """
    chosen = [
        state
        for state in states
        if state.sequence <= at
        and (state.primary in bottlenecks or state.secondary == bottlenecks[0])
    ]
    if not chosen:
        return []
    vectors = np.array([embed(state.centroid) for state in chosen])
    away = np.linalg.norm(vectors - np.array(embed(values)), axis=1)
    order = sorted(range(len(chosen)), key=lambda i: (away[i], chosen[i].state_id))
    return list(dict.fromkeys(chosen[i].state_id for i in order[:RETRIEVED]))


class StateIndex(ChromaIndex):
    """The index of states by their centroids."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "states-signature-v1", "SignatureEmbedding")

    def nearest(
        self,
        states: Sequence[IndexedState],
        values: Sequence[float],
        bottlenecks: Sequence[str],
        at: int,
    ) -> list[str]:
        """Return the ids of the nearest states, like `nearest_exact`, rebuilding when stale.

        A broken index is rebuilt once; when that fails too the answer is computed directly.
        """
        agrees: dict[str, Any] = {
            "$or": [
                {"primary": {"$in": list(bottlenecks)}},
                {"secondary": {"$eq": bottlenecks[0]}},
            ]
        }
        where = {"$and": [{"sequence": {"$lte": at}}, agrees]}
        found = self.query(states, to_text(values), where)
        if found is None:
            return nearest_exact(states, values, bottlenecks, at)
        return list(dict.fromkeys(str(metadata["state"]) for metadata in found))


def import_chroma() -> None:
    """Import Chroma, which takes a second, while nothing else is to be done.

    What ails it is dealt with where the index is used.
    """
    with contextlib.suppress(Exception):
        importlib.import_module("chromadb")
