"""Why a run stops with its place saved: a cap is reached, or a model cannot be asked."""

from __future__ import annotations

from typing import ClassVar


class Paused(Exception):
    """The run cannot go on now; when it is resumed, what was not done is tried once more."""

    outcome: ClassVar[str]
    """What it is called in an interrupt and in JSON."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """What stands in the way, and how to go on."""


class BudgetReached(Paused):
    """A cap of the run is reached: which, how much is used, and how to raise it."""

    outcome = "budget_reached"

    def __init__(self, reason: str, cap: str, told: str = "") -> None:
        super().__init__(reason)
        self.cap = cap
        """What raises it: max_tokens, max_money, ..."""
        self.told = told or reason
        """Which cap and how much is used, without how to go on."""


class ModelUnavailable(Paused):
    """A model's endpoint cannot be reached or refuses the key."""

    outcome = "model_unavailable"


PAUSES: tuple[type[Paused], ...] = (BudgetReached, ModelUnavailable)
