"""ldmatrix_fragments: a warp reads its fragments for mma.sync in one instruction."""

from __future__ import annotations

from .conditions import already, at_least, computes, first_of, lacking
from .operators import WITH_PRODUCTS
from .technique import Technique


def technique() -> Technique:
    """Return the technique.

    `matrices` is the number of 8 x 8 matrices that an instruction reads.
    """
    return Technique(
        name="ldmatrix_fragments",
        description=(
            "Read the fragments of mma.sync from shared memory with ldmatrix (up to four 8 x 8 "
            "matrices of 16-bit values an instruction) instead of word by word."
        ),
        applies_when=(
            "Tensor-core products whose load/store unit or shared memory is busier than the tensor "
            "pipe; tiles in shared memory with 16-byte rows of chunks."
        ),
        avoid_when=(
            "Fragments come through wmma::load_matrix_sync on aligned tiles without conflicts, or "
            "from registers."
        ),
        side_effects="Layouts by hand: which lane holds what follows the PTX tables.",
        notes=(
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16; lane l gives the address of row l % 8 of "
            "matrix l / 8; .trans for a factor stored the other way. Rows start at multiples of 16 "
            "bytes; swizzle chunk ^ (row % 8), or pad by 16 bytes, so that 8 rows lie in 8 "
            "different groups of banks. TF32 and other 32-bit values pass as pairs of 16-bit ones, "
            "without .trans. stmatrix (sm_90) is the way back."
        ),
        parameters={"matrices": (4, 2)},
        sources=('PTX ISA, "Warp-level matrix load instruction: ldmatrix"',),
        conditions=(computes(*WITH_PRODUCTS), at_least("capability", 7.5)),
        unfit=first_of(
            already(r"ldmatrix", "fragments come by ldmatrix already"),
            lacking(r"mma[._]sync|wmma|mma\.m", "nothing is multiplied by mma.sync"),
        ),
    )
