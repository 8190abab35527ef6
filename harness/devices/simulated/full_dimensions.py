"""What blocks that run at full dimensions wrote: a sample of them, or as many as are affordable."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from ...judge.findings import judge
from ...judge.full_size import judge_full_size, judge_wide
from ...judge.full_size_findings import Checked, nothing_launched, says_too_little_written
from ...judge.reports import CaseReport, Finding, TransferReport
from ...process.children import both
from ...process.scratch import scratch_folder
from ...records.evaluations import StageResult
from ...records.outcomes import Outcome
from ...records.tasks import Task
from ...simt import LaunchCounters, ProfileReport, Reply, require_sense
from ...task.full_case import FullCase, NoFullCase, exact_full_case_now
from .runs import Planned, Runs, no_report

SAMPLE_INSTRUCTIONS = 120_000_000
"""As WIDE_INSTRUCTIONS, where nothing else says whether an answer is right."""
WIDE_INSTRUCTIONS = 60_000_000
"""Warp instructions of one launch() for which a confirmation runs blocks, all of them where that is
enough; costs are estimates, so a run may take twice as much."""
WHOLE_INSTRUCTIONS = 300_000_000
"""The same where of some output nothing could be compared otherwise, or it seems that some is not
written, and all blocks are no more."""
REFUTED = (
    "all its blocks together do more than twice the work that the profiled ones told: these do not "
    "tell its time"
)
"""Of a launch whose blocks were all to be run: a block that none of the sample is like would
otherwise keep the others from being looked at."""


def sampled_answer(
    runs: Runs, planned: Planned, cases: Path, full_case: FullCase | None, draw: str
) -> tuple[Reply[ProfileReport], StageResult | None, Checked]:
    """Return the profile's reply, how what the sampled blocks wrote fails, what was compared.

    Without a report there is nothing to say but why.
    """
    task = planned.task
    with scratch_folder("profile") as folder:
        outputs = folder / "outputs"
        outputs.mkdir()
        reply = runs.run(
            ProfileReport, "profile", planned, cases, outputs, folder, full_case, {"draw": draw}
        )
        if reply.report is None:
            return reply, None, Checked(0)
        require_sense(reply.report)
        failed = judge(_as_case(task, reply.report))
        if failed:
            return reply, failed, Checked(0)
        if not reply.report.launches:
            return reply, nothing_launched(task), Checked(0)
        failed, checked = judge_full_size(task, full_case, reply.report.launches, outputs)
        if failed and full_case:
            exact = exact_full_case_now(task, full_case)
            if isinstance(exact, FullCase):
                failed, checked = judge_full_size(task, exact, reply.report.launches, outputs)
            elif failed.outcome is Outcome.WRONG_ANSWER:
                failed, checked = None, Checked(0, _unknown(exact).reason)
        return reply, failed, checked


def wide_answer(
    runs: Runs,
    planned: Planned,
    cases: Path,
    full_case: FullCase,
    sampled: ProfileReport,
    draw: str,
    budget: int,
    *,
    doubted: bool = False,
) -> tuple[StageResult | None, Checked]:
    """Return how two runs of as many blocks as are affordable fail, and what was compared.

    `draw` chooses the blocks where not all are; `sampled` tells what they cost, `budget` how
    many warp instructions of them are affordable. More are where these come to nothing, or where it
    is `doubted` that the blocks write all that they should.
    """

    def answered(most: int) -> tuple[StageResult | None, Checked]:
        counts = _affordable(sampled, most)
        complete = counts == [each.blocks for each in _kernels(sampled)]
        wide = {"seed": draw, "blocks": counts, "complete": complete}
        return _two_runs(runs, planned, cases, full_case, wide, most)

    all_of_them = budget < sum(_works(sampled)) <= WHOLE_INSTRUCTIONS
    if all_of_them and doubted:
        return answered(WHOLE_INSTRUCTIONS)
    failed, checked = answered(budget)
    unseen = not checked.elements or bool(checked.uncompared or checked.unproven)
    if all_of_them and (says_too_little_written(failed) if failed else unseen):
        return answered(WHOLE_INSTRUCTIONS)
    return failed, checked


def _two_runs(
    runs: Runs, planned: Planned, cases: Path, full_case: FullCase, wide: dict[str, Any],
    budget: int,
) -> tuple[StageResult | None, Checked]:  # fmt: skip
    """Return how two runs of the blocks that `wide` asks for fail, and what was compared."""
    task = planned.task
    with scratch_folder("wide") as folder:

        def run(again: bool) -> tuple[Reply[ProfileReport], Path]:
            own = folder / ("again" if again else "first")
            outputs = own / "outputs"
            outputs.mkdir(parents=True)
            reply = runs.run(
                ProfileReport, "wide", planned, cases, outputs, own, full_case,
                {"wide": wide | {"again": again}}, most_instructions=2 * budget,
            )  # fmt: skip
            return reply, outputs

        (first, one), (second, other) = both(partial(run, False), partial(run, True))
        for reply in (first, second):
            if reply.outcome is Outcome.TIMED_OUT:
                return None, Checked(0, "all blocks together take too long to be simulated")
            if reply.report is None:
                return no_report(reply, planned.built), Checked(0)
            failed = judge(_as_case(task, reply.report, "all blocks"))
            if failed and all(found.kind == "timed_out" for found in failed.diagnostics):
                if wide["complete"]:
                    refuted = Finding("unsupported", REFUTED, failed.diagnostics[0].kernel)
                    return judge(CaseReport(reports=[refuted])), Checked(0)
                why = "all blocks together are too much work to be simulated"
                return None, Checked(0, why)
            if failed:
                return failed, Checked(0)
        assert first.report is not None
        launches = first.report.launches
        failed, checked = judge_wide(task, full_case, launches, (one, other))
        if failed:
            exact = exact_full_case_now(task, full_case)
            if isinstance(exact, FullCase):
                return judge_wide(task, exact, launches, (one, other))
            return None, Checked(0, _unknown(exact).reason)
        return failed, checked


def _as_case(task: Task, report: ProfileReport, name: str = "") -> CaseReport:
    """Return what a run at full dimensions met as a case, the inputs that it wrote to included."""
    written = {
        place
        for launch in report.launches
        for place in ([launch.place] if isinstance(launch, TransferReport) else launch.written)
    }
    modified = [
        spec.name
        for place, spec in enumerate(task.full.tensors)
        if place in written and spec.role != "output"
    ]
    return CaseReport(name=name, faults=report.faults, reports=report.reports, modified=modified)


def _affordable(sampled: ProfileReport, budget: int) -> list[int]:
    """Return how many blocks of each launch to run, all of the cheaper launches first.

    What the budget has no room for whole shares what is left of it.
    """
    work, launches = _works(sampled), _kernels(sampled)
    left, counts = float(budget), [0] * len(launches)
    by_cost = sorted(range(len(launches)), key=work.__getitem__)
    for place, index in enumerate(by_cost):
        part = min(work[index], left / (len(launches) - place))
        share = 1.0 if work[index] <= left / (len(launches) - place) else part / work[index]
        counts[index] = max(1, int(share * launches[index].blocks))
        left -= part
    return counts


def _works(sampled: ProfileReport) -> list[float]:
    """Return the warp instructions of each launch, by its first sample."""
    launches = _kernels(sampled)
    return [
        (each if each.like is None else launches[each.like]).samples[0].warp_instructions
        for each in launches
    ]


def _kernels(sampled: ProfileReport) -> list[LaunchCounters]:
    return [each for each in sampled.launches if not isinstance(each, TransferReport)]


def _unknown(why: NoFullCase) -> NoFullCase:
    """Return why an answer beyond the tolerance is not called wrong."""
    told = f"it is beyond the tolerance, and PyTorch's own error is not known: {why.reason}"
    return NoFullCase(reason=told)
