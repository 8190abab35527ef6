"""The bytes that lie in a candidate's memory where nobody wrote."""

POISON = 0xFF
"""Byte written over outputs and workspace: NaN for every float type, -1 for integers."""
OTHER_POISON = (0x00, 0x5A)
"""The same for the second run of a case: what depends on poison differs between the two."""
PROFILED_WORKSPACE = OTHER_POISON[1]
"""The workspace's in profiles. No NaN: what a sampled block computes from parts that other blocks
would have written must not look like an output that nobody wrote."""
FULL_SIZE_POISON = ((POISON, PROFILED_WORKSPACE), (0xFE, 0xC3))
"""Of outputs and workspace at full dimensions, in the first of two runs and in the second. What
depends on parts that nobody wrote differs: the workspace holds large positive numbers in one,
negative ones in the other."""
