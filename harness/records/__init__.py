"""The words everyone uses: frozen records of tasks, candidates, builds, profiles and evaluations.

A record cannot be changed after it is made, refuses fields it does not know, and a validator ties
its fields together, so that a wrong result cannot carry a time. It is imported from its module;
checkpoints that are older than these modules know all of them by the name of this package.
"""

from __future__ import annotations

from typing import Any

from .rooms import record_of


def __getattr__(name: str) -> Any:
    """Find a record for a checkpoint that knows it by the package's name."""
    return record_of(__name__, __path__, name)
