"""How long processors worked for a process and all that it started."""

from __future__ import annotations

import os
from pathlib import Path


def processor_seconds(process: int) -> float:
    """Return the seconds that a process and its descendants have used, ended ones included."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # It has ended.
            continue
        number = int(path.parent.name)
        parents[number], used[number] = int(fields[1]), sum(map(int, fields[11:15]))
    family = {process}
    while more := {each for each, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(used.get(each, 0) for each in family) / os.sysconf("SC_CLK_TCK")
