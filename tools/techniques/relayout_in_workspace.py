"""relayout_in_workspace: an operand is written once in the layout that the main kernel wants."""

from __future__ import annotations

from .conditions import computes
from .operators import NORMS, POOLS, WITH_PRODUCTS
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="relayout_in_workspace",
        description=(
            "Write an operand into the workspace in the layout that the main kernel reads best: "
            "transposed, channels last, rows padded to whole vectors or tiles, parts split or "
            "converted."
        ),
        applies_when=(
            "An operand is read many times across its contiguous dimension, or with odd row "
            "lengths that forbid 16-byte loads, or is converted again at each read."
        ),
        avoid_when=(
            "Each element is read once or twice: the extra pass costs as much as it saves. Staging "
            "through shared memory can turn it on the way."
        ),
        side_effects=(
            "A workspace, an extra launch, two transfers of the operand in each call (nothing may "
            "be kept between calls)."
        ),
        notes=(
            "workspace_bytes() gives the room. Weights are the usual case: small, reused by every "
            "pixel or row. Pad the contiguous dimension to a multiple of 4 floats (8 halves) with "
            "zeros, so that loads need no guards and K needs no tail. A tiled transpose writes "
            "both sides coalesced."
        ),
        sources=(
            'CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory"',
            "NVIDIA Deep Learning Performance documentation, \"Convolutional Layers User's "
            'Guide", section "Tensor Layouts"',
        ),
        conditions=(computes(*WITH_PRODUCTS, *POOLS, *NORMS),),
    )
