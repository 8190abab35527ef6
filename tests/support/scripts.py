"""Scripts of the repository that are no part of the package, imported for a test."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def import_script(path: Path) -> ModuleType:
    """Return the module of a script, known by its name as imported ones are.

    pydantic looks there for the types of a class's fields.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
