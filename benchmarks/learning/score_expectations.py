"""Score forecasts of recorded tries, each made before its outcome was known to who forecasts.

    python benchmarks/learning/score_expectations.py [--out FILE]

Who forecasts: the seed's priors, the mean of a technique (first use and repetition apart), and
`memory/knowledge/policy/expectation.py`, which runs choose by: with the seed for a prior, and
without; with all evidence told twice; with a half of the tasks; with the outcomes of what it
learns from shuffled; and, as in a run, with what came before on the task itself.

Left out in turn: each task, each class of operation, each GPU. Pairs: of the tries of one kernel,
those whose worth (log gain; of a failure its cost) differs by more than `NO_GAIN`; the share
that was ordered right, a tie counting half, with an interval by drawing tasks anew. Log loss: of
what was said of failing, gaining no more than `NO_GAIN`, gaining more; in nats a try.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from recorded_tries import Try, recorded

from kernelblaster.harness.gpus import GPUS, architecture_family
from kernelblaster.memory.knowledge.policy.actions import Question, Tried
from kernelblaster.memory.knowledge.policy.expectation import Expectations
from kernelblaster.memory.knowledge.policy.facts import Facts
from kernelblaster.memory.knowledge.policy.policy import Policy, unknown_technique
from kernelblaster.memory.knowledge.policy.regression import FAILURE_COST
from kernelblaster.memory.knowledge.states.matching import States, best, discover
from kernelblaster.memory.records.evidence import NO_GAIN
from kernelblaster.memory.records.policy import PolicyContext
from kernelblaster.memory.records.states import PerformanceState, Signature
from kernelblaster.tools.techniques.catalogue import knowledge_seed

SEED = knowledge_seed()
STATES = States(SEED.states)


class Said(NamedTuple):
    """A forecast of one try."""

    value: float
    """What it was ordered by."""
    chances: tuple[float, float, float]
    """Of failing, of gaining nothing worth the name, of gaining more."""
    mean: float = 0.0
    """Log gain expected where it passes."""


Forecaster = Callable[[Sequence[Try], Sequence[Try]], list[Said]]
"""From what it may know and what it is asked: a forecast of each."""


def worth(each: Try) -> float:
    """Return what a try was worth."""
    return -FAILURE_COST if each.log_gain is None else each.log_gain


# Who forecasts


def state_of(each: Try) -> PerformanceState:
    """Return the state that a kernel is in, as the knowledge base has it."""
    primary, secondary = (*each.bottlenecks, None)[:2]
    signature = Signature(values=each.dominant)
    found = best(STATES.near(signature, primary, secondary))  # type: ignore[arg-type]
    return found.state if found else discover(signature, primary, secondary)  # type: ignore[arg-type]


def circumstances(each: Try) -> dict[str, str]:
    """Return where a try was made, in the words of evidence."""
    arch = GPUS[each.gpu].arch
    return {
        "device_kind": "simulated" if each.situation.simulated else "cuda",
        "gpu": each.gpu, "arch": arch, "family": architecture_family(arch),
        "op_class": each.op_class, "dtype": each.situation.dtype,
    }  # fmt: skip


def by_seed(known: Sequence[Try], asked: Sequence[Try]) -> list[Said]:
    """Forecast by the seed's priors alone."""
    return Regression()([], asked)


def by_mean(known: Sequence[Try], asked: Sequence[Try]) -> list[Said]:
    """Forecast the mean of the technique, first use and repetition apart."""
    found: dict[tuple[str, bool], list[Try]] = {}
    for each in known:
        found.setdefault(_use(each), []).append(each)
    said = []
    for each in asked:
        rows = found.get(_use(each), [])
        gains = [row.log_gain for row in rows if row.log_gain is not None]
        success = (len(gains) + 2.4) / (len(rows) + 3.0)
        mean = sum(gains) / (len(gains) + 1.0)
        squares = sum((gain - mean) ** 2 for gain in gains) + 0.25**2
        said.append(_said(success, mean, math.sqrt(squares / (len(gains) + 1.0))))
    return said


