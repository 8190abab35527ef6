"""Compares the simulated GPU with a real one, launch by launch: time, counters, bottleneck.

    python benchmarks/simulator/simulated_vs_measured.py --kernels FILE.cu --times times.csv
        [--profiles ncu_full_raw.csv] [--gpu H200] [--domains a,b ...] [--json]

FILE.cu is a whole CUDA program whose main() launches named kernels through a helper
run(name, lambda). It runs on the stand-in runtime with PROF=1 in the environment, at full sizes;
each launch is sampled, counted and timed as a candidate's would be. times.csv has the columns
`launch` and `median_us`; the raw page is ncu's (`--page raw --csv`, also gzipped) of the same
program. A launch that cannot be modelled is refused with the reason, counted, and left out of the
figures. `--domains divergent,uniform_loop` says that these launches do the same work; launches
whose names begin with the same word do so anyway.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from program_run import Launched, ProgramRun, run_program

from kernelblaster.harness.build.toolchain import find_toolchain
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.gpus import Gpu, find_gpu
from kernelblaster.harness.nsight.profile import profile_from_pages
from kernelblaster.harness.records.profiles import LaunchProfile
from kernelblaster.harness.simt import constants_of
from kernelblaster.harness.vetting.symbols import bare_name

_GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
_HITS = "l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct"
PAIR = 1.3
"""Launches whose measured times differ by this factor or more must come out in the right order."""


@dataclass
class Row:
    """One launch: what was measured and what was simulated of it."""

    name: str
    measured_us: float
    simulated_us: float | None = None
    refusal: str = ""
    bottleneck: str = ""
    ties: tuple[str, ...] = ()
    terms: dict[str, float] = field(default_factory=dict)
    ncu_bottleneck: str = ""
    ncu_ties: tuple[str, ...] = ()
    counters: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By counter: simulated, Nsight Compute's."""

    @property
    def factor(self) -> float:
        """How many times too long or too short the estimate is."""
        assert self.simulated_us is not None
        return math.exp(abs(math.log(self.simulated_us / self.measured_us)))


@dataclass(frozen=True)
class Counter:
    """A counter that is compared, and when it is near enough."""

    name: str
    read: Callable[[Mapping[str, float]], float | None]
    near: Callable[[float, float], bool]
    least: float = 0.0
    """Launches for which Nsight Compute counts less than this are left out."""
    tolerance: str = ""


def _metric(name: str) -> Callable[[Mapping[str, float]], float | None]:
    return lambda metrics: metrics.get(name)


def _per_request(direction: str) -> Callable[[Mapping[str, float]], float | None]:
    def read(metrics: Mapping[str, float]) -> float | None:
        requests = metrics.get(_GLOBAL.format("requests", direction))
        sectors = metrics.get(_GLOBAL.format("sectors", direction))
        return sectors / requests if requests and sectors is not None else None

    return read


def _within(part: float) -> Callable[[float, float], bool]:
    return lambda simulated, real: abs(simulated - real) <= part * real


def _points(most: float) -> Callable[[float, float], bool]:
    return lambda simulated, real: abs(simulated - real) <= most


