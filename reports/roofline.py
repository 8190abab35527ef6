"""A profile on the roofline: operations a byte and operations a second, under the GPU's roofs."""

from __future__ import annotations

from typing import NamedTuple

from ..harness.gpus import known_gpu
from ..harness.records.profiles import Profile
from ..tools.wording.device import peaks_of
from ..tools.wording.measurements import READ, WRITTEN, fp32_operations, summed


class Roofs(NamedTuple):
    """What a GPU can do at most, by public figures."""

    gpu: str
    dram_bytes: float
    """Bytes a second."""
    fp32: float
    """FP32 operations a second, a multiply-add as two."""
    tensor: float
    """The same of tensor cores on half types."""

    @property
    def ridge(self) -> float:
        """Operations a byte from which arithmetic is the limit, not memory."""
        return self.fp32 / self.dram_bytes


class RoofPoint(NamedTuple):
    """One call of `launch`, all its launches together."""

    intensity: float
    """Operations for each byte that crossed the DRAM's pins."""
    rate: float
    """Operations a second."""
    bytes_rate: float
    """Bytes a second."""


def roofs_of(profile: Profile) -> Roofs | None:
    """Return the roofs of a profile's GPU; None where its figures are not known."""
    gpu = known_gpu(profile.gpu)
    if gpu is None:
        return None
    peaks = peaks_of(gpu)
    return Roofs(gpu.name, peaks.dram_bytes, peaks.fp32, peaks.tensor_fp16)


def counted_operations(profile: Profile) -> float:
    """Return the FP32 operations of a call; 0 where a launch of it has no count.

    Those of tensor cores are not among them.
    """
    counts = [fp32_operations(launch.metrics) for launch in profile.launches]
    return sum(counts) if all(counts) else 0.0


def roof_point(profile: Profile, operations: float) -> RoofPoint | None:
    """Return where a call of so many operations stands; None where bytes were not counted."""
    read, written = summed(profile, READ), summed(profile, WRITTEN)
    moved = (read or 0.0) + (written or 0.0)
    seconds = profile.microseconds * 1e-6
    if not (operations and moved and seconds):
        return None
    return RoofPoint(operations / moved, operations / seconds, moved / seconds)
