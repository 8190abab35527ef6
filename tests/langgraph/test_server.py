"""`langgraph dev` and its clients: what is listed, described, drawn, run, refused and streamed."""

from __future__ import annotations

import asyncio
import importlib
import json
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from dev_server import Server
from langgraph_sdk import get_client
from places import EXAMPLES

SHORT = {"iterations": 1, "rollouts": 2, "steps": 2}
EXPECTED = {
    "optimize": "parameter_update",
    "rollout": "optimization_selector",
    "coder_judge": "judge",
    "correction_only": "judge",
    "optimisation_only": "judge",
    "minimal": "coder",
    "zero_shot": "coder",
    "best_of_n": "coder",
}
"""The graphs that are served, each with a node that it has."""


async def test_the_graphs_are_listed_described_and_drawn(server: Server) -> None:
    client = get_client(url=server.url)
    assistants = await client.assistants.search()
    assert {found["graph_id"] for found in assistants} == set(EXPECTED)
    for found in assistants:
        assert len(found["description"] or "") > 100
        drawing = await client.assistants.get_graph(found["assistant_id"])
        names = {str(node["id"]) for node in drawing["nodes"]}
        assert EXPECTED[found["graph_id"]] in names


async def test_every_schema_is_there_and_describes_its_fields(server: Server) -> None:
    """As Studio reads them: input, output, state and context."""
    client = get_client(url=server.url)
    for name in ("optimize", "rollout", "coder_judge"):
        (found,) = await client.assistants.search(graph_id=name)
        schemas: Any = await client.assistants.get_schemas(found["assistant_id"])
        for kind in ("input_schema", "output_schema", "state_schema", "context_schema"):
            schema = schemas[kind]
            if (name, kind) == ("rollout", "context_schema"):
                assert schema is None  # Its plan says it all.
                continue
            assert schema["properties"]
            shapes = {kind: schema, **schema.get("$defs", {})}
            bare = [
                f"{shape}.{key}"
                for shape, each in shapes.items()
                for key, said in each.get("properties", {}).items()
                if not said.get("description")
            ]
            assert bare == [], (name, kind)


async def test_a_run_answers_with_its_result(server: Server) -> None:
    client = get_client(url=server.url)
    thread = await client.threads.create()
    answer: Any = await client.runs.wait(
        thread["thread_id"], "optimize", input={"task": server.task}, context=SHORT
    )
    assert list(answer) == ["result"]
    result = answer["result"]
    assert result["gain"] > 1 and Path(result["run"]).parent == server.folder / "runs"


async def test_a_capped_run_answers_with_its_question(server: Server) -> None:
    client = get_client(url=server.url)
    thread = (await client.threads.create())["thread_id"]
    context = {**SHORT, "budgets": {"gpu_seconds": 0.0}}
    answer: Any = await client.runs.wait(
        thread, "optimize", input={"task": server.task}, context=context
    )
    assert "gpu" in json.dumps(answer["__interrupt__"])
    assert (await client.threads.get(thread))["status"] == "interrupted"


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"start": "nowhere.cu"}, {}, "no such file: --start nowhere.cu"),
    ({}, {"device": "abacus"}, "unknown device 'abacus'"),
    ({}, {"model": "openai:small"}, "needs a key: set OPENAI_API_KEY"),
    ({}, {"iterations": 0}, "iterations"),
    ({"dimensions": {"N": "many"}}, {}, "dimensions.N"),
    ({"rolouts": 3}, {}, "rolouts"),
]


