"""Where the tests find what lies beside the package: its root, the examples, recorded data."""

from __future__ import annotations

from pathlib import Path

import kernelblaster

ROOT = Path(kernelblaster.__file__).resolve().parent
EXAMPLES = ROOT / "examples"
SUPPORT = Path(__file__).resolve().parent
DATA = SUPPORT.parent / "data"
