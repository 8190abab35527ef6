"""An agent's tools for one task and one GPU, with what they work with opened when it is needed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from langchain_core.tools import BaseTool

from ...harness.devices.protocol import Device
from ...harness.devices.registry import open_device
from ...harness.errors import UserError
from ...harness.process.scratch import scratch_folder
from ...harness.records.readings import AS_WRITTEN, Reading
from ...harness.task.loading import load_task_now
from ...memory.knowledge.knowledge_base import KnowledgeBase
from ...memory.run.artifacts import ArtifactStore
from ...memory.run.directory import ARTIFACTS
from ...memory.run.run_store import RunStore
from ..evaluation.evaluator import Evaluator
from ..techniques.catalogue import knowledge_seed
from .desk import Desk
from .langchain import desk_tools


class AgentTools(list[BaseTool]):
    """Tools for one task: a list, as agents and `bind_tools` take it. Close it when all is done.

    As a context manager it closes itself.
    """

    def __init__(self, opening: Opening, others: Iterable[BaseTool] = ()) -> None:
        """Take what the tools work with; `others` are tools that need nothing of it."""
        super().__init__([*desk_tools(opening.desk), *others])
        self._opening = opening

    def close(self) -> None:
        """Close files and folders; a tool that is called afterwards says so."""
        self._opening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Opening:
    """What tools work with, opened on first use, once. Safe under threads and event loops.

    What is measured is kept until it is closed, and the knowledge base is read, not written: what
    an agent tries by hand is no evidence.

    Raises:
        UserError: no such task or device, or a device that answers elsewhere.
    """

    def __init__(
        self,
        task: Path,
        device: str,
        gpu: str,
        dimensions: Mapping[str, int],
        knowledge: Path,
        reading: Reading = AS_WRITTEN,
        reference_seconds: float | None = None,
    ) -> None:
        if not task.is_file():
            raise UserError(f"{task}: no such file; give the path of a PyTorch reference")
        self._device: Device = open_device(device, gpu)
        if self._device.identity.kind == "deferred":
            raise UserError(
                f"device {device} answers on another host, later: an agent's tools need one that "
                "answers here (cuda or simulated)"
            )
        self._task, self._dimensions, self._knowledge = task, dict(dimensions), knowledge
        self._reading, self._seconds = reading, reference_seconds
        self._guard = threading.RLock()
        self._opened = contextlib.ExitStack()
        self._desk: Desk | None = None
        self._known: KnowledgeBase | None = None
        self._closed = False

    async def desk(self) -> Desk:
        """Return the desk; the first call loads the task with PyTorch.

        Raises:
            UserError: the task cannot be used, or it is closed.
        """
        return await asyncio.to_thread(self._desk_now)

    def close(self) -> None:
        """Close all that was opened; harmless when it is closed already."""
        with self._guard:
            self._closed, self._desk, self._known = True, None, None
            self._opened.close()

    def _desk_now(self) -> Desk:
        with self._guard:
            self._require_open()
            if self._desk is None:
                task = load_task_now(
                    self._task, self._dimensions, self._reading, seconds=self._seconds
                )
                folder = self._opened.enter_context(scratch_folder("agent"))
                store = self._opened.enter_context(RunStore(folder / "run.sqlite"))
                self._desk = Desk(
                    task,
                    Evaluator(self._device, store),
                    ArtifactStore(folder / ARTIFACTS),
                    self._knowledge_now,
                    self._device.identity,
                )
            return self._desk

    def _knowledge_now(self) -> KnowledgeBase:
        with self._guard:
            self._require_open()
            if self._known is None:
                self._known = self._opened.enter_context(
                    KnowledgeBase.open(self._knowledge, knowledge_seed())
                )
            return self._known

    def _require_open(self) -> None:
        if self._closed:
            raise UserError("these tools are closed; make new ones")
