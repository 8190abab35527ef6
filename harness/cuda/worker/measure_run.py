"""Times candidates beside PyTorch on the GPU: fresh inputs each time, every answer looked at."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch

from ...judge.reports import CaseReport
from ...judge.tensor_comparison import compare
from ...judge.timing import FEWEST, Stopping, measure
from ...judge.verification import Mismatch
from ...reference.drawing.structure import is_sorted, is_symmetric
from ...reference.loading.model import Instance, ReferenceFault
from ..launching.buffers import PAINTINGS, Buffers
from ..launching.candidate import LoadedProgram, NotLoaded, PreparedCall, Program
from ..reports import LaunchAnswer, MeasureAnswer
from .clocking import Clock
from .kept import KeptTimes
from .parts import Parts
from .session import GpuSession
from .task_context import TaskContext, values_of
from .verify_run import Stage, allocate

SETS = 3
"""Sets of inputs in memory of their own, used in turn."""
SET_ROOM, TWO_SETS_ROOM = 8, 11
"""Times a task's tensors for which there is room on the GPU, for each of three sets, and for two of
them; where there is less, there is one."""
DRAW_SECONDS = 0.05
"""Where drawing inputs takes no longer, they are drawn anew for the rounds."""
CHANGED_EVERY = 4
"""One round in this many has the inputs of an earlier one, changed."""
TIMED_TOLERANCE = 2.0
"""Timed answers may differ by this many times the tolerance: they are looked at for work left out,
on inputs whose own rounding is not known."""
EAGER, COMPILED = "eager", "compile"
EAGER_RUNS = 8
"""Runs of eager, the first thrown away, by which kept times are believed."""
DESCRIBED = 5
"""Calls with an event on either side of each launch, of which the shortest is told."""
DESCRIBED_MICROSECONDS = 10_000.0
"""No further one follows where these calls took longer together: noise is no matter then."""


def measure_candidates(
    machine: GpuSession,
    context: TaskContext,
    programs: Mapping[str, Program],
    stage: Stage,
    *,
    stopping: Stopping,
    seed: int,
    with_eager: bool,
    with_compile: bool,
    compile_anew: bool = False,
) -> dict[str, Any]:
    """Time named candidates and PyTorch in the same rounds.

    The first name is the one that the others are compared with; without `with_eager` the given
    candidates are alone. torch.compile is not waited for where its time beside eager's is known,
    unless it is to be compiled anew. Returns a MeasureAnswer as plain values.
    """
    parts = Parts()
    sets = _sets(machine, context, seed)
    parts.end("draw")
    names, compile_failure = list(programs), "not asked for"
    if with_eager:
        names.append(EAGER)
        context.baseline()
    kept = None
    if with_compile:
        kept = None if compile_anew else _kept_times(machine, context)
        compile_failure = kept.failure if kept else context.baseline().compile()
        names += [] if kept or compile_failure else [COMPILED]
    if COMPILED in names:
        stopping = stopping.model_copy(update={"few": FEWEST})
    parts.end("baseline")
    stage("candidate")
    bench = _Bench(machine, context, sets, stage, seed, described=names[0])
    try:
        bench.load(programs)
        parts.end("load")
        samples = measure(names, bench.run, stopping, observers=[bench], seed=seed)
        parts.end("rounds")
        bench.check_guards(names[0])
        launches = bench.launches()
        parts.end("launches")
    except (ReferenceFault, torch.OutOfMemoryError):
        bench.close()
        raise
    except _Failed as failed:
        if not (failed.case.faults and machine.is_broken()):
            bench.close()
        return asdict(
            MeasureAnswer(failed=failed.name, case=failed.case, mismatch=failed.mismatch)
        )
    bench.close()
    if with_compile and kept is None and context.kept and not bench.clock.disturbed:
        eager, compiled = (statistics.median(samples.get(n, [0.0])) for n in (EAGER, COMPILED))
        context.kept.keep_times(
            KeptTimes(eager=eager, compiled=compiled, failure=compile_failure)
        )
    return asdict(
        MeasureAnswer(
            samples=samples, launches=launches, checked=bench.checked, sets=len(sets),
            compile_failure=compile_failure, parts=parts.seconds,
            kept_compile=kept.compiled / kept.eager if kept else 0.0,
            copy_bytes_per_second=machine.copy_bandwidth(), disturbed=bench.clock.disturbed,
            host_microseconds={
                name: statistics.median(times) for name, times in bench.clock.host.items()
            },
        )
    )  # fmt: skip


def prepare_measuring(context: TaskContext, *, with_compile: bool, compile_anew: bool) -> None:
    """Do what a measurement needs and takes no time of: the GPU need not be this process's alone.

    torch.compile compiles here unless its time is known from before.
    """
    context.plans()
    baseline = context.baseline()
    known = context.kept and not compile_anew and context.kept.times()
    if with_compile and not known:
        baseline.compile()


def _kept_times(machine: GpuSession, context: TaskContext) -> KeptTimes | None:
    """Return PyTorch's kept times where eager takes as long as it did, and compiling would."""
    baseline = context.baseline()
    kept = context.kept.times() if context.kept and not baseline.is_compiled else None
    if kept is None:
        return None
    clock = Clock(machine)
    samples = [clock.in_time(EAGER, baseline.eager).microseconds for _ in range(EAGER_RUNS)]
    return kept if kept.is_confirmed_by(statistics.median(samples[1:])) else None


