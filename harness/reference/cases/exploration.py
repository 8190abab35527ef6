"""How far may the values of a task's tensors be changed? Tried on the CPU at small dimensions.

There an index out of range raises, where a GPU would lose its context. What is found holds on every
device and at all dimensions.
"""

from __future__ import annotations

import math
import resource
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ...records.variations import Level, Variation
from ..drawing.draws import LADDERS, Draw, draw, kind_of, read_only_of
from ..loading.model import Instance, Reference, ReferenceFault, clone_arguments, seed_all
from ..precision.rounding import OperationsSeen
from ..precision.tolerances import all_finite, same
from .chance import with_chance
from .comparisons import comparisons_of
from .ends import with_ends
from .epsilon import telling_width
from .named import with_named
from .oddities import with_oddities
from .trained import with_trained

TRIAL_SECONDS = 3
"""Of this thread, for one trial: a number of steps taken from an input may be 2^60. Longer where
forward() itself is. Other work on the machine does not count: a task would be another one where
that is much."""
TRIAL_BYTES = 4 << 30
"""Memory that a trial may take beyond what is taken: so may a size."""
MANY_FACTORS = 32
"""Of a product: that of normal numbers is 1e-9 or less then, and nothing at all soon."""
TRIALS = (
    Draw(1, "gaussian", lines="unlike"), Draw(2, "uniform", lines="unlike"),
    Draw(3, "large", 2.0, lines="unlike"),
)  # fmt: skip
"""Draws that a level must survive."""


def explore(
    reference: Reference, integers: Level = "any", drawing: Callable[[], None] = lambda: None
) -> Variation:
    """Return what may vary.

    Args:
        reference: whose tensors they are.
        integers: the level that none of the integer inputs goes beyond.
        drawing: called before the first of those is given other values than its own.

    Raises ReferenceFault where forward() fails on its own inputs.
    """
    _require_all_given(reference)
    unread, updated = read_and_written(reference)
    plain = Variation(unread=unread, updated=updated)
    first, other = (read_only_of(reference.instance(seed), plain) for seed in (0, 1))
    buffers = {
        name: same(buffer, other.buffers.get(name)) for name, buffer in first.buffers.items()
    }
    constants = tuple(name for name, same in buffers.items() if same)
    fixed = [name for name, own in first.inputs.items() if same(own, other.inputs.get(name))]
    for name, own in first.parameters.items():
        # Embeddings with a row of zeros, a bias set in part: what coincides is disturbed.
        if bool((own == other.parameters[name]).any()):
            fixed.append(name)
    whole = LADDERS["integer"]
    whole = whole[whole.index(integers) :] if integers in whole else ()
    kinds = {name: kind_of(own) for name, own in first.inputs.items()}
    ladders = {
        name: whole if kind == "integer" else LADDERS[kind] for name, kind in kinds.items()
        if whole or kind != "integer"
    }
    for name in fixed:
        if name in first.parameters:
            ladders[name] = LADDERS[kind_of(first.parameters[name], parameter=True)]
    own_levels: dict[str, Level] = {
        name: "own" for name in (*first.inputs, *first.parameters, *first.buffers)
        if name not in constants
    }  # fmt: skip
    start = plain.model_copy(
        update={"levels": own_levels, "fixed": tuple(fixed), "constants": constants}
    )
    start = with_chance(reference, start)
    trial = _Trial(reference, first)
    start = start.model_copy(update={"multiplies": trial.multiplies})
    if whole and "integer" in kinds.values():
        drawing()
    found = _freest(trial, start, ladders)
    compared = comparisons_of(reference, read_only_of(reference.instance(0), plain))
    found = found.model_copy(update={"borders": compared.borders})
    found = found.model_copy(update={"uniform_width": telling_width(reference, found)})
    found = with_oddities(reference, found, trial.survives)
    found = with_named(reference, found, compared.named, trial.survives)
    found = with_ends(reference, found, trial.survives)
    return with_trained(reference, found, trial.survives)


def _require_all_given(reference: Reference) -> None:
    """Raise ReferenceFault where answers, or their shapes, hang on what no kernel is given."""
    own, other = reference.instance(0), reference.instance(1)
    if own.scalars != other.scalars:
        name = next(n for n, value in own.scalars.items() if other.scalars.get(n) != value)
        raise ReferenceFault(
            f"get_inputs() draws the number {name}, and a kernel is compiled for one: give it as a "
            "tensor, torch.tensor(...), or write the number there"
        )
    given = clone_arguments(own.arguments, torch.clone)
    kept = {n: each.detach().clone() for n, each in (own.parameters | own.buffers).items()}
    drawn = reference.outputs(other.model, other.arguments)
    seed_all(0)  # Where forward() draws numbers it is refused later, with what it draws.
    answers = reference.outputs(own.model, own.arguments)
    if _forms(answers) != _forms(drawn):
        raise ReferenceFault(
            "how much forward() returns hangs on the values of its inputs, and a kernel's outputs "
            "have fixed shapes: let it return as much as there may be, with a mask or a count"
        )
    other = reference.instance(1)
    with torch.no_grad():
        for name, tensor in (other.parameters | other.buffers).items():
            tensor.copy_(kept[name])
    seed_all(0)
    repeated = reference.outputs(other.model, given)
    if all_finite(answers) and not all(map(_near, answers, repeated)):
        raise ReferenceFault(
            "the answer hangs on numbers drawn in Model(...) that are no parameters and no buffers "
            "(tensors in a list, for example), which no kernel is given: register them, with "
            "nn.ParameterList or register_buffer"
        )


