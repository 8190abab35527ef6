"""How long processors worked for a process and all that it started, and the memory these have."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path


def processor_seconds(process: int) -> float:
    """Return the seconds that a process and its descendants have used, ended ones included."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for number, fields in _running():
        parents[number], used[number] = int(fields[1]), sum(map(int, fields[11:15]))
    family = _family(process, parents)
    return sum(used.get(each, 0) for each in family) / os.sysconf("SC_CLK_TCK")


def memory_bytes(process: int) -> int:
    """Return the memory that a process and its descendants have in use, mapped files left out.

    Of a forked process the pages that it has not changed count too. What would tell them apart
    (smaps_rollup) takes a second for a process that maps a GPU, and halts it meanwhile.
    """
    total = 0
    for each in _family(process, {number: int(fields[1]) for number, fields in _running()}):
        with contextlib.suppress(OSError):  # It has ended.
            _, resident, of_files, *_ = Path(f"/proc/{each}/statm").read_text().split()
            total += os.sysconf("SC_PAGE_SIZE") * (int(resident) - int(of_files))
    return total


def _running() -> Iterable[tuple[int, list[str]]]:
    """Yield the number of each process and the fields of its state, from the third on."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # It has ended.
            yield int(path.parent.name), path.read_text().rpartition(")")[2].split()


def _family(process: int, parents: Mapping[int, int]) -> set[int]:
    family = {process}
    while more := {each for each, parent in parents.items() if parent in family} - family:
        family |= more
    return family
