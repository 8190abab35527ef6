"""What is expected of a technique that nobody has measured yet."""

from __future__ import annotations

import math

NEW_SHARE = 0.5
"""Of the log gain that a model expects of its own technique: nobody measured it yet."""
MOST_EXPECTED = math.log(3.0)
"""Log gain that is expected of an untried technique at most."""


NEW_STRENGTH = 0.5
"""Observations that the expectation of an untried technique is worth."""
