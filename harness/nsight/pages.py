"""What a report of Nsight Compute says, read from its CSV pages or its official reader's JSON."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal

from ..records.record import Record
from ..vetting.symbols import UNNAMED, bare_name, with_one_unnamed


class Rule(Record):
    """One rule of Nsight Compute that had something to say of one launch."""

    launch: int
    """Index into the profile's launches."""
    section: str
    """ncu's identifier, for example SourceCounters."""
    name: str
    """For example UncoalescedGlobalAccess."""
    kind: Literal["optimization", "warning", "error", "information"]
    message: str
    speedup_percent: float | None = None
    """ncu's estimate; None where the rule gives none. Estimates of several rules overlap."""
    scope: Literal["kernel", "unit"] | None = None
    """What the estimate is a share of: the kernel's time, or the efficiency of one unit."""


LineCounts = tuple[float, float, float]
"""Warp instructions, global sectors, shared wavefronts of one source line."""


@dataclass
class RawLaunch:
    """One launch as the report has it."""

    kernel: str
    metrics: dict[str, float] = field(default_factory=dict)
    """Numbers in base units."""
    texts: dict[str, str] = field(default_factory=dict)
    """Values that are no numbers, and the identifying columns of a CSV row."""
    rules: list[Rule] = field(default_factory=list)
    lines: dict[tuple[str, int], LineCounts] = field(default_factory=dict)
    """By base name of the source file and line number."""


# Units -----------------------------------------------------------------------------------------

_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
"""Nsight Compute's are decimal: 1.024 Kbyte are 1024 bytes."""
_NANOSECONDS = {
    "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 6e10,
    "nsecond": 1.0, "usecond": 1e3, "msecond": 1e6, "second": 1e9,
}  # fmt: skip


def base_factor(unit: str) -> float:
    """Return what a value in `unit` is multiplied by to stand in ncu's base unit.

    Base units are ns, byte, hz, %, and counts; of rates, the second (byte/s, sector/s). A unit
    that is not known is a count (sector, warp, register/thread, ...) and stays as it is.
    """
    factor = 1.0
    for index, part in enumerate(unit.strip().split("/")):
        if part in _NANOSECONDS:
            scale = _NANOSECONDS[part] if index == 0 else _NANOSECONDS[part] / 1e9
        else:
            match = re.fullmatch(r"([KMGTP]?)(?:i?bytes?|hz)", part, re.IGNORECASE)
            scale = _PREFIXES[match.group(1).upper()] if match else 1.0
        factor = factor * scale if index == 0 else factor / scale
    return factor


def number(text: str) -> float | None:
    """Return the number in a cell (`114,565`, `0.058`), or None: empty, `n/a`, `nan`, words."""
    try:
        value = float(text.strip().replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


# Which metrics are worth keeping ---------------------------------------------------------------

_UNWANTED = re.compile(
    r"^(device__|profiler__|derived_|c2clink|nvlink|pcie|numa|fbpa|idc|launch__uses_|group:"
    r"|warpsampling:|pmsampling:|smsp__pcsamp_(interval|buffer|dropped|aggregated)"
    r"|memory_(access_)?(size_)?type$)"
    r"|\.(min|max)(\.|$)|\.peak_sustained|\.max_rate$|\.pct_of_peak_sustained_region"
)
"""Facts of the machine and of the profiler, codes, extremes over the units, and peaks."""
_WANTED = frozenset({"gpc__cycles_elapsed.max"})


def is_kept(name: str) -> bool:
    """Say whether a metric goes into a profile: a full report has 2000 of them for each launch."""
    if name in _WANTED:
        return True
    return re.match(r"[a-z][\w:]*", name) is not None and not _UNWANTED.search(name)


# The raw page ----------------------------------------------------------------------------------

_IDENTITY = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC",
)  # fmt: skip


