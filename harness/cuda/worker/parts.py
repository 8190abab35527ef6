"""Seconds of the parts of a request, by name: where the time of an evaluation goes."""

from __future__ import annotations

import time


class Parts:
    """Begins a clock; each `end` adds what went by since the last one to a part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    def end(self, name: str) -> float:
        """Add what was done since the last part ended to a part; return its seconds."""
        now = time.monotonic()
        took, self._began = now - self._began, now
        self.seconds[name] = round(self.seconds.get(name, 0.0) + took, 3)
        return took
