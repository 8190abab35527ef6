"""What a confirmation makes of two times: the gain and how far it is to be believed."""

from __future__ import annotations

import pytest

from kernelblaster.harness.judge.timing import Ratio
from kernelblaster.harness.records.timings import SIMULATED_RESOLUTION, Provenance, Timing
from kernelblaster.nodes.run.ending.confirm_winner import gain_of


def exactly(microseconds: float, provenance: Provenance = Provenance.SIMULATED) -> Timing:
    return Timing(
        microseconds=microseconds, samples=(microseconds,), interval=(microseconds, microseconds),
        method="told", provenance=provenance,
    )  # fmt: skip


@pytest.mark.parametrize(("time", "improves"), [(99.99932, False), (99.5, False), (98.0, True)])
def test_a_simulated_gain_within_what_the_model_tells_apart_is_none(
    time: float, improves: bool
) -> None:
    gain, (low, high) = gain_of(exactly(100.0), exactly(time), None)
    assert gain == pytest.approx(100.0 / time)
    assert (low, high) == pytest.approx(
        (gain / (1 + SIMULATED_RESOLUTION), gain * (1 + SIMULATED_RESOLUTION))
    )
    assert (low > 1.0) is improves


def test_a_measured_gain_has_the_interval_that_was_measured() -> None:
    first, other = (exactly(each, Provenance.EVENTS) for each in (100.0, 99.5))
    gain, interval = gain_of(first, other, None)
    assert interval == (gain, gain)
    paired = Ratio(ratio=1.004, interval=(1.002, 1.006), rounds=20)
    assert gain_of(first, other, paired) == (1.004, (1.002, 1.006))