def read_raw_page(text: str) -> dict[str, RawLaunch]:
    """Return the launches of a raw page by ncu's ID, in order.

    The first row names the columns, the second their units, each further one is a launch. Lines
    that ncu prints before or after are passed over.

    Raises:
        ValueError: there is no header, no launch, or a row that breaks off: a profile that lacks
            a launch would be a wrong one.
    """
    rows = _table(text, "Kernel Name")
    header = next(rows, None)
    if header is None:
        raise ValueError("the raw page has no header")
    units: Sequence[str] = ()
    launches: dict[str, RawLaunch] = {}
    for row in rows:
        if not row or (len(row) == 1 and row[0].startswith("==")):
            continue
        if len(row) < len(header):
            raise ValueError(f"the raw page breaks off after {len(launches)} launches")
        cells = dict(zip(header, row, strict=False))
        if not cells["ID"]:
            units = units or row
        else:
            launches[cells["ID"]] = _raw_launch(header, units, row)
    if not launches:
        raise ValueError("the raw page has no launch")
    return launches


def _raw_launch(header: Sequence[str], units: Sequence[str], row: Sequence[str]) -> RawLaunch:
    launch = RawLaunch(kernel="")
    for index, (name, cell) in enumerate(zip(header, row, strict=False)):
        value = None if name in _IDENTITY else number(cell)
        if value is None:
            launch.texts.setdefault(name, cell.strip())
        elif is_kept(name):
            unit = units[index] if index < len(units) else ""
            launch.metrics.setdefault(name, value * base_factor(unit))
    launch.kernel = kernel_name(launch.texts["Kernel Name"])
    drop_repeated(launch.metrics)
    return launch


def drop_repeated(metrics: dict[str, float]) -> None:
    """Remove each `.sum.pct_of_peak...` that stands beside the same number as `.avg.pct_...`."""
    for name in [name for name in metrics if ".sum.pct_of_peak" in name]:
        if name.replace(".sum.pct", ".avg.pct") in metrics:
            del metrics[name]


def _table(text: str, column: str) -> Iterator[list[str]]:
    """Yield the header that has this column, and the rows after it."""
    rows = csv.reader(io.StringIO(text.replace("\0", "")))
    found = False
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error:  # a cell beyond csv's limit: not a row of ours
            continue
        found = found or (row[:1] == ["ID"] and column in row)
        if found:
            yield row


def kernel_name(demangled: str) -> str:
    """Return a kernel's name without return type and parameters: `mm_tiled<32>`.

    It is the same in every version of the file.
    """
    name = with_one_unnamed(demangled.strip())
    depth = 0
    for index, character in enumerate(name):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth <= 0 and index:
            of_the_name = name.startswith(UNNAMED, index)
            if not of_the_name and not name[:index].endswith("operator"):
                name = name[:index]
                break
    return name.removeprefix("void ").strip() or demangled.strip()


# The details page: rules -----------------------------------------------------------------------

_KINDS: Mapping[str, Literal["optimization", "warning", "error", "information"]] = {
    "opt": "optimization", "optimization": "optimization", "2": "optimization",
    "wrn": "warning", "warning": "warning", "3": "warning",
    "err": "error", "error": "error", "4": "error",
}  # fmt: skip


def read_rules(text: str, launches: Mapping[str, RawLaunch]) -> None:
    """Add the rules of a details page to the launches of the same IDs; no page, no rules."""
    order = {identifier: index for index, identifier in enumerate(launches)}
    rows = _table(text, "Rule Name")
    header = next(rows, [])
    for row in rows:
        cells = dict(zip(header, row, strict=False))
        launch = launches.get(cells.get("ID", ""))
        if launch is None or not cells.get("Rule Name"):
            continue
        rule = make_rule(
            order[cells["ID"]], cells.get("Section Name", ""), cells["Rule Name"],
            cells.get("Rule Type", ""), cells.get("Rule Description", ""),
            number(cells.get("Estimated Speedup", "")), cells.get("Estimated Speedup Type", ""),
        )  # fmt: skip
        if rule.message:
            launch.rules.append(rule)


def make_rule(
    launch: int, section: str, name: str, kind: str, message: str, speedup: float | None, scope: str
) -> Rule:
    """Return a rule from ncu's words; its kind and scope in any spelling."""
    words = kind.casefold().rpartition("_")[2]
    estimated: Literal["kernel", "unit"] | None = None
    if speedup is not None:
        estimated = "unit" if "local" in scope.casefold() else "kernel"
    return Rule(
        launch=launch, section=section, name=name, kind=_KINDS.get(words, "information"),
        message=_plain(message), speedup_percent=speedup, scope=estimated,
    )  # fmt: skip