COUNTERS = (
    Counter("load requests", _metric(_GLOBAL.format("requests", "ld")), _within(0.02), 1, "2 %"),
    Counter("sectors per load request", _per_request("ld"), _within(0.02), 0, "2 %"),
    Counter("store requests", _metric(_GLOBAL.format("requests", "st")), _within(0.02), 1, "2 %"),
    Counter("sectors per store request", _per_request("st"), _within(0.02), 0, "2 %"),
    Counter("registers", _metric("launch__registers_per_thread"), _within(0.0), 0, "exact"),
    Counter("theoretical occupancy", _metric("sm__maximum_warps_per_active_cycle_pct"),
            _points(0.1), 0, "exact"),
    Counter("instructions", _metric("smsp__inst_executed.sum"), _within(0.15), 0, "15 %"),
    Counter("shared wavefronts", _metric("memory_l1_wavefronts_shared"), _within(0.03), 1000,
            "3 %"),
    Counter("L1 hit rate", _metric(_HITS), _points(10.0), 0, "10 points"),
    Counter("DRAM bytes read", _metric("dram__bytes_read.sum"), _within(0.10), 1e5, "10 %"),
)  # fmt: skip


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=Path, required=True)
    parser.add_argument("--times", type=Path, required=True)
    parser.add_argument("--profiles", type=Path)
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--domains", nargs="*", default=[])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    try:
        gpu = find_gpu(arguments.gpu)
        measured = read_times(arguments.times)
        profiles = read_profiles(arguments.profiles) if arguments.profiles else []
        started = time.perf_counter()
        run = run_program(find_toolchain(), arguments.kernels, gpu)
        seconds = time.perf_counter() - started
        rows = compare(run, _names(arguments.kernels), measured, profiles)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    figures = summary(rows, arguments.domains) | {
        "seconds": round(seconds, 1), "gpu": gpu.full_name, "constants": constants_of(gpu).origin,
    }  # fmt: skip
    if arguments.json:
        print(json.dumps({"figures": figures, "launches": [_plain(row) for row in rows]}, indent=1))
    else:
        print_table(gpu, rows, figures)


def read_text(path: Path) -> str:
    """Return a text file, gzipped or not; raises UserError."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error


def read_times(path: Path) -> list[tuple[str, float]]:
    """Return (launch, median microseconds) in order; raises UserError."""
    rows = list(csv.DictReader(read_text(path).splitlines()))
    try:
        found = [(row["launch"].strip(), float(row["median_us"])) for row in rows]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{path}: expected the columns launch and median_us in every row ({error!r})"
        ) from error
    if not found or not all(us > 0 and math.isfinite(us) for _, us in found):
        raise UserError(f"{path}: no launch, or a time that is not positive")
    return found


def read_profiles(path: Path) -> list[LaunchProfile]:
    """Return the launches of ncu's raw page in order; raises UserError."""
    result = profile_from_pages(read_text(path))
    if result.profile is None:
        raise UserError(f"{path}: {result.reason}")
    return list(result.profile.launches)


def _names(source: Path) -> list[str]:
    """Return the names given to run() in the source, in order."""
    return re.findall(r'\brun\s*\(\s*"((?:[^"\\]|\\.)*)"', read_text(source))


def compare(
    run: ProgramRun,
    names: Sequence[str],
    measured: Sequence[tuple[str, float]],
    profiles: Sequence[LaunchProfile],
) -> list[Row]:
    """Put launches, times and profiles together; raises UserError where they do not fit."""
    launches = run.launches
    real = _align(launches, profiles)
    groups = _groups(run, names, [name for name, _ in measured])
    rows = []
    for name, us in measured:
        row = Row(name, us)
        rows.append(row)
        members = groups.get(name)
        if not members:
            row.refusal = "the program did not launch it"
            continue
        refused = [launch for launch in members if launch.profile is None]
        if refused:
            row.refusal = refused[0].refusal
            continue
        _fill(row, members, [real.get(id(launch)) for launch in members])
    return rows


def _groups(
    run: ProgramRun, names: Sequence[str], measured: Sequence[str]
) -> dict[str, list[Launched]]:
    """Return the launches of each name: one each, or all between two synchronisations."""
    single = [[launch] for launch in run.launches]
    for candidates in (single, run.groups):
        for known in (measured, names):
            if len(candidates) == len(known):
                return dict(zip(known, candidates, strict=True))
    raise UserError(
        f"the program made {len(single)} launches in {len(run.groups)} groups, its source names "
        f"{len(names)} and {len(measured)} were measured: which is which cannot be told"
    )


