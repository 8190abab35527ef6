"""A kernel that passed as the short record that state holds."""

from __future__ import annotations

from ....harness.records.evaluations import Evaluation
from ...records.kernels import KernelPoint


def kernel_point(
    evaluation: Evaluation, author: str, depth: int = 0, technique: str = ""
) -> KernelPoint:
    """Return the short record of a passed evaluation.

    Args:
        evaluation: the passed one.
        author: who wrote the source.
        depth: techniques between the initial kernel and this one.
        technique: the last of them.
    """
    timing, profile = evaluation.timing, evaluation.profile
    assert timing is not None and profile is not None
    return KernelPoint(
        source_sha256=evaluation.source_sha256,
        evaluation_key=evaluation.key,
        microseconds=timing.microseconds,
        interval=timing.interval,
        provenance=timing.provenance,
        bottleneck=profile.dominant.bottleneck,
        depth=depth,
        technique=technique,
        author=author,
    )
