"""Runs a candidate twice on every case on the GPU, and judges what it leaves behind."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch

from ...judge.border import LARGEST_REAL
from ...judge.reports import CaseReport
from ...judge.run_verdict import limits_of_task
from ...judge.tensor_comparison import are_equal, compare, largest_error, largest_finite
from ...judge.verification import least_own_error
from ...reference.loading.model import Instance, ReferenceFault
from ...task.claims import NOT_AN_INPUT, ClaimedInput, NotAnInput
from ..launching.buffers import PAINTINGS, Buffers
from ..launching.candidate import Fault, LoadedProgram, NotLoaded, Program
from ..reports import VerifyAnswer
from .case_plan import CasePlan
from .parts import Parts
from .session import GpuSession
from .task_context import TaskContext, values_of

Stage = Callable[[str], None]
"""Tells the parent what begins: `reference` (trusted) or `candidate`; each has its time limit."""


def verify(
    machine: GpuSession,
    context: TaskContext,
    program: Program,
    stage: Stage,
    secret: int = 0,
    claim: ClaimedInput | None = None,
) -> dict[str, Any]:
    """Run every case; stop at the first fault. Returns a VerifyAnswer as plain values.

    With a `secret` the cases are drawn from it; with a `claim` the one case is that input.
    """
    parts = Parts()
    context.plans()
    if context.degenerate and not context.task.reading.allow_degenerate:
        return asdict(VerifyAnswer(degenerate=context.degenerate))
    try:
        plans = context.plans(secret) if claim is None else (context.claim_plan(claim),)
    except NotAnInput as refusal:
        return asdict(VerifyAnswer(facts={NOT_AN_INPUT: str(refusal)}))
    constants = () if secret or claim else context.constant_plans()
    parts.end("cases")
    stage("candidate")
    try:
        candidate = machine.load(program)
    except NotLoaded as error:
        fault = ("invalid_launch", str(error))
        return asdict(VerifyAnswer(cases=[CaseReport(faults=[fault])]))
    try:
        made = allocate(machine, context, candidate.workspace_bytes, 1)
        if isinstance(made, tuple):
            candidate.close()
            return asdict(VerifyAnswer(cases=[CaseReport(faults=[made])]))
        parts.end("load")
        run = _Verification(
            machine, context, candidate, made[0], stage, parts, all_twice=bool(secret)
        )
        if all(map(run.case, plans)) and not run.mismatches:
            run.find_constants(constants)
    except (ReferenceFault, torch.OutOfMemoryError):
        candidate.close()
        raise
    broken = any(case.faults for case in run.cases) and machine.is_broken()
    if not broken:
        candidate.close()
    return asdict(
        VerifyAnswer(
            cases=run.cases, mismatches=run.mismatches, repeat=run.repeat, facts=run.facts(),
            parts=parts.seconds,
        )
    )


def rehearse_verifying(machine: GpuSession, context: TaskContext) -> None:
    """Do the trusted work of `verify` without any candidate, to see whether memory suffices for it.

    Raises torch.OutOfMemoryError or ReferenceFault where it does not.
    """
    plans = context.plans()
    made = allocate(machine, context, 0, 1)
    assert not isinstance(made, tuple)
    run = _Verification(machine, context, None, made[0], lambda _: None, Parts())
    for plan in plans:
        run.case(plan)


def allocate(
    machine: GpuSession, context: TaskContext, size: int, count: int
) -> list[Buffers] | Fault:
    """Return buffers with a workspace of `size` bytes, or the fault of one that is too large.

    Raises torch.OutOfMemoryError where the task's own tensors do not fit.
    """
    limit = machine.free_bytes() // 2
    words = f"workspace_bytes() asks for {size} bytes; {limit // count} are allowed here"
    if size > limit // count:
        return "invalid_launch", words
    try:
        return [Buffers(context.tensors, size, machine.device) for _ in range(count)]
    except torch.OutOfMemoryError:
        if size:
            return "invalid_launch", words
        raise


def call_and_finish(
    machine: GpuSession, candidate: LoadedProgram, buffers: Buffers, crowded: int | None
) -> list[Fault]:
    """Carry out the plan, wait, and return every fault: of enqueuing it, and of the GPU.

    `crowded` is the number of a launch for whose blocks there is little room (see `Crowd`).
    """
    call = candidate.prepare(buffers)
    if crowded is None:
        call()
        fault = machine.finish_stream()
    else:
        fault = call.crowd(crowded, machine.crowded, machine.finish_stream)
    fault = fault or machine.finish_device()
    return [*call.faults(), *([fault] if fault else [])]


REPEAT_SECONDS = 0.25
"""Spent on second runs in one verification that is no confirmation, after which no further case has
any: what takes so long is no winner yet, and a winner is confirmed."""
LEAST_REPEATED = 2
"""Cases that are run twice however long it takes."""
EXACT_SECONDS = 0.1
"""Spent in one verification on what answers are in double precision, and how far from them a
candidate's are; after it no further case is looked at so."""


