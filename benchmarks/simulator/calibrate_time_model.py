"""Derives the H200's constants of the time model again from the micro-kernels that identify them.

    python benchmarks/simulator/calibrate_time_model.py [--json]

Each constant of harness/simt/model/constants.py is computed from one or two launches of
ground_truth/constants.cu, constant_memory.cu, transfers.cu and serial.cu (their times, and what
Nsight Compute counted), by the formula beside it, and compared with the value in use. Ends with
status 1 where one differs by more than 6 %.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import NormalDist

import numpy as np
from simulated_vs_measured import read_profiles, read_text

from kernelblaster.harness.gpus import find_gpu
from kernelblaster.harness.simt import constants_of
from kernelblaster.harness.simt.model.constants import ROWS
from kernelblaster.harness.simt.model.time_model import CONTENDED_LINES

HERE = Path(__file__).resolve().parents[1] / "ground_truth"
H200 = find_gpu("H200")
CONSTANTS = constants_of(H200)
CLOCKS = H200.clock_ghz * 1e3
"""A microsecond."""
TOLERANCE = 0.06


@dataclasses.dataclass(frozen=True)
class Moved:
    """One row of transfers_times.csv."""

    what: str
    width: int
    rows: int
    times: int
    us: float


class Measured:
    """Times and counters of the micro-kernels by launch."""

    def __init__(self) -> None:
        rows = list(csv.DictReader(read_text(HERE / "constants_times.csv").splitlines()))
        self.us = {row["launch"]: float(row["median_us"]) for row in rows}
        profiles = read_profiles(HERE / "constants_raw.csv.gz")
        self.metrics = {
            row["launch"]: profile.metrics for row, profile in zip(rows, profiles, strict=True)
        }
        self.launch = self.us["empty_1"] - 0.05
        reads = csv.DictReader(read_text(HERE / "constant_memory_times.csv").splitlines())
        self.us |= {f"constant_{row['launch']}": float(row["median_us"]) for row in reads}
        serial = csv.DictReader(read_text(HERE / "serial_times.csv").splitlines())
        self.us |= {f"serial_{row['launch']}": float(row["median_us"]) for row in serial}
        moved = list(csv.DictReader(read_text(HERE / "transfers_times.csv").splitlines()))
        self.transfers = [
            Moved(row["what"], int(row["width"]), int(row["rows"]), int(row["times"]),
                  float(row["median_us"])) for row in moved
        ]  # fmt: skip

    def net(self, name: str) -> float:
        """Return the microseconds of a launch without the overhead of any launch."""
        return self.us[name] - self.launch

    def clocks(self, name: str) -> float:
        """Return the same in clocks."""
        return self.net(name) * CLOCKS

    def moved(self, what: str, times: int = 1) -> float:
        """Return the microseconds of the smallest transfers of a kind, one after the other."""
        return next(each.us for each in self.transfers if (each.what, each.times) == (what, times))

    def issue_efficiency(self) -> float:
        """Return the share of the issue slots that nothing but multiply-adds fills."""
        executed = self.metrics["rate_ffma"]["smsp__inst_executed.sum"]
        return executed / 4 / H200.sms / self.clocks("rate_ffma")

    def ghz(self, name: str) -> float:
        """Return the clock that Nsight Compute saw."""
        metrics = self.metrics[name]
        return metrics["gpc__cycles_elapsed.max"] / metrics["gpu__time_duration.sum"]


def hash_turns(lanes: int, words: int) -> float:
    """Return the turns of atomic_hash: by warp and sector, the most lanes on one word."""
    x = np.arange(lanes, dtype=np.uint32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    word = ((x ^ (x >> np.uint32(16))) & np.uint32(words - 1)).astype(np.int64)
    count = np.zeros((lanes // 32) * words, dtype=np.int64)
    np.add.at(count, np.arange(lanes) // 32 * words + word, 1)
    return float(count.reshape(-1, min(8, words)).max(axis=1).sum())


def few_lines(m: Measured) -> tuple[float, float]:
    """Return turns a nanosecond on one line, and the exponent by which lines speed them up."""
    rates = {
        lines: hash_turns(lanes, 32 * lines) / (1e3 * m.net(name))
        for name, lanes, lines in (
            ("atomic_f32_32", 1 << 20, 1), ("atomic_f32_1k", 1 << 17, 32),
        )
    }  # fmt: skip
    # A sample of the second, scaled: the turns of a warp do not depend on which it is.
    rates[32] *= 32
    rates[1024] = (1 << 24) / (1e3 * m.net("atomic_f32_32k"))
    slope, intercept = np.polyfit(np.log(list(rates)), np.log(list(rates.values())), 1)
    return math.exp(intercept), float(slope)


def dram(m: Measured) -> tuple[float, float]:
    """Return the share of the data sheet's bandwidth, and the dirty bytes that reads push out."""
    cases = {"dram_read": (2**29, 0), "dram_copy": (2**29, 2**29), "overlap_fma_0": (2**27, 2**27)}
    rows = [(read / (read + written), read + written) for read, written in cases.values()]
    # read + written + dirty * share = bandwidth * time: two unknowns, weighed by size.
    size = np.array([total for _, total in rows], dtype=float)
    left = np.array([[m.net(name) * 1e-6, -share] for name, (share, _) in
                     zip(cases, rows, strict=True)])  # fmt: skip
    (bandwidth, dirty), *_ = np.linalg.lstsq(left / size[:, None], np.ones(3), rcond=None)
    return bandwidth / (H200.dram_gigabytes_per_second * 1e9), dirty