def _align(
    launches: Sequence[Launched], profiles: Sequence[LaunchProfile]
) -> dict[int, LaunchProfile]:
    """Return ncu's profile of each launch, by identity: in order, by kernel where some lack."""
    ours = [bare_name(launch.kernel) for launch in launches]
    theirs = [bare_name(profile.kernel) for profile in profiles]
    if ours == theirs:
        return {id(launch): profile for launch, profile in zip(launches, profiles, strict=True)}
    found = {}
    for block in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
        for step in range(block.size):
            found[id(launches[block.a + step])] = profiles[block.b + step]
    return found


def _fill(
    row: Row, members: Sequence[Launched], real: Sequence[LaunchProfile | None]
) -> None:
    """Sum the launches of one name; counters and bottleneck are those of the longest."""
    profiles = [launch.profile for launch in members if launch.profile is not None]
    row.simulated_us = sum(profile.microseconds for profile in profiles)
    longest = max(range(len(profiles)), key=lambda at: profiles[at].microseconds)
    profile, truth = profiles[longest], real[longest]
    row.bottleneck, row.ties = str(profile.bottleneck), tuple(map(str, profile.bottleneck_ties))
    row.terms = dict(profile.terms)
    if truth is None:
        return
    row.ncu_bottleneck = str(truth.bottleneck)
    row.ncu_ties = tuple(map(str, truth.bottleneck_ties))
    for counter in COUNTERS:
        simulated, counted = counter.read(profile.metrics), counter.read(truth.metrics)
        if simulated is None and counted is not None and counter.name == "L1 hit rate":
            simulated = profile.metrics.get("l1tex__t_sector_hit_rate.pct")
        if simulated is not None and counted is not None and counted >= counter.least:
            row.counters[counter.name] = (simulated, counted)


def domain_of(name: str, domains: Sequence[str]) -> str:
    """Return what launches must share to be compared: a named domain, or their first word."""
    for domain in domains:
        if name in domain.split(","):
            return domain
    word = re.match(r"[A-Za-z]+", name)
    return word[0] if word else name


def summary(rows: Sequence[Row], domains: Sequence[str] = ()) -> dict[str, Any]:
    """Return the figures of a comparison."""
    done = [row for row in rows if row.simulated_us is not None]
    figures: dict[str, Any] = {
        "launches": len(rows),
        "refused": {row.name: row.refusal for row in rows if row.simulated_us is None},
    }
    if not done:
        return figures
    factors = [row.factor for row in done]
    right, pairs, wrong = _pairs(done, domains)
    all_right, all_pairs, _ = _pairs(done, None)
    worst = done[int(np.argmax(factors))]
    figures["time"] = {
        "spearman": round(_spearman([row.measured_us for row in done],
                                    [row.simulated_us or 0.0 for row in done]), 4),
        "median_factor": round(median(factors), 4),
        "p90_factor": round(float(np.percentile(factors, 90)), 4),
        "worst_factor": round(worst.factor, 4),
        "worst_launch": worst.name,
        "pairs_right": right, "pairs": pairs, "pairs_wrong": wrong,
        "all_pairs_right": all_right, "all_pairs": all_pairs,
    }  # fmt: skip
    judged = [row for row in done if row.ncu_bottleneck]
    if judged:
        figures["bottleneck"] = {
            "launches": len(judged),
            "right_with_ties": sum(_agree(row) for row in judged),
            "right_strictly": sum(row.bottleneck == row.ncu_bottleneck for row in judged),
        }
    figures["counters"] = {}
    for counter in COUNTERS:
        known = {row.name: row.counters[counter.name] for row in done
                 if counter.name in row.counters}  # fmt: skip
        if known:
            near = [name for name, pair in known.items() if counter.near(*pair)]
            figures["counters"][counter.name] = {
                "tolerance": counter.tolerance, "near": len(near), "launches": len(known),
                "far": {name: [float(f"{value:.5g}") for value in pair]
                        for name, pair in known.items() if name not in near},
            }  # fmt: skip
    return figures


