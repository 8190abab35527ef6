"""Bad input gets one clear line and exit code 2, never a traceback; nothing is lost."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from asked import Asked
from commands import assert_one_clear_line
from places import EXAMPLES

from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.tools.techniques.catalogue import knowledge_seed

Ask = Callable[..., subprocess.CompletedProcess[str]]
"""The command line in this process: a process of its own says the same, and costs seconds."""
MODEL = (
    "import torch\nN = 8\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        {}\n"
)
INPUTS = "def get_inputs():\n    return [torch.rand(N)]\ndef get_init_inputs():\n    return []\n"


TASKS = {
    "no model": ("import torch\nx = 1\n", "Model"),
    "not python": ("def forward(:\n", "task.py:1"),
    "raises": (MODEL.format("raise RuntimeError('broken inside')") + INPUTS, "broken inside"),
    "no tensor": (MODEL.format("return 3.0") + INPUTS, "tensor"),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_reference_that_cannot_be_used(asked: Ask, tmp_path: Path, name: str) -> None:
    text, word = TASKS[name]
    (tmp_path / "task.py").write_text(text)
    done = asked("optimize", tmp_path / "task.py", "--run", tmp_path / "run")
    assert_one_clear_line(done, word)
    # The same command, mended, is not told that the directory is taken.
    assert not (tmp_path / "run").exists()


def test_a_task_that_cannot_be_checked(asked: Ask, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def forward(:\n")
    for named in (tmp_path / "bad.py", tmp_path / "nowhere.py", tmp_path):
        done = asked("task", "check", named)
        assert done.returncode == 2 and "Traceback" not in done.stdout + done.stderr


FLAGS = {
    "no such file": (["nowhere.py"], "nowhere.py"),
    "unknown gpu": ([EXAMPLES / "softmax.py", "--gpu", "H9000"], "H9000"),
    "unknown device": ([EXAMPLES / "softmax.py", "--device", "abacus"], "abacus"),
    "unknown model": ([EXAMPLES / "softmax.py", "--model", "oracle"], "oracle"),
    "no steps": ([EXAMPLES / "softmax.py", "--steps", "0"], "--steps"),
    "no iterations": ([EXAMPLES / "softmax.py", "--iterations", "0"], "--iterations"),
    "negative rollouts": ([EXAMPLES / "softmax.py", "--rollouts", "-1"], "--rollouts"),
    "until beyond the bound": ([EXAMPLES / "softmax.py", "--until", "1.5"], "--until"),
    "rewrites of no technique": (
        [EXAMPLES / "softmax.py", "--policy", "coder_judge", "--rewrites-first"], "--rewrites-first"
    ),
    "no start": ([EXAMPLES / "softmax.py", "--start", "nowhere.cu"], "nowhere.cu"),
    "bad set": ([EXAMPLES / "softmax.py", "--set", "ROWS"], "NAME=VALUE"),
    "superscript": ([EXAMPLES / "softmax.py", "--set", "ROWS=\u00b2"], "NAME=VALUE"),
}


@pytest.mark.parametrize("name", FLAGS)
def test_flags_are_refused_before_anything_is_made(asked: Ask, tmp_path: Path, name: str) -> None:
    arguments, word = FLAGS[name]
    done = asked("optimize", *arguments, "--run", tmp_path / "run", "--json")
    assert_one_clear_line(done, word)
    assert done.stdout == ""
    assert not (tmp_path / "run").exists()


def test_a_settings_file_that_is_no_text(asked: Ask, tmp_path: Path) -> None:
    (tmp_path / "kernelblaster.env").write_bytes(b"\xff\xfe")
    done = asked("runs", folder=tmp_path)
    assert_one_clear_line(done, "kernelblaster.env")


STARTS = {
    "empty": (b"", "empty"),
    "binary": (b"\x7fELF\0\xff\xfe", "not a text file"),
    "does not compile": (b'#include "task.cuh"\nvoid launch( {\n', "compile error"),
    "no launch": (b'#include "task.cuh"\n__global__ void k() {}\n', "launch"),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_broken_start_kernel(asked: Ask, tmp_path: Path, name: str) -> None:
    data, word = STARTS[name]
    (tmp_path / "start.cu").write_bytes(data)
    done = asked(
        "optimize", EXAMPLES / "row_sum.py", "--start", tmp_path / "start.cu",
        "--run", tmp_path / "run",
    )  # fmt: skip
    assert_one_clear_line(done, word)


def test_a_knowledge_base_of_another_program_is_refused_and_untouched(
    asked: Ask, tmp_path: Path
) -> None:
    (tmp_path / "kb").mkdir()
    (tmp_path / "kb" / "notes.txt").write_text("mine")
    arguments = (EXAMPLES / "softmax.py", "--kb", tmp_path / "kb", "--run", tmp_path / "run")
    assert_one_clear_line(asked("optimize", *arguments), "kb")
    assert [path.name for path in (tmp_path / "kb").iterdir()] == ["notes.txt"]
    assert not (tmp_path / "run").exists()


def test_a_knowledge_base_of_another_version_is_refused(asked: Ask, tmp_path: Path) -> None:
    KnowledgeBase.open(tmp_path / "kb", knowledge_seed()).close()
    assert asked("kb", "stats", "--kb", tmp_path / "kb").returncode == 0
    path = tmp_path / "kb" / "kb.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "version": 999}))
    assert_one_clear_line(asked("kb", "stats", "--kb", tmp_path / "kb"), "999")


def test_no_host_compiler(asked: Ask, tmp_path: Path) -> None:
    done = asked(
        "optimize", EXAMPLES / "softmax.py", "--run", tmp_path / "run",
        PATH=str(tmp_path), KERNELBLASTER_CACHE=str(tmp_path / "cache"),
    )  # fmt: skip
    assert_one_clear_line(done, "compiler", "g++")


@pytest.mark.parametrize("name", ["resume", "report"])
def test_a_directory_that_is_no_run(asked: Ask, tmp_path: Path, name: str) -> None:
    assert_one_clear_line(asked(name, tmp_path), "run.json")
    (tmp_path / "file").write_text("")
    assert_one_clear_line(asked(name, tmp_path / "file"), "is a file", "runs")


def test_a_bad_setting_in_the_environment(asked: Ask, tmp_path: Path) -> None:
    done = asked("optimize", EXAMPLES / "softmax.py", KERNELBLASTER_STEPS="many")
    assert_one_clear_line(done, "steps", "many")


def test_unknown_state(asked: Ask, tmp_path: Path) -> None:
    KnowledgeBase.open(tmp_path / "knowledge", knowledge_seed()).close()
    assert_one_clear_line(asked("kb", "show", "nirvana"), "nirvana")


def test_a_knowledge_base_is_shown(asked: Ask, tmp_path: Path) -> None:
    with KnowledgeBase.open(tmp_path / "knowledge", knowledge_seed()) as knowledge:
        states = knowledge.show()
    done = asked("kb", "show", "--kb", tmp_path / "knowledge")
    assert done.returncode == 0, done.stderr
    assert all(state["name"] in done.stdout for state in states)
    assert "passed / tried" in done.stdout and "0 / 0" in done.stdout
    assert "simulated" in done.stdout and " measured" not in done.stdout


def test_a_name_that_is_too_long(asked: Ask, tmp_path: Path) -> None:
    done = asked("optimize", EXAMPLES / "softmax.py", "--run", tmp_path / ("a" * 300))
    assert_one_clear_line(done, "too long")


@pytest.mark.parametrize("name", ["show", "stats", "reindex"])
def test_looking_at_a_knowledge_base_that_is_not_there_makes_none(
    asked: Ask, tmp_path: Path, name: str
) -> None:
    done = asked("kb", name, "--kb", tmp_path / "typo")
    assert_one_clear_line(done, "typo")
    assert not (tmp_path / "typo").exists()


def test_a_run_directory_that_is_a_file(asked: Ask, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    done = asked("optimize", EXAMPLES / "softmax.py", "--run", tmp_path / "run")
    assert_one_clear_line(done, "is a file")
    assert (tmp_path / "run").read_text() == "mine"


def test_damaged_checkpoints(asked: Ask, tmp_path: Path) -> None:
    run = tmp_path / "run"
    Asked.of(task=str(EXAMPLES / "softmax.py"), device="simulated").session(run).close()
    (run / "checkpoints.sqlite").write_text("this is no database, but long enough to look at" * 9)
    assert_one_clear_line(asked("resume", run), "checkpoints.sqlite", "damaged")


NO_KERNELS = {
    "no launch": (b'#include "task.cuh"\n__global__ void k() {}\n', "does not define"),
    "wrong arguments": (
        b'#include "task.cuh"\nextern "C" void launch(float* out0, cudaStream_t s) {}\n',
        "wrong signature",
    ),
    "wrong return type": (
        b'#include "task.cuh"\nextern "C" int launch(float* out0, const float* x, '
        b"void* workspace, cudaStream_t stream) { return 0; }\n",
        "wrong signature",
    ),
    "empty": (b"", "is empty"),
    "binary": (bytes(range(128, 256)) * 8, "not a text file"),
    "50 MB": (b"a" * 50_000_000, "50,000,000 bytes"),
}


@pytest.mark.parametrize("name", NO_KERNELS)
def test_a_file_that_is_no_kernel_of_the_task(asked: Ask, tmp_path: Path, name: str) -> None:
    content, words = NO_KERNELS[name]
    (tmp_path / "kernel.cu").write_bytes(content)
    done = asked(
        "evaluate", tmp_path / "kernel.cu", "--task", EXAMPLES / "row_sum.py", "--device",
        "simulated",
    )  # fmt: skip
    assert_one_clear_line(done, "kernel.cu", words)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--gpus", "x"], "--gpus 'x': write numbers"),
        (["--gpus", ""], "--gpus '': write numbers"),
        (["--gpus", "1,1"], "each GPU once"),
        (["--gpus", "0", "--device", "simulated"], "not with simulated"),
        (["--device", "cuda:"], "unknown device"),
    ],
)
def test_gpus_that_cannot_be_meant(
    asked: Ask, tmp_path: Path, flags: list[str], words: str
) -> None:
    done = asked(
        "optimize", EXAMPLES / "row_sum.py", "--run", tmp_path / "run", *flags
    )
    assert_one_clear_line(done, words)
