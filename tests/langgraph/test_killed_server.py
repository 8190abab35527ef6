"""A server that is killed loses its threads maybe; their runs go on by their directories."""

from __future__ import annotations

import asyncio
from pathlib import Path

import graph_support
import pytest
from dev_server import dev_server
from langgraph_sdk import get_client
from text_runs import aresume

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
    graph_support.install(monkeypatch.setattr)
    result = await aresume(directory)
    assert result.gain > 1 and {step.iteration for step in result.steps} >= {0, 5}
