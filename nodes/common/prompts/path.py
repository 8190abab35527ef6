"""How a kernel came about: the techniques on the way from the first one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....tools.wording.experience import measured_gain, parameters_text
from ...records.kernels import KNOWN_KERNEL, TechniqueStep


def path_text(path: Sequence[TechniqueStep]) -> str:
    """Return how the kernel came about: technique and gain of each step."""
    if not path:
        return "This is the first kernel: nothing was applied yet."
    steps = [f"{_words(step)} {measured_gain(math.log(step.gain))}" for step in path]
    return f"Applied so far: {', then '.join(steps)}."


def _words(step: TechniqueStep) -> str:
    if step.technique != KNOWN_KERNEL:
        return f"{step.technique}{parameters_text(step.parameters)}"
    return f"what an earlier run found ({', '.join(step.names) or 'written so at first'})"
