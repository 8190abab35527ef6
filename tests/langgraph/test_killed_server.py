"""A server that is killed loses its threads maybe; their runs go on by their directories."""

from __future__ import annotations

import asyncio
from pathlib import Path

import graph_support
import pytest
from dev_server import dev_server
from langgraph_sdk import get_client
from often_or_seldom import every
from text_runs import aresume

import kernelblaster
from kernelblaster.memory.run.directory import is_held

SHORT = {"iterations": 6, "rollouts": 2, "steps": 2}


async def test_a_run_of_a_killed_server_goes_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dev_server(tmp_path) as server:
        client = get_client(url=server.url)
        thread = (await client.threads.create())["thread_id"]
        await client.runs.create(thread, "optimize", input={"task": server.task}, context=SHORT)
        while (await client.threads.get_state(thread))["values"].get("iteration", 0) < 1:
            await asyncio.sleep(0.05)
        await asyncio.to_thread(server.kill)
    (directory,) = (tmp_path / "runs").iterdir()
    assert not (directory / "result.json").exists() and not is_held(directory)
    with dev_server(tmp_path) as server:
        client = get_client(url=server.url)
        asked = {"task": server.task}
        answer = await client.runs.wait(None, "optimize", input=asked, context=SHORT)
        assert Path(answer["result"]["run"]) != directory, "the next run begins beside it"
    graph_support.install(monkeypatch.setattr)
    result = await aresume(directory)
    assert result.gain > 1 and {step.iteration for step in result.steps} >= {0, 1}


@pytest.mark.parametrize("moment", every(2, ["directory", "asked"]))
async def test_a_run_whose_server_is_killed_at_once_can_be_resumed_or_never_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    runs = tmp_path / "runs"
    with dev_server(tmp_path) as server:
        client = get_client(url=server.url)
        thread = (await client.threads.create())["thread_id"]
        await client.runs.create(thread, "optimize", input={"task": server.task}, context=SHORT)
        while moment == "directory" and not (runs.exists() and any(runs.iterdir())):
            await asyncio.sleep(0.001)
        server.kill()
    left = [path.parent for path in runs.glob("*/run.json")]
    graph_support.install(monkeypatch.setattr)
    monkeypatch.setenv("KERNELBLASTER_KB", str(tmp_path / "knowledge"))
    for directory in left:
        assert not is_held(directory) and not (directory / "result.json").exists()
        assert (await aresume(directory)).gain > 1
    await kernelblaster.aoptimize(server.task, run=runs / "another", **SHORT)
    assert {path.name for path in runs.iterdir()} == {"another", *(path.name for path in left)}
