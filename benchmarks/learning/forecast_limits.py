"""What keeps forecasts from ordering more recorded tries right: pairs, by how far they are apart.

    python benchmarks/learning/forecast_limits.py [--out FILE]

Pairs and forecasters are those of `score_expectations.py`, each task left out in turn. Told of
pairs whose worth differs by so much: how many, and the share that each forecaster orders right.

The tries are simulated: a simulation comes out the same each time, yet how far its order is that of
a GPU hangs on how far two kernels are apart. So beside them stand the candidates that an engineer
wrote, timed on an H200 and simulated: of pairs of one task whose simulated times differ by so
much, the share that the GPU orders alike. What is expected at best: of each band of tries that
share, were forecasts the simulation itself.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from recorded_tries import Try, recorded
from score_expectations import InRun, Regression, Said, by_mean, forecasts, worth

RESULTS = Path(__file__).resolve().parents[1] / "results"
BANDS = (0.01, 0.03, 0.06, 0.12, 0.25, 0.5, math.inf)
"""Differences in log time; the first is `NO_GAIN`, from which on a pair counts."""

Pair = tuple[int, int]


def pairs(tries: Sequence[Try]) -> list[Pair]:
    """Return the places of each two tries on one kernel."""
    kernels: dict[tuple[str, str], list[int]] = {}
    for place, each in enumerate(tries):
        kernels.setdefault((each.gpu, each.kernel), []).append(place)
    return [pair for of in kernels.values() for pair in itertools.combinations(of, 2)]


def right(said: Sequence[Said], apart: float, pair: Pair) -> float:
    """Return 1 where forecasts order a pair as it came out, 0.5 for a tie."""
    expected = said[pair[0]].value - said[pair[1]].value
    return 0.5 if expected == 0.0 else float((expected > 0) == (apart > 0))


def candidates() -> list[tuple[float, float]]:
    """Return of each two candidates of a task the log ratio of their times, simulated, measured."""
    simulated, measured = (
        {
            name: math.log(row["microseconds"])
            for name, row in json.loads((RESULTS / file).read_text(encoding="utf-8")).items()
            if "microseconds" in row
        }
        for file in ("candidates_simulated.json", "candidates_h200.json")
    )
    both = sorted(simulated.keys() & measured.keys())
    return [
        (simulated[one] - simulated[other], measured[one] - measured[other])
        for one, other in itertools.combinations(both, 2)
        if one.split("/")[0] == other.split("/")[0]
    ]


def table(tries: Sequence[Try]) -> str:
    """Return the shares, a line a band."""
    said = {
        "mean": forecasts(tries, "task", by_mean),
        "no prior": forecasts(tries, "task", Regression(seeded=False)),
        "regression": forecasts(tries, "task", Regression()),
        "own tries too": forecasts(tries, "task", InRun()),
    }
    apart = {pair: worth(tries[pair[0]]) - worth(tries[pair[1]]) for pair in pairs(tries)}
    timed = candidates()
    lines = [
        "apart in log time   pairs" + "".join(f"{name:>15}" for name in said)
        + "    candidates   H200 alike",
    ]  # fmt: skip
    at_best: list[tuple[int, float]] = []
    for low, high in itertools.pairwise(BANDS):
        here = {pair: by for pair, by in apart.items() if low < abs(by) <= high}
        alike = [float(one * other > 0) for one, other in timed if low < abs(one) <= high]
        at_best.append((len(here), statistics.fmean(alike)))
        shares = "".join(
            f"{statistics.fmean(right(each, by, pair) for pair, by in here.items()):15.3f}"
            for each in said.values()
        )
        lines.append(
            f"{low:8.2f} to {high:<7.2f} {len(here):6}{shares}{len(alike):14}{at_best[-1][1]:13.3f}"
        )
    whole = sum(count for count, _ in at_best)
    best = sum(count * share for count, share in at_best) / whole
    close = sum(count for (count, _), high in zip(at_best, BANDS[1:], strict=True) if high <= 0.12)
    lines += [
        "",
        f"{close} of {whole} pairs are less than {0.12:.2f} apart. Did forecasts say what the "
        f"simulation says, the H200 would order {best:.3f} of all pairs alike.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    text = table(recorded())
    print(text, end="")
    if given.out:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
