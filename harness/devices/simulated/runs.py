"""Runs of a candidate on the simulated GPU: built, planned, each in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...build.toolchain import Toolchain, build_now
from ...gpus import Gpu
from ...host.plan import Plan
from ...host.planning import Asked, plan_launch
from ...host.process import host_program
from ...host.properties import properties_of
from ...judge.reports import VerifyReport
from ...process.children import both
from ...records.builds import Build
from ...records.evaluations import StageResult
from ...records.outcomes import Outcome
from ...records.tasks import Task, TaskVariant
from ...simt import (
    Limits,
    ProfileReport,
    Reply,
    Report,
    core_library,
    isolation_facts,
    machine_listing,
    misreading,
    run_candidate,
)
from ...task.cases import Case, read_cases
from ...task.contract import header
from ...task.full_case import FullCase

VERIFY_SECONDS = 60.0
PROFILE_SECONDS = 60.0
VERIFY_INSTRUCTIONS = 40_000_000
INSTRUCTIONS_A_WORK = 2
"""Warp instructions of one launch() at the verify dimensions, and more for each piece of work: a
plain kernel takes 40 instructions for a multiply-add, by 32 threads at once."""
MUCH_WORK = 1 << 23
"""Of a task whose cases run in two processes: one alone would take long, or meet the limit."""
PROFILE_INSTRUCTIONS = 150_000_000
VERIFY_WORKSPACE = 1 << 30
"""Bytes of workspace at the verify dimensions: they are poisoned, so they cost real memory."""
PROFILE_WORKSPACE = 8 << 30
LARGEST_OUTPUT = 8 << 30
_CLUSTERS = (
    "cudaLaunchKernelEx: thread block clusters: not simulated, this candidate needs a real GPU"
)


@dataclass(frozen=True)
class Planned:
    """A candidate at the dimensions of one variant, ready to run."""

    task: Task
    built: Build
    plan: Plan
    """What launch() does there."""


class Runs:
    """What of candidates runs for a named GPU, within which limits.

    Args:
        gpu: whose kernels are compiled and simulated.
        toolchain: the CUDA compiler.
        verify_seconds: of the processor, for one verification run.
        profile_seconds: of the processor, for one profile run.
    """

    def __init__(
        self, gpu: Gpu, toolchain: Toolchain, verify_seconds: float, profile_seconds: float
    ) -> None:
        self.gpu = gpu
        self._toolchain = toolchain
        self._verify_seconds = verify_seconds
        self._profile_seconds = profile_seconds
        self._host_program: Path | None = None

    def build(self, source: str, variant: TaskVariant) -> Build:
        """Compile a source for a variant's dimensions."""
        return build_now(self._toolchain, source, header(variant), self.gpu.arch)

    def misread(self, built: Build) -> StageResult | None:
        """Return that the simulator reads the candidate's PTX otherwise than ptxas; None if not."""
        ptx = Path(built.directory, "candidate.ptx")
        told = misreading(self._toolchain, ptx, self.gpu.arch)
        return StageResult(outcome=Outcome.UNSUPPORTED, reason=told, build=built) if told else None

    def planned(self, task: Task, built: Build, *, verifying: bool) -> Planned | StageResult:
        """Have the host half of a build say what it does, or return how it fails."""
        gpu = properties_of(self.gpu)
        variant = task.verify if verifying else task.full
        most = min(PROFILE_WORKSPACE, self.gpu.memory_bytes // 2)
        workspace_limit = VERIFY_WORKSPACE if verifying else most
        plan = plan_launch(self._native(), Asked(built, variant.tensors, gpu, workspace_limit))
        if isinstance(plan, StageResult):
            return plan
        if any(launch.cluster > 1 for launch in plan.launches):
            return StageResult(outcome=Outcome.UNSUPPORTED, reason=_CLUSTERS, build=built)
        return Planned(task, built, plan)

    def run_cases(
        self,
        planned: Planned,
        folder_of_cases: Path,
        folder: Path,
        cases: Sequence[Case],
        checked: int | None,
    ) -> Reply[VerifyReport]:
        """Run cases, those of a large task in two processes.

        `checked` says how many run with all checks at least, None where that is the run's to say.
        Outputs are left in 0/outputs below the folder.
        """

        def run(part: Sequence[Case], number: int, **more: Any) -> Reply[VerifyReport]:
            own = folder / str(number)
            outputs = own / "outputs"
            outputs.mkdir(parents=True)
            return self.run(
                VerifyReport, "verify", planned, folder_of_cases, outputs, own, more=more,
                cases=part,
            )  # fmt: skip

        if checked is not None:
            return run(cases, 0, checked_cases=checked, again=checked > 0)
        if len(cases) < 2 or planned.task.verify.work <= MUCH_WORK:
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

    def run(
        self,
        kind: type[Report],
        mode: str,
        planned: Planned,
        cases_directory: Path,
        outputs: Path,
        scratch: Path,
        full_case: FullCase | None = None,
        more: Mapping[str, Any] | None = None,
        cases: Sequence[Case] = (),
        most_instructions: int = PROFILE_INSTRUCTIONS,
    ) -> Reply[Report]:
        """Run a candidate in a mode of the simulator's worker, and return what that reports.

        What it writes is left in `outputs`, what it works with in `scratch`; `more` is asked of
        that mode alone.
        """
        verifying = mode == "verify"
        task, built = planned.task, planned.built
        variant = task.verify if verifying else task.full
        folder = Path(built.directory)
        request: dict[str, Any] = {
            "mode": mode,
            "gpu": self.gpu.name,
            "plan": asdict(planned.plan),
            "ptx": str(folder / "candidate.ptx"),
            "kernels": [kernel.model_dump() for kernel in built.kernels],
            "tensors": [
                {
                    "name": spec.name, "role": spec.role, "dtype": spec.dtype,
                    "nbytes": spec.nbytes, "constant": spec.constant,
                }
                for spec in variant.tensors
            ],  # fmt: skip
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

    def _native(self) -> Path:
        """Build the interpreter and the host half's program: a child must not write the cache."""
        if self._host_program is None:
            headers = self._toolchain.cuda_headers()
            program, _ = both(partial(host_program, headers), core_library)
            self._host_program = program
        return self._host_program

    def _listing(self, built: Build, scratch: Path) -> str | None:
        """Write the machine code of a build, by PTX statements, and return where; None without."""
        ptx = Path(built.directory, "candidate.ptx")
        text = machine_listing(self._toolchain, ptx, self.gpu.arch)
        if text is None:
            return None
        path = scratch / "machine.sass"
        path.write_text(text)
        return str(path)


def missing_isolation(report: VerifyReport | ProfileReport, plan: Plan) -> dict[str, str]:
    """Return what this machine does not offer to the processes of kernels and host half."""
    missing = [*report.isolation_missing, *plan.isolation_missing]
    return isolation_facts(list(dict.fromkeys(missing)))


def no_report(reply: Reply[Any], built: Build) -> StageResult:
    """Return how a run ended that has nothing to report."""
    return StageResult(
        outcome=reply.outcome or Outcome.CRASHED, reason=reply.reason,
        diagnostics=reply.diagnostics, build=built,
    )  # fmt: skip