class _Verification:
    def __init__(
        self,
        machine: GpuSession,
        context: TaskContext,
        candidate: LoadedProgram | None,
        buffers: Buffers,
        stage: Stage,
        parts: Parts,
        *,
        all_twice: bool = False,
    ) -> None:
        """Prepare to verify; without a candidate its buffers stay as they were filled."""
        self.cases: list[CaseReport] = []
        self.mismatches: list[tuple[str, str]] = []
        self.repeat: tuple[str, str] | None = None
        self._machine, self._context, self._candidate = machine, context, candidate
        self._buffers, self._stage = buffers, stage
        self._parts = parts
        self._crowds_before = machine.crowds
        self._relied: list[str] = []
        self._launches, self._largest, self._ratio = 0, 0.0, 0.0
        self._exact_cases, self._exact_seconds = 0, 0.0
        self._lacked_memory = context.reference.lacked_memory_for_double
        self._all_twice = all_twice
        self._repeated, self._repeat_seconds = 0, 0.0

    def case(self, plan: CasePlan) -> bool:
        """Run one case twice, on an idle GPU and on a crowded one; say whether the next may follow.

        Once where second runs have taken long enough.
        """
        self._stage("reference")
        instance = self._context.instance_of(plan)
        values = values_of(instance)
        self._machine.finish_device()
        self._parts.end("draw")
        found = CaseReport(name=plan.name)
        self.cases.append(found)
        results: list[list[torch.Tensor]] = []
        self._stage("candidate")
        paintings = PAINTINGS[: 1 + self._is_repeated()]
        for repeat, painting in enumerate(paintings):
            # The second place of a case is the first of the next: an address that was seen
            # before then holds other numbers, and the same numbers stand at another address.
            self._buffers.fill(values, place=len(self.cases) + repeat, painting=painting)
            self._machine.finish_device()
            self._parts.end("fill")
            if self._candidate:
                crowded = secrets.randbelow(1 << 16) if repeat else None
                found.faults = call_and_finish(
                    self._machine, self._candidate, self._buffers, crowded
                )
                seconds = self._parts.end("crowded" if repeat else "candidate")
                if repeat:
                    self._repeated += 1
                    self._repeat_seconds += seconds
                if found.faults:
                    return False
                self._launches = max(self._launches, self._candidate.launch_count)
            found.guards = self._buffers.damage()
            found.modified = self._buffers.modified(values)
            if found.guards or found.modified:
                return False
            # Nothing runs any more: the last ones stay where they are until the next case.
            last = repeat == len(paintings) - 1
            results.append([each if last else each.clone() for each in self._buffers.outputs()])
            self._parts.end("guards")
        self._stage("reference")
        self._judge(plan, instance, results)
        return self.repeat is None

    def _is_repeated(self) -> bool:
        affordable = self._repeat_seconds < REPEAT_SECONDS or self._repeated < LEAST_REPEATED
        return self._all_twice or affordable

    def find_constants(self, plans: Sequence[CasePlan]) -> None:
        """Run the cases in which a constant is another, and note which of them are not followed.

        What happens there is no fault: a kernel may rely on constants. A context that it breaks
        ends the search.
        """
        for plan in plans:
            run = _Verification(
                self._machine, self._context, self._candidate, self._buffers, self._stage,
                self._parts,
            )
            run.case(plan)
            if run.repeat or run.mismatches or any(case.shows_fault for case in run.cases):
                self._relied.append(plan.name)
            if self._machine.is_broken():
                break

    def facts(self) -> dict[str, float | int | str]:
        """Return the numbers of a pass."""
        context, tolerance = self._context, self._context.task.tolerance
        found: dict[str, float | int | str] = {
            "cases": len(self.cases),
            "repeated_cases": self._repeated,
            "crowded_runs": self._machine.crowds - self._crowds_before,
            "launches": self._launches,
            "max_abs_error": min(self._largest, LARGEST_REAL),
            "tolerance_absolute": tolerance.absolute,
            "tolerance_relative": tolerance.relative,
            "precision_ratio": min(self._ratio, LARGEST_REAL),
            "precision_cases": self._exact_cases,
        }
        if self._relied:
            found["relies_on"] = ", ".join(self._relied)
        if self._lacked_memory:
            found["without_double"] = "the GPU's memory does not suffice for it"
        return found | limits_of_task(context.task, context.weak_to, context.degenerate)

    def _judge(self, plan: CasePlan, instance: Instance, results: list[list[torch.Tensor]]) -> None:
        # The answers are computed only now: while a candidate runs, they are nowhere to be read.
        expected = self._context.answers(instance)
        self._machine.finish_device()
        self._parts.end("pytorch")
        agreed: list[int] = []
        for index, spec in enumerate(self._context.outputs):
            first, second = results[0][index], results[-1][index]
            wanted, tolerance = expected[index], plan.tolerances[index]
            if tolerance is None:
                continue
            mismatch = compare(first, wanted, tolerance, spec.name)
            if mismatch:
                self.mismatches.append((plan.name, mismatch.message))
                continue
            agreed.append(index)
            self._largest = max(self._largest, largest_error(first, wanted))
            if len(results) == 1 or are_equal(second, first):
                continue
            again = compare(second, first, tolerance, spec.name)
            if again and self.repeat is None:
                self.repeat = (plan.name, again.message)
        self._parts.end("compare")
        if agreed and plan.exact and self._exact_seconds < EXACT_SECONDS:
            exact = self._exact(instance, expected)
            for index in agreed:
                if exact and plan.own_errors[index] is not None:
                    dtype = self._context.outputs[index].dtype
                    ratio = _precision(
                        results[0][index], expected[index], exact[index], dtype
                    )
                    self._ratio = max(self._ratio, ratio)
            self._machine.finish_device()
            self._exact_seconds += self._parts.end("exact")
            self._exact_cases += any(each.dtype is torch.float64 for each in exact)

    def _exact(self, instance: Instance, answers: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the answers in double precision; none where a large task lacks the memory: they
        say how precise a right answer is, and are no part of the verdict."""
        found = [] if self._lacked_memory else self._context.exact_answers(instance, answers)
        self._lacked_memory = not found
        return found


def _precision(got: torch.Tensor, wanted: torch.Tensor, exact: torch.Tensor, dtype: str) -> float:
    """Return the candidate's error over PyTorch's own, both against double precision.

    See `least_own_error`.
    """
    if exact.dtype is not torch.float64 or exact.shape != got.shape:
        return 0.0
    least = least_own_error(dtype, largest_finite(exact))
    own = max(largest_error(wanted, exact), least)
    return largest_error(got, exact) / own if own > 0 else 0.0
