"""Runs without a part of the method: what agents read, what is written, and that it is said."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import graph_support
import pytest
from asked import Asked
from every_role import every_role
from scripted_chat_model import CURRENT, use
from text_runs import resume

from kernelblaster.graph.session import Session
from kernelblaster.harness.errors import UserError
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.records.lessons import Lesson
from kernelblaster.memory.records.policy import ExpectedGain
from kernelblaster.nodes.common.workspaces import workspace_of
from kernelblaster.nodes.optimization_proposer import node as proposer
from kernelblaster.nodes.optimization_proposer.table import Table
from kernelblaster.nodes.records.result import RunResult
from kernelblaster.tools.techniques.catalogue import knowledge_seed

TRIED = ("fast_math", "unroll_loop")
GRADIENT = {"policy_evaluation", "gap_analysis", "parameter_update"}


class Ran(NamedTuple):
    """A run, and what the proposer was given in each of its steps."""

    result: RunResult
    tables: list[Table]
    beliefs: list[dict[str, ExpectedGain]]
    """What it would have been told of every technique then, also of those tried already."""
    lessons: list[list[Lesson]]
    """What a model would have read in each of its steps."""
    added: dict[str, int]
    """Rows and lessons that the base has more than before."""


def stats(directory: Path) -> dict[str, int]:
    with KnowledgeBase.open(directory, knowledge_seed()) as knowledge:
        return knowledge.stats()


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A knowledge base that a run on another task has taught."""
    folder = tmp_path_factory.mktemp("taught")
    with pytest.MonkeyPatch.context() as monkeypatch:
        graph_support.install(monkeypatch.setattr)
        asked = Asked.of(
            task="other.py", knowledge=str(folder / "kb"), iterations=1, rollouts=2, steps=4
        )
        finish(asked.session(folder / "run"))
    assert stats(folder / "kb")["lessons"] > 0
    return folder / "kb"


def finish(session: Session) -> RunResult:
    try:
        return asyncio.run(session.run())
    finally:
        session.close()


