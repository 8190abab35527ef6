"""How long the launches of a profiled candidate take together, and how well that is known."""

from __future__ import annotations

from statistics import median

from ...gpus import Gpu
from ...judge.border import Malformed
from ...judge.findings import no_launch
from ...judge.full_size_findings import Checked
from ...judge.reports import TransferReport
from ...records.builds import Build
from ...records.evaluations import StageResult
from ...records.outcomes import Outcome
from ...records.profiles import LaunchProfile, Profile
from ...records.timings import Provenance, Timing
from ...simt import ProfileReport, describe_launch, describe_transfer, hidden_microseconds
from ..protocol import Measurement

LONGEST_MICROSECONDS = 1e12
STANDARD_ERRORS = 2.0
"""Of the blocks' sample, on each side of a time: what is outside is one of twenty."""


def measured(
    gpu: Gpu, report: ProfileReport, built: Build, checked: Checked, told: bool
) -> Measurement:
    """Return a profile and its time; what was `checked` is told in full where `told`.

    Raises:
        Malformed: a time is none.
    """
    resources = {kernel.kernel: kernel for kernel in built.kernels}
    launches: list[LaunchProfile] = []
    times: list[tuple[float, ...]] = []
    described: list[tuple[LaunchProfile, tuple[float, ...]]] = []
    places: list[int] = []
    unsure = 0.0
    for told_of in report.launches:
        if isinstance(told_of, TransferReport):
            moved = describe_transfer(gpu, told_of)
            launches.append(moved)
            times.append((moved.microseconds,))
            continue
        if told_of.like is None:
            found = describe_launch(gpu, resources.get(told_of.kernel), told_of)
        else:
            found = described[told_of.like]
        described.append(found)
        launched, samples = found
        if told_of.like is not None:
            launched = launched.model_copy(update={"like": places[told_of.like]})
        places.append(len(launches))
        launches.append(launched)
        times.append(samples)
        unsure += STANDARD_ERRORS * told_of.standard_error * median(samples)
    if not launches:
        return Measurement(stage=no_launch(built))
    count = max(len(samples) for samples in times)
    totals = tuple(
        sum(samples[min(i, len(samples) - 1)] for samples in times)
        - hidden_microseconds(gpu, len(times))
        for i in range(count)
    )
    if not all(0 < total < LONGEST_MICROSECONDS for total in totals):
        raise Malformed("a launch takes a time that cannot be")
    middle = float(median(totals))
    factor = 1 + unsure / middle
    profile = Profile(launches=tuple(launches), gpu=gpu.name, provenance=Provenance.SIMULATED)
    timing = Timing(
        microseconds=middle, samples=totals,
        interval=(min(totals) / factor, max(totals) * factor), method="time model",
        provenance=Provenance.SIMULATED, elapsed_cycles=profile.elapsed_cycles,
    )  # fmt: skip
    return Measurement(
        stage=StageResult(
            outcome=Outcome.PASSED,
            build=built,
            facts=checked.facts,
            diagnostics=checked.diagnostics if told else (),
        ),  # fmt: skip
        timing=timing,
        profile=profile.focused(),
    )
