"""The agents' way to tell whoever watches what they just did."""

from __future__ import annotations

from ..tools.progress import report_progress

__all__ = ["report_progress"]
