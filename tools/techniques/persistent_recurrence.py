"""persistent_recurrence: the weights of a recurrence stay on the chip over all its steps."""

from __future__ import annotations

from .conditions import at_least, computes
from .operators import PRODUCTS, RECURRENCES
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `blocks_per_sm` is the number of blocks for each multiprocessor."""
    return Technique(
        name="persistent_recurrence",
        description=(
            "Run all time steps of a recurrence in one launch whose blocks keep their part of the "
            "recurrent weights in registers or shared memory and meet at a grid barrier each step."
        ),
        applies_when=(
            "LSTM, GRU and other recurrences as launches for each step that read the same weights "
            "again; small batches."
        ),
        avoid_when=(
            "Weights of a layer do not fit the registers and shared memory of the whole GPU, or "
            "the batch is large: then the products of a step fill it."
        ),
        side_effects="A cooperative launch; about a microsecond of barrier a step.",
        notes=(
            "First compute the input products of all steps as one large product. Then each block "
            "owns some hidden units: its slice of W in shared memory, h read each step from L2 "
            "(__ldcg), grid barrier, next. Several layers can run one step apart. A step's gates "
            "are elementwise at the end of its product."
        ),
        parameters={"blocks_per_sm": (1, 2)},
        sources=(
            'Diamos et al., "Persistent RNNs: Stashing Recurrent Weights On-Chip" (ICML 2016)',
            'Appleyard, Kocisky and Blunsom, "Optimizing Performance of Recurrent Neural '
            'Networks on GPUs" (arXiv:1604.01946, 2016)',
        ),
        conditions=(computes(*RECURRENCES, *PRODUCTS), at_least("launches", 8.0)),
    )
