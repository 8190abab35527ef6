"""Times PyTorch's own kernels after different ways to flush the L2, beside Nsight Compute's times.

    python benchmarks/judge/l2_flush.py

Needs a GPU, and ncu for the last part. Prints, for each kernel and way, microseconds between
events: the 5, 10, 25, 50, 75, 90 and 98 % quantiles of 60 runs, the ways taken in turn.
"""

from __future__ import annotations

import csv
import io
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable

import torch

ROUNDS, WARM_UP, PROFILED = 63, 3, 8
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)


def kernels() -> dict[str, Callable[[], object]]:
    """Return calls that launch one kernel each, by name."""
    a, b, c = (torch.rand(1 << 24, device="cuda") for _ in range(3))
    square, out = torch.rand(4096, 4096, device="cuda"), torch.empty(4096, 4096, device="cuda")
    small, product = torch.rand(2048, 2048, device="cuda"), torch.empty(2048, 2048, device="cuda")
    total = torch.empty((), device="cuda")
    return {
        "add, 201 MB": lambda: torch.add(a, b, out=c),
        "sum, 67 MB": lambda: torch.sum(a, dim=0, out=total),
        "softmax, 134 MB": lambda: torch.softmax(square, 1, out=out),
        "exp, 134 MB": lambda: torch.exp(a, out=c),
        "product 2048^3": lambda: torch.mm(small, small, out=product),
        "fill, 67 MB": lambda: c.fill_(1.0),
    }


def flushes() -> dict[str, Callable[[], object]]:
    """Return ways to flush the L2, by name."""
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    scrap = torch.empty(l2, dtype=torch.float32, device="cuda")  # four times the L2
    half, total = scrap[: scrap.numel() // 2], torch.empty((), device="cuda")

    def read(what: torch.Tensor) -> None:
        torch.sum(what, dim=0, out=total)

    return {
        "write": lambda: scrap.zero_(),
        "write, read half": lambda: (scrap.zero_(), read(half)),
        "write, read all": lambda: (scrap.zero_(), read(scrap)),
        "read all": lambda: read(scrap),
    }


def main() -> None:
    """Print the table, then ncu's times of the same kernels."""
    calls = kernels()
    if "--profiled" in sys.argv:
        for call in calls.values():
            for _ in range(1 + PROFILED):
                call()
        torch.cuda.synchronize()
        return
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    ways = flushes()
    for name, call in calls.items():
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(ROUNDS):
            for way, flush in ways.items():
                flush()
                begin.record()
                call()
                end.record()
                torch.cuda.synchronize()
                times[way].append(1000 * begin.elapsed_time(end))
        print(name)
        for way, found in times.items():
            kept = sorted(found[WARM_UP:])
            figures = (kept[int(share * (len(kept) - 1))] for share in QUANTILES)
            print(f"    {way:18}", *(f"{figure:7.2f}" for figure in figures))
    _print_ncu()


def _print_ncu() -> None:
    """Print the median time of each kernel by ncu, which invalidates all caches before each."""
    done = subprocess.run(
        ["ncu", "--metrics", "gpu__time_duration.sum", "--cache-control", "all",
         "--clock-control", "none", "--csv", sys.executable, __file__, "--profiled"],
        capture_output=True, text=True,
    )  # fmt: skip
    _, head, body = done.stdout.partition('"ID"')
    durations = defaultdict(list)
    for row in csv.DictReader(io.StringIO(head + body)):
        durations[row["Kernel Name"]].append(float(row["Metric Value"].replace(",", "")))
    print("by ncu, median ns" if durations else f"ncu: {done.stderr or done.stdout}"[-500:])
    for kernel, found in durations.items():
        if len(found) >= PROFILED:
            print(f"    {statistics.median(found):10.0f}  {kernel[:90]}")


if __name__ == "__main__":
    main()