def rehearse_measuring(machine: GpuSession, context: TaskContext) -> None:
    """Do the trusted work of a round without any candidate, to see whether memory suffices for it.

    Raises torch.OutOfMemoryError or ReferenceFault where it does not.
    """
    bench = _Bench(machine, context, _sets(machine, context, 0), lambda _: None, 0)
    bench.load({})
    bench.before(EAGER, 0)
    bench.run(EAGER)
    bench.mismatch()


class _Failed(Exception):
    def __init__(self, name: str, case: CaseReport, mismatch: str = "") -> None:
        super().__init__(name)
        self.name, self.case, self.mismatch = name, case, mismatch


class _Bench:
    """Runs contestants one at a time; as an observer it gives inputs and looks at outputs."""

    def __init__(
        self,
        machine: GpuSession,
        context: TaskContext,
        sets: list[Instance],
        stage: Stage,
        seed: int,
        described: str = "",
    ) -> None:
        """Prepare rounds; the launches of the `described` candidate are timed one by one, too."""
        self.checked = 0
        self.clock = Clock(machine)
        self._machine, self._context, self._stage = machine, context, stage
        self._sets, self._seed = sets, seed
        self._chance = random.Random(seed)
        began = time.monotonic()
        self._draw_anew(0, len(sets))
        self._draws_anew = time.monotonic() - began <= DRAW_SECONDS
        self._originals: list[dict[str, torch.Tensor]] = []
        if not self._draws_anew and len(sets) > 1:
            self._originals = [
                {name: value.clone() for name, value in values_of(each).items()} for each in sets
            ]
        self._loaded: dict[str, LoadedProgram] = {}
        self._calls: dict[str, list[PreparedCall]] = {}
        """Of each candidate on each set of inputs."""
        self._buffers: list[Buffers] = []
        self._tolerances = [
            item and item.model_copy(
                update={
                    "absolute": TIMED_TOLERANCE * item.absolute,
                    "relative": TIMED_TOLERANCE * item.relative,
                }
            )
            for item in context.timed_tolerances
        ]
        self._set = 0
        self._changes = 0
        self._round: int | None = None
        self._described = described
        self._descriptions: list[list[LaunchAnswer]] = []
        """Of its calls with an event on either side of each launch."""

    def load(self, programs: Mapping[str, Program]) -> None:
        """Load the candidates and allocate what they work on. Raises _Failed.

        All work on the same memory, filled anew before each call: the same kernel in two places
        differed by 0.2 %, and always in the same direction.
        """
        for name, program in programs.items():
            try:
                self._loaded[name] = self._machine.load(program)
            except NotLoaded as error:
                fault = ("invalid_launch", str(error))
                raise _Failed(name, CaseReport("timing", [fault])) from None
        wanted = {name: candidate.workspace_bytes for name, candidate in self._loaded.items()}
        largest = max(wanted, key=lambda name: wanted[name], default="")
        made = allocate(self._machine, self._context, wanted.get(largest, 0), len(self._sets))
        if isinstance(made, tuple):
            raise _Failed(largest, CaseReport(faults=[made]))
        self._buffers = made
        for place, (each, instance) in enumerate(zip(made, self._sets, strict=True)):
            each.fill(values_of(instance), place=place, painting=PAINTINGS[0])
        self._machine.finish_device()
        self._calls = {
            name: [candidate.prepare(each) for each in made]
            for name, candidate in self._loaded.items()
        }

    def run(self, name: str) -> float:
        """Run a contestant once and return its microseconds. Raises _Failed."""
        if name == self._described and self._round is not None and self._round < 0:
            return self._describe()
        if name in self._calls:
            return self._call(name, self._calls[name][self._set])
        baseline = self._context.baseline()
        return self._run_pytorch(name, baseline.compiled if name == COMPILED else baseline.eager)

    def _run_pytorch(self, name: str, call: Callable[[], None]) -> float:
        repeated = False

        def again() -> None:
            nonlocal repeated
            repeated = True
            self._stage("reference")  # None of it is the candidate's time.
            if self._round is not None:
                self.before(name, self._round)

        found = self.clock.in_time(name, call, again)
        if repeated:
            self._stage("candidate")
        return found.microseconds

    def _call(self, name: str, call: PreparedCall) -> float:
        found = self.clock.once(name, call)
        faults = call.faults()
        if found.fault is not None:
            faults.append(found.fault)
        if faults:
            raise _Failed(name, CaseReport("timing", faults))
        return found.microseconds

    def before(self, name: str, round_number: int) -> None:
        """Give the contestant this round's inputs: all have the same ones."""
        if round_number != self._round:
            self._stage("reference")
            self._round = round_number
            self._set = round_number % len(self._sets)
            self._change()
            self._stage("candidate")
        if name not in self._calls:
            # PyTorch answers to another set of the same kind: its output lies in memory afterwards,
            # where a candidate must not find this round's answer. Beside a single set it keeps what
            # it was made with.
            if len(self._sets) > 1:
                other = self._sets[(self._set + 1) % len(self._sets)]
                self._context.baseline().refresh(values_of(other))
        else:
            values = values_of(self._sets[self._set])
            buffers = self._buffers[self._set]
            for spec in buffers.tensors:
                if spec.role != "output":
                    buffers.view(spec).copy_(values[spec.name])
            buffers.poison()
        self._machine.finish_device()

    def after(self, name: str, round_number: int) -> None:
        """Compare a candidate's outputs with PyTorch's. Raises _Failed."""
        if name not in self._calls:
            return
        # What still runs could find the answers that are computed now.
        if fault := self._machine.finish_device():
            raise _Failed(name, CaseReport("timing", [fault]))
        if found := self.mismatch():
            words = f"{found.message} (timed run {max(0, round_number) + 1})"
            raise _Failed(name, CaseReport("timing"), words)
        self.checked += 1

    def mismatch(self) -> Mismatch | None:
        """Return how the outputs of this round's set differ from PyTorch's answers."""
        # Computed only now, and wiped: the next candidate of this round finds no answer anywhere.
        outputs = self._buffers[self._set].outputs()
        expected = self._context.answers(self._sets[self._set])
        compared = (
            None if tolerance is None else compare(got, wanted, tolerance, spec.name)
            for got, wanted, tolerance, spec in zip(
                outputs, expected, self._tolerances, self._context.outputs, strict=True
            )
        )
        found = next(filter(None, compared), None)
        for each in (*outputs, *expected):
            each.zero_()
        return found

    def check_guards(self, name: str) -> None:
        """Look at the guard bands after all timed runs. Raises _Failed."""
        for buffers in self._buffers:
            damage = buffers.damage()
            if damage:
                raise _Failed(name, CaseReport("timing", guards=damage))

    def launches(self) -> list[LaunchAnswer]:
        """Return the kernel launches of the described candidate in its shortest call. Raises
        _Failed.

        What is called before the rounds tells them, and where that took no time further calls.
        """
        found = self._descriptions
        while len(found) < DESCRIBED and sum(map(_total, found)) <= DESCRIBED_MICROSECONDS:
            self.before(self._described, len(found))
            self._describe()
        return min(found, key=_total)

    def _describe(self) -> float:
        """Call the described candidate with an event on either side of each launch."""
        call = self._loaded[self._described].prepare_timed(self._buffers[self._set])
        microseconds = self._call(self._described, call)
        self._descriptions.append([LaunchAnswer(**each._asdict()) for each in call.launches()])
        return microseconds

    def close(self) -> None:
        """Unload the candidates; the GPU must be idle and its context whole."""
        self._machine.finish_device()
        for candidate in self._loaded.values():
            candidate.close()

    def _change(self) -> None:
        """Give the round's set values that no candidate has seen: nothing computed before is right.

        They are drawn anew and changed, but for one round in four: then they are the set's last
        ones, changed, so that what takes them for the same is found out. Where drawing takes long,
        they are the first ones changed, in every round; of a single set, of which there are no
        originals, the last ones, drawn anew in one round of four.
        """
        self._changes += 1
        place = self._set
        if self._originals:
            self._perturb(self._originals[place])
            return
        fourth = self._changes % CHANGED_EVERY == 0
        if fourth != self._draws_anew:
            self._draw_anew(place, len(self._sets) + self._changes)
        self._perturb(values_of(self._sets[place]))

    def _perturb(self, values: Mapping[str, torch.Tensor]) -> None:
        """Fill the round's set with values, the floating ones smaller by a factor of the round."""
        factor = self._chance.uniform(0.97, 1.0)
        generator = torch.Generator(self._machine.device).manual_seed(self._seed + self._changes)
        for name, value in values_of(self._sets[self._set]).items():
            if name in self._context.task.variation.constants:
                continue  # A kernel may rely on their values.
            if value.is_floating_point():
                value.copy_(shrunk(values[name], factor, generator))
            else:
                value.copy_(values[name])

    def _draw_anew(self, place: int, number: int) -> None:
        """Draw a set; the memory of the one that was there is free before."""
        del self._sets[place]
        self._sets.insert(place, self._context.timed_instance(self._seed + number))
        self._machine.finish_device()


