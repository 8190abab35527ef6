"""Turns what a report of Nsight Compute says into our records: a profile with advice."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import model_validator

from ..records.builds import Diagnostic
from ..records.outcomes import Outcome
from ..records.profiles import LaunchProfile, LineProfile, Profile
from ..records.record import Record
from ..records.timings import Provenance
from .bottleneck import bottleneck_of, stalls
from .pages import RawLaunch, Rule, read_raw_page, read_rules, read_source_page

HOT_LINES = 8
_ASK_AGAIN = "profile again; if it stays so, this ncu's CSV differs from what is known here"


class NcuResult(Record):
    """What came of profiling: a profile, or why there is none and how to get one."""

    outcome: Literal[Outcome.PASSED, Outcome.PROFILER_UNAVAILABLE]
    reason: str = ""
    """One line; empty where there is a profile."""
    remedy: str = ""
    """One line: what a person can do."""
    profile: Profile | None = None
    rules: tuple[Rule, ...] = ()
    """Every rule of ncu that said something, by launch; the profile's advice is drawn from them."""
    collection: str = ""
    """Name of the collection that the profile holds."""
    counted: str = ""
    """Which launches have what the collection holds, where not all have; the others are timed."""
    reader: Literal["python", "csv", ""] = ""
    """Who read the report: ncu's own Python module, or its CSV pages."""

    @model_validator(mode="after")
    def _either_a_profile_or_a_reason(self) -> NcuResult:
        if (self.outcome is Outcome.PASSED) != (self.profile is not None):
            raise ValueError("a profile belongs to a pass, and to nothing else")
        if self.profile is None and not (self.reason and self.remedy):
            raise ValueError("without a profile, say why and what to do")
        return self

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The failure as a diagnostic; empty for a pass."""
        if self.profile is not None:
            return ()
        message = f"{self.reason}; {self.remedy}"
        return (Diagnostic(kind=str(Outcome.PROFILER_UNAVAILABLE), message=message),)


def unavailable(reason: str, remedy: str) -> NcuResult:
    """Return the result that says why there is no profile."""
    return NcuResult(outcome=Outcome.PROFILER_UNAVAILABLE, reason=reason, remedy=remedy)


def profile_from_pages(
    raw: str, details: str = "", source_page: str = "", gpu: str = "", source: str = ""
) -> NcuResult:
    """Return the profile in the CSV pages of a report; see `command.import_command`.

    Args:
        raw: the page `raw`: all metrics of all launches.
        details: the page `details`, for the rules; may be empty.
        source_page: the page `source`, for hot lines; may be empty.
        gpu, source: see `ncu.profile_program`.
    """
    try:
        launches = read_raw_page(raw)
    except ValueError as error:
        return unavailable(f"ncu's report cannot be read: {error}", _ASK_AGAIN)
    read_rules(details, launches)
    read_source_page(source_page, launches.values())
    return profile_from_launches(list(launches.values()), gpu, source, "csv")


def profile_from_launches(
    launches: Sequence[RawLaunch], gpu: str, source: str, reader: Literal["python", "csv"]
) -> NcuResult:
    """Return the profile of the launches, or why there is none: one of them has no duration."""
    described = []
    for index, launch in enumerate(launches):
        nanoseconds = launch.metrics.get("gpu__time_duration.sum", 0.0)
        if nanoseconds <= 0:
            return unavailable(
                f"ncu reports no duration for launch {index} ({launch.kernel})",
                "collect gpu__time_duration.sum (section SpeedOfLight)",
            )
        described.append(_describe(launch, nanoseconds / 1e3, source))
    name = gpu or launches[0].texts.get("device__attribute_display_name", "")
    profile = Profile(
        launches=tuple(described),
        gpu=name.removeprefix("NVIDIA ") or "unknown GPU",
        provenance=Provenance.NCU,
    )
    rules = tuple(rule for launch in launches for rule in launch.rules)
    return NcuResult(outcome=Outcome.PASSED, profile=profile, rules=rules, reader=reader)


def _describe(launch: RawLaunch, microseconds: float, source: str) -> LaunchProfile:
    metrics = with_ratios(launch.metrics)
    bottleneck, ties = bottleneck_of(metrics)
    return LaunchProfile(
        kernel=launch.kernel,
        grid=_three(launch, "launch__grid_dim", "Grid Size"),
        block=_three(launch, "launch__block_dim", "Block Size"),
        dynamic_shared_bytes=round(metrics.get("launch__shared_mem_per_block_dynamic", 0.0)),
        microseconds=microseconds,
        metrics=metrics,
        bottleneck=bottleneck,
        bottleneck_ties=ties,
        lines=_hot_lines(launch, source),
        advice=advice_of(launch.rules, metrics),
    )


def with_ratios(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics with sectors for each request, ncu's own ratio of two of its counters."""
    found = dict(metrics)
    for direction in ("ld", "st"):
        suffix = f"pipe_lsu_mem_global_op_{direction}"
        sectors = metrics.get(f"l1tex__t_sectors_{suffix}.sum")
        requests = metrics.get(f"l1tex__t_requests_{suffix}.sum")
        if sectors is not None and requests:
            name = f"l1tex__average_t_sectors_per_request_{suffix}.ratio"
            found.setdefault(name, sectors / requests)
    return found


