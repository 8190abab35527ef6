"""What a run works with, opened once: its directory, its stores, its device, what it knows.

Nodes of a run, on the command line as on a server, share one opened run: they ask `open_runs()`
for it, which keeps the few that were used last and closes the others.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..harness.devices.protocol import Device
from ..harness.devices.registry import open_device
from ..harness.errors import UserError
from ..harness.records.evaluations import DeviceIdentity, Evaluation
from ..harness.records.tasks import Task
from ..memory.knowledge.ablation import ReadAlone, open_under
from ..memory.knowledge.directory import prepare
from ..memory.knowledge.knowledge_base import KnowledgeBase
from ..memory.records.ablation import WHOLE, Ablation
from ..memory.run.artifacts import ArtifactStore
from ..memory.run.directory import ARTIFACTS, RunDirectory, reference_seconds_of
from ..memory.run.run_store import RunStore
from ..memory.run.shared_stages import SharedStages
from .evaluation.evaluator import Evaluator
from .models.asking import Asker, Questions
from .models.records import ModelPlan
from .techniques.catalogue import knowledge_seed

KEPT_OPEN = 8
"""Runs that nobody works on at the moment and that stay open: those used last."""


class Workspace:
    """A run held by this process: artifacts, run.sqlite, the knowledge base and the device."""

    def __init__(
        self,
        held: RunDirectory,
        device: str,
        gpu: str,
        knowledge: str,
        ablation: Ablation = WHOLE,
    ) -> None:
        """Open all of a run whose directory is held.

        Raises:
            UserError: unknown device or GPU, a directory that cannot be written, or a knowledge
                base of another program or version.
        """
        self.held = held
        self.directory = held.path
        self.artifacts = ArtifactStore(self.directory / ARTIFACTS)
        self.device: Device = open_device(device, gpu)
        self.knowledge = open_under(ablation, Path(knowledge), knowledge_seed())
        try:
            self.store = RunStore(self.directory / "run.sqlite")
            # Between two openings nobody worked on it: a graph waited, or its process was gone.
            self.store.ledger.sit_down()
        except BaseException:
            self.knowledge.close()
            raise
        self.evaluator = Evaluator(
            self.device, self.store, with_counters=ablation.counters,
            shared=None if ablation.fresh else _shared_stages(self.directory, ablation.shared),
            charged=bool(ablation.shared),
        )  # fmt: skip
        """The gates, with what this run and others measured for a memory."""
        self._tasks: dict[str, Task] = {}
        self._questions = Questions()

    def task(self, artifact: str) -> Task:
        """Return the task stored under an artifact's sha256, with the time that PyTorch has now."""
        if artifact not in self._tasks:
            text = self.artifacts.get_text(artifact)
            self._tasks[artifact] = Task.model_validate_json(text)
        task, seconds = self._tasks[artifact], reference_seconds_of(self.directory)
        return task.model_copy(update={"reference_seconds": seconds}) if seconds else task

    def evaluation(self, key: str) -> Evaluation:
        """Return a stored evaluation.

        Raises:
            UserError: there is none under this key.
        """
        found = self.store.get(key)
        if found is None:
            raise UserError(
                f"{self.directory}/run.sqlite holds no evaluation {key[:12]}; the run directory is "
                "incomplete: restore it, or start a new run"
            )
        return found

    @property
    def measured_by(self) -> DeviceIdentity:
        """The device that the run's numbers come from: another host's, where a result did."""
        here = self.device.identity
        return (here.kind == "deferred" and self.store.jobs.measured_by()) or here

    def asker(self, models: ModelPlan) -> Asker:
        """Return who asks this run's models, under its budgets and with its ledger."""
        return Asker(models, self.directory, self.store, self.artifacts, self._questions)

    def close(self) -> None:
        """Close the databases and let the directory go."""
        self.knowledge.close()
        self.store.close()
        self.held.close()


def _shared_stages(directory: Path, folder: str) -> SharedStages:
    return SharedStages((directory / folder).resolve() if folder else None)


