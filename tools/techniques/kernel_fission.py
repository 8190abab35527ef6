"""kernel_fission: a kernel whose parts want different grids is cut in two."""

from __future__ import annotations

from .conditions import AtHand
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="kernel_fission",
        description=(
            "Cut a kernel whose phases want different grids, block sizes or amounts of registers "
            "into two launches, each with its own."
        ),
        applies_when=(
            "One fused kernel with low occupancy because of one phase, or a phase that runs in one "
            "block or one thread while the grid waits."
        ),
        avoid_when=(
            "The tensor between the phases does not fit L2, or the whole takes a few microseconds: "
            "a launch costs one or two."
        ),
        side_effects="A launch more, and a workspace for what passes between.",
        notes=(
            "Put what is small between the phases (row statistics, indices, partial sums) into the "
            "workspace. Let the second kernel read in the reverse order of the first, so that what "
            "was written last is still in L2."
        ),
        sources=(
            'CUDA C++ Best Practices Guide, "Occupancy"',
            'Wahib and Maruyama, "Automated GPU Kernel Transformations in Large-Scale '
            'Production Stencil Applications" (HPDC 2015)',
        ),
        unfit=_small,
    )


LAUNCH_US = 6.0
"""Time of a program under which a launch more costs too large a part of it."""


def _small(at_hand: AtHand) -> str | None:
    return "a launch more would cost too much" if at_hand.profile.microseconds < LAUNCH_US else None
