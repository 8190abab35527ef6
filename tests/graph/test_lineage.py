"""Forks, edits and moves: each line of steps is a run of its own, and every one stays readable."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import graph_support
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from text_runs import aresume

import kernelblaster
from kernelblaster import RunContext, UserError
from kernelblaster.graph.checkpoints import checkpoint_serializer
from kernelblaster.graph.rollout import build_graph as build_rollout
from kernelblaster.graph.rollout import graph as rollout_graph
from kernelblaster.graph.session import Session
from kernelblaster.memory.records.evidence import Step
from kernelblaster.memory.run.directory import is_held
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.common.stopping.approval import change_approvals
from kernelblaster.nodes.run.beginning import lineage
from kernelblaster.nodes.run.beginning.begin import stored_plan
from kernelblaster.nodes.run.ending.report import stored_result
from kernelblaster.nodes.run.reading.overview import list_runs
from kernelblaster.tools.models.budgets import read_budgets, write_budgets
from kernelblaster.tools.models.records import Budgets
from kernelblaster.tools.workspace import open_knowledge, open_runs

SHORT = RunContext(iterations=2, rollouts=2, steps=2)
THREAD: Any = {"configurable": {"thread_id": "one"}}


@pytest.fixture(autouse=True)
def text_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    graph_support.install(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "softmax.py").write_text("")


@pytest.fixture
def graph() -> Any:
    saver = InMemorySaver(serde=checkpoint_serializer())
    return kernelblaster.build_optimize_graph().compile(checkpointer=saver)


async def ended(graph: Any, config: Any = THREAD) -> dict[str, Any]:
    return dict((await graph.aget_state(config)).values)


async def before(graph: Any, node: str, iteration: int = 0) -> Any:
    """Return the config of the checkpoint at which a node of an iteration is next."""
    async for state in graph.aget_state_history(THREAD):
        if node in state.next and state.values.get("iteration", 0) == iteration:
            return state.config
    raise AssertionError(f"no checkpoint before {node}")


def evaluated(directory: str | Path) -> set[str]:
    """Return the sources that a run has evaluated."""
    with RunStore(Path(directory) / "run.sqlite") as store:
        rows = store._database.rows("SELECT source_sha256 FROM evaluations")
    return {row["source_sha256"] for row in rows}


def steps_of(state: dict[str, Any]) -> list[Step]:
    """Return the steps of the run that a state belongs to."""
    with RunStore(Path(state["plan"].run) / "run.sqlite") as store:
        return store.replay.steps()


# ---- forks ----


@pytest.mark.parametrize(
    ("node", "iteration", "edit"),
    [
        ("initial_cuda", 0, {"plan": {"steps": 1}}),
        ("profile_baseline", 0, {"plan": {"rollouts": 3}}),
        ("rollout", 0, {"plan": {"iterations": 1}}),
        ("rollout", 1, {"plan": {"seed": 7}}),
        ("policy_evaluation", 0, {"plan": {"iterations": 3}}),
        ("keep_lessons", 1, {"plan": {"iterations": 3}}),
        ("confirm_winner", 2, {"plan": {"repairs": 0}}),
    ],
)
async def test_a_fork_is_a_run_of_its_own(
    graph: Any, node: str, iteration: int, edit: dict[str, Any]
) -> None:
    await graph.ainvoke({"task": "softmax.py"}, THREAD, context=SHORT)
    first = await ended(graph)
    files = Path(first["plan"].run).glob("*.*")
    kept = {path: path.read_bytes() for path in files if "sqlite" not in path.name}
    ran = evaluated(first["plan"].run)
    forked = await graph.aupdate_state(await before(graph, node, iteration), edit)
    await graph.ainvoke(None, forked)
    second = await ended(graph)
    assert second["plan"].run_id != first["plan"].run_id
    assert second["plan"].forked_from == first["plan"].run
    assert second["result"].run == second["plan"].run
    assert stored_plan(Path(second["plan"].run)) == second["plan"]
    ((field, value),) = edit["plan"].items()
    assert getattr(second["plan"], field) == value
    assert {path: path.read_bytes() for path in kept} == kept, "the first run stays what it was"
    assert evaluated(first["plan"].run) == ran
    common = await graph.aget_state(await before(graph, node, iteration))
    for trajectory in common.values.get("trajectories", {}).values():
        assert trajectory.best.source_sha256 in evaluated(second["plan"].run)
    result = json.loads(Path(second["plan"].run, "result.json").read_text())
    with RunStore(Path(second["plan"].run) / "run.sqlite") as store:
        assert result["evaluations"] == store.count()
        done = {
            (step.iteration, step.rollout, step.step)
            for step in store.replay.steps()
            if step.iteration >= 0  # A fork from the beginning starts from what the first run won.
        }
    shown = {(step["iteration"], step["rollout"], step["step"]) for step in result["steps"]}
    assert done == shown, "only its own steps, all of them"
    assert not is_held(Path(first["plan"].run)) and not is_held(Path(second["plan"].run))


async def test_the_past_played_again_unchanged_is_the_same_run(graph: Any) -> None:
    await graph.ainvoke({"task": "softmax.py"}, THREAD, context=SHORT)
    first = await ended(graph)
    await graph.ainvoke(None, await before(graph, "policy_evaluation", 0))
    again = await ended(graph)
    assert again["plan"] == first["plan"] and again["result"].best_us == first["result"].best_us
    assert len(list(Path("runs").iterdir())) == 1


async def test_a_fork_of_a_fork_and_two_forks_of_one_place(graph: Any) -> None:
    await graph.ainvoke({"task": "softmax.py"}, THREAD, context=SHORT)
    place = await before(graph, "profile_baseline")
    runs = [(await ended(graph))["plan"].run]
    for steps in (1, 3):
        await graph.ainvoke(None, await graph.aupdate_state(place, {"plan": {"steps": steps}}))
        runs.append((await ended(graph))["plan"].run)
    last = await before(graph, "policy_evaluation", 1)
    await graph.ainvoke(None, await graph.aupdate_state(last, {"plan": {"iterations": 3}}))
    state = await ended(graph)
    assert len({*runs, state["plan"].run}) == 4 and state["plan"].forked_from == runs[-1]
    assert state["iteration"] == 3 and state["plan"].steps == 3


# ---- edits ----


async def test_edits_before_a_node_take_effect_and_stay_in_the_run(graph: Any) -> None:
    await graph.ainvoke(
        {"task": "softmax.py"}, THREAD, context=SHORT, interrupt_before=["profile_baseline"]
    )
    edit = {"plan": {"iterations": 1, "rollouts": 3, "steps": 1, "budgets": {"wall_seconds": 900}}}
    await graph.aupdate_state(THREAD, edit)
    await graph.ainvoke(None, THREAD)
    state = await ended(graph)
    assert set(state["trajectories"]) == {"0.0", "0.1", "0.2"}
    assert all(step.step == 0 for step in steps_of(state))
    plan = stored_plan(Path(state["plan"].run))
    assert plan.rollouts == 3 and not plan.forked_from
    assert json.loads(Path(plan.run, "budgets.json").read_text())["wall_seconds"] == 900
    assert len(list(Path("runs").iterdir())) == 1


async def test_the_next_start_can_be_chosen(graph: Any) -> None:
    await graph.ainvoke(
        {"task": "softmax.py"}, THREAD, context=SHORT, interrupt_before=["gap_analysis"]
    )
    values = await ended(graph)
    initial = values["initial"].model_dump(mode="json")
    await graph.ainvoke(None, THREAD, interrupt_after=["parameter_update"])
    await graph.aupdate_state(THREAD, {"best": initial})
    await graph.ainvoke(None, THREAD)
    steps = steps_of(await ended(graph))
    first = next(step for step in steps if (step.iteration, step.rollout, step.step) == (1, 0, 0))
    assert first.parent_sha256 == values["initial"].source_sha256


REFUSED_EDITS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"plan": {"gpu": "A100"}}, "plan.gpu cannot be edited"),
    ({"plan": {"memory": "off"}}, "plan.memory cannot be edited"),
    ({"plan": {"task": "other.py"}}, "plan.task cannot be edited"),
    ({"plan": {"iterations": 0}}, "plan.iterations=0"),
    ({"plan": {"rolouts": 3}}, "plan.rolouts"),
    ({"best": {"timing": "fast"}}, "best.timing='fast'"),
    ({"iteration": "two"}, "iteration='two'"),
    ({"trajectories": {"0.0": {"id": 1}}}, "trajectories"),
    ({"plan": {"model": "openai:small"}}, "edit plan.models.roles"),
    ({"plan": {"models": {"roles": {"kernel_writer": "openai:small"}}}}, "OPENAI_API_KEY"),
    ({"plan": {"writer": "tools"}}, "the built-in kernel writer calls no tools"),
    ({"rolouts": 3}, "unknown key rolouts"),
    ({"rollouts": 3}, 'rollouts is a setting: edit it as {"plan": {...}}'),
    ({"task": "other.py"}, "task is read when a run begins; start another run"),
    ({"dimensions": {"N": 2}}, "dimensions is read when a run begins"),
)


async def test_what_cannot_be_edited_says_so_and_nothing_is_lost(graph: Any) -> None:
    await graph.ainvoke(
        {"task": "softmax.py"}, THREAD, context=SHORT, interrupt_before=["policy_evaluation"]
    )
    halfway = await graph.aget_state(THREAD)
    for edit, words in REFUSED_EDITS:
        with pytest.raises(UserError, match=re.escape(words)) as refused:
            await graph.aupdate_state(THREAD, edit)
        assert "\n" not in str(refused.value)
        assert await graph.aget_state(THREAD) == halfway, edit
    await graph.ainvoke(None, THREAD)
    assert (await ended(graph))["result"].gain > 1


async def test_an_edit_after_the_rollouts_goes_on_after_them(graph: Any) -> None:
    """Nobody says as which node: the rollouts are not sent off once more."""
    await graph.ainvoke(
        {"task": "softmax.py"}, THREAD, context=SHORT, interrupt_before=["policy_evaluation"]
    )
    await graph.aupdate_state(THREAD, {"plan": {"iterations": 1}})
    assert (await graph.aget_state(THREAD)).next == ("policy_evaluation",)
    tried = len(steps_of(await ended(graph)))
    await graph.ainvoke(None, THREAD)
    state = await ended(graph)
    assert state["iteration"] == 1 and len(steps_of(state)) == tried
    assert len(list(Path("runs").iterdir())) == 1


def lessons_of(state: dict[str, Any], at: int | None = None) -> dict[str, str]:
    """Return the lessons that a run has written and that stand, text by id."""
    with open_knowledge(state["plan"].knowledge) as knowledge:
        told = knowledge.lessons(at)
        found = {each.text for each in knowledge.search(told[0].text, "simulated", at)}
    assert told[0].text in found
    return {each.id: each.text for each in told if each.run == state["plan"].run_id}


async def test_a_lesson_that_is_taken_out_of_the_update_is_withdrawn(graph: Any) -> None:
    await graph.ainvoke(
        {"task": "softmax.py"}, THREAD, context=SHORT, interrupt_after=["parameter_update"]
    )
    state = await ended(graph)
    gone, *kept = state["update"].lessons
    assert kept and {gone.id, *(each.id for each in kept)} == set(lessons_of(state))
    left = [each.model_dump(mode="json") for each in kept]
    for refused in ([{**left[0], "text": "buy more GPUs"}], [*left, {**left[0], "id": "mine"}]):
        with pytest.raises(UserError, match=r"update.lessons cannot be edited: .*left out"):
            await graph.aupdate_state(THREAD, {"update": {"lessons": refused}})
    with pytest.raises(UserError, match="update.moved cannot be edited"):
        await graph.aupdate_state(THREAD, {"update": {"moved": {"x": [0.0, 1.0]}}})
    await graph.aupdate_state(THREAD, {"update": {"lessons": left}})
    await graph.ainvoke(None, THREAD, interrupt_before=["policy_evaluation"])
    after = await ended(graph)
    assert set(lessons_of(after, after["knowledge_at"])) == {each.id for each in kept}
    assert gone.id in lessons_of(after, state["knowledge_at"]), "what was read stays what it was"
    await graph.ainvoke(None, THREAD)
    result = stored_result(Path(after["plan"].run))
    assert result is not None and gone.id not in result.lessons
    assert {each.id for each in kept} <= set(result.lessons)
    assert len(list(Path("runs").iterdir())) == 1


async def test_what_was_changed_since_by_resume_holds_in_a_fork(graph: Any) -> None:
    """Caps and questions stand in files of the directory, where `resume` changes them."""
    await graph.ainvoke({"task": "softmax.py"}, THREAD, context=SHORT)
    first = Path((await ended(graph))["plan"].run)
    change_approvals(first, ("winner",))
    write_budgets(first, Budgets(tokens=7))
    place = await before(graph, "policy_evaluation")
    await graph.ainvoke(None, await graph.aupdate_state(place, {"plan": {"iterations": 1}}))
    stopped = await graph.aget_state(THREAD)
    (asked,) = stopped.interrupts
    assert asked.value["kind"] == "winner"
    fork = stored_plan(Path(asked.value["run"]))
    assert fork.run != str(first) and fork.approve == ("winner",)
    assert read_budgets(Path(fork.run)).tokens == 7
    await graph.aupdate_state(stopped.config, {"plan": {"approve": []}})
    await graph.ainvoke(None, THREAD)
    assert (await ended(graph))["result"].run == fork.run, "an edit holds over what was there"


def rollout_of(state: dict[str, Any]) -> dict[str, Any]:
    """Return what a rollout of an ended run is started with, as a client sends it."""
    return {
        "plan": state["plan"].model_dump(mode="json"),
        "summary": state["summary"].model_dump(mode="json"),
        "iteration": 5, "rollout": 0, "knowledge_at": state["knowledge_at"],
        "start_point": state["initial"].model_dump(mode="json"),
    }  # fmt: skip


async def test_a_rollout_can_be_started_from_json(graph: Any) -> None:
    await graph.ainvoke({"task": "softmax.py"}, THREAD, context=SHORT)
    state = await ended(graph)
    answer = await rollout_graph.ainvoke(rollout_of(state))
    assert answer["trajectory"].id == "5.0"
    assert [step for step in steps_of(state) if step.iteration == 5]


@pytest.mark.parametrize("node", ["approve_technique", "lower"])
async def test_an_edited_choice_is_tried_with_its_own_settings_and_belief(
    graph: Any, node: str
) -> None:
    await graph.ainvoke({"task": "softmax.py"}, THREAD, context=SHORT)
    state = await ended(graph)
    rollout = build_rollout().compile(checkpointer=InMemorySaver(serde=checkpoint_serializer()))
    await rollout.ainvoke(rollout_of(state), THREAD, interrupt_before=[node])
    at_hand = await ended(rollout)
    chosen = at_hand["choice"].technique
    other = next(each for each in at_hand["proposals"] if each.technique != chosen)
    await rollout.aupdate_state(THREAD, {"choice": {"technique": other.technique}})
    await rollout.ainvoke(None, THREAD)
    first = next(step for step in steps_of(state) if (step.iteration, step.step) == (5, 0))
    assert (first.technique, first.choice_author) == (other.technique, "person")
    assert first.parameters in other.settings
    assert first.expected_log_gain == other.expected.mean_log


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"technique": "buy_more_gpus"}, "no technique 'buy_more_gpus' is known"),
        ({"technique": "tune_block_size", "settings": [{"tile": 3}]}, "has no setting"),
    ],
)
async def test_an_edited_choice_that_nobody_knows_is_told_and_can_be_edited_anew(
    graph: Any, edit: dict[str, Any], words: str
) -> None:
    await graph.ainvoke({"task": "softmax.py"}, THREAD, context=SHORT)
    rollout = build_rollout().compile(checkpointer=InMemorySaver(serde=checkpoint_serializer()))
    asked = rollout_of(await ended(graph))
    await rollout.ainvoke(asked, THREAD, interrupt_before=["lower"])
    await rollout.aupdate_state(THREAD, {"choice": edit})
    with pytest.raises(UserError, match=words):
        await rollout.ainvoke(None, THREAD)
    await rollout.aupdate_state(THREAD, {"choice": {"technique": "fast_math", "settings": [{}]}})
    await rollout.ainvoke(None, THREAD)
    assert (await ended(rollout))["trajectory"].id == "5.0"


# ---- input ----


BAD_INPUTS: tuple[tuple[dict[str, Any], dict[str, Any] | None, str], ...] = (
    ({"task": "softmax.py", "rolouts": 3}, None, "unknown input rolouts; did you mean rollo"),
    ({"task": "softmax.py", "rollouts": 3}, None, "give it in the context"),
    ({}, None, "task is missing"),
    ({"task": 7}, None, "task=7"),
    ({"task": "softmax.py", "dimensions": {"N": "many"}}, None, "dimensions.N='many'"),
    ({"task": "softmax.py"}, {"iterations": 0}, "iterations=0"),
    ({"task": "softmax.py"}, {"rolouts": 3}, "rolouts=3.*did you mean rollouts"),
    ({"task": "softmax.py", "start": "nowhere.cu"}, None, "nowhere.cu"),
)


async def test_bad_input_is_one_sentence_and_the_thread_goes_on(graph: Any) -> None:
    for asked, context, words in BAD_INPUTS:
        with pytest.raises(UserError, match=words) as refused:
            await graph.ainvoke(asked, THREAD, context=context)
        assert "\n" not in str(refused.value)
        await graph.aget_state(THREAD)
    await graph.ainvoke({"task": "softmax.py"}, THREAD, context=dict(SHORT))
    assert (await ended(graph))["result"].gain > 1
    assert len(list(Path("runs").iterdir())) == 1


async def test_texts_do_in_place_of_files(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"task": "import torch\nclass Model: ...\n", "start": "us: 80.0\nextern launch\n"}
    await graph.ainvoke(asked, THREAD, context=SHORT)
    state = await ended(graph)
    run = Path(state["plan"].run)
    assert (run / "task.py").read_text() == asked["task"]
    assert (run / "start.cu").read_text() == asked["start"]
    assert state["result"].initial_us == 80.0
    assert state["result"].source == Path(state["result"].best_source).read_text()


# ---- directories ----


async def stopped_halfway(graph: Any, node: str) -> Path:
    await graph.ainvoke({"task": "softmax.py"}, THREAD, context=SHORT, interrupt_before=[node])
    run = Path((await ended(graph))["plan"].run)
    open_runs().release(run)
    return run


@pytest.mark.parametrize(
    "node", ["initial_cuda", "profile_baseline", "gap_analysis", "keep_lessons", "report"]
)
async def test_a_run_of_a_server_is_listed_and_resumed_from_the_command_line(
    graph: Any, node: str
) -> None:
    """Its checkpoints lie in the server's database: the run's journal does."""
    run = await stopped_halfway(graph, node)
    assert [entry["status"] for entry in list_runs(Path("runs"))] == ["unfinished"]
    result = await aresume(run)
    other: Any = {"configurable": {"thread_id": "other"}}
    knowing_as_little = RunContext(**dict(SHORT) | {"knowledge": "another"})
    await graph.ainvoke({"task": "softmax.py"}, other, context=knowing_as_little)
    whole = await ended(graph, other)
    assert result.best_us == whole["result"].best_us
    written = stored_result(Path(whole["plan"].run))
    assert written is not None and result.steps == written.steps
    assert result.evaluations == whole["result"].evaluations


@pytest.mark.parametrize("copied", [False, True])
async def test_a_directory_that_was_moved_or_copied_goes_on(graph: Any, copied: bool) -> None:
    run = await stopped_halfway(graph, "gap_analysis")
    before_it = stored_plan(run)
    elsewhere = Path("elsewhere").resolve()
    (shutil.copytree if copied else shutil.move)(run, elsewhere)
    result = await aresume(elsewhere)
    plan = stored_plan(elsewhere)
    assert result.run == plan.run == str(elsewhere) and (elsewhere / "best.cu").is_file()
    assert (plan.run_id != before_it.run_id) == copied
    assert run.exists() == copied
    if copied:
        assert plan.forked_from == str(run) and stored_plan(run) == before_it


async def test_a_run_whose_knowledge_base_was_moved_goes_on_with_it(graph: Any) -> None:
    run = await stopped_halfway(graph, "gap_analysis")
    before = stored_plan(run)
    there = Path(before.knowledge).rename(Path("elsewhere").resolve())
    for missing in (None, Path("nowhere")):
        with pytest.raises(UserError, match="there is no knowledge base at .*; check --kb"):
            Session.open(run, missing)
        assert stored_plan(run) == before
    session = Session.open(run, there)
    try:
        await session.run()
    finally:
        session.close()
    plan = stored_plan(run)
    assert plan == before.model_copy(update={"knowledge": str(there)})
    assert not Path(before.knowledge).exists()


async def test_a_reference_that_changed_since_is_noticed(graph: Any) -> None:
    run = await stopped_halfway(graph, "gap_analysis")
    told: list[dict[str, Any]] = []
    Path("softmax.py").write_text("import torch\n")
    await aresume(run, told.append)
    notes = [event["text"] for event in told if event["event"] == "note"]
    assert len(notes) == 1 and "softmax.py has changed since the run began" in notes[0]


@pytest.mark.parametrize("moment", ["_taken_up", "note"])
async def test_a_run_that_is_cancelled_between_its_nodes_lets_its_directory_go(
    graph: Any, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Its journal is read before each node and written after it; another process may go on."""
    own, began, go_on = getattr(lineage, moment), threading.Event(), threading.Event()
    directories: list[Path] = []

    def slow(plan: Any, *rest: Any) -> Any:
        directories.append(Path(plan.run))
        if len(directories) == 3:
            began.set()
            assert go_on.wait(20)
        return own(plan, *rest)

    monkeypatch.setattr(lineage, moment, slow)
    running = asyncio.ensure_future(graph.ainvoke({"task": "softmax.py"}, THREAD, context=SHORT))
    assert await asyncio.to_thread(began.wait, 20)
    running.cancel()
    await asyncio.sleep(0.05)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not is_held(directories[-1])