def prior_of(each: Try) -> float:
    """Return what the seed expects of a technique in a kernel's state."""
    policy = Policy(Facts(), Expectations(), 0, SEED.states, SEED.optimizations)
    name = each.action.technique
    card = SEED.techniques.get(name) or unknown_technique(name)
    context = PolicyContext(**circumstances(each))  # type: ignore[arg-type]
    return policy.beliefs(state_of(each), [card], context)[0].optimization.prior_log_gain


class Regression:
    """Forecasts by `Expectations`; a try's prior is worked out once."""

    def __init__(self, *, seeded: bool = True, times: int = 1) -> None:
        self._seeded, self._times = seeded, times
        self._priors: dict[tuple[str, str], float] = {}

    def __call__(self, known: Sequence[Try], asked: Sequence[Try]) -> list[Said]:
        """Forecast."""
        told = self.expectations(known)
        return [self.said(told, each) for each in asked]

    def expectations(self, known: Iterable[Try]) -> Expectations:
        """Return what is expected after some tries."""
        told = Expectations()
        for each in known:
            for _ in range(self._times):
                self.tell(told, each)
        return told

    def tell(self, told: Expectations, each: Try, expected: float | None = None) -> None:
        """Add a try, with what was forecast of it."""
        error = each.standard_error
        told.add(Tried(each.situation, each.action, each.log_gain, each.outcome, error, expected))

    def said(self, told: Expectations, each: Try) -> Said:
        """Forecast one try."""
        (forecast,) = told.forecasts([Question(each.situation, each.action, self.prior(each))])
        return Said(forecast.value, forecast.chances(NO_GAIN), forecast.mean)

    def prior(self, each: Try) -> float:
        """Return what is expected of a try without evidence."""
        if not self._seeded or each.action.earlier is not None:
            return 0.0
        key = each.gpu + each.kernel, each.action.technique
        if key not in self._priors:
            self._priors[key] = prior_of(each)
        return self._priors[key]


class InRun(Regression):
    """As in a run on the task: what came before on it is known too."""

    def __call__(self, known: Sequence[Try], asked: Sequence[Try]) -> list[Said]:
        """Forecast each, then learn what came of it; the tries of a kernel are forecast at once."""
        told = self.expectations(known)
        said: list[Said] = []
        for _, group in itertools.groupby(asked, key=lambda each: (each.gpu, each.kernel)):
            tries = list(group)
            found = [self.said(told, each) for each in tries]
            for each, one in zip(tries, found, strict=True):
                self.tell(told, each, one.mean)
            said += found
        return said


def shuffled(forecaster: Forecaster, seed: int = 0) -> Forecaster:
    """Return a forecaster whose evidence has the outcomes of other tries."""

    def forecast(known: Sequence[Try], asked: Sequence[Try]) -> list[Said]:
        outcomes = [(each.outcome, each.log_gain) for each in known]
        random.Random(seed).shuffle(outcomes)
        changed = [
            each._replace(outcome=outcome, log_gain=gain)
            for each, (outcome, gain) in zip(known, outcomes, strict=True)
        ]
        return forecaster(changed, asked)

    return forecast


def halved(forecaster: Forecaster) -> Forecaster:
    """Return a forecaster that knows every other task only."""

    def forecast(known: Sequence[Try], asked: Sequence[Try]) -> list[Said]:
        kept = set(sorted({each.task for each in known})[::2])
        return forecaster([each for each in known if each.task in kept], asked)

    return forecast


def _use(each: Try) -> tuple[str, bool]:
    return each.action.technique, each.action.earlier is not None


def _said(success: float, mean: float, spread: float, value: float | None = None) -> Said:
    more = 0.5 * math.erfc((NO_GAIN - mean) / (spread * math.sqrt(2.0)))
    if value is None:
        value = success * mean - (1.0 - success) * FAILURE_COST
    return Said(value, (1.0 - success, success * (1.0 - more), success * more))


# How they are scored


class Score(NamedTuple):
    """What forecasts of all tries came to."""

    pairs: int
    right: float
    """Share of the pairs ordered right."""
    interval: tuple[float, float]
    """Of the same, tasks drawn anew: 95 %."""
    log_loss: float


