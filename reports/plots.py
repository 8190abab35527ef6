"""Plots of reports: each a figure that plotly draws, a sentence, and its numbers as a table.

Colours are names of the page's style (`var(--gained)`), so that a figure follows light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..memory.records.evidence import Step
from ..nodes.common.history.steps import Way
from . import words
from .analyses import (
    CurvePoint,
    StateShare,
    TechniqueCount,
    TokenPoint,
    Transition,
)
from .reading import RunAccount, place_of
from .roofline import RoofPoint, Roofs

MOST_BARS = 24
"""Techniques, or states, that a plot shows; its table has all."""
SERIES = tuple(f"var(--series-{number})" for number in range(1, 9))
"""Colours of what stands beside each other."""


class Plot(NamedTuple):
    """A figure, and all that it says in words and numbers."""

    id: str
    """Unique in a page."""
    title: str
    caption: str
    """What it shows, for who sees it and for who does not."""
    data: Sequence[Mapping[str, Any]]
    """Plotly's traces."""
    layout: Mapping[str, Any]
    """What of plotly's layout is this figure's own."""
    headers: tuple[str, ...] = ()
    rows: Sequence[Sequence[str]] = ()
    height: int = 380
    """Pixels."""
    legend: Sequence[tuple[str, str]] = ()
    """What colours, or numbers where there is no colour, stand for: wrapped as text is, where
    plotly's own would be cut on a narrow screen."""