def _three(launch: RawLaunch, prefix: str, column: str) -> tuple[int, int, int]:
    sizes = [launch.metrics.get(f"{prefix}_{axis}", 0.0) for axis in "xyz"]
    if not all(sizes):
        sizes = [float(size) for size in re.findall(r"\d+", launch.texts.get(column, ""))]
    x, y, z = (*(int(size) for size in sizes[:3]), 1, 1, 1)[:3]
    return x, y, z


def _hot_lines(launch: RawLaunch, source: str) -> tuple[LineProfile, ...]:
    """Return the lines with the largest share of any counter, the hottest first."""
    lines = {key: counts for key, counts in launch.lines.items() if source in ("", key[0])}
    totals = [max(1.0, sum(counts[i] for counts in lines.values())) for i in range(3)]
    shares = {
        key: max(count / total for count, total in zip(counts, totals, strict=True))
        for key, counts in lines.items()
    }
    hottest = sorted(lines, key=lambda key: (-shares[key], key))[:HOT_LINES]
    return tuple(
        LineProfile(line=key[1], instructions=lines[key][0], sectors=lines[key][1],
                    shared_wavefronts=lines[key][2])
        for key in hottest
    )  # fmt: skip


_MEASURED = r"\d\.\d|\d ?%|\d{3}"
"""Figures that a profile gave, rather than those that explain the hardware (`32 threads`)."""
_NOT_OURS = ("MemoryL2Compression",)
"""Rules about what a candidate cannot choose: compressible memory is the allocator's."""


def advice_of(rules: Sequence[Rule], metrics: Mapping[str, float]) -> tuple[str, ...]:
    """Return what warps wait for, then the rules' advice in a sentence each, large estimates first.

    Estimates of the kernel's time come before those of one unit's efficiency, and those before
    rules without an estimate.
    """
    useful = [rule for rule in rules if rule.kind in ("optimization", "warning")]
    useful = [rule for rule in useful if rule.name not in _NOT_OURS]
    order = {"kernel": 0, "unit": 1, None: 2}
    useful.sort(key=lambda rule: (order[rule.scope], -(rule.speedup_percent or 0.0)))
    said = [f"{rule.name}{_estimate(rule)}: {_telling(rule.message)}" for rule in useful]
    reasons = sorted(stalls(metrics).items(), key=lambda item: -item[1])
    worst = [f"{name} {share:.0%}" for name, share in reasons[:3] if share >= 0.1]
    if worst:
        said.insert(0, f"Warps that cannot issue wait for: {', '.join(worst)}.")
    return tuple(dict.fromkeys(said))


def _estimate(rule: Rule) -> str:
    if rule.speedup_percent is None:
        return ""
    of = "of the kernel's time" if rule.scope == "kernel" else "of one unit's efficiency"
    return f" (estimated gain {rule.speedup_percent:.3g} % {of})"


def _telling(message: str) -> str:
    """Return the first sentence that tells something measured, else the first of all."""
    sentences = re.split(r"(?<=[.!?])\s*(?=[A-Z])", message)
    return next((each for each in sentences if re.search(_MEASURED, each)), sentences[0])
