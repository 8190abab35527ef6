"""Find states, techniques, lessons and kernels by words: Chroma where it is owned, else exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from .chroma_index import RETRIEVED, ChromaIndex
from .words import Rarity, embed_words, ranked

Kind = Literal["state", "technique", "lesson", "kernel"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""All that can be found by words."""


class IndexedText(NamedTuple):
    """A text as it entered the knowledge base; what the seed holds has sequence 0."""

    kind: Kind
    name: str
    """Id of a state, a lesson or a kernel, name of a technique."""
    sequence: int
    learned: Literal["", "simulated", "measured"]
    """On what kind of device; empty where it speaks of all."""
    text: str

    @property
    def key(self) -> str:
        """Identity in the index."""
        return f"{self.kind}:{self.name}:{self.learned}@{self.sequence}"

    @property
    def document(self) -> str:
        """What is embedded."""
        return f"{self.name} {self.text}" if self.kind != "lesson" else self.text

    @property
    def metadata(self) -> Mapping[str, str | int]:
        """What a query may ask for besides."""
        return {
            "key": self.key, "kind": self.kind, "sequence": self.sequence, "learned": self.learned,
        }  # fmt: skip


def nearest_texts(
    texts: Sequence[IndexedText], query: str, learned: str, at: int, kinds: Sequence[Kind] = KINDS
) -> list[IndexedText]:
    """Return the texts nearest to a query by direct computation, nearest first.

    Only those up to sequence `at` of some kinds that speak of all devices or of the kind asked for.
    """
    chosen = [
        each
        for each in texts
        if each.sequence <= at and each.learned in ("", learned) and each.kind in kinds
    ]
    if not chosen:
        return []
    vectors = np.array([embed_words(each.document) for each in chosen], dtype=np.float32)
    away = np.linalg.norm(vectors - np.array(embed_words(query), dtype=np.float32), axis=1)
    order = sorted(range(len(chosen)), key=lambda i: (away[i], chosen[i].key))
    return [chosen[i] for i in order[:RETRIEVED]]


def closest(query: str, texts: Sequence[IndexedText], rarity: Rarity) -> list[IndexedText]:
    """Return of the texts retrieved those that share words with the query, the closest first."""
    by_key = sorted(texts, key=lambda each: each.key)
    return [by_key[at] for at in ranked(query, [each.document for each in by_key], rarity)]


class TextIndex(ChromaIndex):
    """The index of texts by their words."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "texts-words-v2", "WordsEmbedding")

    def nearest(
        self,
        texts: Sequence[IndexedText],
        query: str,
        learned: str,
        at: int,
        kinds: Sequence[Kind] = KINDS,
    ) -> list[IndexedText]:
        """Return the texts nearest to a query, like `nearest_texts`."""
        where = {
            "$and": [
                {"sequence": {"$lte": at}},
                {"learned": {"$in": ["", learned]}},
                {"kind": {"$in": list(kinds)}},
            ]
        }
        found = self.query(texts, query, where)
        if found is None:
            return nearest_texts(texts, query, learned, at, kinds)
        by_key = {each.key: each for each in texts}
        return [by_key[str(metadata["key"])] for metadata in found]
