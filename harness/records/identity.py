"""By which sum a text, a source and a JSON value are known."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def sha256_of(*parts: str | bytes) -> str:
    """Return the hexadecimal sha256 of the parts, each preceded by its length."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def sha256_of_json(value: Any) -> str:
    """Return the sha256 of a JSON value in canonical form (sorted keys, no spaces)."""
    return sha256_of(json.dumps(value, sort_keys=True, separators=(",", ":")))


def source_sha256(source: str) -> str:
    """Return the sha256 by which a source is known: that of its artifact."""
    return hashlib.sha256(source.encode()).hexdigest()
