"""What a room of records, a module a subject, answers to who names the room alone."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any


def modules_of(room: str, path: Iterable[str]) -> Iterator[ModuleType]:
    """Yield the modules of a room, of its name and its `__path__`."""
    for module in pkgutil.iter_modules(path, f"{room}."):
        yield importlib.import_module(module.name)


def record_of(room: str, path: Iterable[str], name: str) -> Any:
    """Return what one of a room's modules defines under a name.

    Raises:
        AttributeError: none does.
    """
    if not name.startswith("_"):
        for module in modules_of(room, path):
            kind = vars(module).get(name)
            if getattr(kind, "__module__", None) == module.__name__:
                return kind
    raise AttributeError(f"module {room!r} has no attribute {name!r}")
