"""Where a technique's notes end and what was measured of it begins."""

from __future__ import annotations

LEARNED = " Learned on "
"""Between a technique's notes and what was measured where it was listed."""
