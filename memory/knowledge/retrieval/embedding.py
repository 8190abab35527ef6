"""The embedding as Chroma knows it: registered by name, nothing to download.

Importing this module imports chromadb (a second or two): only `chroma_index` does, when used.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from chromadb.api.types import Documents, EmbeddingFunction, Embeddings, Space
from chromadb.utils.embedding_functions import register_embedding_function

from .words import embed_words

WORDS_EMBEDDING = "kernelblaster-words-v1"


@register_embedding_function
class WordsEmbedding(EmbeddingFunction[Documents]):  # type: ignore[misc]  # untyped base
    """Embeds texts by their words: what has words in common lies near."""

    def __init__(self) -> None:
        """Takes nothing: the layout of the vector is its name."""

    def __call__(self, input: Documents) -> Embeddings:
        """Return one float32 vector a document."""
        return [np.asarray(embed_words(text), dtype=np.float32) for text in input]

    @staticmethod
    def name() -> str:
        """Return the name under which stored collections find this class again."""
        return WORDS_EMBEDDING

    def default_space(self) -> Space:
        """Return the metric of the vectors."""
        return "l2"

    def supported_spaces(self) -> list[Space]:
        """Return the metrics that make sense."""
        return ["l2"]

    @classmethod
    def build_from_config(cls, config: dict[str, Any]) -> Self:
        """Return the function of a stored configuration."""
        return cls()

    def get_config(self) -> dict[str, Any]:
        """Return the configuration to store: there is nothing to configure."""
        return {}