def _plain(message: str) -> str:
    """Return a message without ncu's markup (@section:Id:text@, @url:text:link@) and links."""
    text = re.sub(r"@url:([^:@]*):[^@]*@", r"\1", message)
    text = re.sub(r"@\w+:[^:@]*:([^@]*)@", r"\1", text)
    text = re.sub(r"(?:(?<!\s)\s+)?\(https?://[^()]*\)", "", text)
    return " ".join(text.split())


# The source page -------------------------------------------------------------------------------

_COLUMNS = (
    ("Instructions Executed", "inst_executed"),
    ("L2 Theoretical Sectors Global", "memory_l2_theoretical_sectors_global"),
    ("L1 Wavefronts Shared", "memory_l1_wavefronts_shared"),
)


def read_source_page(text: str, launches: Iterable[RawLaunch]) -> None:
    """Add the counters of source lines to the launches; what cannot be read is left out.

    The page is a sequence of tables, each under rows that name the file and the function. A line
    of source carries the sum of its instructions, whose own rows have no line number. Tables come
    in the order of the launches: the second table of one function and file is of the second
    launch of that function.
    """
    by_name: dict[str, list[RawLaunch]] = {}
    for launch in launches:
        by_name.setdefault(bare_name(launch.kernel), []).append(launch)
    seen: Counter[tuple[str, str]] = Counter()
    file = ""
    launch_here: RawLaunch | None = None
    function = ""
    header: list[str] = []
    for row in csv.reader(io.StringIO(text.replace("\0", ""))):
        label = row[0] if row else ""
        if label in ("File Path", "File Name") and len(row) > 1:
            file, header = PurePath(row[1]).name, []
        elif label in ("Function Name", "Kernel Name") and len(row) > 1:
            function, header = bare_name(kernel_name(row[1])), []
        elif any(name in row for name in ("Line No", "Line Number", "# Line")):
            header = row
            same = by_name.get(function, [])
            count = seen[function, file]
            seen[function, file] += 1
            launch_here = same[count] if count < len(same) else None
        elif header and launch_here is not None:
            _add_line(launch_here, file, header, row)


def _add_line(launch: RawLaunch, file: str, header: Sequence[str], row: Sequence[str]) -> None:
    cells: dict[str, str] = {}
    for name, cell in zip(header, row, strict=False):
        cells.setdefault(name, cell)
    line = next((cells[n] for n in ("Line No", "Line Number", "# Line") if n in cells), "")
    if not line.strip().isdigit():
        return
    counts = [
        next((number(cells[name]) or 0.0 for name in names if name in cells), 0.0)
        for names in _COLUMNS
    ]
    if any(counts):
        add_counts(launch, file, int(line), counts)


def add_counts(launch: RawLaunch, file: str, line: int, counts: Sequence[float]) -> None:
    """Add counts (instructions, sectors, wavefronts) to one line of a launch."""
    before = launch.lines.get((file, line), (0.0, 0.0, 0.0))
    launch.lines[file, line] = (
        before[0] + counts[0], before[1] + counts[1], before[2] + counts[2],
    )  # fmt: skip


# The official reader's JSON --------------------------------------------------------------------


def read_json(values: Sequence[Mapping[str, Any]]) -> list[RawLaunch]:
    """Return the launches that reader.py wrote.

    Raises:
        ValueError, KeyError, TypeError: the JSON is not of that form.
    """
    launches = []
    for index, value in enumerate(values):
        launch = RawLaunch(kernel=kernel_name(value["kernel"]))
        for name, (found, unit) in value["metrics"].items():
            if isinstance(found, str):
                launch.texts[name] = found
            elif is_kept(name) and math.isfinite(found):
                launch.metrics[name] = float(found) * base_factor(unit)
        drop_repeated(launch.metrics)
        for rule in value["rules"]:
            made = make_rule(index, **rule)
            if made.message:
                launch.rules.append(made)
        for file, line, *counts in value["lines"]:
            add_counts(launch, PurePath(file).name, int(line), counts)
        launches.append(launch)
    if not launches:
        raise ValueError("the report has no launch")
    return launches