@pytest.fixture
def ran(tmp_path: Path, taught: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Runs under settings on a copy of the base: two iterations of one step at the first kernel."""
    # Nothing gains, so that both iterations begin with the same kernel in the same state.
    slower = tuple(graph_support.TextRewrite(name, 1.3) for name in TRIED)
    graph_support.install(monkeypatch.setattr, slower)

    def run(name: str = "run", **settings: Any) -> Ran:
        shutil.copytree(taught, tmp_path / f"{name}-kb")
        tables: list[Table] = []
        beliefs: list[dict[str, ExpectedGain]] = []
        lessons: list[list[Lesson]] = []

        def given(state: Any) -> Table:
            table = made(state)
            with workspace_of(state["plan"]) as workspace:
                told = workspace.knowledge.beliefs(
                    table.where, TRIED, table.context, state["knowledge_at"]
                )
                lessons.append(workspace.knowledge.lessons(state["knowledge_at"]))
            tables.append(table)
            beliefs.append({each.optimization.technique: each.expected for each in told})
            return table

        made = proposer.table_of
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(proposer, "table_of", given)
            before = stats(tmp_path / f"{name}-kb")
            asked = Asked.of(
                task="text.py", knowledge=str(tmp_path / f"{name}-kb"), iterations=2, rollouts=1,
                steps=1, start=graph_support.INITIAL, **settings,
            )  # fmt: skip
            result = finish(asked.session(tmp_path / name))
        after = stats(tmp_path / f"{name}-kb")
        added = {kind: after[kind] - before[kind] for kind in ("evidence", "lessons", "sequence")}
        return Ran(result, tables, beliefs, lessons, added)

    return run


def test_a_live_memory_reads_what_was_there_and_what_the_run_learned(
    ran: Callable[..., Ran],
) -> None:
    live, seed = ran("live"), ran("seed", memory="seed")
    assert live.beliefs[0] != seed.beliefs[0]
    assert live.beliefs[0] != live.beliefs[1]
    assert live.lessons[1] != live.lessons[0] != []
    assert live.added["evidence"] == 2 and live.result.lessons
    assert not any(note.startswith("ablation") for note in live.result.notes)


@pytest.mark.parametrize("memory", ["frozen", "seed", "off", "shuffled"])
def test_a_memory_that_is_not_live_stays_as_it_is(ran: Callable[..., Ran], memory: str) -> None:
    without, live = ran("without", memory=memory), ran("live")
    assert not any(without.added.values())
    assert without.beliefs[0] == without.beliefs[1]
    assert without.lessons[0] == without.lessons[1]
    assert (without.beliefs[0] == live.beliefs[0]) is (memory == "frozen")
    assert bool(without.lessons[0]) is (memory in ("frozen", "shuffled"))
    assert f"ablation: memory {memory}" in without.result.notes
    assert f"ablation: memory {memory}" in (Path(without.result.run) / "report.txt").read_text()


def test_without_memory_all_techniques_stand_alike(ran: Callable[..., Ran]) -> None:
    (table, _) = ran(memory="off").tables
    assert table.known == []
    assert tuple(each.optimization.technique for each in table.unlisted) == TRIED
    assert len({each.expected.model_dump_json() for each in table.unlisted}) == 1


def test_without_the_gradient_evidence_alone_moves_beliefs(ran: Callable[..., Ran]) -> None:
    without = ran(gradient=False)
    assert without.added["evidence"] == 2 and without.added["lessons"] == 0
    assert without.beliefs[0] != without.beliefs[1]
    assert without.result.lessons == () and "ablation: no textual gradient" in without.result.notes


def test_an_ablation_holds_on_resume(
    tmp_path: Path, taught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    before = stats(taught)
    asked = Asked.of(
        task="text.py", knowledge=str(taught), iterations=1, rollouts=1, steps=2, memory="frozen",
        choice="random", counters=False, gradient=False,
    )  # fmt: skip
    asked.session(tmp_path / "run").close()
    result = resume(tmp_path / "run")
    assert [note for note in result.notes if note.startswith("ablation")] == [
        "ablation: memory frozen", "ablation: choice random", "ablation: no hardware counters",
        "ablation: no textual gradient",
    ]  # fmt: skip
    assert stats(taught) == before
    assert result.bottleneck_before == "latency", "by its counters it is dram"


@pytest.mark.parametrize("policy", ["cycles_only", "minimal", "coder_judge"])
def test_whoever_evaluates_no_counter_is_kept_for_agents(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    counters = {} if policy == "cycles_only" else {"counters": False}
    asked = Asked.of(task="text.py", knowledge=str(tmp_path / "kb"), policy=policy, **counters)
    finish(asked.session(tmp_path / "run"))
    with sqlite3.connect(tmp_path / "run" / "run.sqlite") as database:
        bodies = database.execute("SELECT body FROM evaluations WHERE outcome = 'passed'")
        launches = [
            launch
            for (body,) in bodies
            for launch in json.loads(body)["profile"]["launches"]
        ]
    assert len(launches) > 1
    assert not any(launch["metrics"] or launch["terms"] for launch in launches)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"policy": "minimal", "memory": "off"}, "--memory: the policy minimal reads no"),
        ({"policy": "coder_judge", "gradient": False}, "--gradient: the policy coder_judge"),
        ({"memory": "off", "choice": "greedy"}, "leave one of the two out"),
    ],
)  # fmt: skip
def test_what_would_change_nothing_is_refused(
    settings: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    asked = Asked.of(task="text.py", knowledge=str(tmp_path / "kb"), **settings)
    with pytest.raises(UserError, match=words):
        asked.session(tmp_path / "run")


# With models --------------------------------------------------------------------------------


def prompts(
    folder: Path, taught: Path | None, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> tuple[RunResult, dict[str, str]]:
    """Run with a model in every role; return its result and all prompts of each role."""
    graph_support.install(monkeypatch.setattr)
    scripted = every_role()
    if taught:
        shutil.copytree(taught, folder / "kb")
    asked = Asked.of(
        task="text.py", knowledge=str(folder / "kb"), iterations=1, rollouts=2, steps=2,
        model=CURRENT, models=use(monkeypatch, scripted), **settings,
    )  # fmt: skip
    result = finish(asked.session(folder / "run"))
    roles = {call.role for call in scripted.calls}
    return result, {
        role: "\n".join(call.prompt for call in scripted.calls_of(role)) for role in roles
    }


COUNTED = ("of peak: DRAM", "each alone would need", "DRAM 100 %", "DRAM throughput is")


def test_without_memory_models_read_no_expectation_and_no_lesson(
    tmp_path: Path, taught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, without = prompts(tmp_path, taught, monkeypatch, memory="off")
    assert not GRADIENT & without.keys()
    for role in ("optimization_proposer", "optimization_selector", "kernel_writer"):
        for told in ("xpected ", "Lessons from", "never tried", "A draw by the policy", " tries"):
            assert told not in without[role], (role, told)
    assert "\n- block_row_reduction: " in without["optimization_proposer"]
    assert "None is known." in without["state_selector"]


def test_without_counters_models_read_times_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, without = prompts(tmp_path, None, monkeypatch, counters=False)
    assert GRADIENT <= without.keys()
    for role, text in without.items():
        for told in COUNTED:
            assert told not in text, (role, told)
    for role in ("state_extractor", "optimization_proposer", "kernel_writer"):
        assert "100 us" in without[role] and "judged from the time" in without[role]
    assert "ablation: no hardware counters" in result.notes


def test_where_a_rule_chooses_and_nobody_learns_no_model_is_asked_to(
    tmp_path: Path, taught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, asked = prompts(tmp_path, taught, monkeypatch, choice="greedy", gradient=False)
    assert not {"optimization_selector", *GRADIENT} & asked.keys()
    assert all(told in asked["state_extractor"] for told in COUNTED[:2]), "with counters"
    assert {step.choice for step in result.steps} == {"builtin"}
    assert json.loads((tmp_path / "run" / "result.json").read_text())["models"][
        "gap_analysis"
    ] == "builtin"
