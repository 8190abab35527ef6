"""The agents' words: frozen records that travel in graph state, small and free of source text.

Sources, profiles and tasks live in the artifact store of the run; state holds their sha256. A
record is imported from its module; checkpoints that are older than these modules know all of them
by the name of this package.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any


def __getattr__(name: str) -> Any:
    """Find a record for a checkpoint that knows it by the package's name."""
    if not name.startswith("_"):
        for module in pkgutil.iter_modules(__path__, f"{__name__}."):
            kind = vars(importlib.import_module(module.name)).get(name)
            if getattr(kind, "__module__", None) == module.name:
                return kind
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