SPLITS: dict[str, Callable[[Try], str]] = {
    "task": lambda each: each.task,
    "operator class": lambda each: each.op_class,
    "GPU": lambda each: each.gpu,
}


def forecasts(tries: Sequence[Try], split: str, forecaster: Forecaster) -> list[Said]:
    """Return a forecast of each try, by who knows nothing of its part."""
    part = SPLITS[split]
    said: dict[int, Said] = {}
    for name in sorted({part(each) for each in tries}):
        known = [each for each in tries if part(each) != name]
        places = [place for place, each in enumerate(tries) if part(each) == name]
        found = forecaster(known, [tries[place] for place in places])
        said.update(zip(places, found, strict=True))
    return [said[place] for place in range(len(tries))]


def ordered(tries: Sequence[Try], said: Sequence[Said]) -> dict[str, list[float]]:
    """Return for each task its pairs: 1 where they were ordered right, 0.5 for a tie."""
    by_kernel: dict[tuple[str, str], list[int]] = {}
    for place, each in enumerate(tries):
        by_kernel.setdefault((each.gpu, each.kernel), []).append(place)
    found: dict[str, list[float]] = {each.task: [] for each in tries}
    for places in by_kernel.values():
        for left, right in itertools.combinations(places, 2):
            apart = worth(tries[left]) - worth(tries[right])
            if abs(apart) > NO_GAIN:
                expected = said[left].value - said[right].value
                agree = 0.5 if expected == 0.0 else float((expected > 0) == (apart > 0))
                found[tries[left].task].append(agree)
    return found


def score(tries: Sequence[Try], said: Sequence[Said]) -> Score:
    """Return what forecasts came to."""
    by_task = ordered(tries, said)
    pairs = [each for of in by_task.values() for each in of]
    source = random.Random(0)
    drawn = []
    for _ in range(400):
        tasks = source.choices(list(by_task.values()), k=len(by_task))
        again = [each for of in tasks for each in of]
        drawn.append(statistics.fmean(again) if again else 0.5)
    drawn.sort()
    losses = [loss(each, one) for each, one in zip(tries, said, strict=True)]
    return Score(
        len(pairs), statistics.fmean(pairs), (drawn[10], drawn[-11]), statistics.fmean(losses)
    )


def loss(each: Try, said: Said) -> float:
    """Return the log loss of a forecast, in nats."""
    which = 0 if each.log_gain is None else 1 + (each.log_gain > NO_GAIN)
    return -math.log(max(said.chances[which], 1e-3))


def forecasters() -> dict[str, Forecaster]:
    """Return who forecasts, by name."""
    regression = Regression()
    return {
        "seed": by_seed,
        "mean of a technique": by_mean,
        "regression, no prior": Regression(seeded=False),
        "regression": regression,
        "  told twice": Regression(times=2),
        "  half of the tasks": halved(regression),
        "  shuffled outcomes": shuffled(regression),
        "  own earlier tries too": InRun(),
    }


def table(tries: Sequence[Try]) -> str:
    """Return all scores as a table."""
    tasks, gpus = ({getattr(each, name) for each in tries} for name in ("task", "gpu"))
    failed = sum(each.log_gain is None for each in tries)
    lines = [
        f"{len(tries)} recorded tries of {len({_use(each)[0] for each in tries})} techniques on "
        f"{len(tasks)} tasks and {len(gpus)} GPUs, {failed} failed; simulated device, built-in "
        "rewrites",
    ]
    for split in SPLITS:
        lines += ["", f"left out: each {split}".ljust(34) + "pairs  right   95 %         log loss"]
        for name, forecaster in forecasters().items():
            if split == "GPU" and name.startswith("  half"):
                continue
            found = score(tries, forecasts(tries, split, forecaster))
            low, high = found.interval
            lines.append(
                f"  {name:<30} {found.pairs:6} {found.right:6.3f}   {low:.2f} to {high:.2f}"
                f" {found.log_loss:8.3f}"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    began = time.process_time()
    text = table(recorded())
    print(text, end="")
    print(f"{time.process_time() - began:.1f} s of the processor")
    if given.out:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
