"""shrink_code: a loop body that fits the instruction cache, with fewer live values."""

from __future__ import annotations

from .conditions import AtHand
from .technique import Technique

MOST_FETCHING = 0.02
"""Share of their waiting that warps wait for instructions in any kernel."""


def technique() -> Technique:
    """Return the technique; `factor` is how far the loops stay unrolled."""
    return Technique(
        name="shrink_code",
        description=(
            "Make the hot loop smaller: less unrolling, loops split in two where their live values "
            "spill, rare paths in functions that are not inlined, one instance where several were "
            "compiled."
        ),
        applies_when=(
            "Warps wait for instructions (no instruction stalls), the hot loop is longer than some "
            "thousands of instructions, or unrolling spilled registers."
        ),
        avoid_when="The loop is short, or its copies exist so that loads overlap.",
        side_effects="More loop control; loads overlap less.",
        notes=(
            "#pragma unroll 1 on outer loops; __noinline__ for slow paths (tails, exact division); "
            "switch on constexpr instead of run-time branches; fission of a loop that does two "
            "things over the same range. An instruction takes 16 bytes; on Volta 12 KB are cached "
            "for each scheduler and 128 KB for an SM, which tells the order of magnitude."
        ),
        parameters={"factor": (1, 2, 4)},
        sources=(
            'NVIDIA Nsight Compute documentation, "Warp Stall Reasons" (No Instruction)',
            'Jia, Maggioni, Staiger and Scarpazza, "Dissecting the NVIDIA Volta GPU '
            'Architecture via Microbenchmarking" (arXiv:1804.06826, 2018)',
            'CUDA C++ Programming Guide, "#pragma unroll"',
        ),
        unfit=_fetched_in_time,
    )


def _fetched_in_time(at_hand: AtHand) -> str | None:
    facts = at_hand.facts()
    for name, most in (("stall_fetch", MOST_FETCHING), ("spills", 0.0)):
        known = facts.get(name)
        if not isinstance(known, float) or known > most:
            return None
    return "no warp waits for instructions, and nothing spills"
