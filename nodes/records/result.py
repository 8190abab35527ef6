"""What a run comes to: the winner measured again, looked at elsewhere, and announced."""

from __future__ import annotations

from pydantic import (
    Field,
)

from ...harness.bound.speed_of_light import SpeedOfLight
from ...harness.records.outcomes import Outcome
from ...harness.records.profiles import Bottleneck
from ...harness.records.record import Record
from ...harness.records.timings import Provenance
from .accounts import StepAuthors
from .kernels import KernelPoint, TechniqueStep
from .plan import Policy


class Confirmation(Record):
    """The winner measured once more in a fresh process."""

    confirmed: bool
    """False when no kernel but the initial one held."""
    point: KernelPoint
    """The fastest kernel that held: what the run announces."""
    microseconds: float
    """Of that kernel, measured again."""
    gain: float
    """Time of the initial kernel over its own."""
    gain_interval: tuple[float, float]
    """Lower and upper end of the gain."""
    reason: str = ""
    """Why a faster kernel did not hold, where one did not."""


class ShapeCheck(Record):
    """The winner at a shape that the search never saw."""

    dimensions: dict[str, int]
    """Its sizes by name, those that are the task's own left out."""
    outcome: Outcome
    """`passed` where the same source, compiled for these sizes, holds; else why it does not."""
    reason: str = ""
    """One line; empty where it holds."""
    microseconds: float | None = None
    """Time of one call there, where it holds."""
    speedup: float | None = None
    """On a GPU: time of the faster of PyTorch's eager and compiled code there over its own."""
    ran: bool = True
    """Whether it ran there; else it compiles and can be launched, and no GPU was at hand."""

    @property
    def holds(self) -> bool:
        """Whether it passed all gates there."""
        return self.ran and self.outcome is Outcome.PASSED


class RunResult(Record):
    """What a finished run announces; the command line prints it as JSON.

    Example:
        result: kernelblaster.RunResult = kernelblaster.optimize("examples/softmax.py")
        print(result.outcome, result.techniques)
    """

    outcome: str
    """improved, not_improved, or unconfirmed (the winner did not hold when measured again)."""
    task: str
    """Name of the task."""
    device: str
    """What evaluated: simulated, cuda, deferred, or a package's."""
    policy: Policy = "kernelblaster"
    """How the search went."""
    gpu: str
    """The GPU, simulated or real."""
    provenance: Provenance
    """Whose numbers the times are: simulated, ncu or events."""
    initial_us: float
    """Microseconds of the initial kernel."""
    best_us: float
    """Microseconds of the winner, measured again."""
    initial_cycles: float | None = None
    """GPU clock cycles of all launches of the initial kernel, the paper's measure, by who timed it;
    None where they were not counted (`notes` says why)."""
    best_cycles: float | None = None
    """The same of the winner."""
    start_us: float | None = None
    """Microseconds of the kernel of an earlier run that the search began with; None where it began
    with the initial one."""
    began_with: str = ""
    """Where that kernel comes from; empty where there is none."""
    gain: float
    """The time of the initial kernel over the winner's: above 1 is faster."""
    gain_ci: tuple[float, float]
    """Interval of the gain; a time model's error is not in it."""
    baselines: dict[str, float] = Field(default_factory=dict)
    """On a GPU, PyTorch in the rounds of the winner's last measurement: eager_us, compile_us, and
    the speedup over the faster with its interval (speedup_low, speedup_high)."""
    bound: SpeedOfLight | None = None
    """What no kernel of the task can be faster than on this GPU; None where its peaks are not
    known, or an earlier version made the result."""
    score: float | None = None
    """1 / (1 + (T - T_sol) / (T_base - T_sol)): 1 at the bound, 0.5 at the faster of eager and
    torch.compile, or at the initial kernel where neither was measured. None without a bound, or
    where the base is not above it."""
    ended: str = ""
    """Why the search ended before its last step; empty where it did not."""
    shapes: tuple[ShapeCheck, ...] = ()
    """The winner at shapes that the search never saw: where it holds and where not. Empty where
    that was not asked for, or the task's sizes cannot change."""
    evaluations: int
    """Distinct sources evaluated, the initial kernel included."""
    taken_over: int = 0
    """How many of these other runs on this machine had made, so that the device was not asked."""
    outcomes: dict[str, int]
    """Evaluations by outcome: failures are counted, not hidden."""
    model_calls: int
    """Paid ones; maybe paid ones are among them."""
    tokens: int
    """Input and output."""
    money: float | None = None
    """Dollars by the table of prices; None where no call has a price."""
    techniques: tuple[str, ...]
    """From the initial kernel to the best, in order."""
    path: tuple[TechniqueStep, ...]
    """The same with parameters and each step's gain."""
    bottleneck_before: Bottleneck
    """What held the initial kernel back."""
    bottleneck_after: Bottleneck
    """What holds the winner back."""
    lessons: tuple[str, ...]
    """Ids of the lessons written to the knowledge base, all iterations; none in a graph's state."""
    lesson_authors: tuple[str, ...] = ()
    """Of each lesson, in the same order."""
    models: dict[str, str] = Field(default_factory=dict)
    """Who was to answer in each role: `builtin`, or a model's name."""
    initial_author: str = ""
    """Who wrote the initial kernel."""
    steps: tuple[StepAuthors, ...] = ()
    """Who did what, step by step; none in a graph's state."""
    notes: tuple[str, ...] = ()
    """What a reader should know besides: precision lost, kernels that did not hold."""
    best_source: str
    """Path of best.cu."""
    source: str = ""
    """Its text: who asked from elsewhere cannot open the path."""
    run: str
    """Path of the run directory: its result.json holds the result whole."""

    def in_short(self) -> RunResult:
        """Return it as a graph's state and a parent's hold it: without what grows with steps."""
        return self.model_copy(update={"steps": (), "lessons": (), "lesson_authors": ()})
