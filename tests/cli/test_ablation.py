"""Ablation flags on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import graph_support
import pytest

from kernelblaster.nodes.run.beginning.begin import stored_plan


def test_flags_reach_the_run_and_its_result(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    graph_support.install(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.py").write_text("")
    done = command(
        "optimize", "text.py", "--device", "simulated", "--run", "run", "--kb", "kb",
        "--iterations", 1, "--rollouts", 1, "--steps", 1, "--memory", "seed", "--choice", "random",
        "--no-counters", "--no-gradient", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    plan = stored_plan(tmp_path / "run")
    assert (plan.memory, plan.choice, plan.counters, plan.gradient) == (
        "seed", "random", False, False,
    )  # fmt: skip
    assert "ablation: memory seed" in json.loads(done.out)["notes"]


def test_an_unknown_memory_is_one_line(command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("optimize", tmp_path / "text.py", "--memory", "half")
    assert done.code == 2 and "'half' is not one of" in done.err and "Traceback" not in done.err
