"""The counters that the Judge reads: how they are chosen, and that the shipped list is one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from places import ROOT
from scripts import import_script

from kernelblaster.nodes.judge.subset import metric_subset

SECTORS, BUSY, OCCUPANCY = (
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
)


@pytest.fixture(scope="module")
def script() -> Any:
    return import_script(ROOT / "benchmarks" / "profiling" / "metric_subset.py")


def task(script: Any, times: list[float], **metrics: list[float]) -> list[Any]:
    """Return the candidates of a task, each with its cycles."""
    names = {"sectors": SECTORS, "busy": BUSY, "occupancy": OCCUPANCY}
    return [
        script.Candidate(
            us,
            {"gpc__cycles_elapsed.max": us * 1980, "launch__registers_per_thread": 32.0}
            | {names[name]: values[at] for name, values in metrics.items()},
        )
        for at, us in enumerate(times)
    ]


def test_what_is_time_or_never_changes_correlates_with_nothing(script: Any) -> None:
    found = script.correlations(task(script, [10, 20, 40], sectors=[1, 2, 4], busy=[90, 80, 60]))
    assert found == {SECTORS: pytest.approx(1.0), BUSY: pytest.approx(-1.0)}


def test_a_counter_is_chosen_where_tasks_agree_on_its_sign(script: Any) -> None:
    tasks = {
        "sum": task(script, [10, 20, 30], sectors=[1, 2, 3], busy=[9, 5, 7], occupancy=[1, 3, 2]),
        "copy": task(script, [10, 20, 30], sectors=[2, 4, 6], busy=[9, 6, 5], occupancy=[3, 1, 2]),
    }
    chosen = script.chosen_of(tasks, top=3, kept=3)
    assert [(each.metric, each.tasks) for each in chosen] == [(SECTORS, 2), (BUSY, 2)]
    assert chosen[0].correlation > 0 > chosen[1].correlation
    assert [each.metric for each in script.chosen_of(tasks, top=1, kept=3)] == [SECTORS]


def test_the_shipped_list_says_where_it_comes_from(script: Any) -> None:
    said = json.loads((ROOT / "nodes" / "judge" / "metric_subset.json").read_text())
    assert said["provenance"] == "ncu" and "H200" in said["device"]
    assert min(said["tasks"].values()) >= script.FEWEST
    assert len(metric_subset()) == script.KEPT == len(set(metric_subset()))
    assert all(script.is_eligible(name) for name in metric_subset())
