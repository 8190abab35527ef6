"""One candidate loaded into the worker: its machine code, and its plan on given buffers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import NamedTuple, Protocol

from ...host.plan import Plan, PlannedLaunch, variable, variable_name
from .buffers import Buffers
from .driver import Driver, DriverError, LaunchStep, Steps, TransferStep

Fault = tuple[str, str]
"""Kind (as in judge/findings.py) and message."""


Room = Callable[[int], AbstractContextManager[Callable[[], None]]]
Finish = Callable[[], Fault | None]


class Program(NamedTuple):
    """What is run of a candidate: none of its host code."""

    image: Path
    """The cubin."""
    plan: Plan


class Launch(NamedTuple):
    """One kernel launch of a call."""

    kernel: str
    """Mangled name."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    microseconds: float | None
    """Between events on either side of the launch; None where that was not asked for."""


class PreparedCall(Protocol):
    """One call of launch() on certain buffers, everything looked up beforehand."""

    def __call__(self) -> None:
        """Enqueue it on the stream."""
        ...

    def crowd(self, launch: int, room: Room, finish: Finish) -> Fault | None:
        """Carry it out, one launch of it alone with little room (see `Crowd`).

        Args:
            launch: its number, from 0; any number where nothing is launched.
            room: makes the room for a block of so many threads; gives what is called once the
                launch is enqueued.
            finish: waits for the stream, and returns what went wrong on the GPU.
        """
        ...

    def faults(self) -> list[Fault]:
        """Return what went wrong in enqueuing it the last time."""
        ...


class LoadedProgram(Protocol):
    """A candidate that can be called on any buffers."""

    workspace_bytes: int
    launch_count: int
    """Kernels that one call launches."""

    def prepare(self, buffers: Buffers) -> PreparedCall:
        """Return a call on these buffers."""
        ...

    def prepare_timed(self, buffers: Buffers) -> TimedCall:
        """Return a call with an event on either side of each launch."""
        ...

    def close(self) -> None:
        """Let go of it; the GPU must be idle."""
        ...


class TimedCall(PreparedCall, Protocol):
    """A call that can tell of its launches once the stream has finished."""

    def launches(self) -> list[Launch]:
        """Return the launches of the last call, in order."""
        ...


class NotLoaded(Exception):
    """A candidate's machine code cannot be loaded, or its plan does not fit it."""


class DriverProgram:
    """A program loaded through the driver. Raises NotLoaded."""

    def __init__(self, driver: Driver, stream: int, program: Program) -> None:
        self._driver, self._stream, self._plan = driver, stream, program.plan
        self.workspace_bytes = program.plan.workspace_bytes
        self.launch_count = len(program.plan.launches)
        self._events: list[ctypes.c_void_p] = []
        try:
            self._module = driver.load(program.image.read_bytes())
            self._functions = {
                launch.kernel: driver.function(
                    self._module, launch.kernel, program.plan.dynamic_shared.get(launch.kernel, 0)
                )
                for launch in program.plan.launches
            }
            self._variables = self._placed_variables()
        except (DriverError, ValueError) as error:
            raise NotLoaded(str(error)) from error

    def prepare(self, buffers: Buffers) -> DriverCall:
        """See LoadedProgram."""
        steps = self._steps(buffers)
        return DriverCall(self._driver, self._stream, self._plan, self._functions, steps)

    def prepare_timed(self, buffers: Buffers) -> DriverTimedCall:
        """See LoadedProgram."""
        while len(self._events) < 2 * len(self._plan.launches):
            event = ctypes.c_void_p()
            self._driver.call("cuEventCreate", ctypes.byref(event), 0)
            self._events.append(event)
        steps = self._steps(buffers)
        events = (ctypes.c_void_p * len(self._events))(*(event.value for event in self._events))
        return DriverTimedCall(
            self._driver, self._stream, self._plan, self._functions, steps, events
        )

    def close(self) -> None:
        """See LoadedProgram."""
        for event in self._events:
            self._driver.call("cuEventDestroy_v2", event)
        self._driver.unload(self._module)

    def _steps(self, buffers: Buffers) -> Steps:
        base = buffers.addresses() | self._variables
        return Steps(self._driver, steps_at(self._plan, base, self._functions))

    def _placed_variables(self) -> dict[str, int]:
        found = {}
        sizes = {}
        for place in self._plan.places():
            if (name := variable_name(place.buffer)) is not None:
                address, size = self._driver.variable(self._module, name)
                found[variable(name)], sizes[variable(name)] = address, size
        self._plan.require_inside(sizes)
        return found


