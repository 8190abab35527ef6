"""What every test shares: strict checkpoints, a knowledge base and runs of its own."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import often_or_seldom
import pytest
from hypothesis import settings

os.environ["LANGGRAPH_STRICT_MSGPACK"] = "true"
os.environ["LANGSMITH_TRACING"] = "false"
# A device that a test makes up may say another thing of the same source than the next test's.
os.environ["KERNELBLASTER_FRESH"] = "1"
# A process a core runs tests, and each starts others: with as many threads as cores in each of them
# a test of what PyTorch answers took twice the processor's time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No test fails for being slow on a busy machine, and none by what is drawn this time and not the
# next: `pytest --hypothesis-profile=drawn` looks for more.
settings.register_profile("alike", deadline=None, derandomize=True)
settings.register_profile("drawn", deadline=None)
settings.load_profile("alike")


def pytest_xdist_auto_num_workers() -> int:
    """Return one process more than there are cores: some tests wait for servers and kills."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_configure(config: pytest.Config) -> None:
    """Have no members of families made that would be left out one by one."""
    often_or_seldom.left_out = config.option.markexpr == "not seldom"
    # What is made until all tests are collected stays: nothing of it is worth looking through.
    gc.disable()


def pytest_collection_finish() -> None:
    """Have no collection of garbage look again through all tests and all that they import."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's knowledge base and runs out of the tests."""
    monkeypatch.setenv("KERNELBLASTER_KB", str(tmp_path / "knowledge"))
    monkeypatch.setenv("KERNELBLASTER_RUNS", str(tmp_path / "runs"))


@pytest.fixture(autouse=True)
def runs_closed() -> Iterator[None]:
    """Close what a test left open, so that no test counts or holds another's runs."""
    yield
    if (workspace := sys.modules.get("kernelblaster.tools.workspace")) is not None:
        for directory in list(workspace.open_runs()._open):
            workspace.open_runs().release(directory)