def overlap(m: Measured) -> float:
    """Return the exponent that puts DRAM and multiply-adds of the same length together.

    Where one is much longer than the other, any exponent will do.
    """
    share, dirty = dram(m)
    slots = 4 * H200.sms * m.issue_efficiency()
    parts = (
        (2**28 + dirty / 2) / (share * H200.dram_gigabytes_per_second * 1e3),
        m.metrics["overlap_fma_64"]["smsp__inst_executed.sum"] / slots / CLOCKS,
    )
    exponents = np.arange(1.5, 8.0, 0.01)
    times = [sum(part**exponent for part in parts) ** (1 / exponent) for exponent in exponents]
    return float(exponents[np.argmin(np.abs(np.array(times) - m.net("overlap_fma_64")))])


def rows(m: Measured) -> tuple[float, float, float]:
    """Return what one row of a copy takes, the exponent of many, and the rate of wide ones."""
    narrow = [
        (each.rows, each.us - m.moved(each.what.removesuffix("2d")))
        for each in m.transfers
        if each.what in ("copy2d", "fill2d") and each.width == 4 and each.rows > 1
    ]
    exponent, first = np.polyfit(*np.log(np.array(narrow)).T, 1)
    wide = [
        2 * each.width * each.rows / (each.us - m.moved("copy")) / 1e3
        for each in m.transfers
        if each.what == "copy2d" and each.width >= 512 and each.rows >= 4096
    ]
    return math.exp(first), float(exponent), math.exp(float(np.mean(np.log(wide))))


