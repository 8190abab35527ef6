"""A development server for tests: `langgraph dev` with no key, its graphs on the text device."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from places import ROOT


@dataclass(frozen=True)
class Server:
    """A started server."""

    url: str
    folder: Path
    """Where it works: its runs, its knowledge base, its log."""
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """End it as `kill -9` does, with all that it started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def task(self) -> str:
        """A task that the text device serves."""
        return str(self.folder / "text.py")


@contextmanager
def dev_server(folder: Path) -> Iterator[Server]:
    """Start a server on a free port; it ends with the block."""
    (folder / "text.py").write_text("")
    (folder / "langgraph.json").write_text(json.dumps(_settings()))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **{name: value for name, value in os.environ.items() if "API_KEY" not in name},
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "KERNELBLASTER_KB": str(folder / "knowledge"),
        "KERNELBLASTER_RUNS": str(folder / "runs"),
    }
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload",
                "--port", str(port), "--n-jobs-per-worker", "8",
            ],
            cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            url = f"http://127.0.0.1:{port}"
            _await(process, url, folder)
            yield Server(url, folder, process)
        finally:
            _end(process)


def _settings() -> dict[str, object]:
    """Return langgraph.json with the same graphs on the text device."""
    settings = json.loads((ROOT / "langgraph.json").read_text())
    for name, graph in settings["graphs"].items():
        graph["path"] = f"served_graphs:{name}"
    return {**settings, "dependencies": ["."]}


def _await(process: subprocess.Popen[bytes], url: str, folder: Path) -> None:
    for _ in range(240):
        assert process.poll() is None, (folder / "server.log").read_text()[-3000:]
        try:
            urllib.request.urlopen(f"{url}/ok", timeout=1)
            return
        except OSError:
            time.sleep(0.25)
    raise AssertionError((folder / "server.log").read_text()[-3000:])


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
