"""What is left of a profile where time alone is known."""

from __future__ import annotations

import asyncio

import graph_support
import pytest

from kernelblaster.harness.records.profiles import LaunchProfile, Profile
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.memory.knowledge.states.signature import explain, signature_of
from kernelblaster.tools.evaluation.time_alone import time_alone
from kernelblaster.tools.wording.measurements import profile_text

TASK = graph_support.text_task()


def counted(*microseconds: float) -> Profile:
    measured = asyncio.run(graph_support.TextDevice().profile(TASK, graph_support.INITIAL))
    assert measured.profile is not None
    (launch,) = measured.profile.launches
    launches = tuple(
        launch.model_copy(
            update={
                "microseconds": each, "bottleneck_ties": ("l2",), "advice": ("Use fewer.",),
                "metrics": launch.metrics | {"gpc__cycles_elapsed.max": 1.7e3 * each},
            }
        )
        for each in microseconds
    )  # fmt: skip
    return Profile(launches=launches, gpu="H100", provenance=Provenance.SIMULATED)


def test_times_and_shapes_stay_and_nothing_that_was_counted() -> None:
    before = counted(50.0, 2.0)
    after = time_alone(TASK, before)
    assert (after.microseconds, after.elapsed_cycles) == (52.0, before.elapsed_cycles)
    for launch, whole in zip(after.launches, before.launches, strict=True):
        kept = {"kernel", "grid", "block", "microseconds", "like", "dynamic_shared_bytes"}
        assert launch.model_dump(include=kept) == whole.model_dump(include=kept)
        assert set(launch.metrics) == {"gpc__cycles_elapsed.max"}
        assert not (launch.terms or launch.lines or launch.bottleneck_ties)
    assert [launch.bottleneck for launch in after.launches] == ["latency", "launch"]
    assert "DRAM" in profile_text(before) and "DRAM" not in profile_text(after)


def test_what_holds_back_does_not_hang_on_what_was_counted() -> None:
    def with_bottleneck(name: str) -> Profile:
        launch = counted(50.0).launches[0]
        changed = launch.model_copy(update={"bottleneck": name, "terms": {name: 50.0}})
        return Profile(launches=(changed,), gpu="H100", provenance=Provenance.SIMULATED)

    assert time_alone(TASK, with_bottleneck("tensor")) == time_alone(TASK, with_bottleneck("lsu"))


@pytest.mark.parametrize("microseconds", [1.0, 100.0])
def test_nobody_is_told_that_uncounted_units_are_idle(microseconds: float) -> None:
    bare: LaunchProfile = time_alone(TASK, counted(microseconds)).launches[0]
    profile = Profile(launches=(bare,), gpu="H100", provenance=Provenance.SIMULATED)
    told = " ".join(explain(signature_of(profile), limit=20))
    assert "throughput" not in told and "occupancy" not in told
    assert bare.bottleneck in told or not told
