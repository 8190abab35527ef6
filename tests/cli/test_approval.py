"""Questions on the command line: on a terminal one after another, else by `resume --answer`."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import graph_support
import pytest
from run_child import support_paths

Done = SimpleNamespace
SMALL = ("--iterations", 1, "--rollouts", 1, "--steps", 1, "--run", "run")


@pytest.fixture(autouse=True)
def text_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    graph_support.install(monkeypatch.setattr, graph_support.REWRITES[:3])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kernelblaster.cli.app.begin_loading", lambda *_: None)
    (tmp_path / "text.py").write_text("")


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """A person at the terminal types these lines; what is left was not asked for."""
    lines: list[Any] = []

    def read(prompt: str = "") -> str:
        print(prompt)
        line = lines.pop(0)
        if isinstance(line, BaseException):
            raise line
        return str(line)

    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setattr("kernelblaster.cli.questions.can_ask", lambda: True)
    yield lines
    assert not lines


def last_json(done: Done) -> dict[str, Any]:
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    return found


def test_without_a_terminal_the_run_ends_saved_and_says_what_answers(
    command: Callable[..., Done],
) -> None:
    stopped = last_json(
        command("optimize", "text.py", *SMALL, "--approve", "plan,technique,winner", "--json")
    )
    assert stopped["outcome"] == "undecided" and stopped["questions"][0]["kind"] == "plan"
    again = command("resume", "run")
    run = Path("run").resolve()
    assert again.code == 0 and "Begin 1 iterations of 1 rollouts" in again.out
    how = f"answer with: kernelblaster resume {run} --answer accept or 'reject:REASON' or 'edit:"
    assert how in again.out

    refused = command("resume", "run", "--answer", "maybe")
    assert refused.code == 2 and "--answer maybe: {'maybe': ''} is no answer" in refused.err
    refused = command("resume", "run", "--answer", "accept", "--answer", "accept")
    assert refused.code == 2 and "--answer is given 2 times, and" in refused.err

    asked = last_json(command("resume", "run", "--answer", "accept", "--json"))["questions"]
    assert [question["kind"] for question in asked] == ["technique"]
    asked = last_json(
        command("resume", "run", "--answer", 'edit:{"technique": "magic"}', "--json")
    )["questions"]
    assert "'magic' is known" in asked[0]["hint"]
    edit = 'edit:{"technique": "tune_block_size", "parameters": {"block_size": 128}}'
    shown = command("resume", "run", "--answer", edit).out
    assert "Announce this kernel, 1.11x" in shown and "-us: 100.0\n+us: 90.0" in shown
    rejected = last_json(command("resume", "run", "--answer", "reject:no gain", "--json"))
    assert rejected["outcome"] == "not_improved" and rejected["techniques"] == []
    assert "vetoed by person: no gain" in " ".join(rejected["notes"])
    assert "rejected by a person: no gain" in command("report", "run").out
    assert "rejected by a person: no gain" in command("kb", "show").out
    assert "rejected by a person: no gain" in command("kb", "show", "--json").out
    refused = command("resume", "run", "--answer", "accept")
    assert refused.code == 2 and "asks nothing" in refused.err


def test_on_a_terminal_a_person_is_asked(command: Callable[..., Done], typed: list[Any]) -> None:
    typed += ["?", "e", "iterations=0", "e", "rollouts=2"]  # The plan, and again: 0 is too few.
    typed += ["r", "not here", "r", "", "a"]  # One rollout's technique, then the other's.
    typed += ["a", "e", "anything", "a"]  # What comes instead of the rejected one; the winner.
    done = command("optimize", "text.py", *SMALL, "--approve", "plan,technique,winner")
    assert done.code == 0, done.err
    assert 'plan edited: {"rollouts": 2}' in done.out and "a winner cannot be edited" in done.out
    assert "iterations: input should be greater than or equal to 1" in done.out
    assert "technique rejected: not here" in done.out
    lessons = command("kb", "show", "--json").out
    assert "rejected by a person: not here" in lessons


@pytest.mark.parametrize(("leaving", "code"), [(EOFError(), 0), (KeyboardInterrupt(), 130)])
def test_who_leaves_the_question_finds_it_again(
    command: Callable[..., Done], typed: list[Any], leaving: BaseException, code: int
) -> None:
    typed.append(leaving)
    done = command("optimize", "text.py", *SMALL, "--approve", "winner")
    assert done.code == code and "answer with: kernelblaster resume" in done.out + done.err
    typed.append("a")
    assert "improved" in command("resume", "run").out


def test_resume_may_change_what_is_asked(command: Callable[..., Done]) -> None:
    command("optimize", "text.py", *SMALL, "--approve", "plan")
    refused = command("resume", "run", "--approve", "loser")
    assert refused.code == 2 and "--approve 'loser': give plan, technique and winner" in refused.err
    stopped = last_json(command("resume", "run", "--approve", "winner", "--json"))
    assert stopped["questions"][0]["kind"] == "winner"
    assert last_json(command("resume", "run", "--approve", "none", "--json"))["gain"] > 1


def test_a_run_killed_at_the_prompt_is_asked_again(
    command: Callable[..., Done], tmp_path: Path
) -> None:
    code = (
        "import sys, graph_support, run_child\n"
        "graph_support.install(run_child.replace, graph_support.REWRITES[:3])\n"
        "from kernelblaster.cli import app\n"
        "app.begin_loading = lambda *_: None\n"
        "sys.argv = ['kernelblaster', *sys.argv[1:]]; app.main()\n"
    )
    mine, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code, "optimize", "text.py", *map(str, SMALL), "--approve", "plan"],
        stdin=its, stdout=its, stderr=its, env=os.environ | {"PYTHONPATH": support_paths()},
    )  # fmt: skip
    os.close(its)
    seen = b""
    while b"[a/e/r]" not in seen:
        assert process.poll() is None, seen.decode()
        time.sleep(0.01)
        seen += os.read(mine, 4096)
    process.send_signal(signal.SIGKILL)
    process.wait()
    os.close(mine)
    finished = last_json(command("resume", "run", "--answer", "accept", "--json"))
    assert finished["outcome"] == "improved"
