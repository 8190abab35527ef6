"""Texts compared by their words: as vectors for an index, and exactly, rare words counting more."""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

DIMENSIONS = 512
"""Of a text's vector: words share places, which the exact ranking sets right."""
STEM = 6
"""Letters of a word that count, its ending apart: `coalesced` and `coalescing` are one."""
_ENDING = re.compile(r"(?<=..)(?:ings?|ed|er|es|s|ly)$")
_DOUBLED = re.compile(r"([bdglmnprt])\1$")
_EMPTY = frozenset(
    "a an and are as at be by can do does for from has have how i in is it its me my no not of on "
    "one or should so than that the their them then there this to too use used was what when "
    "where which while who why will with you".split()
)


def stems(text: str) -> Counter[str]:
    """Return how often each word of a text occurs, by its stem; words of no use apart."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return Counter(_stem(word) for word in words if word not in _EMPTY)


def _stem(word: str) -> str:
    return _DOUBLED.sub(r"\1", _ENDING.sub("", word))[:STEM]


def embed_words(text: str) -> list[float]:
    """Return a text as a vector of length 1 (of no words: 0)."""
    vector = np.zeros(DIMENSIONS)
    for stem, count in stems(text).items():
        digest = zlib.crc32(stem.encode())
        vector[digest % DIMENSIONS] += (1.0 if digest & (1 << 30) else -1.0) * (
            1.0 + math.log(count)
        )
    length = float(np.linalg.norm(vector))
    found: list[float] = (vector / length if length else vector).tolist()
    return found


class Rarity:
    """How rare each word is among some texts; one that none of them has is the rarest."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Count the texts that have each word."""
        counted = [stems(text) for text in texts]
        self._texts = len(counted)
        self._having = Counter(stem for each in counted for stem in each)

    def of(self, stem: str) -> float:
        """Return what a word counts."""
        return math.log(1.0 + self._texts / max(1, self._having[stem]))


def ranked(query: str, texts: Sequence[str], rarity: Rarity) -> list[int]:
    """Return the places of the texts that share words with a query, the closest first.

    Ties go to the text that stands first.
    """
    wanted = stems(query)

    def score(each: Counter[str]) -> float:
        shared = (stem for stem in wanted if stem in each)
        return math.fsum(rarity.of(stem) * each[stem] / (each[stem] + 1.0) for stem in shared)

    scores = [score(stems(text)) for text in texts]
    return sorted((at for at in range(len(texts)) if scores[at]), key=lambda at: -scores[at])
