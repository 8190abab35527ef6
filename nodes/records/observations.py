"""What a kernel's profile says: its launches, its signature, the state that it is in."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from ...harness.records.profiles import Bottleneck
from ...harness.records.record import Record
from ...memory.records.states import PerformanceState


class LaunchSeen(Record):
    """One kernel of a program, all of its launches taken together: what a technique targets."""

    kernel: str
    """Its name."""
    first: int = Field(default=0, ge=0)
    """Place of its first launch among the program's, from 0."""
    launches: int = Field(default=1, ge=1)
    """How often it is launched."""
    microseconds: float
    """Of all its launches."""
    share: float
    """Of the program's time: what nothing done to it gains more than (Amdahl)."""
    bound_us: float
    """Microseconds that what it moves and computes as it stands takes at the GPU's peaks."""
    signature: tuple[float, ...]
    """Of its longest launch: one number a dimension."""
    primary: Bottleneck
    """What holds its longest launch back first."""
    secondary: Bottleneck | None = None
    """What comes next, where something does."""
    description: str = ""
    """How it behaves, in a line."""
    state: str = ""
    """Id of the performance state that it is in; empty where that is a new one."""

    @property
    def worth(self) -> float:
        """Share of the program's time that it spends above its own bound: share x headroom."""
        return self.share * (1.0 - min(1.0, self.bound_us / self.microseconds))


class Observation(Record):
    """Reply of the state extractor: the kernel's performance signature in words and numbers."""

    signature: tuple[float, ...]
    """Its performance signature: one number a dimension."""
    signature_name: str
    """The signature in a few words."""
    primary: Bottleneck
    """What holds the kernel back first."""
    secondary: Bottleneck | None = None
    """What comes next, where something does."""
    description: str
    """How the kernel behaves."""
    features: tuple[str, ...] = ()
    """The signature's most telling dimensions, in words."""
    launches: tuple[LaunchSeen, ...] = ()
    """The program's kernels that take most of its time, in order of their first launch; none in
    a run that an earlier version began."""
    author: str
    """Who said so: `builtin`, or a model's name."""

    @property
    def target(self) -> LaunchSeen | None:
        """The kernel worth working on: whose time above its own bound is longest, of equal ones the
        first. None in a run that an earlier version began."""
        return max(self.launches, key=lambda launch: launch.worth, default=None)


class StateChoice(Record):
    """Reply of the state selector: the known state that fits, or the one just discovered."""

    state: PerformanceState
    """The state."""
    distance: float
    """Of the kernel's signature from the state's middle (root mean square)."""
    discovered: bool
    """Whether no known state fitted."""
    launch: LaunchSeen | None = None
    """The kernel of the program that is worth working on: the state is its state. None in a run
    that an earlier version began."""
    reason: str
    """Why this one."""
    author: str
    """Who said so: `builtin`, or a model's name."""
    among: tuple[str, ...] = ()
    """Ids of the states of which a model was asked which it is; none where nobody was, or in a run
    that an earlier version began."""
    asked_of: tuple[float, ...] = ()
    """Signature of the kernel that a model was asked about; none as above."""

    @model_validator(mode="before")
    @classmethod
    def _of_an_earlier_version(cls, values: Any) -> Any:
        """Take a checkpoint that says how much the kernel is in each state near it."""
        if not isinstance(values, dict):
            return values
        return {name: values[name] for name in values if name != "weights"}