def plain(text: str) -> str:
    """Return a text that plotly shows as it is: some markup it would follow."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def log_axis(title: str, values: Iterable[float]) -> dict[str, Any]:
    """Return an axis of logarithms with as many ticks as its range can do with."""
    known = [value for value in values if value > 0]
    ratio = max(known) / min(known) if known else 1.0
    ticks: dict[str, Any] = {} if ratio < 4 else {"dtick": "D2" if ratio < 2000 else 1}
    return {"title": title, "type": "log", **ticks}


def step_id(step: Step) -> str:
    """Return the id of a step in a page, by its numbers from 1."""
    return "step-" + "-".join(str(number + 1) for number in place_of(step))


def progress_plot(run: RunAccount, levels: Mapping[str, float]) -> Plot | None:
    """Return the time of every candidate in the order of their evaluation.

    Args:
        run: the run.
        levels: times to compare with, in microseconds, by what they are called.
    """
    if not run.verdicts or not any(each.microseconds for each in run.verdicts):
        return None
    step_of = {step.child_sha256: step for step in reversed(run.steps) if step.child_sha256}
    initial = run.initial.source_sha256 if run.initial else run.verdicts[0].source_sha256
    begun = {step.child_sha256: "known kernel" for step in run.began}
    begun[initial] = "initial kernel"
    passed: list[tuple[int, float, str, str]] = []
    failed: list[tuple[int, str, str]] = []
    best, so_far, rows = math.inf, [], []
    for number, verdict in enumerate(run.verdicts, 1):
        step = step_of.get(verdict.source_sha256)
        label = step.technique if step else begun.get(verdict.source_sha256, "another try")
        anchor = step_id(step) if step else ""
        if verdict.microseconds is None:
            failed.append((number, f"{label}: {words.plain(verdict.outcome)}", anchor))
        else:
            passed.append((number, verdict.microseconds, label, anchor))
            best = min(best, verdict.microseconds)
        so_far.append(best if math.isfinite(best) else None)
        rows.append((str(number), label, words.plain(verdict.outcome),
                     words.microseconds(verdict.microseconds)))  # fmt: skip
    times = [each[1] for each in passed]
    top = max([*times, *levels.values()]) * 1.25
    numbers = [1, len(run.verdicts)]
    data: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "name": "best so far",
         "x": list(range(1, len(so_far) + 1)), "y": so_far, "hoverinfo": "skip",
         "line": {"shape": "hv", "color": "var(--accent)", "width": 2.5}},
        {"type": "scatter", "mode": "markers", "name": "correct",
         "x": [each[0] for each in passed], "y": times, "text": [plain(each[2]) for each in passed],
         "customdata": [each[3] for each in passed],
         "marker": {"color": "var(--gained)", "size": 9},
         "hovertemplate": "%{text}<br>%{y:.4g} µs<extra>evaluation %{x}</extra>"},
    ]  # fmt: skip
    if failed:
        data.append(
            {"type": "scatter", "mode": "markers", "name": "refused",
             "x": [each[0] for each in failed], "y": [top] * len(failed),
             "text": [plain(each[1]) for each in failed],
             "customdata": [each[2] for each in failed],
             "marker": {"color": "var(--failed)", "size": 9, "symbol": "x"},
             "hovertemplate": "%{text}<extra>evaluation %{x}</extra>"}
        )  # fmt: skip
    dashes = ("dot", "dash", "dashdot", "longdash")
    for place, (name, level) in enumerate(levels.items()):
        data.append(
            {"type": "scatter", "mode": "lines", "name": name, "x": numbers, "y": [level, level],
             "line": {"dash": dashes[place % 4], "color": SERIES[(place + 3) % 8], "width": 1.5},
             "hovertemplate": f"{words.microseconds(level)}<extra>%{{fullData.name}}</extra>"}
        )  # fmt: skip
    began, ended = passed[0][1], min(times)
    return Plot(
        "progress", "How the search went",
        f"The time of each of {words.counted(len(run.verdicts), 'candidate')} in the order of "
        f"evaluation: from {words.microseconds(began)} down to {words.microseconds(ended)}; "
        f"{words.counted(len(failed), 'was', 'were')} refused. A click on a point opens its step.",
        data,
        {"xaxis": {"title": "evaluation", "dtick": 1 if len(run.verdicts) < 12 else None},
         "yaxis": log_axis("time, µs (lower is better)", [*times, *levels.values()])},
        ("evaluation", "technique", "outcome", "time"), rows, 420,
    )  # fmt: skip


def path_plot(run: RunAccount, way: Way) -> Plot | None:
    """Return how the winner came about: the gain over the initial kernel after each technique."""
    if not way or run.initial is None:
        return None
    start = run.initial.microseconds
    times = [step.microseconds_after for step in way if step.microseconds_after]
    reached = [1.0, *(start / time for time in times)]
    numbered = [f"{number}. {plain(step.technique)}" for number, step in enumerate(way, 1)]
    names = ["initial kernel", *numbered]
    return Plot(
        "path", "The winner's path, technique by technique",
        f"{words.counted(len(way), 'technique')} made it {words.gain(reached[-1])} as fast as the "
        "initial kernel.",
        [{"type": "scatter", "mode": "lines+markers+text", "x": names, "y": reached,
          "line": {"color": "var(--accent)", "width": 2.5},
          "marker": {"color": "var(--accent)", "size": 10},
          "customdata": ["", *(step_id(step) for step in way)],
          "text": [words.gain(value) for value in reached], "textposition": "top center",
          "cliponaxis": False, "hovertemplate": "%{x}<br>%{y:.3g}× so far<extra></extra>"}],
        {"yaxis": log_axis("gain so far", reached), "showlegend": False},
        ("technique", "gain so far"),
        [(name, words.gain(value)) for name, value in zip(names, reached, strict=True)], 360,
    )  # fmt: skip


def expectation_plot(run: RunAccount) -> Plot | None:
    """Return measured beside expected gain of each step that passed."""
    known = [step for step in run.steps if step.log_gain is not None]
    if not known:
        return None
    expected = [math.exp(step.expected_log_gain) for step in known]
    measured = [math.exp(step.log_gain or 0.0) for step in known]
    low, high = min(*expected, *measured) * 0.9, max(*expected, *measured) * 1.1
    error = sum(abs(step.expected_log_gain - (step.log_gain or 0.0)) for step in known)
    traces: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "name": "as expected", "x": [low, high],
         "y": [low, high], "line": {"dash": "dot", "color": "var(--faint)"}, "hoverinfo": "skip"}
    ]  # fmt: skip
    for number in sorted({step.iteration for step in known}):
        of = [i for i, step in enumerate(known) if step.iteration == number]
        traces.append(
            {"type": "scatter", "mode": "markers", "name": f"iteration {number + 1}",
             "x": [expected[i] for i in of], "y": [measured[i] for i in of],
             "text": [plain(known[i].technique) for i in of],
             "customdata": [step_id(known[i]) for i in of],
             "marker": {"color": SERIES[number % 8], "size": 9},
             "hovertemplate": "%{text}<br>expected %{x:.3g}×, measured %{y:.3g}×<extra></extra>"}
        )  # fmt: skip
    return Plot(
        "expectation", "What the policy expected, and what was measured",
        f"Each step that passed; on the line the policy was right. On average it was off by a "
        f"factor of {math.exp(error / len(known)):.2f}.",
        traces,
        {"xaxis": log_axis("expected gain", expected),
         "yaxis": log_axis("measured gain", measured)},
        ("technique", "expected", "measured"),
        [(step.technique, words.log_gain(step.expected_log_gain), words.log_gain(step.log_gain))
         for step in known],
    )  # fmt: skip


class OnRoof(NamedTuple):
    """A kernel to be put on a roofline."""

    label: str
    kind: str
    """What it is called in the legend, with others of its kind."""
    point: RoofPoint
    color: str
    anchor: str = ""
    """Id of what a click opens."""


def roofline_plot(
    name: str, title: str, roofs: Roofs, operations: str, kernels: Sequence[OnRoof]
) -> Plot:
    """Return kernels under the roofs of their GPU, in the order given; two are joined.

    Args:
        name: id of the plot.
        title: of the plot.
        roofs: of the GPU.
        operations: which operations the kernels' figures count.
        kernels: the one that is told of in words is the last.
    """
    spread = [each.point.intensity for each in kernels]
    left, right = min(*spread, roofs.ridge) / 4, max(*spread, roofs.ridge) * 4
    right = max(right, roofs.tensor / roofs.dram_bytes * 1.5)
    steps = [left * (right / left) ** (place / 80) for place in range(81)] + [roofs.ridge]
    steps.sort()
    data: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "name": f"roof of the {roofs.gpu}", "x": steps,
         "y": [min(roofs.fp32, at * roofs.dram_bytes) / 1e9 for at in steps],
         "line": {"color": "var(--faint)", "width": 2}, "hoverinfo": "skip"},
        {"type": "scatter", "mode": "lines", "name": "tensor cores, half types", "x": steps,
         "y": [min(roofs.tensor, at * roofs.dram_bytes) / 1e9 for at in steps],
         "line": {"color": "var(--faint)", "width": 1, "dash": "dot"}, "hoverinfo": "skip"},
    ]  # fmt: skip
    if len(kernels) == 2:
        data.append(
            {"type": "scatter", "mode": "lines", "x": spread, "showlegend": False,
             "y": [each.point.rate / 1e9 for each in kernels], "hoverinfo": "skip",
             "line": {"color": "var(--faint)", "dash": "dot", "width": 1}}
        )  # fmt: skip
    for kind in dict.fromkeys(each.kind for each in kernels):
        shown = [each for each in kernels if each.kind == kind]
        data.append(
            {"type": "scatter", "mode": "markers", "name": kind,
             "x": [each.point.intensity for each in shown],
             "y": [each.point.rate / 1e9 for each in shown],
             "text": [plain(each.label) for each in shown],
             "customdata": [each.anchor for each in shown],
             "marker": {"color": shown[0].color, "size": 11},
             "hovertemplate": "%{text}<br>%{x:.3g} FLOP/byte<br>%{y:.4g} GFLOP/s<extra></extra>"}
        )  # fmt: skip
    reached = kernels[-1].point
    return Plot(
        name, title,
        f"Operations ({operations}) for each byte that crossed the DRAM's pins, against operations "
        "a second. "
        f"{kernels[-1].label.capitalize()}: {words.figure(reached.rate / 1e9)} GFLOP/s "
        f"({reached.rate / roofs.fp32:.1%} of the {roofs.gpu}'s FP32 peak), "
        f"{words.figure(reached.bytes_rate / 1e9)} GB/s "
        f"({reached.bytes_rate / roofs.dram_bytes:.0%} of its DRAM's).",
        data,
        {"xaxis": log_axis("operations a DRAM byte", [left, right]),
         "yaxis": log_axis("GFLOP/s", [*(each.point.rate for each in kernels), roofs.tensor])},
        ("kernel", "operations a byte", "GFLOP/s", "GB/s"),
        [(each.label, words.figure(each.point.intensity), words.figure(each.point.rate / 1e9),
          words.figure(each.point.bytes_rate / 1e9)) for each in kernels],
        340,
    )  # fmt: skip


def techniques_plot(counts: Sequence[TechniqueCount], name: str = "techniques") -> Plot | None:
    """Return how often each technique was tried and what came of it, stacked."""
    if not counts:
        return None
    shown = list(reversed(counts[:MOST_BARS]))
    kinds = (
        ("gained", "faster", "var(--gained)"), ("neutral", "as fast", "var(--neutral)"),
        ("slower", "slower", "var(--slower)"), ("failed", "refused", "var(--failed)"),
        ("not_written", "not written", "var(--unwritten)"),
    )  # fmt: skip
    tries = sum(each.attempted for each in counts)
    gained = sum(each.gained for each in counts)
    return Plot(
        name, "Techniques attempted and successful",
        f"{words.counted(tries, 'try', 'tries')} of {words.counted(len(counts), 'technique')}: "
        f"{gained} made a kernel faster, {sum(each.failed for each in counts)} were refused.",
        [{"type": "bar", "orientation": "h", "name": label,
          "y": [plain(each.technique) for each in shown],
          "x": [getattr(each, kind) for each in shown], "marker": {"color": color},
          "hovertemplate": f"%{{y}}: %{{x}} {label}<extra></extra>"}
         for kind, label, color in kinds if any(getattr(each, kind) for each in shown)],
        {"barmode": "stack", "xaxis": {"title": "tries"}, "yaxis": {"automargin": True},
         "legend": {"traceorder": "normal", "orientation": "h", "y": 1.02, "yanchor": "bottom"}},
        ("technique", "tries", "faster", "as fast", "slower", "refused", "not written",
         "mean gain"),
        [(each.technique, str(each.attempted), str(each.gained), str(each.neutral),
          str(each.slower), str(each.failed), str(each.not_written),
          words.log_gain(each.mean_log_gain)) for each in counts],
        110 + 24 * len(shown),
    )  # fmt: skip


def states_plot(
    shares: Sequence[StateShare], by_step: Mapping[int, Mapping[str, int]], name: str = "states"
) -> Plot | None:
    """Return the share of each performance state, by the step of a trajectory."""
    if not shares:
        return None
    totals = {step: sum(counts.values()) for step, counts in by_step.items()}
    colors = (*SERIES, "var(--neutral)")
    return Plot(
        name, "States that kernels pass through",
        f"In which performance state trajectories were before each step. Of all steps, "
        f"{shares[0].share:.0%} began in “{shares[0].name}”.",
        [{"type": "bar", "name": plain(each.name), "x": [step + 1 for step in by_step],
          "y": [counts.get(each.state, 0) / totals[step] for step, counts in by_step.items()],
          "marker": {"color": colors[min(place, len(colors) - 1)]},
          "hovertemplate": "%{fullData.name}<br>step %{x}: %{y:.0%}<extra></extra>"}
         for place, each in enumerate(shares)],
        {"barmode": "stack", "xaxis": {"title": "step of a trajectory", "dtick": 1},
         "yaxis": {"title": "share of trajectories", "tickformat": ".0%"}, "showlegend": False},
        ("state", "steps begun in it", "share"),
        [(each.name, str(each.steps), words.share(each.share)) for each in shares],
        legend=[(colors[min(place, len(colors) - 1)], each.name)
                for place, each in enumerate(shares)],
    )  # fmt: skip


def transitions_plot(found: Sequence[Transition], name: str = "transitions") -> Plot | None:
    """Return which states led to which, and what that gained."""
    if not found:
        return None
    rank: dict[str, int] = {}
    for each in found:
        rank[each.before] = rank.get(each.before, 0) + each.steps
        rank[each.after] = rank.get(each.after, 0) + each.steps
    states = sorted(rank, key=lambda state: -rank[state])[: MOST_BARS // 2]
    cells = {(each.before, each.after): each for each in found}
    grid = [[cells.get((before, after)) for after in states] for before in reversed(states)]
    marks = [f" {number} " for number in range(1, len(states) + 1)]
    logs = [[cell.mean_log_gain if cell else None for cell in row] for row in grid]
    most = max(abs(each.mean_log_gain) for each in found) or 1.0
    return Plot(
        name, "Transitions between states, and what they gained",
        f"{words.counted(sum(each.steps for each in found), 'step')} that passed led from a state "
        "(left) to a state (below); a cell says how often, its colour the mean gain. The states "
        "are numbered below.",
        [{"type": "heatmap", "x": marks, "y": list(reversed(marks)), "z": logs,
          "text": [[f"{cell.steps}×" if cell else "" for cell in row] for row in grid],
          "texttemplate": "%{text}",
          "customdata": [[words.log_gain(cell.mean_log_gain) if cell else "" for cell in row]
                         for row in grid],
          "hovertemplate": "from%{y}to%{x}<br>%{text}, mean gain %{customdata}<extra></extra>",
          "hoverongaps": False, "zmin": -most, "zmax": most, "xgap": 2, "ygap": 2,
          "colorscale": [[0, "var(--failed)"], [0.5, "var(--neutral-ground)"],
                         [1, "var(--gained)"]],
          "colorbar": {"thickness": 12, "tickvals": [-most, 0, most],
                       "ticktext": [words.log_gain(each) for each in (-most, 0, most)]}}],
        {"xaxis": {"title": "to state", "type": "category"},
         "yaxis": {"title": "from state", "type": "category"}, "showlegend": False},
        ("from", "to", "steps", "mean gain"),
        [(each.before, each.after, str(each.steps), words.log_gain(each.mean_log_gain))
         for each in found],
        180 + 36 * len(states),
        [(str(number), state) for number, state in enumerate(states, 1)],
    )  # fmt: skip


def curves_plot(
    name: str, title: str, caption: str, axis: str, curves: Mapping[str, Sequence[CurvePoint]]
) -> Plot | None:
    """Return curves of the gain, each with the quartiles of its runs as a band."""
    drawn = {label: points for label, points in curves.items() if points}
    if not drawn:
        return None
    data: list[dict[str, Any]] = []
    for place, (label, points) in enumerate(drawn.items()):
        at, color = [point.at for point in points], SERIES[place % 8]
        if points[0].runs > 1:
            data.append(
                {"type": "scatter", "mode": "lines", "x": at + at[::-1], "fill": "toself",
                 "y": [point.high for point in points] + [point.low for point in points][::-1],
                 "fillcolor": color, "opacity": 0.15, "line": {"width": 0},
                 "hoverinfo": "skip", "showlegend": False, "legendgroup": label}
            )  # fmt: skip
        data.append(
            {"type": "scatter", "mode": "lines+markers", "name": plain(label), "x": at,
             "y": [point.mean for point in points], "legendgroup": label,
             "line": {"color": color, "shape": "hv"}, "marker": {"color": color, "size": 5},
             "hovertemplate": "%{y:.3g}× at %{x}<extra>%{fullData.name}</extra>"}
        )  # fmt: skip
    ends = [end for points in drawn.values() for each in points for end in (each.low, each.high)]
    return Plot(
        name, title, caption, data,
        {"xaxis": {"title": axis}, "yaxis": log_axis("gain", ends)},
        ("runs of", axis, "gain", "quartiles", "runs"),
        [(label, str(point.at), words.gain(point.mean),
          f"{words.gain(point.low)} to {words.gain(point.high)}", str(point.runs))
         for label, points in drawn.items() for point in points],
    )  # fmt: skip


def tokens_plot(groups: Mapping[str, Sequence[TokenPoint]], name: str = "tokens") -> Plot | None:
    """Return the gain over the tokens used; None where no model was asked."""
    if not any(point.tokens for points in groups.values() for point in points):
        return None
    data = []
    for place, (label, points) in enumerate(groups.items()):
        for number, run in enumerate(dict.fromkeys(point.run for point in points)):
            own = [point for point in points if point.run == run]
            data.append(
                {"type": "scatter", "mode": "lines+markers", "name": plain(label),
                 "legendgroup": label, "showlegend": number == 0,
                 "x": [point.tokens for point in own],
                 "y": [point.gain for point in own],
                 "line": {"color": SERIES[place % 8], "shape": "hv"},
                 "hovertemplate": "%{y:.3g}× after %{x:,} tokens<extra>%{fullData.name}</extra>"}
            )  # fmt: skip
    return Plot(
        name, "Gain against tokens", "How fast the best kernel of each run was after the tokens "
        "that its models had read and written until then.",
        data,
        {"xaxis": {"title": "tokens"},
         "yaxis": log_axis("gain", [point.gain for points in groups.values() for point in points])},
        ("runs of", "run", "tokens", "gain"),
        [(label, point.run, words.count(point.tokens), words.gain(point.gain))
         for label, points in groups.items() for point in points],
    )  # fmt: skip


def shares_plot(
    name: str, title: str, caption: str, axis: str,
    thresholds: Sequence[float], curves: Mapping[str, Sequence[float]],
) -> Plot:  # fmt: skip
    """Return shares of tasks over a threshold, a curve a policy: fast_p."""
    return Plot(
        name, title, caption,
        [{"type": "scatter", "mode": "lines", "name": plain(label), "x": list(thresholds),
          "y": list(shares), "line": {"color": SERIES[place % 8], "shape": "hv", "width": 2},
          "hovertemplate": "%{y:.0%} above %{x:.2g}×<extra>%{fullData.name}</extra>"}
         for place, (label, shares) in enumerate(curves.items())],
        {"xaxis": {"title": axis, "type": "log"},
         "yaxis": {"title": "share of tasks", "tickformat": ".0%", "range": [0, 1.02]}},
        ("policy", *(f"p = {words.figure(each)}" for each in thresholds)),
        [(label, *(words.share(each) for each in shares)) for label, shares in curves.items()],
    )  # fmt: skip


def present(plots: Iterable[Plot | None]) -> list[Plot]:
    """Return those plots that there is something to draw for."""
    return [plot for plot in plots if plot is not None]

