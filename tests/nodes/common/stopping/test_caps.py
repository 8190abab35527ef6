"""A cap ends the search or stops it; which rollout is faster is no matter."""

from __future__ import annotations

import asyncio
from pathlib import Path

import graph_support
import pytest
from text_runs import comparable, replayed, request, resume, run

from kernelblaster.graph.session import Capped
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.common.stopping.caps import newly_evaluated, rollouts_within, share_of
from kernelblaster.nodes.records.lowering import Attempt, evaluated_sources
from kernelblaster.nodes.run.beginning.begin import stored_plan
from kernelblaster.tools.models.budgets import change_budgets
from kernelblaster.tools.models.records import Budgets
from kernelblaster.tools.workspace import open_runs


@pytest.fixture(autouse=True)
def text_device(monkeypatch: pytest.MonkeyPatch) -> None:
    graph_support.install(monkeypatch.setattr)


@pytest.mark.parametrize(("left", "parts"), [(0, 3), (1, 2), (7, 3), (9, 3)])
def test_shares_are_all_of_what_is_left_and_differ_by_one_at_most(left: int, parts: int) -> None:
    shares = [share_of(left, parts, number) for number in range(parts)]
    assert sum(shares) == left and max(shares) - min(shares) <= 1


@pytest.mark.parametrize(
    ("left", "rollouts", "steps", "wanted"),
    [(0, 2, 4, 1), (2, 2, 4, 1), (3, 2, 4, 1), (4, 2, 4, 2), (7, 8, 4, 3), (2, 2, 1, 2)],
)
def test_near_a_cap_rollouts_are_fewer_rather_than_a_step_long(
    tmp_path: Path, left: int, rollouts: int, steps: int, wanted: int
) -> None:
    run(tmp_path)
    plan = stored_plan(tmp_path / "run").model_copy(update={"rollouts": rollouts, "steps": steps})
    assert rollouts_within(left, plan) == wanted


@pytest.mark.parametrize("evaluations", [1, 5])
def test_a_cap_on_evaluations_ends_the_search_with_the_best_so_far(
    tmp_path: Path, evaluations: int
) -> None:
    caps = Budgets(evaluations=evaluations)
    result = run(tmp_path, budgets=caps, on_budget="finish", iterations=9)
    assert result.evaluations == evaluations
    assert (tmp_path / "run" / "best.cu").is_file()
    assert result.ended == f"the cap of {evaluations} evaluations is reached"
    if evaluations > 1:
        assert result.outcome == "improved"


def test_who_is_faster_takes_no_evaluation_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rollouts that take turns in another order come to the same."""
    asked = {"budgets": Budgets(evaluations=8), "on_budget": "finish", "rollouts": 3}
    results = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        results.append(comparable(run(tmp_path / name, **asked)))
        slow = iter(range(100))
        real = graph_support.TextDevice.compile

        async def compile_late(self, task, source, slow=slow, real=real):
            await asyncio.sleep(0.03 * (next(slow) % 3 == 0))
            return await real(self, task, source)

        monkeypatch.setattr(graph_support.TextDevice, "compile", compile_late)
    assert results[0] == results[1]
    assert replayed(tmp_path / "a" / "run") == replayed(tmp_path / "b" / "run")


def test_a_run_that_pauses_at_the_cap_goes_on_with_a_higher_one(tmp_path: Path) -> None:
    session = request(tmp_path, budgets=Budgets(evaluations=3), rollouts=1).session(
        tmp_path / "run"
    )
    with pytest.raises(Capped, match="--max-evaluations"):
        asyncio.run(session.run())
    session.close()
    change_budgets(tmp_path / "run", Budgets(evaluations=100))
    assert resume(tmp_path / "run").evaluations > 3


def test_parallel_rollouts_that_pause_make_no_more_than_the_cap(tmp_path: Path) -> None:
    asked = {"budgets": Budgets(evaluations=4), "rollouts": 3, "iterations": 1}
    session = request(tmp_path, **asked).session(tmp_path / "run")
    with pytest.raises(Capped, match=r"cap of 4 evaluations is reached \(4 made\)"):
        asyncio.run(session.run())
    session.close()
    with RunStore(tmp_path / "run" / "run.sqlite") as store:
        assert store.count() == 4
    change_budgets(tmp_path / "run", Budgets(evaluations=5))
    with pytest.raises(Capped, match=r"5 made"):
        resume(tmp_path / "run")
    change_budgets(tmp_path / "run", Budgets(evaluations=100))
    assert resume(tmp_path / "run").evaluations > 5


def test_working_time_that_is_used_up_ends_the_search_too(tmp_path: Path) -> None:
    result = run(tmp_path, budgets=Budgets(wall_seconds=0.0), on_budget="finish")
    assert result.evaluations == 1 and result.outcome == "not_improved"


def test_what_was_evaluated_before_the_iteration_costs_nothing(tmp_path: Path) -> None:
    run(tmp_path, iterations=1)
    plan = stored_plan(tmp_path / "run")
    with RunStore(tmp_path / "run" / "run.sqlite") as store:
        assert len(store.first_sources(100)) == store.count() > 3
        (first,) = store.first_sources(1)
        third = (store.first_sources(3) - store.first_sources(2)).pop()

    def cost(before: int, *sources: str | None) -> int:
        attempts = [
            Attempt(number=number, source_sha256=source, author="builtin")
            for number, source in enumerate(sources)
        ]
        return asyncio.run(newly_evaluated(plan, evaluated_sources(attempts, ()), before))

    assert cost(2, first, third) == 1, "the third is new, whoever evaluated it meanwhile"
    assert cost(3, first, third) == 0
    assert cost(3, first, None, "0" * 64) == 1
    open_runs().release(tmp_path / "run")


def test_rollouts_that_try_the_same_leave_the_rest_to_the_next_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rollouts from one kernel with a greedy choice evaluate the same sources."""
    asked = {"budgets": Budgets(evaluations=5), "on_budget": "finish", "choice": "greedy"}
    result = run(tmp_path, iterations=6, steps=4, **asked)
    steps = replayed(tmp_path / "run")
    tried = [[each["child_sha256"] for each in steps if each["iteration"] == 0
              and each["rollout"] == rollout] for rollout in (0, 1)]  # fmt: skip
    assert tried[0] == tried[1], "they do try the same"
    assert result.evaluations == 5
