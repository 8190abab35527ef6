"""What a command leaves behind for scripts: JSON on standard output, or one line of a failure."""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

from ...harness.errors import printable


def print_json(value: Any) -> None:
    """Print one JSON object, the last thing on standard output."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def say(text: str, *, aside: bool = False) -> None:
    """Print lines on standard output; `aside`, on standard error."""
    stream = sys.stderr if aside else sys.stdout
    stream.write(printable(text) + "\n")
    stream.flush()


def tell(text: str) -> None:
    """Print one line about what is waited for on standard error."""
    say(text, aside=True)


def fail(message: str) -> NoReturn:
    """Print one line on standard error and leave with exit code 2."""
    sys.stderr.write(f"kernelblaster: {printable(message)}\n")
    raise SystemExit(2)
