"""A worker of a bench is a process with an environment of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernelblaster.bench.crew import ProcessWorker
from kernelblaster.bench.records import PlannedRun
from kernelblaster.harness.errors import UserError

SAYS_ITS_THREADS = """
import json, os, sys
sys.stdin.readline()
print(json.dumps({"refused": os.environ.get("OMP_NUM_THREADS", "all")}), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("threads", "asked_for", "has"),
    [(3, None, "3"), (None, None, "all"), (3, "5", "5")],
)
async def test_cores_are_shared_out_unless_somebody_said_how_many(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    threads: int | None,
    asked_for: str | None,
    has: str,
) -> None:
    if asked_for is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", asked_for)
    command = (sys.executable, "-c", SAYS_ITS_THREADS)
    worker = ProcessWorker(tmp_path, tmp_path / "log", command=command, threads=threads)
    run = PlannedRun.model_construct(task="a")
    with pytest.raises(UserError, match=f"^{has}$"):
        await worker.do(run, lambda event: None)
    await worker.close()