def _near(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Say whether two answers are equal but for the order in which something was added."""
    scale = float(one.abs().max()) if one.is_floating_point() and one.numel() else 0.0
    return bool(torch.allclose(one.double(), other.double(), rtol=1e-2, atol=1e-2 * scale))


def read_and_written(reference: Reference) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the parameters and buffers that no output depends on, and the buffers that forward()
    changes. Raises ReferenceFault.

    Unread is what no operation is given, and of what forward() changes that whose values make no
    difference: running statistics in training.
    """
    watched = reference.instance(0)
    kept = watched.parameters | watched.buffers
    before = {name: tensor.detach().clone() for name, tensor in watched.buffers.items()}
    with _Touched() as touched:
        answers = reference.outputs(watched.model, watched.arguments)
    unread = [name for name, each in kept.items() if storage_of(each) not in touched.storages]
    updated = [name for name, own in before.items() if not same(own, watched.buffers[name])]
    for name in updated:
        if name not in unread and not _matters(reference, name, answers):
            unread.append(name)
    return tuple(name for name in kept if name in unread), tuple(updated)


def _matters(reference: Reference, name: str, answers: list[torch.Tensor]) -> bool:
    """Say whether other values of a buffer make other answers.

    What is computed with may be of no consequence by chance: positions of maxima stay where all
    else is scaled. No number shows it, NaN does.
    """
    for number in (None, math.nan):
        instance = reference.instance(0)
        buffer = instance.buffers[name]
        if number is not None and not buffer.is_floating_point():
            continue
        with torch.no_grad():
            if number is not None:
                buffer.fill_(number)
            else:
                buffer.copy_(~buffer if buffer.dtype is torch.bool else buffer.abs() + 3)
        try:
            changed = reference.outputs(instance.model, instance.arguments)
        except ReferenceFault:
            return True
        if len(changed) != len(answers) or not all(map(same, answers, changed)):
            return True
    return False


class _Touched(TorchDispatchMode):  # type: ignore[misc]
    """Notes what operations are given."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: set[int] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        for each in tree_leaves((args, kwargs or {})):
            if isinstance(each, torch.Tensor):
                self.storages.add(storage_of(each))
        return function(*args, **(kwargs or {}))


def storage_of(tensor: torch.Tensor) -> int:
    """Return which memory a tensor lies in: the same for all its views."""
    return int(tensor.untyped_storage()._cdata)


def _freest(
    trial: _Trial, variation: Variation, ladders: Mapping[str, tuple[Level, ...]]
) -> Variation:
    """Raise every tensor's level as far as forward() survives it: all at once, else one by one."""
    freest = _raised(variation, {name: ladder[0] for name, ladder in ladders.items()})
    if trial.survives(freest):
        return freest
    parameters = {name: ladders[name][0] for name in ladders if name not in trial.inputs}
    if trial.survives(_raised(variation, parameters)):
        variation = _raised(variation, parameters)
        ladders = {name: ladder for name, ladder in ladders.items() if name in trial.inputs}
    for name, ladder in ladders.items():
        for level in ladder:
            tried = _raised(variation, {name: level})
            if trial.survives(tried):
                variation = tried
                break
    return variation


def _raised(variation: Variation, levels: Mapping[str, Level]) -> Variation:
    return variation.model_copy(update={"levels": variation.levels | dict(levels)})


class _Trial:
    def __init__(self, reference: Reference, first: Instance) -> None:
        self.inputs = frozenset(first.inputs)
        self._reference = reference
        began = time.thread_time()
        with OperationsSeen() as seen:
            outputs = reference.outputs(first.model, first.arguments)
        took = time.thread_time() - began
        self.multiplies = seen.factors >= MANY_FACTORS
        self._seconds = max(TRIAL_SECONDS, 2 * len(TRIALS) * took)
        self._forms = _forms(outputs)
        # Some references answer with infinities by design (masks): then so may all trials.
        self._insist = all_finite(outputs)

    def survives(self, variation: Variation, draws: Sequence[Draw] = TRIALS) -> bool:
        """Say whether forward() answers as before: no error, the same shapes, finite numbers."""
        try:
            with _limits(self._seconds):
                for how in draws:
                    instance = draw(self._reference, how, variation)
                    outputs = self._reference.outputs(instance.model, instance.arguments)
                    if _forms(outputs) != self._forms:
                        return False
                    # What is infinite, or no number, is what other long products soon are.
                    tells = not self.multiplies or how.distribution == "uniform"
                    if self._insist and tells and not all_finite(outputs):
                        return False
        except (ReferenceFault, RuntimeError, MemoryError, _OutOfTime):
            return False
        return True


class _OutOfTime(Exception):
    """A trial takes too long."""


@contextmanager
def _limits(seconds: float) -> Iterator[None]:
    """Have what asks for far too much time or memory fail, in the main thread of the child."""

    began = time.thread_time()

    def look(number: int, frame: FrameType | None) -> None:
        if time.thread_time() - began >= seconds:
            raise _OutOfTime(f"takes longer than {seconds:g} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + TRIAL_BYTES
    if soft == resource.RLIM_INFINITY or limit < soft:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _forms(outputs: list[torch.Tensor]) -> list[tuple[torch.Size, torch.dtype]]:
    return [(output.shape, output.dtype) for output in outputs]
