"""Analyses over runs, against cases counted by hand."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.memory.records.evidence import Step
from kernelblaster.memory.run.run_store import Verdict
from kernelblaster.nodes.common.history.steps import ways_through
from kernelblaster.reports import analyses, words
from kernelblaster.reports.plots import log_axis
from kernelblaster.reports.reading import Moment


def step(place: str, technique: str, parent: str, child: str | None, **changes: Any) -> Step:
    """Return a step: `place` is its iteration, rollout and step; times are in the sources' names,
    as `a100`."""
    iteration, rollout, number = map(int, place)
    before = float(parent[1:])
    after = float(child[1:]) if child and "outcome" not in changes else None
    values: dict[str, Any] = {
        "run": "r", "iteration": iteration, "rollout": rollout, "step": number,
        "technique": technique, "expected_log_gain": 0.0, "outcome": Outcome.PASSED,
        "log_gain": math.log(before / after) if after else None,
        "parent_sha256": parent, "child_sha256": child, "author": "builtin",
        "state_id": f"state-{parent[0]}", "microseconds_before": before,
        "microseconds_after": after, "bottleneck_before": "dram", **changes,
    }  # fmt: skip
    return Step(**values)


STEPS = (
    step("000", "tile", "a100", "b50"),
    step("001", "unroll", "b50", "c50"),
    step("002", "fast", "c50", "x1", outcome=Outcome.RACE),
    step("010", "tile", "a100", "d200"),
    step("011", "none", "a100", None, outcome=Outcome.NOT_APPLICABLE),
    step("100", "fast", "c50", "e25"),
)
VERDICTS = (("a100", 100.0), ("b50", 50.0), ("x1", None), ("d200", 200.0), ("e25", 25.0))


@pytest.fixture
def run() -> Any:
    """What analyses read of a run, and nothing else."""
    return SimpleNamespace(
        directory=Path("run"),
        plan=SimpleNamespace(policy="kernelblaster", memory="live"),
        initial=SimpleNamespace(microseconds=100.0),
        steps=STEPS,
        verdicts=[
            Verdict(key=name, source_sha256=name, microseconds=time,
                    outcome=Outcome.PASSED if time else Outcome.RACE)
            for name, time in VERDICTS
        ],
        ways=ways_through(STEPS),
        state_names={"state-a": "first", "state-b": "second"},
        moments=(Moment("load", 0, 0), Moment("x", 1, 10), Moment("y", 3, 20), Moment("z", 5, 70)),
    )  # fmt: skip


def test_techniques_are_counted_with_all_that_came_of_them(run: Any) -> None:
    found = {each.technique: each for each in analyses.technique_counts([run])}
    assert found["tile"][1:6] == (1, 0, 1, 0, 0)
    assert found["tile"].mean_log_gain == pytest.approx(0.0)
    assert found["fast"][1:6] == (1, 0, 0, 1, 0) and found["fast"].attempted == 2
    assert found["unroll"].neutral == 1
    assert found["none"][1:] == (0, 0, 0, 0, 1, None)


def test_states_and_the_ways_between_them(run: Any) -> None:
    shares = {each.name: each.share for each in analyses.state_shares([run])}
    assert shares == {"first": 0.5, "state-c": pytest.approx(1 / 3), "second": pytest.approx(1 / 6)}
    assert analyses.states_by_step([run])[0] == {"state-a": 2, "state-c": 1}
    assert analyses.states_passed(run)[0] == ("1.1", ["first", "second", "state-c"])
    led = {(each.before, each.after): each for each in analyses.transitions([run])}
    assert set(led) == {("first", "second"), ("second", "state-c")}  # Nobody saw the others' state.
    assert led["first", "second"].mean_log_gain == pytest.approx(math.log(2))


def test_curves_hold_what_was_reached_and_leave_no_run_out(run: Any) -> None:
    nothing = {"initial": None, "steps": (), "verdicts": [], "ways": {}}
    poor = SimpleNamespace(**{**vars(run), **nothing})
    assert [round(point.mean, 6) for point in analyses.learning_curve([run])] == [1, 2, 2, 2, 4]
    both = analyses.learning_curve([run, poor])
    assert both[-1].mean == pytest.approx(2.0) and both[-1].runs == 2
    assert (both[-1].low, both[-1].high) == pytest.approx((4**0.25, 4**0.75))
    assert [point.mean for point in analyses.breadth_curve([run])] == pytest.approx([2, 2, 4])
    assert [point.mean for point in analyses.depth_curve([run])] == pytest.approx([2, 2, 4])
    assert analyses.learning_curve([]) == []


def test_gain_by_tokens(run: Any) -> None:
    points = analyses.gain_by_tokens([run])
    assert [(point.tokens, point.gain) for point in points] == [
        (10, 1.0), (20, pytest.approx(2.0)), (70, pytest.approx(4.0))
    ]  # fmt: skip


def test_runs_are_told_apart_by_what_was_known(run: Any) -> None:
    runs = [SimpleNamespace(**{**vars(run), "knowledge_at": at}) for at in (0, 7, None)]
    groups = analyses.by_knowledge(runs)
    assert [(name, len(each)) for name, each in groups.items()] == [
        ("empty knowledge base", 1), ("trained knowledge base", 1)
    ]  # fmt: skip


def test_figures_are_written_for_people() -> None:
    assert [words.microseconds(value) for value in (None, 0.5, 1234.0, 2e6)] == [
        "–", "0.5 µs", "1.234 ms", "2 s"
    ]  # fmt: skip
    assert [words.gain(value) for value in (0.98, 43.42, 250.0)] == ["0.98×", "43.4×", "250×"]
    assert words.seconds(200) == "3 min 20 s" and words.counted(1, "step") == "1 step"
    assert "dtick" not in log_axis("", [1, 2]) and log_axis("", [1, 1e6])["dtick"] == 1
