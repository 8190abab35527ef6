"""Where the tests find what lies beside the package: its root, the examples, recorded data."""

from __future__ import annotations

import re
from pathlib import Path

import kernelblaster

ROOT = Path(kernelblaster.__file__).resolve().parent
EXAMPLES = ROOT / "examples"
SUPPORT = Path(__file__).resolve().parent
DATA = SUPPORT.parent / "data"


def resized(task: Path, folder: Path, **sizes: int) -> Path:
    """Write a task with other sizes into a folder."""
    text = task.read_text()
    for name, size in sizes.items():
        text, found = re.subn(rf"^{name} = \d+$", f"{name} = {size}", text, flags=re.MULTILINE)
        assert found == 1, name
    path = folder / task.name
    path.write_text(text)
    return path