async def test_the_line_of_an_error_reaches_every_client(server: Server) -> None:
    """One that waits, one that streams, one of the thread's state, one of the MCP endpoint."""
    client = get_client(url=server.url)

    async def refuse(asked: dict[str, Any], context: dict[str, Any], words: str) -> None:
        thread = (await client.threads.create())["thread_id"]
        request = {"task": server.task, **asked}
        with pytest.raises(Exception, match=words):
            await client.runs.wait(thread, "optimize", input=request, context=context)
        parts = client.runs.stream(thread, "optimize", input=request, context=context)
        (told,) = [part.data async for part in parts if part.event == "error"]
        assert words in told["message"] and "\n" not in told["message"]
        kept: Any = await client.threads.get(thread)
        assert words in json.dumps(kept["error"])
        called = await mcp(
            server, "tools/call", name="optimize", arguments=request, context=context
        )
        assert called["isError"] and words in called["content"][0]["text"]

    await asyncio.gather(*(refuse(*each) for each in REFUSED))


async def test_an_mcp_client_reads_what_the_tool_is_for_and_what_came_of_it(
    server: Server,
) -> None:
    tools = {tool["name"]: tool for tool in (await mcp(server, "tools/list"))["tools"]}
    assert "CUDA kernel" in tools["optimize"]["description"]
    assert "task" in tools["optimize"]["inputSchema"]["properties"]
    request = {"task": server.task}
    called = await mcp(
        server, "tools/call", name="optimize", arguments=request, context=SHORT
    )
    assert not called.get("isError") and called["content"][0]["text"].startswith("{'result': {")


async def test_streams_show_every_agent_while_it_runs(server: Server) -> None:
    client = get_client(url=server.url)
    seen: dict[str, set[str]] = defaultdict(set)
    # Other runs of this server have found the best kernel of the task: this one begins anew.
    anew = {**SHORT, "memory": "seed"}
    async for part in client.runs.stream(
        None, "optimize", input={"task": server.task}, context=anew, stream_subgraphs=True,
        stream_mode=["updates", "values", "custom"],
    ):  # fmt: skip
        mode, *space = part.event.split("|")
        data: Any = part.data
        if mode == "updates":
            seen[f"updates {len(space)}"] |= {node for node, update in data.items() if update}
        elif mode == "values":
            seen[f"values {len(space)}"] |= set(data)
        elif mode == "custom":
            seen["custom"].add(data["event"])
        assert len(json.dumps(data)) < 40_000
    assert {"load_task", "rollout", "gap_analysis", "report"} <= seen["updates 0"]
    assert {"state_extractor", "optimization_selector", "record_step"} <= seen["updates 1"]
    assert {"write", "compile", "verify", "profile"} <= seen["updates 2"]
    assert {"plan", "best", "trajectories", "result"} <= seen["values 0"]
    assert {"observation", "choice", "current"} <= seen["values 1"]
    assert {"task", "baseline", "attempt", "step", "result"} <= seen["custom"]


async def test_a_models_tokens_are_streamed_with_role_and_place(server: Server) -> None:
    client = get_client(url=server.url)
    told = []
    async for part in client.runs.stream(
        None, "optimize", input={"task": server.task}, stream_mode="messages-tuple",
        context={**SHORT, "model": "kernel_writer=import:served_graphs:writer"},
        stream_subgraphs=True,
    ):  # fmt: skip
        if part.event.startswith("messages"):
            (message, about), mode = part.data, part.event
            told.append((message["content"], about["role"], tuple(about["place"]), mode))
    assert {role for _, role, *_ in told} == {"kernel_writer"}
    assert {place[:3] for _, _, place, _ in told} == {(0, r, s) for r in (0, 1) for s in (0, 1)}
    assert all("us: " in words for words, *_ in told)


async def test_the_example_of_a_client_runs(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "langgraph"))
    example = importlib.import_module("server_client")
    assert (await example.main(server.url, server.task))["gain"] > 1
    assert "state_extractor: observation" in capsys.readouterr().out


async def mcp(server: Server, method: str, **parameters: Any) -> Any:
    """Return the result of one call of the server's own MCP endpoint."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
    accepted = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request(f"{server.url}/mcp", json.dumps(body).encode(), accepted)

    def send() -> Any:
        return json.loads(urllib.request.urlopen(request, timeout=120).read())["result"]

    return await asyncio.to_thread(send)
