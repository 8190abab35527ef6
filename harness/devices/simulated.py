"""The simulated GPU as a device: real compiler, candidates run warp by warp on the CPU."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from ..build.toolchain import Toolchain, build_now, find_toolchain
from ..gpus import Gpu, find_gpu
from ..host.plan import Plan
from ..host.planning import Asked, plan_launch
from ..host.process import host_program
from ..host.properties import properties_of
from ..judge.border import Malformed
from ..judge.findings import judge, judge_build, no_launch
from ..judge.full_size import (
    NOT_WRITTEN,
    Checked,
    judge_full_size,
    judge_wide,
    nothing_launched,
    verified_by_sample,
)
from ..judge.reports import CaseReport, TransferReport, VerifyReport
from ..judge.run_verdict import degenerate_in_words, judge_run, with_constants, with_limits
from ..judge.written_sizes import with_written_sizes
from ..process.children import both, off_loop, together
from ..process.fork_client import server_of
from ..process.scratch import scratch_folder
from ..records.builds import Build
from ..records.evaluations import DeviceIdentity, StageResult
from ..records.identity import source_sha256
from ..records.outcomes import Outcome
from ..records.profiles import LaunchProfile, Profile
from ..records.tasks import Task, TaskVariant
from ..records.timings import Provenance, Timing
from ..simt import (
    WORKER,
    Limits,
    ProfileReport,
    Reply,
    Report,
    core_library,
    describe_launch,
    describe_transfer,
    hidden_microseconds,
    isolation_facts,
    machine_listing,
    misreading,
    require_sense,
    run_candidate,
)
from ..task.cases import (
    Case,
    claimed_case_now,
    prepare_cases_now,
    read_cases,
    read_constants,
    read_degenerate,
    secret_cases,
)
from ..task.claims import NOT_AN_INPUT, ClaimedInput, NotAnInput
from ..task.contract import header
from ..task.full_case import (
    FullCase,
    NoFullCase,
    begin_full_case,
    exact_full_case_now,
    prepare_full_case_now,
    secret_full_case,
)
from .protocol import Capability, Device, Measurement

VERIFY_SECONDS = 60.0
PROFILE_SECONDS = 60.0
CONSTANTS_AT_A_TIME = 2
"""Cases in which a constant is another that run side by side: each is a process of its own."""
VERIFY_INSTRUCTIONS = 40_000_000
INSTRUCTIONS_A_WORK = 2
"""Warp instructions of one launch() at the verify dimensions, and more for each piece of work: a
plain kernel takes 40 instructions for a multiply-add, by 32 threads at once."""
MUCH_WORK = 1 << 23
"""Of a task whose cases run in two processes: one alone would take long, or meet the limit."""
PROFILE_INSTRUCTIONS = 150_000_000
MOST_WHOLE_WORK = 1 << 28
"""Of a task that is verified whole at small dimensions: seven cases of it take about a minute."""
SAMPLE_INSTRUCTIONS = 120_000_000
"""As WIDE_INSTRUCTIONS, where nothing else says whether an answer is right."""
WIDE_INSTRUCTIONS = 60_000_000
"""Warp instructions of one launch() for which a confirmation runs blocks, all of them where that is
enough; costs are estimates, so a run may take twice as much."""
VERIFY_WORKSPACE = 1 << 30
"""Bytes of workspace at the verify dimensions: they are poisoned, so they cost real memory."""
PROFILE_WORKSPACE = 8 << 30
LARGEST_OUTPUT = 8 << 30
LONGEST_MICROSECONDS = 1e12
STANDARD_ERRORS = 2.0
"""Of the blocks' sample, on each side of a time: what is outside is one of twenty."""
_CLUSTERS = (
    "cudaLaunchKernelEx: thread block clusters: not simulated, this candidate needs a real GPU"
)
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
        self._verify_seconds = verify_seconds
        self._profile_seconds = profile_seconds
        self._host_program: Path | None = None

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
        builds = together(*(partial(self._build, source, variant) for variant in variants))
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
        built = self._build(source, task.verify)
        refused = judge_build(built, source) or self._misread(built)
        if refused:
            return refused
        plan = self._plan(built, task.verify, VERIFY_WORKSPACE)
        if isinstance(plan, StageResult):
            return plan
        verdict = partial(self._verdict, task, source, built, plan)
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
        built = self._build(source, task.verify)
        if refused := judge_build(built, source):
            return refused
        plan = self._plan(built, task.verify, VERIFY_WORKSPACE)
        if isinstance(plan, StageResult):
            return plan
        try:
            folder = claimed_case_now(task, claim)
        except NotAnInput as refusal:
            return StageResult(outcome=Outcome.PASSED, facts={NOT_AN_INPUT: str(refusal)})
        return self._verdict(task, source, built, plan, folder, read_cases(folder))

    def _verify_by_sample(
        self, task: Task, source: str, sample: int, public: Path
    ) -> StageResult:
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
        built = self._build(source, task.full)
        refused = judge_build(built, source) or self._misread(built)
        if refused:
            return refused
        plan = self._plan(built, task.full, self._most_workspace())
        if isinstance(plan, StageResult):
            return plan
        reply, failed, seen = self._sampled_answer(built, plan, task, public, case, draw)
        if reply.report is None:
            return _no_report(reply, built)
        # Too little written by few blocks: more of them tell.
        if failed is None or failed.diagnostics[0].kind == NOT_WRITTEN:
            failed, checked = self._wide_answer(
                built, plan, task, public, case, reply.report, draw, SAMPLE_INSTRUCTIONS
            )
            checked = replace(checked, race_checked=seen.race_checked)
        found = failed or verified_by_sample(checked)
        if found.outcome is Outcome.PASSED:
            found = with_limits(found, task, public)
        facts = found.facts | _isolation(reply.report, plan)
        return found.model_copy(update={"build": built, "facts": facts})

    def _verdict(
        self,
        task: Task,
        source: str,
        built: Build,
        plan: Plan,
        folder_of_cases: Path,
        cases: Sequence[Case],
        checked: int | None = None,
    ) -> StageResult:
        """Return what comes of some cases; `checked` says how many run with all checks at least.

        None where that is the run's to say.
        """
        with scratch_folder("verify") as folder:
            outputs = folder / "0" / "outputs"
            reply = self._run_cases(built, plan, task, folder_of_cases, folder, cases, checked)
            if reply.report is None:
                return _no_report(reply, built)
            judged = judge_run(
                task, folder_of_cases, cases, outputs, reply.report, built, source
            )
            if judged.outcome in _AT_OTHER_SIZES:
                judged = with_written_sizes(judged, task, source)
            facts = judged.facts | _isolation(reply.report, plan)
            return judged.model_copy(update={"facts": facts})

    def _run_cases(
        self,
        built: Build,
        plan: Plan,
        task: Task,
        folder_of_cases: Path,
        folder: Path,
        cases: Sequence[Case],
        checked: int | None,
    ) -> Reply[VerifyReport]:
        """Run cases, those of a large task in two processes; `checked` is as in `_verdict`.

        Outputs are left in 0/outputs below the folder.
        """

        def run(part: Sequence[Case], number: int, **more: Any) -> Reply[VerifyReport]:
            own = folder / str(number)
            outputs = own / "outputs"
            outputs.mkdir(parents=True)
            return self._run(
                VerifyReport, "verify", built, plan, task, folder_of_cases, outputs, own,
                more=more, cases=part,
            )  # fmt: skip

        if checked is not None:
            return run(cases, 0, checked_cases=checked, again=checked > 0)
        if len(cases) < 2 or task.verify.work <= MUCH_WORK:
            return run(cases, 0)
        first, second = both(
            partial(run, cases[::2], 0, checked_cases=1),
            partial(run, cases[1::2], 1, checked_cases=1, again=False),
        )
        if first.report is None or second.report is None:
            return first if first.report is None else second
        for left in (folder / "1" / "outputs").iterdir():
            left.rename(folder / "0" / "outputs" / left.name)
        told = {case.name: case for case in (*first.report.cases, *second.report.cases)}
        merged = VerifyReport([], isolation_missing=first.report.isolation_missing)
        for case in cases:
            if case.name not in told:  # One before it shows a fault.
                break
            merged.cases.append(told[case.name])
            if told[case.name].shows_fault:
                break
        return replace(first, report=merged)

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
        built = self._build(source, task.full)
        refused = judge_build(built) or self._misread(built)
        if refused:
            return Measurement(stage=refused)
        plan = self._plan(built, task.full, self._most_workspace())
        if isinstance(plan, StageResult):
            return Measurement(stage=plan)
        full_case = prepared if isinstance(prepared, FullCase) else None
        draw = f"secret {sample}" if sample else ""
        reply, failed, checked = self._sampled_answer(built, plan, task, cases, full_case, draw)
        if reply.report is None:
            return Measurement(stage=_no_report(reply, built))
        if isinstance(prepared, NoFullCase):
            checked = replace(checked, withheld=prepared.reason)
        # Too little written by the sampled blocks says that the time is not known, not that the
        # answer is wrong: all blocks together may say so.
        unsure = failed is not None and failed.diagnostics[0].kind == NOT_WRITTEN
        if full_case and (unsure or (sample and not failed)):
            wrong, wide = self._wide_answer(
                built, plan, task, cases, full_case, reply.report, draw, WIDE_INSTRUCTIONS
            )
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
        measured = self._measure(reply.report, built, checked, told_now)
        facts = measured.stage.facts | _isolation(reply.report, plan)
        facts |= {"full_size_not_secret": not_own} if not_own else {}
        return measured.model_copy(
            update={"stage": measured.stage.model_copy(update={"facts": facts})}
        )

    def _sampled_answer(
        self,
        built: Build,
        plan: Plan,
        task: Task,
        cases: Path,
        full_case: FullCase | None,
        draw: str,
    ) -> tuple[Reply[ProfileReport], StageResult | None, Checked]:
        """Return the profile's reply, how what the sampled blocks wrote fails, what was compared.

        Without a report there is nothing to say but why.
        """
        with scratch_folder("profile") as folder:
            outputs = folder / "outputs"
            outputs.mkdir()
            reply = self._run(
                ProfileReport, "profile", built, plan, task, cases, outputs, folder, full_case,
                {"draw": draw},
            )  # fmt: skip
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
                    failed, checked = judge_full_size(
                        task, exact, reply.report.launches, outputs
                    )
                elif failed.outcome is Outcome.WRONG_ANSWER:
                    failed, checked = None, Checked(0, _unknown(exact).reason)
            return reply, failed, checked

    def _wide_answer(
        self,
        built: Build,
        plan: Plan,
        task: Task,
        cases: Path,
        full_case: FullCase,
        sampled: ProfileReport,
        draw: str,
        budget: int,
    ) -> tuple[StageResult | None, Checked]:
        """Return how two runs of as many blocks as are affordable fail, and what was compared.

        `draw` chooses the blocks where not all are; `sampled` tells what they cost, `budget` how
        many warp instructions of them are affordable.
        """
        with scratch_folder("wide") as folder:
            counts = _affordable(sampled, budget)
            wide = {"seed": draw, "blocks": counts, "complete": counts == _blocks(sampled)}

            def run(again: bool) -> tuple[Reply[ProfileReport], Path]:
                own = folder / ("again" if again else "first")
                outputs = own / "outputs"
                outputs.mkdir(parents=True)
                reply = self._run(
                    ProfileReport, "wide", built, plan, task, cases, outputs, own, full_case,
                    {"wide": wide | {"again": again}}, most_instructions=2 * budget,
                )  # fmt: skip
                return reply, outputs

            (first, one), (second, other) = both(partial(run, False), partial(run, True))
            for reply in (first, second):
                if reply.outcome is Outcome.TIMED_OUT:
                    return None, Checked(0, "all blocks together take too long to be simulated")
                if reply.report is None:
                    return _no_report(reply, built), Checked(0)
                failed = judge(_as_case(task, reply.report, "all blocks"))
                if failed and all(found.kind == "timed_out" for found in failed.diagnostics):
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

    def _measure(
        self, report: ProfileReport, built: Build, checked: Checked, told: bool
    ) -> Measurement:
        resources = {kernel.kernel: kernel for kernel in built.kernels}
        launches: list[LaunchProfile] = []
        times: list[tuple[float, ...]] = []
        described: list[tuple[LaunchProfile, tuple[float, ...]]] = []
        places: list[int] = []
        unsure = 0.0
        for told_of in report.launches:
            if isinstance(told_of, TransferReport):
                moved = describe_transfer(self.gpu, told_of)
                launches.append(moved)
                times.append((moved.microseconds,))
                continue
            if told_of.like is None:
                found = describe_launch(self.gpu, resources.get(told_of.kernel), told_of)
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
            - hidden_microseconds(self.gpu, len(times))
            for i in range(count)
        )
        if not all(0 < total < LONGEST_MICROSECONDS for total in totals):
            raise Malformed("a launch takes a time that cannot be")
        middle = float(median(totals))
        factor = 1 + unsure / middle
        profile = Profile(
            launches=tuple(launches), gpu=self.gpu.name, provenance=Provenance.SIMULATED
        )
        timing = Timing(
            microseconds=middle, samples=totals,
            interval=(min(totals) / factor, max(totals) * factor), method="time model",
            provenance=Provenance.SIMULATED, elapsed_cycles=profile.elapsed_cycles,
        )  # fmt: skip
        return Measurement(
            stage=StageResult(
                outcome=Outcome.PASSED, build=built,
                facts=checked.facts,
                diagnostics=checked.diagnostics if told else (),
            ),  # fmt: skip
            timing=timing,
            profile=profile.focused(),
        )

    def _build(self, source: str, variant: TaskVariant) -> Build:
        return build_now(self._toolchain, source, header(variant), self.gpu.arch)

    def _plan(
        self, built: Build, variant: TaskVariant, workspace_limit: int
    ) -> Plan | StageResult:
        """Return what launch() does at a variant's dimensions, or how its host half fails."""
        gpu = properties_of(self.gpu)
        plan = plan_launch(self._native(), Asked(built, variant.tensors, gpu, workspace_limit))
        if isinstance(plan, Plan) and any(launch.cluster > 1 for launch in plan.launches):
            return StageResult(outcome=Outcome.UNSUPPORTED, reason=_CLUSTERS, build=built)
        return plan

    def _run(
        self,
        kind: type[Report],
        mode: str,
        built: Build,
        plan: Plan,
        task: Task,
        cases_directory: Path,
        outputs: Path,
        scratch: Path,
        full_case: FullCase | None = None,
        more: Mapping[str, Any] | None = None,
        cases: Sequence[Case] = (),
        most_instructions: int = PROFILE_INSTRUCTIONS,
    ) -> Reply[Report]:
        verifying = mode == "verify"
        variant = task.verify if verifying else task.full
        folder = Path(built.directory)
        request: dict[str, Any] = {
            "mode": mode,
            "gpu": self.gpu.name,
            "plan": asdict(plan),
            "ptx": str(folder / "candidate.ptx"),
            "kernels": [kernel.model_dump() for kernel in built.kernels],
            "tensors": [
                {"name": spec.name, "role": spec.role, "dtype": spec.dtype, "nbytes": spec.nbytes}
                for spec in variant.tensors
            ],
            "cases_directory": str(cases_directory),
            "cases": [
                {"name": case.name, "directory": case.directory}
                for case in cases or read_cases(cases_directory)
            ],
            "outputs_directory": str(outputs),
            # PyTorch's answers lie elsewhere: the candidate's process is not told where.
            "inputs_directory": full_case.inputs if full_case else None,
        }
        request |= more or {}
        if mode == "profile":
            request["machine_listing"] = self._listing(built, scratch)
        limits = Limits(
            seconds=self._verify_seconds if verifying else self._profile_seconds,
            output_bytes=min(LARGEST_OUTPUT, max(spec.nbytes for spec in variant.tensors)),
            address_space=2 * self.gpu.memory_bytes + (96 << 30),
            max_instructions=VERIFY_INSTRUCTIONS + INSTRUCTIONS_A_WORK * variant.work
            if verifying
            else most_instructions,
        )
        return run_candidate(request, scratch, limits, kind)

    def _most_workspace(self) -> int:
        return min(PROFILE_WORKSPACE, self.gpu.memory_bytes // 2)

    def _native(self) -> Path:
        """Build the interpreter and the host half's program: a child must not write the cache."""
        if self._host_program is None:
            headers = self._toolchain.cuda_headers()
            program, _ = both(partial(host_program, headers), core_library)
            self._host_program = program
        return self._host_program

    def _misread(self, built: Build) -> StageResult | None:
        """Return that the simulator reads the candidate's PTX otherwise than ptxas; None if not."""
        ptx = Path(built.directory, "candidate.ptx")
        told = misreading(self._toolchain, ptx, self.gpu.arch)
        return StageResult(outcome=Outcome.UNSUPPORTED, reason=told, build=built) if told else None

    def _listing(self, built: Build, scratch: Path) -> str | None:
        """Write the machine code of a build, by PTX statements, and return where; None without."""
        ptx = Path(built.directory, "candidate.ptx")
        text = machine_listing(self._toolchain, ptx, self.gpu.arch)
        if text is None:
            return None
        path = scratch / "machine.sass"
        path.write_text(text)
        return str(path)


def _is_sampled(task: Task) -> bool:
    """Say whether a task is judged by a sample of blocks: whole grids take too long."""
    return task.verify.is_large or task.verify.work > MOST_WHOLE_WORK


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
    return CaseReport(
        name=name, faults=report.faults, reports=report.reports, modified=modified
    )


def _isolation(report: VerifyReport | ProfileReport, plan: Plan) -> dict[str, str]:
    """Return what this machine does not offer to the processes of kernels and host half."""
    missing = [*report.isolation_missing, *plan.isolation_missing]
    return isolation_facts(list(dict.fromkeys(missing)))


def _blocks(sampled: ProfileReport) -> list[int]:
    return [each.blocks for each in sampled.launches if not isinstance(each, TransferReport)]


def _affordable(sampled: ProfileReport, budget: int) -> list[int]:
    """Return how many blocks of each launch to run, all of the cheaper launches first.

    What the budget has no room for whole shares what is left of it.
    """
    launches = [each for each in sampled.launches if not isinstance(each, TransferReport)]
    left, counts = float(budget), [0] * len(launches)
    work = [
        (each if each.like is None else launches[each.like]).samples[0].warp_instructions
        for each in launches
    ]
    by_cost = sorted(range(len(launches)), key=work.__getitem__)
    for place, index in enumerate(by_cost):
        part = min(work[index], left / (len(launches) - place))
        share = 1.0 if work[index] <= left / (len(launches) - place) else part / work[index]
        counts[index] = max(1, int(share * launches[index].blocks))
        left -= part
    return counts


def _unknown(why: NoFullCase) -> NoFullCase:
    """Return why an answer beyond the tolerance is not called wrong."""
    told = f"it is beyond the tolerance, and PyTorch's own error is not known: {why.reason}"
    return NoFullCase(reason=told)


def _no_report(reply: Reply[Any], built: Build) -> StageResult:
    return StageResult(
        outcome=reply.outcome or Outcome.CRASHED, reason=reply.reason,
        diagnostics=reply.diagnostics, build=built,
    )  # fmt: skip
