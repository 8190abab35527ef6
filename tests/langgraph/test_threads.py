"""Threads of a server: each run is its own, whatever was asked before, beside it or of its past."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from dev_server import Server
from langgraph_sdk import get_client
from often_or_seldom import every

from kernelblaster.memory.run.directory import is_held
from kernelblaster.nodes.run.reading.overview import list_runs

SHORT = {"iterations": 2, "rollouts": 2, "steps": 1}


@pytest.fixture
def client(server: Server) -> Any:
    return get_client(url=server.url)


async def new_thread(client: Any) -> str:
    return str((await client.threads.create())["thread_id"])


async def state_of(client: Any, thread: str) -> dict[str, Any]:
    return dict((await client.threads.get_state(thread))["values"])


@pytest.mark.parametrize(
    ("asked", "context", "words"),
    every(3, [
        ({"task": "text.py", "start": "nowhere.cu"}, SHORT, "nowhere.cu"),
        ({"task": "text.py", "rolouts": 3}, SHORT, "unknown input rolouts; did you mean rollouts?"),
        ({"task": "text.py"}, {"iterations": 0}, "iterations=0"),
        ({"task": "text.py"}, {"device": "quantum"}, "quantum"),
        ({"task": "text.py", "dimensions": {"N": "x"}}, SHORT, "dimensions.N='x'"),
        ({"task": ["text.py"]}, SHORT, r"task=\['text.py'\]"),
    ]),
)
async def test_after_bad_input_a_thread_serves_good_input(
    client: Any, server: Server, asked: dict[str, Any], context: dict[str, Any], words: str
) -> None:
    thread = await new_thread(client)
    with pytest.raises(Exception, match=words):
        await client.runs.wait(thread, "optimize", input=asked, context=context)
    answer = await client.runs.wait(
        thread, "optimize", input={"task": server.task}, context=SHORT
    )
    assert answer["result"]["gain"] > 1


async def test_threads_at_once_on_one_task_are_runs_of_their_own(
    client: Any, server: Server
) -> None:
    async def run(seed: int) -> dict[str, Any]:
        answer: Any = await client.runs.wait(
            await new_thread(client), "optimize", input={"task": server.task},
            context={**SHORT, "seed": seed},
        )  # fmt: skip
        return dict(answer["result"])

    results = await asyncio.gather(*map(run, range(4)))
    assert len({result["run"] for result in results}) == 4
    for seed, result in enumerate(results):
        directory = Path(result["run"])
        assert json.loads((directory / "result.json").read_text())["run"] == result["run"]
        assert json.loads((directory / "run.json").read_text())["plan"]["seed"] == seed
        assert result["source"] == (directory / "best.cu").read_text() and not is_held(directory)
    listed = {entry["run"]: entry["status"] for entry in list_runs(server.folder / "runs")}
    assert all(listed[result["run"]] in ("improved", "not_improved") for result in results)


async def test_assistants_with_settings_of_their_own(client: Any, server: Server) -> None:
    taken = {}
    for steps in (1, 3):
        assistant = await client.assistants.create(
            "optimize", context={**SHORT, "steps": steps}, name=f"{steps} steps"
        )
        thread = await new_thread(client)
        await client.runs.wait(thread, assistant["assistant_id"], input={"task": server.task})
        taken[steps] = (await state_of(client, thread))["plan"]["steps"]
    assert taken == {1: 1, 3: 3}


async def test_a_fork_from_the_past_is_a_run_of_its_own(client: Any, server: Server) -> None:
    thread = await new_thread(client)
    first: Any = await client.runs.wait(
        thread, "optimize", input={"task": server.task}, context=SHORT
    )
    best = Path(first["result"]["best_source"]).read_bytes()
    history = await client.threads.get_history(thread, limit=100)
    past = next(each for each in history if "profile_baseline" in each["next"])
    forked = await client.threads.update_state(
        thread, {"plan": {"steps": 3, "iterations": 1}}, checkpoint=past["checkpoint"]
    )
    second: Any = await client.runs.wait(
        thread, "optimize", input=None, checkpoint=forked["checkpoint"]
    )
    plan = (await state_of(client, thread))["plan"]
    assert plan["forked_from"] == first["result"]["run"] and plan["steps"] == 3
    assert second["result"]["run"] == plan["run"] != first["result"]["run"]
    assert Path(first["result"]["best_source"]).read_bytes() == best


async def test_the_past_played_again_unchanged_is_no_other_run(
    client: Any, server: Server
) -> None:
    thread = await new_thread(client)
    first: Any = await client.runs.wait(
        thread, "optimize", input={"task": server.task}, context=SHORT
    )
    runs = set((server.folder / "runs").iterdir())
    history = await client.threads.get_history(thread, limit=100)
    past = next(each for each in history if "gap_analysis" in each["next"])
    again: Any = await client.runs.wait(
        thread, "optimize", input=None, checkpoint=past["checkpoint"]
    )
    assert again["result"]["best_us"] == first["result"]["best_us"]
    assert again["result"]["run"] == first["result"]["run"]
    assert set((server.folder / "runs").iterdir()) == runs


async def test_an_edit_that_cannot_be_is_refused_in_a_sentence(
    client: Any, server: Server
) -> None:
    thread = await new_thread(client)
    await client.runs.wait(
        thread, "optimize", input={"task": server.task}, context=SHORT,
        interrupt_before=["policy_evaluation"],
    )  # fmt: skip
    for edit in ({"plan": {"gpu": "A100"}}, {"plan": {"rolouts": 3}}, {"best": {"depth": -1}},
                 {"rolouts": 3}):  # fmt: skip
        answer = httpx.post(
            f"{server.url}/threads/{thread}/state", json={"values": edit}, timeout=20
        )
        ((key, fields),) = edit.items()
        name = f"{key}.{next(iter(fields))}" if isinstance(fields, dict) else key
        assert answer.status_code == 400 and name in answer.json()["detail"]
    await client.threads.update_state(thread, {"plan": {"iterations": 1}})
    await client.runs.wait(thread, "optimize", input=None)
    state = await state_of(client, thread)
    assert state["iteration"] == 1 and not state["plan"]["forked_from"]


async def test_a_cancelled_run_goes_on_where_it_was(client: Any, server: Server) -> None:
    thread = await new_thread(client)
    run = await client.runs.create(
        thread, "optimize", input={"task": server.task}, context={**SHORT, "iterations": 20}
    )
    while "best" not in (values := await state_of(client, thread)):
        await asyncio.sleep(0.02)
    assert "result" not in values
    await client.runs.cancel(thread, run["run_id"], wait=True)
    directory = Path((await state_of(client, thread))["plan"]["run"])
    for _ in range(100):
        if not is_held(directory):
            break
        await asyncio.sleep(0.05)
    assert not is_held(directory), "whoever goes on may be another process"
    await client.threads.update_state(thread, {"plan": {"iterations": 1}})
    answer = await client.runs.wait(thread, "optimize", input=None)
    assert answer["result"]["run"] == str(directory)


async def test_a_rollout_of_a_run_can_be_looked_at_alone(client: Any, server: Server) -> None:
    thread = await new_thread(client)
    await client.runs.wait(thread, "optimize", input={"task": server.task}, context=SHORT)
    state = await state_of(client, thread)
    asked = {key: state[key] for key in ("plan", "summary", "knowledge_at")}
    asked |= {"iteration": 9, "rollout": 0, "start_point": state["initial"]}
    answer: Any = await client.runs.wait(None, "rollout", input=asked)
    assert answer["trajectory"]["id"] == "9.0"
