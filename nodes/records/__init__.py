"""The agents' words: frozen records that travel in graph state, small and free of source text.

Sources, profiles and tasks live in the artifact store of the run; state holds their sha256. A
record is imported from its module; checkpoints that are older than these modules know all of them
by the name of this package.
"""

from __future__ import annotations

from typing import Any

from ...harness.records.rooms import record_of


def __getattr__(name: str) -> Any:
    """Find a record for a checkpoint that knows it by the package's name."""
    return record_of(__name__, __path__, name)
