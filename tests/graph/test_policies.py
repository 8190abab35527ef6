"""Policies: each has its graph and its settings, and takes a run from the task to the report."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import graph_support
import pytest
from asked import Asked
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

import kernelblaster
from kernelblaster.graph.policies import build_policy_graph, policy_graph
from kernelblaster.harness.errors import UserError
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.common.policies import RULES, require_counted, under_policy
from kernelblaster.nodes.records.plan import POLICIES, RunContext
from kernelblaster.nodes.records.result import RunResult
from kernelblaster.nodes.run.beginning.begin import checked


class Parent(TypedDict, total=False):
    kernel_task: str
    kernel_result: RunResult


def session(folder: Path, **settings: Any) -> Any:
    asked = Asked.of(task="text.py", knowledge=str(folder / "kb"), **settings)
    return asked.session(folder / settings.get("policy", "run"))


def test_every_policy_has_rules_and_a_graph() -> None:
    assert set(RULES) == set(POLICIES)
    for policy in POLICIES:
        assert "confirm_winner" in build_policy_graph(policy).nodes


async def test_a_parent_s_context_says_which_policy_its_node_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.py").write_text("")
    context = RunContext(policy="minimal", rounds=2, knowledge=str(tmp_path / "kb"))
    for own, parents in ((context, None), (None, context)):
        parent: Any = StateGraph(Parent, context_schema=RunContext)
        parent.add_node("optimize", kernelblaster.as_node(context=own))
        parent.add_edge(START, "optimize")
        answer = await parent.compile().ainvoke({"kernel_task": "text.py"}, context=parents)
        assert answer["kernel_result"].policy == "minimal"
    other = RunContext(policy="minimal", knowledge=str(tmp_path / "kb"))
    with pytest.raises(UserError, match="policy minimal is another graph: ask the graph minimal"):
        await policy_graph("coder_judge").ainvoke({"task": "text.py"}, context=other)


def test_an_unknown_policy_is_one_clear_line() -> None:
    with pytest.raises(UserError, match="policy='lucky'.*'kernelblaster'") as told:
        checked(RunContext, {"policy": "lucky"})
    assert "\n" not in str(told.value)


def test_what_a_policy_fixes_cannot_be_asked_otherwise() -> None:
    assert under_policy(RunContext(policy="zero_shot")).rounds == 1
    with pytest.raises(UserError, match="--steps: the policy minimal .* what it takes: --rounds"):
        require_counted("minimal", ["steps"])
    require_counted("kernelblaster", ["steps", "iterations"])
    with pytest.raises(UserError, match="--approve technique: the policy minimal"):
        under_policy(RunContext(policy="minimal", approve=("technique",)))
    with pytest.raises(UserError, match="rounds=3: the policy zero_shot is rounds=1"):
        under_policy(RunContext(policy="zero_shot", rounds=3))


@pytest.mark.parametrize(
    ("policy", "setting"),
    [
        ("no_memory", ("memory", "off")),
        ("random", ("choice", "random")),
        ("greedy", ("choice", "greedy")),
        ("cycles_only", ("counters", False)),
    ],
)
def test_a_preset_is_a_setting_of_the_loop(
    policy: str, setting: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    held = session(tmp_path, policy=policy, iterations=1, rollouts=1, steps=1)
    name, value = setting
    result = asyncio.run(held.run())
    held.close()
    assert getattr(held.plan, name) == value and result.policy == policy


@pytest.mark.parametrize(
    "policy", ["zero_shot", "minimal", "best_of_n", "coder_judge", "optimisation_only"]
)
def test_a_run_by_rounds_ends_with_the_best_of_them(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    rounds = 1 if policy == "zero_shot" else 4
    held = session(tmp_path, policy=policy, **({} if rounds == 1 else {"rounds": rounds}))
    result = asyncio.run(held.run())
    with RunStore(Path(result.run) / "run.sqlite") as store:
        steps = store.replay.steps()
    held.close()
    assert [(step.iteration, step.rollout, step.step) for step in steps] == [
        (0, 0, number) for number in range(rounds)
    ]
    times = [step.microseconds_after for step in steps if step.microseconds_after]
    assert result.best_us == pytest.approx(min([100.0, *times]))
    assert result.models == dict.fromkeys(RULES[held.plan.policy].roles, "builtin")
