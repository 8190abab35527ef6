"""Reports and comparisons of suites: made by hand of few outcomes, read as a bench leaves them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelblaster.bench.directory import begin, write_ended
from kernelblaster.bench.records import Ended, LockedTask, SuiteLock, Variant
from kernelblaster.cli import app as cli
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.metrics import TaskOutcome
from kernelblaster.harness.records.evaluations import DeviceIdentity
from kernelblaster.harness.records.identity import sha256_of
from kernelblaster.harness.records.readings import AS_WRITTEN
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.harness.suites.records import SuiteTask
from kernelblaster.nodes.records.plan import RunContext
from kernelblaster.reports.suite_comparison import compare_suites
from kernelblaster.reports.suite_page import suite_html

TASKS = ("sum", "</script><b>norm")


def suite(
    folder: Path, times: dict[str, list[float | None]], names: tuple[str, ...] = TASKS
) -> Path:
    """Make a bench that is over: of each policy the winner's time on each task, from 100 us."""
    tasks = tuple(
        SuiteTask(name=name.replace("/", ""), source="x = 1\n", origin="here") for name in names
    )
    lock = SuiteLock(
        suite="<i>small", origin="here", versions={"python": "3"}, knowledge="each", seeds=(0,),
        device=DeviceIdentity(kind="simulated", gpu="H100", arch="sm_90", toolchain="text"),
        variants=tuple(Variant(name=name, folder=name, settings={}) for name in times),
        context=RunContext(), reading=AS_WRITTEN,
        tasks=tuple(
            LockedTask(name=task.name, sha256=sha256_of(task.source), origin="here")
            for task in tasks
        ),
    )  # fmt: skip
    begin(folder, lock, tasks)
    for run in lock.runs:
        time = times[run.variant][[task.name for task in tasks].index(run.task)]
        outcome = TaskOutcome(
            task=run.task, policy=run.variant, outcome="improved" if time else "failed",
            provenance=Provenance.SIMULATED if time else None, best_us=time,
            initial_us=100.0 if time else None, evaluations=3, outcomes={"passed": 3},
        )  # fmt: skip
        write_ended(folder, run, Ended(outcome=outcome, reason="" if time else "no <i>disk"))
    return folder


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return suite(tmp_path / "first", {"greedy": [25.0, 25.0], "random": [50.0, None]})


def test_a_suite_has_its_policies_side_by_side(first: Path) -> None:
    page = suite_html(first)
    assert "Over 2 tasks, greedy is 4.00× as fast as the initial kernel" in page
    assert "more than chance from" not in page and "no &lt;i&gt;disk" in page
    assert "<i>small" not in page and "<script><b>" not in page
    for name in ("means", "differences", "fast-initial", "tasks"):
        assert f'data-figure="{name}"' in page


def test_policies_differ_by_more_than_chance_from_six_tasks_on(tmp_path: Path) -> None:
    wide = suite(tmp_path / "six", {"greedy": [25.0] * 6, "random": [50.0] * 6}, tuple("abcdef"))
    assert "more than chance from random" in suite_html(wide)


def test_a_suite_that_was_just_begun_has_a_report(first: Path) -> None:
    for path in first.glob("outcomes/*/*/*.json"):
        path.unlink()
    assert "No run is over yet" in suite_html(first)


def test_two_suites_are_compared_policy_by_policy(first: Path, tmp_path: Path) -> None:
    second = suite(tmp_path / "second", {"greedy": [50.0, 50.0], "minimal": [10.0, 10.0]})
    found = compare_suites(first, second)
    (difference,) = found.differences
    assert difference.ratio.estimate == pytest.approx(2.0) and not difference.tells
    assert [(side.first, side.second) for side in found.tasks] == [("4.00×", "2.00×")] * 2
    assert any(side.name.startswith("policies") for side in found.settings)
    third = suite(tmp_path / "third", {"random": [50.0, 20.0], "minimal": [10.0, 10.0]})
    assert compare_suites(first, third).differences[0].first == f"random in {first}"
    lonely = suite(tmp_path / "lonely", {"zero_shot": [50.0, 50.0]})
    with pytest.raises(UserError, match="no policy in common"):
        compare_suites(first, lonely)


def test_the_commands_know_a_suite(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def call(*arguments: object) -> object:
        monkeypatch.setattr(sys, "argv", ["kernelblaster", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return left.value.code

    page, table, figures = (tmp_path / f"report.{kind}" for kind in ("html", "md", "csv"))
    assert call("report", first, "--html", page, "--md", table, "--csv", figures) == 0
    assert "greedy" in table.read_text() and figures.read_text().count("\n") == 5
    capsys.readouterr()
    assert call("report", first) == 0
    assert capsys.readouterr().out == table.read_text()
    assert not (first / "results.md").exists()  # Who reads writes nothing.
    assert call("compare", first, first, "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["differences"]) == 2
    assert call("report", first, tmp_path, "--html", page) == 2
    assert call("compare", first, tmp_path) == 2
    assert "are a suite and a run" in capsys.readouterr().err
