"""The simulated GPU as a device: real compiler, candidates run warp by warp on the CPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...build.toolchain import Toolchain, find_toolchain
from ...gpus import Gpu, find_gpu
from ...judge.border import Malformed
from ...judge.findings import judge_build
from ...judge.full_size_findings import Checked, says_too_little_written, verified_by_sample
from ...judge.run_verdict import degenerate_in_words, judge_run, with_constants, with_limits
from ...judge.written_sizes import with_written_sizes
from ...process.children import off_loop, together
from ...process.fork_client import server_of
from ...process.scratch import scratch_folder
from ...records.evaluations import DeviceIdentity, StageResult
from ...records.identity import source_sha256
from ...records.outcomes import Outcome
from ...records.tasks import Task
from ...simt import WORKER
from ...task.cases import (
    Case,
    claimed_case_now,
    prepare_cases_now,
    read_cases,
    read_constants,
    read_degenerate,
    secret_cases,
)
from ...task.claims import NOT_AN_INPUT, ClaimedInput, NotAnInput
from ...task.full_case import (
    FullCase,
    NoFullCase,
    begin_full_case,
    prepare_full_case_now,
    secret_full_case,
)
from ..protocol import Capability, Device, Measurement
from .full_dimensions import SAMPLE_INSTRUCTIONS, WIDE_INSTRUCTIONS, sampled_answer, wide_answer
from .runs import PROFILE_SECONDS, VERIFY_SECONDS, Planned, Runs, missing_isolation, no_report
from .time_taken import measured

CONSTANTS_AT_A_TIME = 2
"""Cases in which a constant is another that run side by side: each is a process of its own."""
MOST_WHOLE_WORK = 1 << 28
"""Of a task that is verified whole at small dimensions: seven cases of it take about a minute."""
_AT_OTHER_SIZES = (
    Outcome.OUT_OF_BOUNDS, Outcome.WRONG_ANSWER, Outcome.UNINITIALIZED_READ, Outcome.CRASHED,
    Outcome.RACE,
)  # fmt: skip
"""What becomes of a kernel that has other dimensions written into it."""


class SimulatedDevice(Device):
    """Evaluates candidates for a named GPU without one. Every number is marked simulated.

    Args:
        gpu: a name of harness/gpus.py.
        toolchain: the CUDA compiler; found on this machine when not given.
        verify_seconds: of the processor, for one verification run.
        profile_seconds: of the processor, for one profile run.

    Raises:
        UserError: unknown GPU, or no compiler.
    """

    def __init__(
        self,
        gpu: str,
        toolchain: Toolchain | None = None,
        *,
        verify_seconds: float = VERIFY_SECONDS,
        profile_seconds: float = PROFILE_SECONDS,
    ) -> None:
        self.gpu: Gpu = find_gpu(gpu)
        self._toolchain = toolchain or find_toolchain()
        self._runs = Runs(self.gpu, self._toolchain, verify_seconds, profile_seconds)

    @property
    def identity(self) -> DeviceIdentity:
        """What this device is: part of every evaluation's key."""
        return DeviceIdentity(
            kind="simulated", gpu=self.gpu.name, arch=self.gpu.arch,
            toolchain=self._toolchain.identity,
        )  # fmt: skip

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Every request has a process of its own: nothing is fresher for a confirmation."""
        return frozenset({Capability.COUNTERS, Capability.CLAIMS})

    async def compile(self, task: Task, source: str) -> StageResult:
        """Compile the source for both variants and check what its host half asks for."""
        return await off_loop(self._compile, task, source)

    async def verify(self, task: Task, source: str, sample: int = 0) -> StageResult:
        """Run every case on the simulated GPU with all checks, and compare with PyTorch.

        A `sample` other than 0 has cases of its own, drawn from that number.
        """
        return await off_loop(self._verify, task, source, sample)

    async def verify_claim(self, task: Task, source: str, claim: ClaimedInput) -> StageResult:
        """Run a claimed input on the simulated GPU with all checks, and compare with PyTorch."""
        return await off_loop(self._verify_claim, task, source, claim)

    async def profile(self, task: Task, source: str, sample: int = 0) -> Measurement:
        """Sample the candidate's blocks at full dimensions and estimate its time.

        Which blocks run depends on the source and on `sample`. Another number than 0 asks for a
        confirmation: its inputs and its blocks are drawn from that number, and as many blocks as
        are affordable run twice, in other orders.
        """
        try:
            return await off_loop(self._profile, task, source, sample)
        except Malformed as malformed:
            return Measurement(stage=malformed.failure())

    def _compile(self, task: Task, source: str) -> StageResult:
        server_of(os.getpid(), WORKER).warm()
        # A first profile waits for it, and PyTorch needs longer than compiling and verifying.
        begin_full_case(task)
        variants = [task.full] if task.full == task.verify else [task.full, task.verify]
        builds = together(*(partial(self._runs.build, source, variant) for variant in variants))
        for built in builds:
            if refused := judge_build(built, source):
                return refused
        return StageResult(outcome=Outcome.PASSED, build=builds[0])

    def _verify(self, task: Task, source: str, sample: int) -> StageResult:
        public = prepare_cases_now(task)
        solved_by = read_degenerate(public)
        if solved_by and not task.reading.allow_degenerate:
            return StageResult(
                outcome=Outcome.DEGENERATE_TASK, reason=degenerate_in_words(solved_by)
            )
        if _is_sampled(task):
            return self._verify_by_sample(task, source, sample, public)
        planned = self._planned(task, source, verifying=True)
        if isinstance(planned, StageResult):
            return planned
        verdict = partial(self._verdict, source, planned)
        if sample:
            with secret_cases(task, sample) as cases:
                return verdict(cases, read_cases(cases))
        judged = verdict(public, read_cases(public))
        if judged.outcome is not Outcome.PASSED:
            return judged
        # Each on its own: what relies on a constant may crash where that is another.
        constants = read_constants(public)
        found = together(
            *(partial(verdict, public, [case], checked=0) for case in constants),
            at_a_time=CONSTANTS_AT_A_TIME,
        )
        relied = [
            case.name for case, each in zip(constants, found, strict=True)
            if each.outcome is not Outcome.PASSED
        ]  # fmt: skip
        return with_constants(judged, relied)

    def _verify_claim(self, task: Task, source: str, claim: ClaimedInput) -> StageResult:
        if _is_sampled(task):
            why = "nothing smaller than the full dimensions runs: no input is tried whole there"
            return StageResult(outcome=Outcome.PASSED, facts={NOT_AN_INPUT: why})
        planned = self._planned(task, source, verifying=True)
        if isinstance(planned, StageResult):
            return planned
        try:
            folder = claimed_case_now(task, claim)
        except NotAnInput as refusal:
            return StageResult(outcome=Outcome.PASSED, facts={NOT_AN_INPUT: str(refusal)})
        return self._verdict(source, planned, folder, read_cases(folder))

    def _verify_by_sample(self, task: Task, source: str, sample: int, public: Path) -> StageResult:
        """Judge by what some blocks write at full dimensions: nothing smaller can be run whole.

        Which blocks do hangs on the source, and for a `sample` other than 0 on that number, from
        which the inputs are drawn too.
        """
        if not sample:
            draw = f"verify {source_sha256(source)}"
            return self._judge_sample(task, source, prepare_full_case_now(task), public, draw)
        with secret_full_case(task, sample) as own:
            draw = f"secret {sample} verify"
            return self._judge_sample(task, source, own, public, draw)

    def _judge_sample(
        self, task: Task, source: str, case: FullCase | NoFullCase, public: Path, draw: str
    ) -> StageResult:
        if isinstance(case, NoFullCase):
            return verified_by_sample(Checked(0, case.reason))
        planned = self._planned(task, source, verifying=False)
        if isinstance(planned, StageResult):
            return planned
        reply, failed, seen = sampled_answer(self._runs, planned, public, case, draw)
        if reply.report is None:
            return no_report(reply, planned.built)
        # Too little written by few blocks: more of them tell.
        if failed is None or says_too_little_written(failed):
            failed, checked = wide_answer(
                self._runs, planned, public, case, reply.report, draw, SAMPLE_INSTRUCTIONS
            )
            checked = replace(checked, race_checked=seen.race_checked)
        found = failed or verified_by_sample(checked)
        if found.outcome is Outcome.PASSED:
            found = with_limits(found, task, public)
        facts = found.facts | missing_isolation(reply.report, planned.plan)
        return found.model_copy(update={"build": planned.built, "facts": facts})

    def _planned(self, task: Task, source: str, *, verifying: bool) -> Planned | StageResult:
        """Build a candidate and have its host half say what it does, or return what refuses it."""
        built = self._runs.build(source, task.verify if verifying else task.full)
        refused = judge_build(built, source) or self._runs.misread(built)
        return refused or self._runs.planned(task, built, verifying=verifying)

    def _verdict(
        self,
        source: str,
        planned: Planned,
        folder_of_cases: Path,
        cases: Sequence[Case],
        checked: int | None = None,
    ) -> StageResult:
        """Return what comes of some cases; `checked` says how many run with all checks at least.

        None where that is the run's to say.
        """
        with scratch_folder("verify") as folder:
            task, built = planned.task, planned.built
            outputs = folder / "0" / "outputs"
            reply = self._runs.run_cases(planned, folder_of_cases, folder, cases, checked)
            if reply.report is None:
                return no_report(reply, built)
            judged = judge_run(task, folder_of_cases, cases, outputs, reply.report, built, source)
            if judged.outcome in _AT_OTHER_SIZES:
                judged = with_written_sizes(judged, task, source)
            facts = judged.facts | missing_isolation(reply.report, planned.plan)
            return judged.model_copy(update={"facts": facts})

    def _profile(self, task: Task, source: str, sample: int) -> Measurement:
        if not sample:
            return self._profiled(task, source, 0, prepare_full_case_now(task), "")
        with secret_full_case(task, sample) as own:
            if isinstance(own, FullCase):
                return self._profiled(task, source, sample, own, "")
            usual = prepare_full_case_now(task)
            why = own.reason if isinstance(usual, FullCase) else ""
            return self._profiled(task, source, sample, usual, why)

    def _profiled(
        self,
        task: Task,
        source: str,
        sample: int,
        prepared: FullCase | NoFullCase,
        not_own: str,
    ) -> Measurement:
        """Profile on a case; `not_own` says why a confirmation has none of its own."""
        cases = prepare_cases_now(task)
        planned = self._planned(task, source, verifying=False)
        if isinstance(planned, StageResult):
            return Measurement(stage=planned)
        built = planned.built
        full_case = prepared if isinstance(prepared, FullCase) else None
        draw = f"secret {sample}" if sample else ""
        reply, failed, checked = sampled_answer(self._runs, planned, cases, full_case, draw)
        if reply.report is None:
            return Measurement(stage=no_report(reply, built))
        report = reply.report
        if isinstance(prepared, NoFullCase):
            checked = replace(checked, withheld=prepared.reason)
        # Too little written by the sampled blocks says that the time is not known, not that the
        # answer is wrong: all blocks together may say so.
        unsure = failed is not None and says_too_little_written(failed)
        if full_case and (unsure or (sample and not failed)):
            wrong, wide = wide_answer(
                self._runs, planned, cases, full_case, report, draw, WIDE_INSTRUCTIONS,
                doubted=unsure,
            )  # fmt: skip
            if unsure and not wrong and wide.blocks == 1:
                # All is written and right: blocks that differ were drawn amiss, so others are.
                other, failed, checked = sampled_answer(
                    self._runs, planned, cases, full_case, f"{draw} again"
                )
                if other.report is None:
                    return Measurement(stage=no_report(other, built))
                report = other.report
            if wrong:
                failed = wrong
            elif wide.blocks and (wide.share >= checked.share or not checked.elements):
                checked = replace(wide, race_checked=checked.race_checked)
            elif wide.withheld:
                told = "; ".join(dict.fromkeys(filter(None, (checked.withheld, wide.withheld))))
                checked = replace(checked, withheld=told)
        if failed:
            return Measurement(stage=failed.model_copy(update={"build": built}))
        # An unconfirmed candidate's withheld part is compared when it is confirmed.
        told_now = bool(sample) or full_case is None
        found = measured(self.gpu, report, built, checked, told_now)
        facts = found.stage.facts | missing_isolation(report, planned.plan)
        facts |= {"full_size_not_secret": not_own} if not_own else {}
        return found.model_copy(update={"stage": found.stage.model_copy(update={"facts": facts})})


def _is_sampled(task: Task) -> bool:
    """Say whether a task is judged by a sample of blocks: whole grids take too long."""
    return task.verify.is_large or task.verify.work > MOST_WHOLE_WORK
