"""A kernel's source with line numbers, and where in it the work is done."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...harness.records.profiles import LaunchProfile, Profile

SHARE = 0.05
"""A line with this part of any counter of its launch is hot."""
MOST_LINES = 8
"""Hot lines named for one profile."""

_LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
_STORES = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
_ATOMICS = "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum"


def listing(source: str, hot: Iterable[int] = ()) -> str:
    """Return the source with each line's number; a `>` after it marks the lines in `hot`."""
    lines = source.rstrip("\n").split("\n")
    marked = set(hot)
    width = len(str(len(lines)))
    return "\n".join(
        f"{number:>{width}}{'>' if number in marked else ' '}{line}".rstrip()
        for number, line in enumerate(lines, 1)
    )


def excerpt(source: str, hot: Iterable[int], around: int = 3) -> str:
    """Return the hot lines with their neighbours, numbered and marked; `...` for what lies between.

    For roles that read a file but do not change it. Where nothing is hot, or little would be left
    out, the whole listing.
    """
    numbered = listing(source, marked := set(hot)).split("\n")
    shown = {near for at in marked for near in range(at - around, at + around + 1)}
    shown &= set(range(1, len(numbered) + 1))
    if not shown or len(shown) >= 0.8 * len(numbered):
        return "\n".join(numbered)
    lines: list[str] = []
    before = 0
    for at in sorted(shown):
        if at != before + 1:
            lines.append("...")
        lines.append(numbered[at - 1])
        before = at
    return "\n".join(lines if before == len(numbered) else [*lines, "..."])


def hot_lines(profile: Profile) -> tuple[tuple[int, str], ...]:
    """Return (line, shares in words) of the lines where most is executed, the hottest first.

    Shares are of the longest launch of the kernel that the line belongs to; kernels whose launches
    take less than a twentieth of the time together are left out.
    """
    total = profile.microseconds or 1.0
    found: dict[int, tuple[float, str]] = {}
    for share in profile.by_kernel:
        launch, part = share.longest, share.microseconds / total
        if part < SHARE:
            continue
        for line, weight, words in _shares(launch):
            if line not in found or found[line][0] < part * weight:
                found[line] = (part * weight, words)
    ranked = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))
    return tuple((line, words) for line, (_, words) in ranked[:MOST_LINES])


def _shares(launch: LaunchProfile) -> Iterable[tuple[int, float, str]]:
    totals = _totals(launch)
    for line in launch.lines:
        counts = (line.instructions, line.sectors, line.shared_wavefronts)
        shares = [
            min(1.0, count / total) if total else 0.0
            for count, total in zip(counts, totals, strict=True)
        ]
        names = ("instructions", "global sectors", "shared wavefronts")
        words = [
            f"{share:.0%} {name}"
            for share, name in zip(shares, names, strict=True)
            if share >= SHARE
        ]
        if words:
            yield line.line, max(shares), ", ".join(words)


def _totals(launch: LaunchProfile) -> tuple[float, float, float]:
    """Return instructions, global sectors and shared wavefronts of the whole launch.

    Where a profile does not say, the lines it lists stand for the launch.
    """

    def listed(counter: str) -> float:
        return sum(float(getattr(line, counter)) for line in launch.lines)

    metrics = launch.metrics
    sectors = sum(metrics.get(name, 0.0) for name in (_LOADS, _STORES, _ATOMICS))
    return (
        max(metrics.get("smsp__inst_executed.sum", 0.0), listed("instructions")),
        max(sectors, listed("sectors")),
        max(metrics.get("memory_l1_wavefronts_shared", 0.0), listed("shared_wavefronts")),
    )


def lines_at(source: str, number: int, around: int = 1) -> str:
    """Return one line of a source and its neighbours, numbered, the line itself marked."""
    lines = source.split("\n")
    first, last = max(1, number - around), min(len(lines), number + around)
    return "\n".join(
        f"{at:>4}{'>' if at == number else ' '}{lines[at - 1]}".rstrip()
        for at in range(first, last + 1)
    )


def line_of(source: str, quote: str) -> int | None:
    """Return the number of the line where a quotation begins; None where it is not in the source.

    White space does not count, nor does a line number, or the sign of a new line, that was copied
    along; a quotation of fewer than four characters proves nothing and is not found.
    """
    wanted = [bare for line in quote.strip().split("\n") if (bare := _bare(line))]
    if len("".join(wanted)) < 4:
        return None
    numbered = [(at, "".join(line.split())) for at, line in enumerate(source.split("\n"), 1)]
    lines = [(at, text) for at, text in numbered if text]
    for start in range(len(lines) - len(wanted) + 1):
        window = [text for _, text in lines[start : start + len(wanted)]]
        if all(part in text for part, text in zip(wanted, window, strict=True)):
            return lines[start][0]
    return None


def _bare(line: str) -> str:
    return "".join(re.sub(r"^\s*(?:\d+[> ]|\+)\s*", "", line).split())
