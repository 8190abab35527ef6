"""A task inside the worker: its cases drawn on the GPU, PyTorch's answers, and the baselines."""

from __future__ import annotations

import copy
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from ...records.tasks import Task
from ...records.tensors import TensorSpec, Tolerance
from ...reference.cases.case import Case, forms
from ...reference.cases.claimed import claimed_case, claimed_instance
from ...reference.cases.constants import CHANGED, changed_constants, with_another
from ...reference.cases.distributions import (
    Usual,
    case_name,
    degenerate,
    first_finite,
    scale_of,
    seed_of,
    timed_proof,
    weak_spots,
)
from ...reference.cases.mutants import Mutants
from ...reference.cases.proof import Proof
from ...reference.drawing.draws import Draw, draw
from ...reference.loading.drawn import without_mode
from ...reference.loading.model import (
    Instance,
    Reference,
    ReferenceFault,
    clone_arguments,
    lacks_memory,
)
from ...reference.precision.double_precision import double_answers
from ...reference.precision.tolerances import Scale
from ...task.claims import ClaimedInput, require_claimable
from ...task.rules import CASES
from .case_plan import CasePlan
from .kept import Kept, KeptCases, are_alike

EXACT_SECONDS = 0.5
"""Double precision answers are computed for every candidate where one takes no longer than this."""


MUTANTS_SECONDS = 0.75
"""Where trying the mutants of one case takes longer, they are not tried at full dimensions. What a
task does not notice at small ones it is asked when it is loaded."""


