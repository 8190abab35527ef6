"""What a run that stopped early has to show: the fastest kernel that passed until then."""

from __future__ import annotations

from pathlib import Path

from ....harness.records.record import Record
from ....memory.run.artifacts import ArtifactStore
from ....memory.run.run_store import RunStore
from ...records.kernels import KernelPoint
from ..ending.report import write_file


class BestSoFar(Record):
    """The fastest kernel that passed; measured once, not confirmed."""

    initial_us: float
    best_us: float
    gain: float
    """Initial time over best time."""
    source: str
    """Path of the file it was written to."""


def keep_best(directory: Path, initial: KernelPoint | None) -> BestSoFar | None:
    """Write the fastest kernel so far to best_so_far.cu; None where nothing was timed yet."""
    if initial is None:
        return None
    with RunStore(directory / "run.sqlite") as store:
        fastest = store.fastest()
    sha256, best_us = fastest or (initial.source_sha256, initial.microseconds)
    path = directory / "best_so_far.cu"
    write_file(path, ArtifactStore(directory / "artifacts").get_text(sha256))
    return BestSoFar(
        initial_us=initial.microseconds,
        best_us=best_us,
        gain=initial.microseconds / best_us,
        source=str(path),
    )
