"""Find the performance states nearest to a signature: Chroma where it is owned, exact otherwise."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...harness.errors import UserError
from .signature import embed, to_text

COLLECTION = "states-signature-v1"
RETRIEVED = 64
"""States fetched for a query; they are ranked exactly afterwards."""

_log = logging.getLogger(__name__)


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


class ChromaIndex:
    """The Chroma collection of state centroids, derived from the knowledge base's rows.

    Each build lies in a numbered folder of its own, so that a damaged one is simply left behind:
    Chroma keeps a broken client per path for the life of the process. One process owns the
    directory at a time; the caller holds the lock.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._client: Any = None
        self._collection: Any = None
        self._fingerprint = ""
        self._held: Sequence[IndexedState] = ()

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
        for attempt in ("open", "rebuild"):
            try:
                self._refresh(states, rebuild=attempt == "rebuild")
                return self._query(values, bottlenecks, at)
            # Whatever ails the index, it is derived: anything that Chroma raises is mended so.
            except Exception as error:  # noqa: BLE001
                _log.warning("state index: %s failed (%s)", attempt, error)
                self.close()
        return nearest_exact(states, values, bottlenecks, at)

    def rebuild(self, states: Sequence[IndexedState]) -> int:
        """Build the index anew from the states; return how many it holds.

        Raises:
            UserError: it cannot be built where it is to lie.
        """
        try:
            self._refresh(states, rebuild=True)
            return int(self._collection.count())
        # Chroma raises what it likes; the index is derived, and may be made again from nothing.
        except Exception as error:  # noqa: BLE001
            self.close()
            raise UserError(
                f"the index {self._directory} cannot be built ({error}): move it away, then: "
                "kernelblaster kb reindex"
            ) from error

    def close(self) -> None:
        """Let go of the client."""
        client, self._client, self._collection, self._fingerprint = self._client, None, None, ""
        if client is not None:
            try:
                client.close()
            except Exception as error:  # noqa: BLE001
                _log.warning("state index: close failed (%s)", error)

    def _refresh(self, states: Sequence[IndexedState], *, rebuild: bool) -> None:
        if states is self._held and self._fingerprint and not rebuild:
            return
        fingerprint = _fingerprint(states)
        if fingerprint != self._fingerprint or rebuild:
            if rebuild or not self._open(fingerprint, len(states)):
                self._build(states, fingerprint)
        self._held = states

    def _open(self, fingerprint: str, count: int) -> bool:
        """Open the newest stored build; False when there is none or it is out of date."""
        builds = self._builds()
        if self._client is None and not builds:
            return False
        if self._client is None:
            self._client = _persistent_client(builds[-1])
        from .embedding import SignatureEmbedding

        collection = self._client.get_collection(
            COLLECTION, embedding_function=SignatureEmbedding()
        )
        if (collection.metadata or {}).get("fingerprint") != fingerprint:
            return False
        if collection.count() != count:
            return False
        self._collection, self._fingerprint = collection, fingerprint
        return True

    def _build(self, states: Sequence[IndexedState], fingerprint: str) -> None:
        self.close()
        old = self._builds()
        folder = self._directory / str(int(old[-1].name) + 1 if old else 1)
        folder.mkdir(parents=True)
        self._client = _persistent_client(folder)
        from .embedding import SignatureEmbedding

        collection = self._client.create_collection(
            COLLECTION,
            embedding_function=SignatureEmbedding(),
            # A search list longer than the answer keeps the approximate search exact here.
            configuration={"hnsw": {"space": "l2", "ef_search": 4 * RETRIEVED}},
            metadata={"fingerprint": fingerprint},
        )
        if states:
            collection.add(
                ids=[state.key for state in states],
                documents=[to_text(state.centroid) for state in states],
                metadatas=[
                    {
                        "state": state.state_id,
                        "primary": state.primary,
                        "secondary": state.secondary,
                        "sequence": state.sequence,
                    }
                    for state in states
                ],
            )
        self._collection, self._fingerprint = collection, fingerprint
        for folder in old:
            shutil.rmtree(folder, ignore_errors=True)

    def _query(self, values: Sequence[float], bottlenecks: Sequence[str], at: int) -> list[str]:
        found = self._collection.query(
            query_texts=[to_text(values)],
            n_results=RETRIEVED,
            where={
                "$and": [
                    {"sequence": {"$lte": at}},
                    {
                        "$or": [
                            {"primary": {"$in": list(bottlenecks)}},
                            {"secondary": {"$eq": bottlenecks[0]}},
                        ]
                    },
                ]
            },
            include=["metadatas"],
        )
        return list(dict.fromkeys(str(metadata["state"]) for metadata in found["metadatas"][0]))

    def _builds(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        folders = (path for path in self._directory.iterdir() if path.name.isdigit())
        return sorted(folders, key=lambda path: int(path.name))


def import_chroma() -> None:
    """Import Chroma, which takes a second, while nothing else is to be done.

    What ails it is dealt with where the index is used.
    """
    with contextlib.suppress(Exception):
        importlib.import_module("chromadb")


def _persistent_client(folder: Path) -> Any:
    import chromadb
    from chromadb.config import Settings

    return chromadb.PersistentClient(
        path=str(folder), settings=Settings(anonymized_telemetry=False)
    )


def _fingerprint(states: Sequence[IndexedState]) -> str:
    digest = hashlib.sha256()
    for state in sorted(states, key=lambda state: state.key):
        facts = (state.key, state.primary, state.secondary, to_text(state.centroid))
        digest.update("\n".join(facts).encode())
    return digest.hexdigest()