class TaskContext:
    """A task at its full dimensions on one device. Methods raise ReferenceFault.

    Args:
        kept: what earlier workers found out about the task; None where nothing is to be kept.
        double_is_dispensable: whether the task is so large that its answers may not fit the device
            in double precision, and tolerances do without.
    """

    def __init__(
        self, task: Task, device: str, kept: Kept | None = None, *,
        double_is_dispensable: bool = False,
    ) -> None:  # fmt: skip
        self.task = task
        self.kept = kept
        self.tensors = task.full.tensors
        self.reference = Reference(
            task.source, task.path, task.full.dimensions, device, task.reading,
            double_is_dispensable=double_is_dispensable,
        )  # fmt: skip
        self.degenerate = ""
        """A wrong answer that every case accepts; empty where there is none."""
        self.weak_to = ""
        """What every case accepts though it changes the answers; reported, not refused."""
        self.timed_tolerances: list[Tolerance | None] = []
        """Of each output of what is timed; known once the cases are."""
        self._plans: dict[int, tuple[CasePlan, ...]] = {}
        self._constants: tuple[CasePlan, ...] | None = None
        self._usual: Usual | None = None
        self._baseline: Baseline | None = None

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs, in order."""
        return self.task.full.of_role("output")

    def plans(self, secret: int = 0) -> tuple[CasePlan, ...]:
        """Return the cases, chosen on the first call; those drawn from a secret are not kept."""
        if secret in self._plans or (not secret and self._recall()):
            return self._plans[secret]
        with exact_arithmetic():
            chosen = tuple(self._choose(secret))
        if not secret:
            self._plans[secret] = chosen
        return chosen

    def constant_plans(self) -> tuple[CasePlan, ...]:
        """Return a case for each constant of the task in which that one is another."""
        if self._constants is None:
            self.plans()
        if self._constants is None:
            usual = self._usual
            assert usual is not None
            with exact_arithmetic():
                self._constants = tuple(
                    replace(self._plan(name, case, CHANGED, "down"), constant=(name, level))
                    for name, level, case in changed_constants(
                        self.reference, self.task.variation, usual.is_met_by
                    )
                )
            # Another time there may be the memory.
            if self.kept and not self.reference.lacked_memory_for_double:
                self.kept.keep_cases(
                    KeptCases(
                        self._plans[0], self._constants, tuple(self.timed_tolerances),
                        self.degenerate, self.weak_to,
                    )
                )  # fmt: skip
        return self._constants

    def claim_plan(self, claim: ClaimedInput) -> CasePlan:
        """Return the case of a claimed input. Raises NotAnInput too."""
        require_claimable(self.task, claim)
        with exact_arithmetic():
            case, tolerances = claimed_case(self.reference, self.task.variation, claim)
        return CasePlan(
            name=f"claimed-{claim.id}", how=Draw(1, "normal"), tolerances=tolerances,
            own_errors=tuple(case.own_errors()), exact=False, claim=claim,
        )  # fmt: skip

    def instance(self, how: Draw) -> Instance:
        """Draw a case's model and inputs."""
        return draw(self.reference, how, self.task.variation)

    def instance_of(self, plan: CasePlan) -> Instance:
        """Draw a case's model and inputs, with the constant that is another, or as claimed."""
        if plan.claim is not None:
            return claimed_instance(self.reference, self.task.variation, plan.claim)
        if plan.constant is None:
            return self.instance(plan.how)
        return with_another(self.reference, self.task.variation, *plan.constant)

    def timed_instance(self, seed: int) -> Instance:
        """Draw a model and inputs to be timed on: get_inputs()'s own, and a part that tells."""
        return self.instance(Draw(seed, "timed", still=self.plans()[0].how.still))

    def answers(self, instance: Instance) -> list[torch.Tensor]:
        """Return PyTorch's outputs in the task's own precision; the instance stays as it is."""
        with exact_arithmetic():
            return self._answers(instance, copy.deepcopy(instance.model), _fresh)

    def exact_answers(
        self, instance: Instance, answers: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Return what PyTorch's outputs are in double precision. Raises ReferenceFault.

        None of them where a large task lacks the memory beside what is held just now.
        """
        try:
            with exact_arithmetic():
                exact = double_answers(
                    self.reference, instance.model, instance.arguments, answers
                )
        except ReferenceFault as fault:
            if not (self.reference.double_is_dispensable and lacks_memory(fault)):
                raise
            return []
        return [
            answer if known is None else known.contiguous()
            for answer, known in zip(answers, exact, strict=True)
        ]

    def baseline(self) -> Baseline:
        """Return PyTorch's own implementations, made ready on the first call."""
        if self._baseline is None:
            how = self.plans()[0].how
            self._baseline = Baseline(self.reference, self.instance(how))
        return self._baseline

    def let_go(self) -> None:
        """Give back the GPU's memory, as far as another request would take it anew."""
        self._baseline = None

    def _answers(
        self, instance: Instance, model: torch.nn.Module, change: Callable[..., torch.Tensor]
    ) -> list[torch.Tensor]:
        arguments = clone_arguments(instance.arguments, change)
        return [answer.contiguous() for answer in self.reference.outputs(model, arguments)]

    def _recall(self) -> bool:
        """Take the cases that are kept, where one of them, computed again, is what it was."""
        kept = self.kept.cases() if self.kept else None
        if kept is None or len(kept.plans) != len(CASES):
            return False
        number = secrets.randbelow(len(CASES))
        plan, scale = kept.plans[number], scale_of(CASES[number][1])
        try:
            with exact_arithmetic():
                case = Case(self.reference, self.instance(plan.how))
                if not are_alike(plan, self._plan(plan.name, case, plan.how, scale)):
                    return False
        except ReferenceFault:
            return False  # Choosing the cases tells why, and what is survived instead.
        self._plans[0], self._constants = kept.plans, kept.constants
        self.timed_tolerances = list(kept.timed_tolerances)
        self.degenerate, self.weak_to = kept.degenerate, kept.weak_to
        return True

    def _choose(self, secret: int) -> Iterator[CasePlan]:
        usual: Usual | None = None
        weak, proof = Mutants(self.reference), Proof()
        for number, name, _ in CASES:
            seed = seed_of(number, secret)
            case, how = first_finite(self.reference, self.task.variation, seed, name, usual)
            usual = usual or Usual(how.still, case.finite, forms(case.outputs))
            plan = self._plan(case_name(seed, name, secret), case, how, scale_of(name))
            if not secret:
                began = time.monotonic()
                weak.try_case(case, plan.tolerances)
                if time.monotonic() - began > MUTANTS_SECONDS:
                    weak.give_up()
                proof.add(case, plan.tolerances)
            del case  # Two of them may be more than the GPU has memory for.
            yield plan
        if not secret:
            assert usual is not None
            self._usual = usual
            timed, self.timed_tolerances = timed_proof(
                self.reference, self.task.variation, usual
            )
            self.degenerate = degenerate(self.reference, self.task.variation, proof)
            self.weak_to = weak_spots(weak, proof, "" if self.degenerate else timed)

    def _plan(self, name: str, case: Case, how: Draw, scale: Scale) -> CasePlan:
        return CasePlan(
            name=name, how=how, tolerances=case.tolerances(scale),
            own_errors=tuple(case.own_errors()),
            exact=case.exact[0] is not None and self._is_exact_affordable(case),
        )  # fmt: skip

    def _is_exact_affordable(self, case: Case) -> bool:
        """Say whether double precision is quick, once what is loaded on first use is loaded."""
        if case.exact_seconds <= EXACT_SECONDS:
            return True
        began = time.monotonic()
        exact = self.exact_answers(case.instance, case.outputs)
        if not exact:
            return False
        float(exact[0].sum())
        return time.monotonic() - began <= EXACT_SECONDS


class Baseline:
    """PyTorch eager and torch.compile on one set of tensors that is written before each call."""

    def __init__(self, reference: Reference, instance: Instance) -> None:
        self._instance = instance
        self._eager = instance.model
        named = instance.inputs | instance.parameters | instance.buffers
        self._tensors = {name: tensor.detach() for name, tensor in named.items()}
        self._place: AbstractContextManager[Any] = nullcontext()
        self._compiled: Callable[..., Any] | None = None
        self._compile_failure = ""
        try:
            self.eager()
        except RuntimeError:
            # forward() makes tensors of its own and needs to be told where.
            self._place = torch.device(reference.device)
            self.eager()
        with torch.no_grad(), self._place:
            self._eager = without_mode(instance.model, instance.arguments)

    def refresh(self, values: Mapping[str, torch.Tensor]) -> None:
        """Write inputs, parameters and buffers."""
        for name, tensor in self._tensors.items():
            tensor.copy_(values[name])

    def eager(self) -> None:
        """Call the model as written."""
        with torch.no_grad(), self._place:
            self._eager(*self._instance.arguments)

    def compiled(self) -> None:
        """Call the model through torch.compile; see `compile`."""
        assert self._compiled is not None
        with torch.no_grad(), self._place:
            self._compiled(*self._instance.arguments)

    @property
    def is_compiled(self) -> bool:
        """Whether `compile` was called, and did not fail."""
        return self._compiled is not None and not self._compile_failure

    def compile(self) -> str:
        """Make `compiled` ready with torch.compile's default mode; return why it is not, or ""."""
        if self._compiled is None:
            self._compiled = torch.compile(self._instance.model)
            try:
                for _ in range(3):
                    self.compiled()
                torch.cuda.synchronize()
            except Exception as error:  # the compiler raises many types, also of its own internals
                words = " ".join(str(error).split())[:200]
                self._compile_failure = f"{type(error).__name__}: {words}"
        return self._compile_failure


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Answer with full float32 products: TF32 convolutions, PyTorch's default, are no reference."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def values_of(instance: Instance) -> dict[str, torch.Tensor]:
    """Return what launch() is given, by name, outputs left out."""
    named = instance.inputs | instance.parameters | instance.buffers
    return {name: tensor.detach() for name, tensor in named.items()}


def _fresh(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    copied = tensor.detach().clone()
    return copied.to(dtype) if dtype is not None and tensor.is_floating_point() else copied