@dataclass
class DriverCall:
    """See PreparedCall."""

    driver: Driver
    stream: int
    plan: Plan
    functions: Mapping[str, int]
    steps: Steps
    _code: int = field(default=0, init=False)

    def __call__(self) -> None:
        """See PreparedCall."""
        self._code = self.steps.run(self.stream)

    def crowd(self, launch: int, room: Room, finish: Finish) -> Fault | None:
        """See PreparedCall."""
        launches = [
            (place, step)
            for place, step in enumerate(self.plan.steps)
            if isinstance(step, PlannedLaunch)
        ]
        if not launches:
            self()
            return finish()
        place, step = launches[launch % len(launches)]
        for part in (slice(place), slice(place, place + 1), slice(place + 1, None)):
            if part.start == place:
                self.driver.share_most(self.functions[step.kernel])
                with room(prod(step.block)) as begun:
                    self._code = self.steps.run(self.stream, part=part)
                    begun()
                    fault = finish()
                if not fault:
                    self.driver.share_most(self.functions[step.kernel], False)
            else:
                self._code = self.steps.run(self.stream, part=part)
                fault = finish()
            if self._code or fault:
                return fault
        return None

    def faults(self) -> list[Fault]:
        """See PreparedCall."""
        if not self._code:
            return []
        step = self.plan.steps[self.steps.failed_step]
        error = self.driver.error(self._code)
        if not isinstance(step, PlannedLaunch):
            return [("invalid_launch", f"a copy or fill: {error}")]
        sizes = "({}, {}, {}), ({}, {}, {})".format(*step.grid, *step.block)
        return [("invalid_launch", f"{step.kernel}<<<{sizes}, {step.shared_bytes}>>>: {error}")]


@dataclass
class DriverTimedCall(DriverCall):
    """See TimedCall."""

    events: ctypes.Array[ctypes.c_void_p]
    """Two of each launch, in order."""

    def __call__(self) -> None:
        """See PreparedCall."""
        self._code = self.steps.run(self.stream, self.events)

    def launches(self) -> list[Launch]:
        """See TimedCall."""
        found = []
        for place, step in enumerate(self.plan.launches):
            milliseconds: float | None = None
            elapsed = ctypes.c_float()
            begin, end = (ctypes.c_void_p(self.events[2 * place + side]) for side in (0, 1))
            try:
                self.driver.call("cuEventElapsedTime", ctypes.byref(elapsed), begin, end)
                milliseconds = elapsed.value
            except DriverError:
                pass
            microseconds = None if milliseconds is None else 1000 * milliseconds
            found.append(
                Launch(step.kernel, step.grid, step.block, step.shared_bytes, microseconds)
            )
        return found


def steps_at(
    plan: Plan, base: Mapping[str, int], functions: Mapping[str, int]
) -> list[LaunchStep | TransferStep]:
    """Return the steps of a plan where buffers lie at these addresses."""
    found: list[LaunchStep | TransferStep] = []
    for step in plan.steps:
        if isinstance(step, PlannedLaunch):
            arguments = [argument.at(base) for argument in step.arguments]
            found.append(
                LaunchStep(
                    functions[step.kernel], step.grid, step.block, step.shared_bytes,
                    step.attributes, arguments,
                )
            )  # fmt: skip
            continue
        source = step.source.at(base) if step.source else 0
        found.append(
            TransferStep(
                step.value, step.target.at(base), step.target_pitch, source, step.source_pitch,
                step.width, step.height, step.content.at(base),
            )
        )  # fmt: skip
    return found