def _sets(machine: GpuSession, context: TaskContext, seed: int) -> list[Instance]:
    """Return models with inputs of seeds of their own; fewer where memory is short."""
    each = sum(spec.nbytes for spec in context.tensors)
    # Of every set: the values, their originals, and the candidates' buffers.
    rooms = machine.free_bytes() // max(each, 1)
    count = min(SETS, max(rooms // SET_ROOM, 2 if rooms >= TWO_SETS_ROOM else 1))
    return [context.timed_instance(seed + number) for number in range(count)]


def shrunk(own: torch.Tensor, factor: float, generator: torch.Generator) -> torch.Tensor:
    """Return floating values smaller by a factor and, element by element, by up to a percent.

    They only shrink, so that probabilities, signs and zeros stay what they were. The factor alone
    would not do, as sums scale with it, but for numbers in order, in which something is searched:
    these stay so, and symmetric matrices symmetric.
    """
    noise = torch.rand(own.shape, generator=generator, device=own.device)
    if is_sorted(own):
        noise.zero_()
    elif is_symmetric(own):
        noise = (noise + noise.mT) / 2
    return noise.mul_(-0.01).add_(factor).to(own.dtype).mul_(own)


def _total(launches: list[LaunchAnswer]) -> float:
    return sum(launch.microseconds or 0.0 for launch in launches)
