"""The words of memory: records of signatures, states, optimizations, evidence and lessons.

A record is imported from its module; checkpoints that are older than these modules know all of them
by the name of this package.
"""

from __future__ import annotations

from typing import Any

from ...harness.records.rooms import record_of


def __getattr__(name: str) -> Any:
    """Find a record for a checkpoint that knows it by the package's name."""
    return record_of(__name__, __path__, name)
