"""What is asked of a technique on a kernel, what is answered, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...records.policy import ExpectedGain
from .failures import Reliability
from .regression import FAILURE_COST

USUAL_US = 100.0
"""Time of a program where nobody says it."""
BUILTIN = "builtin"
"""The writer whose failures others hear of: the library's rewrite is the same whoever asks."""


class Situation(NamedTuple):
    """A launch of a kernel before anything is tried on it."""

    task: str
    op_class: str
    dtype: str
    gpu: str
    family: str
    simulated: bool
    signature: tuple[float, ...]
    """Of the launch."""
    share: float
    """Of the program's time that the launches of its kernel take (Amdahl)."""
    microseconds: float
    """Of the program."""
    bound_us: float | None
    """That no kernel of the task can be faster than."""
    source: str = ""
    """Name of the source: what was refused of it is refused again."""
    harness: str = ""
    """Version of what measures: what another measured is worth one try at most. Empty: any."""


class Action(NamedTuple):
    """What can be done to it."""

    technique: str
    launch: str = ""
    setting: Mapping[str, Any] = {}
    earlier: Mapping[str, Any] | None = None
    """Setting with which the lineage has it applied to this launch; None at a first use."""
    writer: str = "builtin"
    """Who is to write it: the library's rewrite, or a model by name."""


class Forecast(NamedTuple):
    """What to expect of an action, before it is tried."""

    mean: float
    """Of the log gain of this try, given that it passes."""
    spread: float
    """Standard deviation of the same."""
    cap: float
    """Log gain that the launch's share of the time, or the task's bound, allows at most."""
    passes: Reliability
    tries: float
    """Tries of the technique that it rests on."""

    @property
    def value(self) -> float:
        """Expected log gain of trying, failures taken in: what actions are ordered by."""
        return self._worth(self.passes.probability, self.mean)

    def sample(self, generator: np.random.Generator) -> float:
        """Draw one plausible value of trying."""
        success = float(generator.beta(self.passes.passed, self.passes.failed))
        return self._worth(success, min(float(generator.normal(self.mean, self.spread)), self.cap))

    def chances(self, least: float) -> tuple[float, float, float]:
        """Return the probabilities that it fails, gains no more than `least`, and gains more."""
        success = self.passes.probability
        more = 0.5 * math.erfc((least - self.mean) / (self.spread * math.sqrt(2.0)))
        return 1.0 - success, success * (1.0 - more), success * more

    def as_gain(self) -> ExpectedGain:
        """Return it as the record that agents, prompts and evidence know."""
        return ExpectedGain(
            mean_log=self.mean,
            std_log=self.spread,
            most_log=None if math.isinf(self.cap) else self.cap,
            success_probability=self.passes.probability,
            passed=self.passes.passed,
            failed=self.passes.failed,
            trials=self.tries,
            score=self.value,
        )

    def _worth(self, success: float, gain: float) -> float:
        return success * gain - (1.0 - success) * FAILURE_COST


class Question(NamedTuple):
    """An action on a launch, with what is believed of it before any try."""

    situation: Situation
    action: Action
    prior: float = 0.0
    """Log gain expected without evidence: the seed's, or a technique's card."""


class Tried(NamedTuple):
    """What came of an action."""

    situation: Situation
    action: Action
    log_gain: float | None
    """None where it failed."""
    reason: str = ""
    """Why it failed: an outcome's name."""
    standard_error: float = 0.0
    """Of the log gain."""
    expected: float | None = None
    """Log gain that was forecast before it was tried; None where nobody noted it."""
    child: str = ""
    """Name of the source that came of it: another one is another try."""
    made: tuple[Any, ...] = ()
    """What tries are ordered by, the later the greater; empty: by arrival."""
    run: str = ""
    """Who tells: the run's id; empty: a witness of its own."""


def writer_of(author: str) -> str:
    """Return who wrote what an author stands for: who stands in for a model says why in
    brackets."""
    return BUILTIN if author.startswith(f"{BUILTIN} (") else author


def most_gain(situation: Situation) -> float:
    """Return the log gain that no action on a launch can exceed: by its share, by the bound."""
    by_share = math.inf if situation.share >= 1.0 else -math.log1p(-situation.share)
    if situation.bound_us is None:
        return by_share
    return min(by_share, max(0.0, math.log(situation.microseconds / situation.bound_us)))