def _agree(row: Row) -> bool:
    return bool({row.bottleneck, *row.ties} & {row.ncu_bottleneck, *row.ncu_ties})


def _spearman(a: Sequence[float], b: Sequence[float]) -> float:
    if len(a) < 2:
        return 1.0
    ranks = []
    for values in (np.asarray(a), np.asarray(b)):
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - (counts - 1) / 2)[inverse])
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _pairs(
    rows: Sequence[Row], domains: Sequence[str] | None
) -> tuple[int, int, list[tuple[str, str]]]:
    """Count pairs of one domain (any two where None) that differ, and those in the right order."""
    right = total = 0
    wrong = []
    for i, first in enumerate(rows):
        for second in rows[:i]:
            if domains is not None and domain_of(first.name, domains) != domain_of(
                second.name, domains
            ):
                continue
            low, high = sorted((first, second), key=lambda row: row.measured_us)
            if high.measured_us / low.measured_us >= PAIR:
                total += 1
                if (high.simulated_us or 0.0) > (low.simulated_us or 0.0):
                    right += 1
                else:
                    wrong.append((low.name, high.name))
    return right, total, wrong


def _plain(row: Row) -> dict[str, Any]:
    return {
        "launch": row.name, "measured_us": row.measured_us, "simulated_us": row.simulated_us,
        "refusal": row.refusal, "bottleneck": row.bottleneck, "ties": row.ties, "terms": row.terms,
        "ncu_bottleneck": row.ncu_bottleneck, "ncu_ties": row.ncu_ties, "counters": row.counters,
    }  # fmt: skip


def print_table(gpu: Gpu, rows: Sequence[Row], figures: Mapping[str, Any]) -> None:
    """Print one line for each launch, then the figures."""
    print(f"{gpu.full_name}, simulated against measured; constants: {constants_of(gpu).origin}")
    print("ratio: simulated time over measured; counters: simulated over Nsight Compute's, the L1 "
          "hit rate in points of difference; bottleneck: simulated | Nsight Compute's")  # fmt: skip
    shown = {
        "load requests": "ld", "sectors per load request": "ld s/r", "store requests": "st",
        "sectors per store request": "st s/r", "registers": "regs", "theoretical occupancy": "occ",
        "instructions": "inst", "shared wavefronts": "shared", "DRAM bytes read": "DRAM",
    }  # fmt: skip
    head = f"{'launch':22s} {'measured':>10s} {'simulated':>10s} {'ratio':>6s}"
    print(head, *(f"{short:>6s}" for short in (*shown.values(), "L1 hit")), " bottleneck")
    for row in rows:
        if row.simulated_us is None:
            print(f"{row.name:22s} {row.measured_us:10.1f} refused: {row.refusal}")
            continue
        cells = [_cell(row.counters.get(name)) for name in shown]
        hits = row.counters.get("L1 hit rate")
        cells.append(f"{hits[0] - hits[1]:+6.1f}" if hits else "     -")
        ours = "=".join((row.bottleneck, *row.ties))
        theirs = "=".join((row.ncu_bottleneck, *row.ncu_ties))
        terms = " ".join(f"{name} {value:.3g}" for name, value in sorted(
            row.terms.items(), key=lambda item: -item[1])[:4])  # fmt: skip
        print(f"{row.name:22s} {row.measured_us:10.1f} {row.simulated_us:10.1f} "
              f"{row.simulated_us / row.measured_us:6.2f} {' '.join(cells)}  {ours} | {theirs}"
              f"  [{terms}]")  # fmt: skip
    print()
    print(json.dumps(figures, indent=1))


def _cell(pair: tuple[float, float] | None) -> str:
    if pair is None:
        return "     -"
    if pair[1] == 0:
        return "  1.00" if pair[0] == 0 else "   inf"
    return f"{pair[0] / pair[1]:6.2f}"


if __name__ == "__main__":
    main()
