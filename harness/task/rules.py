"""The rules of a task in figures: what its inputs hold, and how far an answer may be off.

The checks and what writers and reviewers are told both read them here; nothing needs PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..records.tensors import Tolerance
from ..records.variations import Level

CASES = (
    (0, "normal", "as get_inputs() gives them"),
    (1, "gaussian", "normal distribution, lines in some order; integers, flags, infinities anew"),
    (2, "uniform", "uniform, lines in some order, and small where forward() adds an epsilon"),
    (3, "large", "normal times a large factor, lines in some order; integers of all their bits"),
    (4, "constant", "each tensor holds one value"),
    (5, "zeros", "normal, half exact zeros, some at borders; of long sums three large terms"),
    (6, "offset", "normal distribution around a value far from zero; some integers of all bits"),
)
"""(seed, name, what inputs hold), as far as forward() survives it: see reference/drawing/. Lines in
some order are sorted, or have their largest side by side, or hold equal elements; a border is a
number that forward() compares with."""

LARGE_FACTORS = (128.0, 32.0, 8.0, 2.0)
"""The first that PyTorch itself survives is used. exp() overflows in float32 above 88."""

OFFSETS = (16.0, 4.0)
"""The same, for how far from zero. A variance of 4096 values taken as E[x^2] - E[x]^2, summed in
order in float32, is there 5 times the tolerance off; two plain passes stay at a third of it. From
32 on plain kernels fail too in one row of thousands: that would refuse honest ones."""

NOT_COMPARED = 1e300
"""Absolute tolerance of what is not compared: PyTorch itself does not meet any that tells."""

LARGEST_CLAIMED = 8 * LARGE_FACTORS[0]
"""Size of a value that a reviewer may claim an input to hold: about the largest that is drawn."""

PEAKS = (LARGEST_CLAIMED, 16.0, 1.0)
"""How large the largest of many terms is at most: the first that PyTorch itself survives."""

TOLERANCES: dict[str, Tolerance] = {
    "float64": Tolerance(absolute=1e-6, relative=1e-6),
    "float32": Tolerance(absolute=1e-4, relative=1e-4),
    "float16": Tolerance(absolute=1e-2, relative=1e-2),
    "bfloat16": Tolerance(absolute=1e-2, relative=1e-2),
}
"""KernelBench's tolerance for each dtype (fp32 1e-4, half types 1e-2); integers must be equal,
but for few that are rounded from floating numbers; see reference/precision/steps.py."""

OWN_ERROR_FACTOR = 8.0
"""A candidate may be this many times as far from the double-precision answer as PyTorch is."""

LARGEST_SHARE = 0.05
"""Of an output's root mean square that the absolute part of a tolerance is at most."""

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "normal": "get_inputs()'s own",
        "gaussian": "normal, lines sorted or clustered",
        "uniform": "uniform in [-1, 1), or as small as an epsilon",
        "large": f"normal times up to {LARGE_FACTORS[0]:g}",
        "constant": "one value per tensor",
        "zeros": "half zeros, few large",
        "offset": f"normal around {OFFSETS[0]:g}",
    }
)
"""What floating inputs hold, by the name of a case, in a few words."""

LEVELS: Mapping[Level, str] = MappingProxyType(
    {
        "positive": "no negative values",
        "range": "within the range of get_inputs()'s own",
        "below": "from 0 to its largest",
        "order": "its own values in any order",
        "some": "one flag in ten another",
        "scaled": "its own values scaled",
        "own": "as the reference has it",
    }
)
"""How far a tensor varies where it does not hold any values, in words."""

BEYOND = ", and {} as well, by what forward() says or accepts"
"""What is said of numbers that a tensor holds though its level has none of them."""
