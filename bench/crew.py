"""Who does the runs of a bench: processes of its own, so that none takes another with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..harness.errors import UserError
from .one_run import Unfinished
from .records import Ended, PlannedRun

Watch = Callable[[dict[str, Any]], None]
WORKER = (sys.executable, "-m", "kernelblaster.bench.worker")
_LONGEST_LINE = 64 << 20


class Died(Exception):
    """The process ended in the middle of a run; says how."""


class Worker(Protocol):
    """Does one run at a time."""

    async def do(self, run: PlannedRun, watch: Watch) -> Ended:
        """Do a run to its end.

        Raises:
            Unfinished: it was stopped, with its place saved.
            Died: the worker is gone; it can be asked again.
            UserError: the bench's directory cannot be written.
        """
        ...

    def stop(self) -> None:
        """Have the run under way stop after its step."""
        ...

    async def close(self) -> None:
        """End it."""
        ...


class ProcessWorker:
    """A worker in a process of its own, which is started when there is something to do."""

    def __init__(
        self,
        directory: Path,
        log: Path,
        gpu: int | None = None,
        command: Sequence[str] = (),
        *,
        threads: int | None = None,
    ) -> None:
        """Prepare it.

        Args:
            directory: of the bench.
            log: file that takes what the process says beside its answers.
            gpu: the one GPU that the process is to see; None: those that this one sees.
            command: what is started, before the directory; by default WORKER.
            threads: of PyTorch on the CPU, in this process and in those that it starts, unless
                OMP_NUM_THREADS says it; None: as many as there are cores.
        """
        self._directory, self._log, self._command = directory, log, command or WORKER
        self._environment = dict(os.environ)
        if gpu is not None:
            self._environment["CUDA_VISIBLE_DEVICES"] = _visible(gpu)
        if threads is not None:
            self._environment.setdefault("OMP_NUM_THREADS", str(threads))
        self._process: asyncio.subprocess.Process | None = None

    async def do(self, run: PlannedRun, watch: Watch) -> Ended:
        """Do a run to its end; see `Worker`."""
        process = await self._started()
        assert process.stdout is not None
        try:
            self._tell(process, {"run": run.model_dump(mode="json")})
            while line := await process.stdout.readline():
                said = json.loads(line)
                if "event" in said:
                    watch(said["event"])
                elif "ended" in said:
                    return Ended.model_validate(said["ended"])
                elif "unfinished" in said:
                    raise Unfinished(said["unfinished"])
                else:
                    raise UserError(said["refused"])
        except ConnectionError:
            pass
        self._process = None
        raise Died(f"its process ended with {await process.wait()} (its words: {self._log})")

    def stop(self) -> None:
        """Have the run under way stop after its step."""
        if self._process is not None:
            with contextlib.suppress(ConnectionError):
                self._tell(self._process, {"stop": True})

    async def close(self) -> None:
        """End the process; a run that is under way in it is left where it stands."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            with self._log.open("ab") as log:
                # A session of its own: Ctrl-C reaches the bench, which has its runs stop in order.
                self._process = await asyncio.create_subprocess_exec(
                    *self._command, str(self._directory),
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                    env=self._environment, start_new_session=True, limit=_LONGEST_LINE,
                )  # fmt: skip
        return self._process

    @staticmethod
    def _tell(process: asyncio.subprocess.Process, words: dict[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(words).encode() + b"\n")


def _visible(gpu: int) -> str:
    """Return the name of the `gpu`th of the GPUs that this process sees."""
    seen = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip()]
    if not seen:
        return str(gpu)
    if gpu >= len(seen):
        raise UserError(f"--gpus {gpu}: CUDA_VISIBLE_DEVICES shows {len(seen)} GPUs")
    return seen[gpu].strip()
