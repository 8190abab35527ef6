"""Score forecasts of tries that GPUs measured: by the seed, by measured and by simulated tries.

    python benchmarks/learning/score_measured.py [--out FILE]

The tries are those of `benchmarks/recorded_tries/measured`, which `tries_of_runs.py` reads out of a
bench; how they are scored, and who forecasts, is told in `score_expectations.py`. What is left out
in turn (each task, each class of operation) is left out of the measured tries; simulated ones are
of other tasks, and as in a run are worth one measured try at most.

Differences: of two forecasters on the same pairs, with an interval by drawing tasks anew.

Techniques: of each, log loss by who forecasts, and how far the mean forecast (without a chance of
failing) is from the log gain that came, as the root of the mean square; worst first.

Priors: what came of each technique, and of each setting where there are several, beside what the
seed expects of it in the states of these very kernels (the median, the least and the most), and the
median of what the share of the launch and the task's bound leave of that.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from recorded_tries import Try, measured, recorded
from score_expectations import (
    Forecaster,
    InRun,
    Regression,
    Said,
    by_mean,
    by_seed,
    forecasts,
    loss,
    ordered,
    prior_of,
    score,
    shuffled,
)

from kernelblaster.memory.knowledge.policy.actions import most_gain

WORTH_NAMING = math.log(1.02)
"""Log gain from which on a technique is said to have gained."""
DIFFERENCES = (
    ("regression, simulated", "seed"),
    ("regression, measured", "seed"),
    ("regression, simulated", "regression, measured"),
    ("regression, both", "regression, measured"),
    ("regression, both", "regression, simulated"),
)
COMPARED = ("seed", "regression, simulated", "regression, measured", "regression, both")
"""Who is told of technique by technique."""


def knowing(forecaster: Forecaster, simulated: Sequence[Try], *, alone: bool) -> Forecaster:
    """Return a forecaster that knows simulated tries too, or these alone."""

    def forecast(known: Sequence[Try], asked: Sequence[Try]) -> list[Said]:
        return forecaster([*simulated, *([] if alone else known)], asked)

    return forecast


def forecasters(simulated: Sequence[Try]) -> dict[str, Forecaster]:
    """Return who forecasts, by name."""
    regression, bare = Regression(), Regression(seeded=False)

    def alone(forecaster: Forecaster) -> Forecaster:
        return knowing(forecaster, simulated, alone=True)

    def both(forecaster: Forecaster) -> Forecaster:
        return knowing(forecaster, simulated, alone=False)

    return {
        "seed": by_seed,
        "mean of a technique, measured": by_mean,
        "mean of a technique, simulated": alone(by_mean),
        "regression, measured": regression,
        "  no prior, measured": bare,
        "  shuffled outcomes, measured": shuffled(regression),
        "  own earlier tries too, measured": InRun(),
        "regression, simulated": alone(regression),
        "  no prior, simulated": alone(bare),
        "regression, both": both(regression),
        "  no prior, both": both(bare),
        "  own earlier tries too, both": both(InRun()),
    }


def difference(
    tries: Sequence[Try], first: Sequence[Said], second: Sequence[Said]
) -> tuple[float, float, float]:
    """Return by how much more of the pairs the first orders right, and 95 % of that."""
    left, right = ordered(tries, first), ordered(tries, second)
    by_task = [[a - b for a, b in zip(left[task], right[task], strict=True)] for task in left]
    source = random.Random(0)
    drawn = []
    for _ in range(2000):
        again = [each for of in source.choices(by_task, k=len(by_task)) for each in of]
        drawn.append(statistics.fmean(again) if again else 0.0)
    drawn.sort()
    return statistics.fmean(each for of in by_task for each in of), drawn[50], drawn[-51]


def head(tries: Sequence[Try], simulated: Sequence[Try]) -> Iterator[str]:
    """Yield what the tries are."""
    several = [max(each.measured) - min(each.measured) for each in tries if each.measured]
    yield (
        f"{len(tries)} measured tries of {len(_by_technique(tries))} techniques on "
        f"{len({each.kernel for each in tries})} kernels of {len({each.task for each in tries})} "
        f"tasks, {', '.join(sorted({each.gpu for each in tries}))}, built-in rewrites; "
        f"{sum(each.log_gain is None for each in tries)} failed"
    )
    yield (
        f"{len(several)} were measured by several runs: their log gains are "
        f"{statistics.median(several):.4f} apart at the median, {max(several):.4f} at most"
    )
    yield f"simulated: {len(simulated)} tries on {len({each.task for each in simulated})} tasks"
    unknown = _by_technique(tries).keys() - _by_technique(simulated).keys()
    yield f"measured and not simulated: {', '.join(sorted(unknown)) or 'none'}"


def scores(
    tries: Sequence[Try], split: str, said: dict[str, list[Said]], techniques: Collection[str]
) -> Iterator[str]:
    """Yield the table of all forecasters, and their differences; of the pairs whose techniques
    were both simulated apart."""
    shared = [place for place, each in enumerate(tries) if each.action.technique in techniques]
    of_shared = [tries[place] for place in shared]
    yield "".ljust(74) + "both simulated"
    yield f"left out: each {split}".ljust(38) + (
        "pairs  right   95 %         log loss  pairs  right   95 %"
    )
    for name, each in said.items():
        found = score(tries, each)
        low, high = found.interval
        less = score(of_shared, [each[place] for place in shared])
        yield (
            f"  {name.rpartition(', ')[0] if name[0] == ' ' else name:<34}"
            f" {found.pairs:6} {found.right:6.3f}   {low:.2f} to {high:.2f} {found.log_loss:8.3f}"
            f" {less.pairs:7} {less.right:6.3f}   {less.interval[0]:.2f} to {less.interval[1]:.2f}"
        )
    for first, second in DIFFERENCES:
        more, low, high = difference(tries, said[first], said[second])
        yield f"  {first} less {second}:".ljust(54) + f"{more:+.3f}   {low:+.2f} to {high:+.2f}"


def by_technique(tries: Sequence[Try], said: dict[str, list[Said]]) -> Iterator[str]:
    """Yield the table of techniques, those that are forecast worst first."""
    names = [name.removeprefix("regression, ") for name in COMPARED]
    columns = "".join(f"{name:>11}" for name in names)
    yield "".ljust(38) + "log loss".ljust(4 * 11) + "off by"
    yield "technique".ljust(30) + f"tries{columns}{columns}"
    rows = []
    for technique, places in _by_technique(tries).items():
        losses, off = [], []
        for name in COMPARED:
            told = said[name]
            losses.append(statistics.fmean(loss(tries[place], told[place]) for place in places))
            squares = [
                (told[place].mean - gain) ** 2
                for place in places
                if (gain := tries[place].log_gain) is not None
            ]
            off.append(math.sqrt(statistics.fmean(squares)) if squares else math.nan)
        figures = "".join(f"{each:11.3f}" for each in (*losses, *off))
        rows.append((losses[-1], f"{technique:<30}{len(places):5}{figures}"))
    yield from (row for _, row in sorted(rows, reverse=True))


def priors(tries: Sequence[Try]) -> Iterator[str]:
    """Yield what came of each technique beside what the seed expects."""
    yield (
        "technique, setting".ljust(34) + "tries  tasks   gain   gained  lost  failed   seed expects"
        "              at most"
    )
    for technique, places in sorted(_by_technique(tries).items()):
        found = [tries[place] for place in places]
        yield _prior(technique, found)
        settings = sorted({_setting(each) for each in found})
        for name in settings if len(settings) > 1 else ():
            yield _prior(f"  {name}", [each for each in found if _setting(each) == name])


def _prior(name: str, tries: Sequence[Try]) -> str:
    gains = [each.log_gain for each in tries if each.log_gain is not None]
    expected = [math.exp(prior_of(each)) for each in tries]
    capped = [min(prior_of(each), most_gain(each.situation)) for each in tries]
    gain = f"{math.exp(statistics.median(gains)):.3f}" if gains else "-"
    return (
        f"{name:<34}{len(tries):5}{len({each.task for each in tries}):7}{gain:>7}"
        f"{_share(gains, lambda each: each > WORTH_NAMING, len(tries)):>9}"
        f"{_share(gains, lambda each: each < -WORTH_NAMING, len(tries)):>6}"
        f"{(len(tries) - len(gains)) / len(tries):>8.0%}"
        f"{statistics.median(expected):9.3f} ({min(expected):.3f} to {max(expected):.3f})"
        f"{math.exp(statistics.median(capped)):9.3f}"
    )


def _setting(each: Try) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(each.action.setting.items()))


def _share(gains: Sequence[float], holds: Callable[[float], bool], of: int) -> str:
    return f"{sum(map(holds, gains)) / of:.0%}"


def _by_technique(tries: Sequence[Try]) -> dict[str, list[int]]:
    """Return the places of each technique's tries."""
    found: dict[str, list[int]] = {}
    for place, each in enumerate(tries):
        found.setdefault(each.action.technique, []).append(place)
    return found


def text(tries: Sequence[Try], simulated: Sequence[Try]) -> str:
    """Return all that is told."""
    who = forecasters(simulated)
    lines = list(head(tries, simulated))
    said: dict[str, dict[str, list[Said]]] = {}
    for split in ("task", "operator class"):
        said[split] = {name: forecasts(tries, split, each) for name, each in who.items()}
        lines += ["", *scores(tries, split, said[split], _by_technique(simulated))]
    lines += ["", "Techniques, each task left out", *by_technique(tries, said["task"])]
    lines += ["", "Priors: gains as ratios, gained and lost more than 2 %", *priors(tries)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    told = text(measured(), recorded())
    print(told, end="")
    if given.out:
        given.out.write_text(told, encoding="utf-8")


if __name__ == "__main__":
    main()