def derive(m: Measured) -> dict[str, tuple[float, str]]:
    """Return each constant with the launches and the formula that it is from."""
    share, dirty = dram(m)
    one_line, _ = few_lines(m)
    one_row, _, wide = rows(m)
    # Random reads by all lanes: 32 warps to an SM, 31 distinct words of 32 lanes.
    a_read, kept = 32 * 31, m.clocks("constant_table_2k") / 128
    over_4k = (m.clocks("constant_table_4k") / 128 - kept) / a_read
    over_64k = (m.clocks("constant_table_64k") / 64 - kept) / a_read
    cold = (1 << 23) / (share * H200.dram_gigabytes_per_second * 1e3)
    chase_l2 = m.clocks("chase_l2") / 16384
    unloaded = m.clocks("chase_dram") / 2048 - 6
    later = m.clocks("flight4_4warps") / 64 - m.clocks("flight1_4warps") / 128 - 25
    of_four = NormalDist().inv_cdf(3.625 / 4.25)
    flights = [m.clocks(f"flight1_{warps}") / 128 for warps in ("1warp", "64warps")]
    products = 264 * 8 * 2048 * 8 / H200.sms
    ghz = m.ghz("rate_mma_f16")
    peak = H200.throughput.tensor_fp16
    lanes = 1 << 19
    gathered, scattered, swept = 2112 * 256 * 32, 2112 * 256 * 16, 1056 * 256 * 64
    found: dict[str, tuple[float, str]] = {
        "launch_microseconds": (m.launch, "empty_1, less 0.05 us of work"),
        "further_launch_microseconds": (
            (m.moved("empty_launch", 16) - m.moved("empty_launch")) / 15,
            "transfers' empty_launch 16 times less once, / 15"),
        "copy_microseconds": (m.moved("copy") - m.launch, "transfers' copy of 4 bytes, less that"),
        "row_microseconds": (one_row, "transfers' copies and fills of rows of 4 bytes: log-log"),
        "rows_bytes_per_nanosecond": (wide, "transfers' rows of 512 bytes or more: mean of logs"),
        "clocks_per_block": (m.clocks("blocks_32") / 2**19, "blocks_32 / 2^19"),
        "dram_efficiency": (share, "dram_read, dram_copy, overlap_fma_0: least squares"),
        "dirty_bytes": (dirty, "the same"),
        "dram_accesses_per_nanosecond": (8448 * 256 * 8 / m.net("gather_dram_4b") / 1e3,
                                         "gather_dram_4b: sectors"),
        "l2_read_sectors_per_clock": (swept / 2 / ((m.net("l2_read4_8mb") - cold) * CLOCKS),
                                      "l2_read4_8mb less its first 8 MB from DRAM"),
        "l2_read_requests_per_clock": (gathered / m.clocks("gather_l2_4b"), "gather_l2_4b"),
        "l2_write_sectors_per_clock": (swept / 2 / m.clocks("l2_write4_8mb"), "l2_write4_8mb"),
        "l2_write_requests_per_clock": (scattered / m.clocks("scatter_l2_4b"), "scatter_l2_4b"),
        "dram_latency": (sum(flights) / 2 - 40,
                         "flight1_1warp and flight1_64warps, mean, less 40 clocks of arithmetic"),
        "latency_spread": (later / of_four / CONSTANTS.dram_latency,
                           "flight4_4warps, a turn less one of flight1_4warps and 25 clocks"),
        "l2_latency": ((chase_l2 * 16384 - 2048 * unloaded) / 14336 - 6,
                       "chase_l2 less its first round from DRAM and 6 clocks of address"),
        "l1_latency": ((m.clocks("chase_l1") - 256 * unloaded) / 16128 - 6, "chase_l1, the same"),
        "atomic_nanoseconds": (1e3 * m.net("atomic_f32_1") / lanes, "atomic_f32_1 / 2^19"),
        "integer_atomic_nanoseconds": (1e3 * m.net("atomic_int_1") / 2**22, "atomic_int_1 / 2^22"),
        "atomic_passes_per_nanosecond": (2**24 / m.net("atomic_f32_1m") / 1e3, "atomic_f32_1m"),
        "atomic_turns_per_nanosecond": (one_line, "atomic_f32_32, _1k, _32k: a line in log-log"),
        "constant_clocks": (m.clocks("constant_rate_8") / (32 * 8 * 256 * 8),
                            "constant_memory's rate_8: 32 warps, 8 chains, 256 reads, 8 words"),
        "constant_latency": ((m.clocks("constant_latency_32") / 1024
                              - m.clocks("constant_latency_1") / 4096) / 31,
                             "constant_memory's latency_32 less latency_1, a read"),
        "constant_cache_bytes": (4096 * (1 - over_4k / over_64k),
                                 "constant_memory's table_4k: what does not miss, by table_64k"),
        "constant_miss_clocks": (over_64k, "constant_memory's table_64k less table_2k, a word"),
        "constant_miss_latency": ((m.clocks("constant_walk_4k") - m.clocks("constant_walk_2k"))
                                  / 4096, "constant_memory's walk_4k less walk_2k, a read"),
        "barrier_clocks": (m.clocks("barrier_1024") / 2048 / 32, "barrier_1024 / 2048 / 32 warps"),
        "tensor_clock_share": (ghz / H200.clock_ghz, "rate_mma_f16: ncu's clock"),
        "tensor_efficiency": (products * 2048 / (m.net("rate_mma_f16") * ghz * 1e3) / peak,
                              "rate_mma_f16: products of 16 x 8 x 16"),
        "issue_efficiency": (m.issue_efficiency(), "rate_ffma: instructions over slots"),
        "overlap": (overlap(m), "overlap_fma_64: DRAM and multiply-adds alone take as long"),
        "hop_clocks": ((m.clocks("serial_chain_1056_blocks") - m.clocks("serial_chain_132_blocks"))
                       / 924 - CONSTANTS.l2_latency,
                       "serial's chain_1056_blocks less chain_132_blocks, a block, less a look"),
        "atomic_hop_clocks": ((m.clocks("serial_grid_1000_of_132")
                               - m.clocks("serial_grid_100_of_132")) / 900
                              - 2 * CONSTANTS.l2_latency,
                              "serial's grid_1000_of_132 less grid_100, less 2 accesses"),
        "block_turnover": (m.clocks("turnover_1") / 40 - 256 * 4.5 - 100,
                           "turnover_1: a round less its chain and 100 clocks before it"),
    }  # fmt: skip
    return found


def compare(
    derived: Mapping[str, tuple[float, str]], in_use: Callable[[str], float]
) -> list[tuple[str, float, float, str]]:
    """Return (name, derived, in use, from) of every constant."""
    return [(name, value, in_use(name), source) for name, (value, source) in derived.items()]


def main() -> None:
    """Derive, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    measured = Measured()
    found = compare(derive(measured), lambda name: float(getattr(CONSTANTS, name)))
    named = {field.name for field in dataclasses.fields(CONSTANTS)} - {"origin"}
    assert {name for name, *_ in found} == named, "every constant is derived"
    if arguments.json:
        print(json.dumps([dict(zip(("constant", "derived", "in_use", "from"), row, strict=True))
                          for row in found], indent=1))  # fmt: skip
    else:
        print(f"{'constant':30s} {'derived':>12s} {'in use':>12s}  from")
        for name, value, used, source in found:
            far = abs(value / used - 1) > TOLERANCE
            print(f"{name:30s} {value:12.4g} {used:12.4g}  {source}{'  FAR' if far else ''}")
        print(f"exponent of rows in one copy: {rows(measured)[1]:.2f} (in use {ROWS})")
        print(f"exponent of lines in contended atomics: {few_lines(measured)[1]:.2f} "
              f"(in use {CONTENDED_LINES})")
    if any(abs(value / used - 1) > TOLERANCE for _, value, used, _ in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
