"""Ways through a run's steps: how each kernel was reached first, and where rollouts begin."""

from __future__ import annotations

import itertools
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernelblaster.memory.records.evidence import Step
from kernelblaster.nodes.common.history.losers import lost_before
from kernelblaster.nodes.common.history.steps import path_to, ways_through
from kernelblaster.nodes.records.trajectories import Trajectory, merge_newest
from kernelblaster.nodes.run.search.start_point import MOST_PARENTS, parents, times_of

TIMES = {"a": 100.0, "b": 90.0, "c": 80.0, "d": 120.0, "e": 80.0}
"""Microseconds of each source; `a` is the initial kernel."""


def step(place: tuple[int, int, int], parent: str, child: str | None, passed: bool = True) -> Step:
    iteration, rollout, number = place
    gained = passed and child is not None
    return Step(
        run="r", iteration=iteration, rollout=rollout, step=number, technique=f"to_{child}",
        expected_log_gain=0.0, outcome="passed" if gained else "race",
        log_gain=math.log(TIMES[parent] / TIMES[str(child)]) if gained else None,
        parent_sha256=parent, child_sha256=child, author="builtin", state_id="s",
        microseconds_before=TIMES[parent],
        microseconds_after=TIMES[str(child)] if gained else None, bottleneck_before="dram",
    )  # fmt: skip


def techniques(source: str, steps: list[Step]) -> list[str]:
    return [each.technique for each in path_to(source, steps)]


def test_the_first_way_counts_and_what_failed_leads_nowhere() -> None:
    steps = [
        step((0, 0, 0), "a", "b", passed=False),
        step((0, 0, 1), "a", "d"),
        step((0, 0, 2), "d", "b"),
        step((0, 1, 0), "a", "b"),
        step((0, 1, 1), "b", "a"),
        step((1, 0, 0), "b", "c"),
        step((1, 0, 1), "c", None),
    ]
    assert techniques("c", steps) == ["to_d", "to_b", "to_c"]
    assert techniques("a", steps) == [], "a rewrite that gives the initial kernel back adds nothing"
    assert path_to("e", steps) == () == path_to("a", [])


def test_what_lost_on_the_way_is_told_with_what_moved() -> None:
    """Of the kernels before the one at hand, not of others; the newest four, each once."""
    lost = step((0, 0, 0), "a", "d").model_copy(
        update={"lost": "limit dram -> latency", "parameters": {"tile": 16}}
    )
    steps = [lost, step((0, 0, 1), "a", "b"), step((0, 0, 2), "b", "d"), step((0, 0, 3), "b", "c"),
             step((0, 1, 0), "c", "d"), lost]  # fmt: skip
    told = '- to_d {"tile": 16}, before to_b: 0.833x (limit dram -> latency)'
    assert lost_before(steps, "b") == told
    assert lost_before(steps, "c") == f"- to_d, before to_c: 0.75x\n{told}"
    assert lost_before(steps, "a") == ""


def alive(steps: list[Step]) -> list[str]:
    return parents(times_of(steps), ways_through(steps), steps[0].parent_sha256)


def test_rollouts_begin_at_kernels_of_different_design() -> None:
    steps = [
        step((0, 0, 0), "a", "d"),
        step((0, 1, 0), "a", "b"),
        step((0, 1, 1), "b", "c"),
        step((0, 1, 2), "c", "e"),
        step((1, 0, 0), "a", None),
    ]
    assert times_of(steps) == TIMES
    assert alive(steps) == ["c", "d"], "what lost at first is alive; a tie is no new design"
    assert alive(steps[1:4]) == ["c", "a"]


def test_what_is_far_slower_dies_and_a_few_live() -> None:
    def made(children: dict[str, float]) -> list[str]:
        steps = []
        for number, (child, microseconds) in enumerate(children.items()):
            told = step((0, number, 0), "a", None).model_dump()
            steps.append(Step.model_validate(told | {
                "technique": child, "child_sha256": child, "outcome": "passed",
                "log_gain": math.log(100.0 / microseconds), "microseconds_after": microseconds,
            }))  # fmt: skip
        return alive(steps)

    assert made({"x": 40.0, "y": 79.0, "z": 81.0}) == ["x", "y"]
    assert made({"x": 40.0, "same": 99.0}) == ["x", "a"]
    many = made({f"k{number}": 40.0 + number for number in range(9)})
    assert many == [f"k{number}" for number in range(MOST_PARENTS)]


SOURCES = st.sampled_from(list(TIMES))


@given(st.lists(st.lists(st.tuples(SOURCES, st.booleans()), min_size=1), min_size=1))
def test_gains_along_any_path_are_the_ratio_of_times(
    rollouts: list[list[tuple[str, bool]]],
) -> None:
    """Each rollout begins at the initial kernel and goes on from what passed."""
    steps = []
    for number, tries in enumerate(rollouts):
        current = "a"
        for at, (child, passed) in enumerate(tries):
            steps.append(step((0, number, at), current, child, passed))
            current = child if passed else current
    for source in ways_through(steps):
        path = path_to(source, steps)
        assert math.isclose(math.prod(each.gain for each in path), TIMES["a"] / TIMES[source])
        assert len(path) < len(TIMES), "no source stands on a path twice"


def test_state_keeps_the_newest_iterations_trajectories_in_whatever_order_they_report() -> None:
    point: dict[str, Any] = {
        "source_sha256": "a", "evaluation_key": "k", "microseconds": 1.0, "interval": (1.0, 1.0),
        "provenance": "simulated", "bottleneck": "dram",
    }  # fmt: skip
    reports = [
        {name: Trajectory.model_validate(
            {"id": name, "iteration": int(name[0]), "rollout": 0, "best": point, "ended": ""}
        )}
        for name in ("0.0", "1.0", "1.1")
    ]  # fmt: skip
    for order in itertools.permutations([*reports, reports[1]]):
        merged: dict[str, Trajectory] = {}
        for each in order:
            merged = merge_newest(merged, each)
        assert sorted(merged) == ["1.0", "1.1"]
    assert merge_newest(None, None) == {}
