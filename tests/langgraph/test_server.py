"""`langgraph dev` starts with no key, lists and draws the graphs, and runs one through the SDK."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import ROOT

pytest.importorskip("langgraph_sdk")
pytest.importorskip("langgraph_api")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A development server on a free port; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = (tmp_path / "server.log").open("wb")
    environment = {
        **{name: value for name, value in os.environ.items() if "API_KEY" not in name},
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    process = subprocess.Popen(
        [
            sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload",
            "--port", str(port), "--config", str(ROOT / "langgraph.json"),
        ],
        cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            assert process.poll() is None, (tmp_path / "server.log").read_text()[-3000:]
            try:
                urllib.request.urlopen(f"{address}/ok", timeout=1)
                break
            except OSError:
                time.sleep(0.25)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.close()


def test_graphs_are_listed_drawn_and_run(server: str, tmp_path: Path) -> None:
    from langgraph_sdk import get_client

    async def drive() -> None:
        client = get_client(url=server)
        assistants = await client.assistants.search()
        assert {found["graph_id"] for found in assistants} == {"optimize", "rollout"}
        for found in assistants:
            drawing = await client.assistants.get_graph(found["assistant_id"])
            names = {str(node["id"]) for node in drawing["nodes"]}
            expected = {"optimize": "parameter_update", "rollout": "optimization_selector"}
            assert expected[found["graph_id"]] in names
        thread = await client.threads.create()
        answer = await client.runs.wait(
            thread["thread_id"],
            "optimize",
            input={
                "task": str(ROOT / "examples" / "row_sum.py"),
                "run": str(tmp_path / "run"),
            },
            context={"iterations": 1, "rollouts": 2, "steps": 1},
        )
        assert isinstance(answer, dict), answer
        result = answer["result"]
        assert result["provenance"] == "simulated" and result["gain"] > 1
        assert Path(result["best_source"]).read_text().count("launch") >= 1

    asyncio.run(drive())
