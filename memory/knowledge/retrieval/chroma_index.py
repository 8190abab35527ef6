"""A Chroma collection made of a knowledge base's entries: built when stale, rebuilt when broken."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ....harness.errors import UserError

RETRIEVED = 64
"""Entries fetched for a query; they are ranked exactly afterwards."""

_log = logging.getLogger(__name__)


class Row(Protocol):
    """What is indexed: derived from an entry of the knowledge base."""

    @property
    def key(self) -> str:
        """Identity in the index."""
        ...

    @property
    def document(self) -> str:
        """What is embedded."""
        ...

    @property
    def metadata(self) -> Mapping[str, str | int]:
        """What a query may ask for besides."""
        ...


class ChromaIndex:
    """A Chroma collection, derived from the knowledge base's entries.

    Each build lies in a numbered folder of its own, so that a damaged one is simply left behind:
    Chroma keeps a broken client per path for the life of the process. One process owns the
    directory at a time; the caller holds the lock.
    """

    def __init__(self, directory: Path, name: str, embedding: str) -> None:
        """Index in a directory of its own.

        Args:
            directory: where the builds lie.
            name: of the collection.
            embedding: class of `embedding.py` that makes vectors of documents.
        """
        self._directory = directory
        self._name = name
        self._embedding = embedding
        self._client: Any = None
        self._collection: Any = None
        self._fingerprint = ""
        self._held: Sequence[Row] = ()

    def query(
        self, rows: Sequence[Row], text: str, where: Mapping[str, Any]
    ) -> list[Mapping[str, Any]] | None:
        """Return the metadata of the rows nearest to a text, nearest first, rebuilding when stale.

        A broken index is rebuilt once; None where that fails too.
        """
        for attempt in ("open", "rebuild"):
            try:
                self._refresh(rows, rebuild=attempt == "rebuild")
                found = self._collection.query(
                    query_texts=[text],
                    n_results=RETRIEVED,
                    where=where,
                    include=["metadatas"],
                )
                return list(found["metadatas"][0])
            # Whatever ails the index, it is derived: anything that Chroma raises is mended so.
            except Exception as error:  # noqa: BLE001
                _log.warning("%s: %s failed (%s)", self._name, attempt, error)
                self.close()
        return None

    def rebuild(self, rows: Sequence[Row]) -> int:
        """Build the index anew from the rows; return how many it holds.

        Raises:
            UserError: it cannot be built where it is to lie.
        """
        try:
            self._refresh(rows, rebuild=True)
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
                _log.warning("%s: close failed (%s)", self._name, error)

    def _refresh(self, rows: Sequence[Row], *, rebuild: bool) -> None:
        if rows is self._held and self._fingerprint and not rebuild:
            return
        fingerprint = _fingerprint(rows)
        if fingerprint != self._fingerprint or rebuild:
            if rebuild or not self._open(fingerprint, len(rows)):
                self._build(rows, fingerprint)
        self._held = rows

    def _open(self, fingerprint: str, count: int) -> bool:
        """Open the newest stored build; False when there is none or it is out of date."""
        builds = self._builds()
        if self._client is None and not builds:
            return False
        if self._client is None:
            self._client = _persistent_client(builds[-1])
        collection = self._client.get_collection(
            self._name, embedding_function=_embedding(self._embedding)
        )
        if (collection.metadata or {}).get("fingerprint") != fingerprint:
            return False
        if collection.count() != count:
            return False
        self._collection, self._fingerprint = collection, fingerprint
        return True

    def _build(self, rows: Sequence[Row], fingerprint: str) -> None:
        self.close()
        old = self._builds()
        folder = self._directory / str(int(old[-1].name) + 1 if old else 1)
        folder.mkdir(parents=True)
        self._client = _persistent_client(folder)
        collection = self._client.create_collection(
            self._name,
            embedding_function=_embedding(self._embedding),
            # A search list longer than the answer keeps the approximate search exact here.
            configuration={"hnsw": {"space": "l2", "ef_search": 4 * RETRIEVED}},
            metadata={"fingerprint": fingerprint},
        )
        if rows:
            collection.add(
                ids=[row.key for row in rows],
                documents=[row.document for row in rows],
                metadatas=[dict(row.metadata) for row in rows],
            )
        self._collection, self._fingerprint = collection, fingerprint
        for folder in old:
            shutil.rmtree(folder, ignore_errors=True)

    def _builds(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        folders = (path for path in self._directory.iterdir() if path.name.isdigit())
        return sorted(folders, key=lambda path: int(path.name))


def _persistent_client(folder: Path) -> Any:
    import chromadb
    from chromadb.config import Settings

    return chromadb.PersistentClient(
        path=str(folder), settings=Settings(anonymized_telemetry=False)
    )


def _embedding(name: str) -> Any:
    return getattr(importlib.import_module(".embedding", __package__), name)()


def _fingerprint(rows: Sequence[Row]) -> str:
    digest = hashlib.sha256()
    for row in sorted(rows, key=lambda row: row.key):
        facts = (row.key, *(str(value) for value in row.metadata.values()), row.document)
        digest.update("\n".join(facts).encode())
    return digest.hexdigest()


def import_chroma() -> None:
    """Import Chroma, which takes a second, while nothing else is to be done.

    What ails it is dealt with where the index is used.
    """
    with contextlib.suppress(Exception):
        importlib.import_module("chromadb")
