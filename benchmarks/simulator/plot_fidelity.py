"""Draws the simulated times over the measured ones, and the factors of error, from result files.

    python benchmarks/simulator/plot_fidelity.py

Reads the JSON that simulated_vs_measured.py --json wrote into benchmarks/results/ and writes
docs/fidelity_times.svg and docs/fidelity_factors.svg.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
DOCS = HERE.parent / "docs"
SETS = (
    ("25 public launches", "simulated_vs_measured_h200.json", "#4878a8"),
    ("57 held out, first sight", "held_out_first_sight_h200.json", "#c05a3c"),
    ("42 more, first sight", "second_look_first_sight_h200.json", "#5a9a4a"),
)
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 520, 420, 60, 44, 26

Times = list[tuple[str, float, float]]
"""Launch, measured and simulated microseconds."""


def main() -> None:
    """Draw both plots."""
    sets = [(name, read(HERE / "results" / file), color) for name, file, color in SETS]
    (DOCS / "fidelity_times.svg").write_text(times_plot(sets))
    (DOCS / "fidelity_factors.svg").write_text(factors_plot(sets))


def read(path: Path) -> Times:
    """Return the launches of a result file that were not refused."""
    launches = json.loads(path.read_text())["launches"]
    return [(row["launch"], row["measured_us"], row["simulated_us"]) for row in launches
            if row["simulated_us"] is not None]  # fmt: skip


def times_plot(sets: Sequence[tuple[str, Times, str]]) -> str:
    """Return simulated over measured time on two logarithmic axes."""
    values = [value for _, rows, _ in sets for _, *pair in rows for value in pair]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    side = HEIGHT - BOTTOM - TOP

    def place(value: float) -> float:
        return (math.log10(value) - low) / (high - low) * side

    parts = [_frame(LEFT, TOP, side, side)]
    for power in range(low, high + 1):
        at = place(10.0**power)
        parts.append(_text(LEFT + at, TOP + side + 16, f"{10**power:g}", "middle"))
        parts.append(_text(LEFT - 6, TOP + side - at + 4, f"{10**power:g}", "end"))
    for factor, dash in ((1.0, ""), (2.0, "4 4"), (0.5, "4 4")):
        shift = place(10.0**low * factor) if factor >= 1 else -place(10.0**low / factor)
        start, end = max(0.0, -shift), min(side, side - shift)
        parts.append(_line(LEFT + start, TOP + side - start - shift, LEFT + end,
                           TOP + side - end - shift, dash))  # fmt: skip
    for index, (name, rows, color) in enumerate(sets):
        for launch, measured, simulated in rows:
            parts.append(
                f'<circle cx="{LEFT + place(measured):.1f}" '
                f'cy="{TOP + side - place(simulated):.1f}" r="3.2" fill="{color}" '
                f'fill-opacity="0.75"><title>{launch}: {measured:.1f} us measured, '
                f"{simulated:.1f} us simulated</title></circle>"
            )
        parts.append(_legend(LEFT + 12, TOP + 18 + 18 * index, color, name))
    parts.append(_text(LEFT + side / 2, HEIGHT - 8, "measured, us (dashed: factor 2)", "middle"))
    parts.append(_text(LEFT - 40, 16, "simulated, us", "start"))
    return _document(parts)


def factors_plot(sets: Sequence[tuple[str, Times, str]]) -> str:
    """Return the share of launches within a factor of error."""
    width, height, most = WIDTH - LEFT - 20, HEIGHT - BOTTOM - TOP, 2.0
    parts = [_frame(LEFT, TOP, width, height)]
    for tick in (1.0, 1.25, 1.5, 1.75, 2.0):
        x = LEFT + (tick - 1) / (most - 1) * width
        parts.append(_text(x, TOP + height + 16, f"{tick:g}", "middle"))
    for share in (0, 25, 50, 75, 100):
        parts.append(_text(LEFT - 6, TOP + height * (1 - share / 100) + 4, f"{share}", "end"))
    for index, (name, rows, color) in enumerate(sets):
        factors = sorted(math.exp(abs(math.log(simulated / measured)))
                         for _, measured, simulated in rows)  # fmt: skip
        points = [(LEFT, TOP + height)]
        for rank, factor in enumerate(factors):
            x = LEFT + min(1.0, (factor - 1) / (most - 1)) * width
            points += [(x, TOP + height * (1 - rank / len(factors))),
                       (x, TOP + height * (1 - (rank + 1) / len(factors)))]  # fmt: skip
        points.append((LEFT + width, points[-1][1]))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(_legend(LEFT + width - 210, TOP + height - 40 + 18 * index, color, name))
    parts.append(_text(LEFT + width / 2, HEIGHT - 8, "factor between simulated and measured time",
                       "middle"))  # fmt: skip
    parts.append(_text(LEFT - 40, 16, "% of launches within", "start"))
    return _document(parts)


def _document(parts: Sequence[str]) -> str:
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">')  # fmt: skip
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    return "\n".join([head, ground, *parts, "</svg>"]) + "\n"


def _frame(x: float, y: float, width: float, height: float) -> str:
    return (f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="none" '
            'stroke="#888"/>')  # fmt: skip


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#333">{text}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, dash: str) -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="#aaa"{dashed}/>')  # fmt: skip


def _legend(x: float, y: float, color: str, name: str) -> str:
    return f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{color}"/>' + _text(x + 10, y, name, "start")


if __name__ == "__main__":
    main()
