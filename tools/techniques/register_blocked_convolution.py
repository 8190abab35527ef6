"""register_blocked_convolution: several pixels and channels a thread."""

from __future__ import annotations

from ...harness.records.tasks import Task
from ..rewriting.kernels.recognised import first_changed
from ..rewriting.kernels.sum_kernel import SumKernel, sum_kernels
from ..rewriting.kernels.sum_writer import written
from ..rewriting.records import Kernels, Outcome, Parameters, Rewritten
from .conditions import at_least, computes
from .operators import CONVOLUTIONS
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `pixels` and `channels` are the results of a thread along each.

    Pixels lie in neighbouring rows, or in several samples where a tap is tested for each row.
    """
    return Technique(
        name="register_blocked_convolution",
        description=(
            "Let each thread compute several neighbouring output pixels for several output "
            "channels, so that an input value serves many filters and a filter value many pixels."
        ),
        applies_when=(
            "A direct convolution with one output a thread: two loads for each multiply-add keep "
            "the load/store unit busy."
        ),
        avoid_when="Registers run short, or the grid becomes smaller than the GPU.",
        side_effects=(
            "Fewer threads, more registers; remainders of pixels and channels need guards."
        ),
        notes=(
            "For each input channel: load the row segment (pixels + filter - 1 values) into "
            "registers and slide over it; for each filter column multiply by `channels` weights, "
            "which all lanes of a warp share (broadcast, or from shared memory). Unroll the "
            "filter's loops (constexpr) so that indices are constants. Where padding or a stride "
            "has taps tested, take the same pixel of several samples: one test serves all."
        ),
        parameters={"pixels": (4, 8), "channels": (4, 2, 8)},
        sources=(
            'Volkov, "Better Performance at Lower Occupancy" (GTC 2010)',
            "Iandola, Sheffield, Anderson, Phothilimthana and Keutzer, "
            '"Communication-Minimizing 2D Convolution in GPU Registers" (ICIP 2013)',
        ),
        change=_apply,
        conditions=(computes(*CONVOLUTIONS), at_least("blocks_per_sm", 8.0)),
    )


def _apply(source: str, task: Task, parameters: Parameters, kernels: Kernels) -> Outcome:
    pixels, channels = parameters["pixels"], parameters["channels"]

    def change(found: SumKernel) -> Rewritten:
        text = written(found, pixels, channels)
        note = f"{found.kernel.name}: {pixels} x {channels} results a thread"
        return Rewritten(source=text, note=note)

    return first_changed(sum_kernels(source, task, kernels), change)
