"""The comparison of the two kernel writers, against an endpoint whose replies are scripted."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import graph_support
import pytest
from openai_server import OpenAiServer, Say
from places import ROOT
from scripts import import_script

from kernelblaster.cli import app


@pytest.fixture(scope="module")
def writers() -> ModuleType:
    return import_script(ROOT / "benchmarks" / "models" / "writers.py")


def faster_with_tools(body: dict[str, Any]) -> Say:
    """Answer a writer without tools with nine tenths of the time, one with tools with half."""
    shown = float(re.findall(r"us: ([\d.]+)", str(body["messages"]))[0])
    calls = sum(message["role"] == "tool" for message in body["messages"])
    source = f"us: {shown * (0.5 if calls else 0.9):.6f}\n"
    if body.get("tools") and not calls:
        return Say(arguments={"source": source}, finish="tool_calls")
    return Say(f"```cuda\n{source}// launch()\n```")


def test_both_ways_are_measured_and_compared_in_pairs(
    writers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    graph_support.install(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    Path("text.py").write_text("")

    def in_this_process(arguments: Sequence[str]) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["kernelblaster", *arguments])
        with pytest.raises(SystemExit) as left:
            app.main()
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err

    with OpenAiServer(otherwise=faster_with_tools).running() as server:
        asked = ["openai:small", "--tasks", "text.py", "--seeds", "2", "--out", "found.json",
                 "--base-url", server.url, "--device", "simulated", "--steps", "1"]  # fmt: skip
        writers.main(asked, in_this_process)
    document = json.loads(Path("found.json").read_text())
    rows = document["rows"]
    assert [(row["seed"], row["writer"]) for row in rows] == [
        (seed, writer) for seed in (0, 1) for writer in ("replies", "tools")
    ]
    for row in rows:
        calls = 2 if row["writer"] == "tools" else 1
        assert row["techniques"] == row["passed"] == row["at_first"] == 2
        assert row["model_calls"] >= calls and row["tokens"] > 0 and row["evaluations"] > 1
        assert row["gain"] == pytest.approx(2.0 if row["writer"] == "tools" else 1 / 0.9)
    assert "2 pairs: with tools the gain is 1.800 times" in document["compared"][-1]
    assert document["compared"][-1] in capsys.readouterr().out


def test_a_run_that_fails_is_a_row_and_no_pair(writers: ModuleType, tmp_path: Path) -> None:
    def refused(arguments: Sequence[str]) -> tuple[int, str, str]:
        return 2, "", "kernelblaster: no such GPU\n"

    task = tmp_path / "text.py"
    rows = [writers.measured(task, name, 0, [], refused) for name in writers.WRITERS]
    assert [row["failed"] for row in rows] == ["kernelblaster: no such GPU"] * 2
    assert "nothing was tried" in "\n".join(writers.compared(rows))
