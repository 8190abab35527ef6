"""Ask a model for one role, within the budgets, paying for no call twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from ..memory.artifacts import ArtifactStore
from ..memory.run_store import RunStore
from .model_records import Answer, Message, ModelPlan, Role

Reply = TypeVar("Reply", bound=BaseModel)
Value = TypeVar("Value")


class MalformedReply(ValueError):
    """A reply that cannot be used; its text goes back to the model as the reason to ask again."""


class BudgetReached(Exception):
    """A cap of the run is reached: which, how much is used, and how to raise it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Asker:
    """Built by Workspace.asker(models)."""

    def __init__(
        self, models: ModelPlan, directory: Path, store: RunStore, artifacts: ArtifactStore
    ) -> None:
        self.models = models

    async def structured(
        self,
        role: Role,
        place: tuple[int | str, ...],
        messages: Sequence[Message],
        reply: type[Reply],
    ) -> Answer[Reply]:
        raise NotImplementedError

    async def text(
        self,
        role: Role,
        place: tuple[int | str, ...],
        messages: Sequence[Message],
        read: Callable[[str], Value],
    ) -> Answer[Value]:
        raise NotImplementedError