class OpenRuns:
    """The runs that this process has open, by directory. Safe under threads."""

    def __init__(self) -> None:
        self._guard = threading.RLock()
        self._open: dict[Path, Workspace] = {}
        self._users: dict[Path, int] = {}
        self._begun: set[Path] = set()
        """Made by a session whose graph has not yet begun."""
        self._abandoned: set[Path] = set()
        """Whose graph was cancelled while a thread worked on: closed when that ends."""

    @contextmanager
    def using(
        self,
        directory: Path,
        device: str,
        gpu: str,
        knowledge: str,
        ablation: Ablation = WHOLE,
    ) -> Iterator[Workspace]:
        """Give the opened run; it stays open while it is used, and until others need the room.

        Raises:
            UserError: another process holds the directory, or something cannot be opened.
        """
        with self._guard:
            found = self._open.pop(directory, None) or self._opened(
                directory, device, gpu, knowledge, ablation
            )
            self._open[directory] = found  # The newest stand last.
            self._users[directory] = self._users.get(directory, 0) + 1
        try:
            yield found
        except BaseException:
            with self._guard:
                self._leave(directory)
                self.finished(directory)  # Stopped: another process may go on.
            raise
        else:
            with self._guard:
                self._leave(directory)

    @contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Let nobody else of this process open or make a run meanwhile."""
        with self._guard:
            yield

    def keep(
        self,
        held: RunDirectory,
        device: str,
        gpu: str,
        knowledge: str,
        ablation: Ablation = WHOLE,
        *,
        until_released: bool,
    ) -> None:
        """Open a run whose directory was just made or taken, as if it had just been used.

        Args:
            until_released: keep it open until `release` is called, used or not; `begun` says once
                that it is.
        """
        with self._guard:
            self._make_room()
            self._open[held.path] = Workspace(held, device, gpu, knowledge, ablation)
            self._users[held.path] = int(until_released)
            if until_released:
                self._begun.add(held.path)

    def begun(self, directory: Path) -> bool:
        """Say whether a session has made or taken this directory for the graph that asks; once."""
        with self._guard:
            found = directory in self._begun
            self._begun.discard(directory)
            return found

    def has(self, directory: Path) -> bool:
        """Say whether a directory is held here."""
        return directory in self._open

    def release(self, directory: Path) -> None:
        """Close a run that was kept; harmless where it is not open."""
        with self._guard:
            opened = self._open.pop(directory, None)
            self._users.pop(directory, None)
            self._begun.discard(directory)
            self._abandoned.discard(directory)
        if opened is not None:
            opened.close()

    def finished(self, directory: Path) -> None:
        """Close a run that ended or waits, unless somebody uses it or keeps it open."""
        with self._guard:
            if self._users.get(directory) == 0:
                self.release(directory)

    def abandon(self, directory: Path) -> None:
        """Close a run whose graph was cancelled, as soon as no thread works on it any more."""
        with self._guard:
            if directory in self._open:
                self._abandoned.add(directory)
                self._leave(directory, users=0)

    def discard(self, directory: Path) -> None:
        """Close a run that came to nothing, and remove the directory that was made for it."""
        with self._guard:
            opened = self._open.get(directory)
            if opened is not None:
                opened.held.remove()
            self.release(directory)

    def _opened(
        self, directory: Path, device: str, gpu: str, knowledge: str, ablation: Ablation
    ) -> Workspace:
        self._make_room()
        held = RunDirectory.hold(directory)
        try:
            return Workspace(held, device, gpu, knowledge, ablation)
        except BaseException:
            held.close()
            raise

    def _make_room(self) -> None:
        idle = [path for path in self._open if not self._users[path]]
        for path in idle[: max(0, len(idle) + 1 - KEPT_OPEN)]:
            self.release(path)

    def _leave(self, directory: Path, users: int = 1) -> None:
        if directory not in self._users:  # It may have been released meanwhile.
            return
        self._users[directory] -= users
        if directory in self._abandoned and not self._users[directory]:
            self.release(directory)


@functools.cache
def open_runs() -> OpenRuns:
    """Return this process' opened runs."""
    return OpenRuns()


@contextmanager
def open_knowledge(directory: str, create: bool = True) -> Iterator[KnowledgeBase]:
    """Open the knowledge base, made on first use unless `create` is False; close it afterwards.

    Raises:
        UserError: the directory belongs to another program or version, or there is none.
    """
    with KnowledgeBase.open(Path(directory), knowledge_seed(), create) as knowledge:
        yield knowledge


@contextmanager
def read_knowledge(directory: str) -> Iterator[KnowledgeBase]:
    """Open a knowledge base that is only read, as one that cannot be written to can be.

    Raises:
        UserError: the directory belongs to another program or version, or there is none.
    """
    prepare(Path(directory), create=False)
    with ReadAlone(Path(directory), knowledge_seed()) as knowledge:
        yield knowledge
