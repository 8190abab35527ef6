"""A task inside the worker: its cases drawn on the GPU, PyTorch's answers, and the baselines."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from ..judge.tensor_comparison import all_agree
from ..judge.verification import MEAN, ZEROS, accepted_everywhere, unchanged
from ..records import Task, TensorSpec, Tolerance
from ..reference.case import Case
from ..reference.cases import CASES, Draw, draw, first_finite
from ..reference.model import Instance, Reference, clone_arguments
from ..reference.mutants import Mutants

EXACT_SECONDS = 0.5
"""Double precision answers are computed for every candidate where one takes no longer than this."""


@dataclass(frozen=True)
class Plan:
    """One case: how to draw it again, and what its outputs may differ by."""

    name: str
    how: Draw
    tolerances: tuple[Tolerance, ...]
    own_errors: tuple[float | None, ...]
    """PyTorch's own largest error of each output against double precision; None where unknown."""
    exact: bool
    """Whether double precision is known and affordable."""


class TaskContext:
    """A task at its full dimensions on one device. Methods raise ReferenceFault."""

    def __init__(self, task: Task, device: str) -> None:
        self.task = task
        self.tensors = task.full.tensors
        self.reference = Reference(task.source, task.path, task.full.dimensions, device)
        self.degenerate = ""
        """A wrong answer that every case accepts; empty where there is none."""
        self.weak_to = ""
        """What every case accepts though it changes the answers; reported, not refused."""
        self._plans: tuple[Plan, ...] = ()
        self._baseline: Baseline | None = None

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs, in order."""
        return self.task.full.of_role("output")

    def plans(self) -> tuple[Plan, ...]:
        """Return the cases, chosen on the first call."""
        if not self._plans:
            with exact_arithmetic():
                self._plans = tuple(self._choose())
        return self._plans

    def instance(self, how: Draw) -> Instance:
        """Draw a case's model and inputs."""
        return draw(self.reference, how)

    def answers(self, instance: Instance) -> list[torch.Tensor]:
        """Return PyTorch's outputs in the task's own precision; the instance stays as it is."""
        with exact_arithmetic():
            return self._answers(instance, copy.deepcopy(instance.model), _fresh)

    def exact_answers(self, instance: Instance) -> list[torch.Tensor]:
        """Return PyTorch's outputs in double precision."""
        model = copy.deepcopy(instance.model).double()
        return self._answers(instance, model, lambda tensor: _fresh(tensor, torch.float64))

    def baseline(self) -> Baseline:
        """Return PyTorch's own implementations, made ready on the first call."""
        if self._baseline is None:
            how = self.plans()[0].how
            self._baseline = Baseline(self.reference, self.instance(how))
        return self._baseline

    def _answers(
        self, instance: Instance, model: torch.nn.Module, change: Callable[..., torch.Tensor]
    ) -> list[torch.Tensor]:
        arguments = clone_arguments(instance.arguments, change)
        return [answer.contiguous() for answer in self.reference.outputs(model, arguments)]

    def _choose(self) -> Iterator[Plan]:
        mutants: dict[str, bool] = {}
        usual: list[str] = []
        weak, insist = Mutants(self.reference), True
        for seed, name, _ in CASES:
            case, how = first_finite(self.reference, seed, name, insist)
            if name == "normal":
                insist = case.finite
            began = time.monotonic()
            known = case.exact[0] is not None
            if known:
                float(self.exact_answers(case.instance)[0].sum())
            tolerances = tuple(
                Tolerance.model_validate(item)
                for item in case.tolerances(scaled=name in ("large", "offset"), full=True)
            )
            for mutant, answers in _mutants(case):
                passes = all_agree(answers, case.outputs, tolerances)
                mutants[mutant] = mutants.get(mutant, True) and passes
                if name == "normal" and passes:
                    usual.append(mutant)
            weak.try_case(case, tolerances)
            yield Plan(
                name=f"seed{seed}-{name}", how=how, tolerances=tolerances,
                own_errors=tuple(case.own_errors()),
                exact=known and time.monotonic() - began <= EXACT_SECONDS,
            )  # fmt: skip
        self.degenerate = accepted_everywhere(mutants)
        if usual and not self.degenerate:
            # Times are those of get_inputs()'s values: a kernel may then do nothing for them.
            self.degenerate = f"{usual[0]} is the right answer to what get_inputs() gives"
        self.weak_to = weak.weak_to()


class Baseline:
    """PyTorch eager and torch.compile on one set of tensors that is written before each call."""

    def __init__(self, reference: Reference, instance: Instance) -> None:
        self._instance = instance
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

    def refresh(self, values: Mapping[str, torch.Tensor]) -> None:
        """Write inputs, parameters and buffers."""
        for name, tensor in self._tensors.items():
            tensor.copy_(values[name])

    def eager(self) -> None:
        """Call the model as written."""
        with torch.no_grad(), self._place:
            self._instance.model(*self._instance.arguments)

    def compiled(self) -> None:
        """Call the model through torch.compile; see `compile`."""
        assert self._compiled is not None
        with torch.no_grad(), self._place:
            self._compiled(*self._instance.arguments)

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


def _mutants(case: Case) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Yield answers that are wrong in principle: those of `verification.degenerate`, as tensors."""
    yield ZEROS, [torch.zeros_like(answer) for answer in case.outputs]
    means = []
    for answer in case.outputs:
        finite = answer[torch.isfinite(answer)]
        mean = float(finite.double().mean()) if finite.numel() else 0.0
        means.append(torch.full_like(answer, mean))
    yield MEAN, means
    for name, tensor in case.tensors.items():
        if name in case.instance.inputs:
            same = [tensor.detach().reshape(answer.shape).to(answer.dtype)
                    for answer in case.outputs if answer.numel() == tensor.numel()]  # fmt: skip
            if len(same) == len(case.outputs):
                yield unchanged(name), same


def _fresh(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    copied = tensor.detach().clone()
    return copied.to(dtype) if dtype is not None and tensor.is_floating_point() else copied
