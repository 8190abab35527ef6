"""What the GPU's worker answers: plain records that it fills and its parent checks."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..judge.reports import FORBID, CaseReport


@dataclass
class About:
    """What every answer says besides what was asked for."""

    __pydantic_config__ = FORBID

    broken: bool = False
    """The GPU's context is lost."""
    crowded: bool = False
    """Others used the GPU meanwhile."""
    candidate_loaded: bool = False
    out_of_memory: bool = False
    task_error: str = ""
    """What went wrong in the task's own work."""
    worker_error: str = ""


@dataclass
class VerifyAnswer:
    """What a verification found; without any finding the candidate passed."""

    __pydantic_config__ = FORBID

    degenerate: str = ""
    """Why the task cannot tell right from wrong; then nothing was run."""
    cases: list[CaseReport] = field(default_factory=list)
    mismatches: list[tuple[str, str]] = field(default_factory=list)
    """Case and message."""
    repeat: tuple[str, str] | None = None
    """Case and message of two runs that disagree."""
    facts: dict[str, float | int | str] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds of what was done, by name."""

    @property
    def explains(self) -> bool:
        """Whether the candidate's own work is what may have broken the context."""
        return any(case.faults for case in self.cases)


@dataclass
class LaunchAnswer:
    """One kernel launch between two events."""

    __pydantic_config__ = FORBID

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    microseconds: float | None


@dataclass
class MeasureAnswer:
    """Times of the same rounds, or why one candidate could not be timed."""

    __pydantic_config__ = FORBID

    samples: dict[str, list[float]] = field(default_factory=dict)
    """Microseconds by contestant."""
    launches: list[LaunchAnswer] = field(default_factory=list)
    """Of the first contestant."""
    checked: int = 0
    """Timed answers that were compared."""
    disturbed: dict[str, int] = field(default_factory=dict)
    """Samples, warm-up among them, of which a part may be the host's time, by contestant of
    PyTorch's."""
    host_microseconds: dict[str, float] = field(default_factory=dict)
    """What enqueuing a call takes the host, by contestant of PyTorch's."""
    sets: int = 0
    """Sets of inputs that were used in turn."""
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds of the work around the rounds, and of them, by name."""
    compile_failure: str = ""
    kept_compile: float = 0.0
    """torch.compile's time over eager's, measured before on this machine; 0 where it was none of
    these rounds' business, or was measured in them."""
    copy_bytes_per_second: float = 0.0
    """What a large copy on this GPU reads and writes."""
    failed: str = ""
    """Name of the candidate that failed; empty where none did."""
    case: CaseReport = field(default_factory=CaseReport)
    mismatch: str = ""

    @property
    def explains(self) -> bool:
        """Whether the candidate's own work is what may have broken the context."""
        return bool(self.case.faults)

    def has_times_of(self, names: set[str]) -> bool:
        """Say whether each contestant has a time in every round, and no other is there."""
        counts = {len(times) for times in self.samples.values()}
        if self.kept_compile < 0:
            return False
        positive = all(min(times, default=0) > 0 for times in self.samples.values())
        return names == set(self.samples) - {"compile"} and len(counts) == 1 and positive


@dataclass
class InputsAnswer:
    """Files of a task's inputs by name, or why there are none."""

    __pydantic_config__ = FORBID

    inputs: dict[str, str] = field(default_factory=dict)
    no_inputs: str = ""

    explains = False


@dataclass
class NoAnswer:
    """There was only something to do."""

    __pydantic_config__ = FORBID

    explains = False


Answer = VerifyAnswer | MeasureAnswer | InputsAnswer | NoAnswer
