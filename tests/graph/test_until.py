"""A run measured against the speed of light: its score, and a search that ends at a share of it."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import graph_support
import pytest
import text_runs
from asked import Asked
from text_runs import comparable, replayed, request, resume

from kernelblaster.graph.session import Interrupted
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.tasks import Task
from kernelblaster.nodes.records.plan import Policy
from kernelblaster.nodes.run.ending.report import stored_result

run = partial(text_runs.run, gpu="H100", rollouts=1)
BOUND_US = 30.0
"""Of the task below on an H100: its outputs alone, 3,350 GB/s; the first kernel takes 100 us."""


@pytest.fixture(autouse=True)
def bounded_task(monkeypatch: pytest.MonkeyPatch) -> None:
    graph_support.install(monkeypatch.setattr)

    async def read_task(path: Path, *_: Any) -> Task:
        task = graph_support.text_task(path.stem)
        made = task.full.tensors[0].model_copy(update={"shape": (25_125_000,)})
        full = task.full.model_copy(update={"tensors": (made, *task.full.tensors[1:])})
        return task.model_copy(update={"full": full})

    monkeypatch.setattr("kernelblaster.nodes.run.beginning.load_task.read_task", read_task)


def test_every_result_says_the_bound_and_the_score(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.bound is not None and result.bound.microseconds == pytest.approx(BOUND_US)
    above = (result.best_us - BOUND_US) / (result.initial_us - BOUND_US)
    assert result.score == pytest.approx(1 / (1 + above))
    assert (result.ended, stored_result(tmp_path / "run")) == ("", result)
    report = (tmp_path / "run" / "report.txt").read_text()
    assert "bound   30.00 us" in report and "0.5 is the initial kernel's time" in report


def test_the_search_ends_at_the_share_that_was_asked_for(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", iterations=3)
    result = run(tmp_path, iterations=3, until=0.5)
    assert BOUND_US / result.best_us >= 0.5 and result.outcome == "improved"
    assert result.evaluations < whole.evaluations
    assert "50% were asked for" in result.ended
    assert result.ended in (tmp_path / "run" / "report.txt").read_text()
    # The step that reached it is its trajectory's last.
    steps = replayed(tmp_path / "run")
    enough = [step for step in steps if (step["microseconds_after"] or 999) <= BOUND_US / 0.5]
    assert enough and all(
        step["step"] == max(each["step"] for each in steps if each["iteration"] == step["iteration"]
                            and each["rollout"] == step["rollout"])
        for step in enough
    )  # fmt: skip


def test_a_first_kernel_that_is_fast_enough_is_not_searched_from(tmp_path: Path) -> None:
    result = run(tmp_path, until=0.3)
    assert (result.evaluations, result.outcome) == (1, "not_improved")
    assert "30.0% of the speed of light" in result.ended


@pytest.mark.parametrize("policy", ["minimal", "coder_judge"])
def test_a_policy_by_rounds_ends_there_too(policy: Policy, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"task": "text.py", "gpu": "H100", "knowledge": str(tmp_path / "kb")}
    asked |= {"policy": policy, "rounds": 12, "until": 0.32}
    session = Asked.of(**asked).session(tmp_path / "run")
    result = asyncio.run(session.run())
    session.close()
    steps = replayed(tmp_path / "run")
    assert 0 < len(steps) < 12 and result.ended
    enough = [(step["microseconds_after"] or 999) <= BOUND_US / 0.32 for step in steps]
    assert enough == [*[False] * (len(steps) - 1), True]


def test_a_share_that_is_not_reached_changes_nothing(tmp_path: Path) -> None:
    whole, asked = run(tmp_path / "whole"), run(tmp_path / "asked", until=1.0)
    assert comparable(asked) == comparable(whole)


def test_a_search_that_is_stopped_ends_where_it_would_have_ended(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", until=0.5)
    session = request(tmp_path, gpu="H100", rollouts=1, until=0.5).session(tmp_path / "run")

    def stop_at_a_step(event: dict[str, Any]) -> None:
        if event["event"] == "step":
            session.drain()

    with pytest.raises(Interrupted):
        asyncio.run(session.run(stop_at_a_step))
    session.close()
    assert comparable(resume(tmp_path / "run")) == comparable(whole)


def test_a_gpu_whose_peaks_nobody_knows_has_no_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelblaster.nodes.run.beginning.load_task.known_gpu", lambda name: None)
    monkeypatch.setattr("kernelblaster.nodes.run.ending.report.known_gpu", lambda name: None)
    result = run(tmp_path)
    assert (result.bound, result.score) == (None, None)
    with pytest.raises(UserError, match=r"--until 0\.9: the peaks of H100 are not known"):
        run(tmp_path / "asked", until=0.9)
