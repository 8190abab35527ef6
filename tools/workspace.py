"""Open what a node works with: the run's stores, its device and the knowledge base."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..harness.devices.protocol import Device
from ..harness.devices.registry import open_device
from ..harness.records import DeviceIdentity, Task
from ..memory.knowledge.knowledge_base import KnowledgeBase
from ..memory.run.artifacts import ArtifactStore
from ..memory.run.run_store import RunStore
from .models.asking import Asker
from .models.records import ModelPlan
from .techniques.catalogue import knowledge_seed


class Workspace:
    """The open run directory: artifacts, run.sqlite and the device. Cheap to open; close it."""

    def __init__(self, run_directory: Path, device: str, gpu: str) -> None:
        self.directory = run_directory
        self.artifacts = ArtifactStore(run_directory / "artifacts")
        self.store = RunStore(run_directory / "run.sqlite")
        self.device: Device = open_device(device, gpu)

    def task(self, artifact: str) -> Task:
        """Return the task stored under an artifact's sha256."""
        return Task.model_validate_json(self.artifacts.get_text(artifact))

    @property
    def measured_by(self) -> DeviceIdentity:
        """The device that the run's numbers come from: another host's, where a result did."""
        return self.store.jobs.measured_by() or self.device.identity

    def asker(self, models: ModelPlan) -> Asker:
        """Return who asks this run's models, under its budgets and with its ledger."""
        return Asker(models, self.directory, self.store, self.artifacts)

    def close(self) -> None:
        """Close the database."""
        self.store.close()


@contextmanager
def open_workspace(run_directory: str, device: str, gpu: str) -> Iterator[Workspace]:
    """Open the workspace of a run and close it afterwards.

    Raises:
        UserError: unknown device or GPU, or the directory cannot be written.
    """
    workspace = Workspace(Path(run_directory), device, gpu)
    try:
        yield workspace
    finally:
        workspace.close()


@contextmanager
def open_knowledge(directory: str, create: bool = True) -> Iterator[KnowledgeBase]:
    """Open the knowledge base, made on first use unless `create` is False; close it afterwards.

    Raises:
        UserError: the directory belongs to another program or version, or there is none.
    """
    knowledge = KnowledgeBase.open(Path(directory), knowledge_seed(), create)
    try:
        yield knowledge
    finally:
        knowledge.close()
