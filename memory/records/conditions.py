"""What must be so of a kernel, in a form that a machine checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import model_validator

from ...harness.records.record import Record

Comparison = Literal["at_least", "at_most", "equals", "among", "lacks"]
Fact = float | str | frozenset[str]
"""What is known of a kernel under one name: a number, a word, or several words."""


class Condition(Record):
    """What must be so of a kernel, in a form that a machine checks."""

    feature: str
    """Name of a fact; `memory.knowledge.states.conditions` lists them."""
    comparison: Comparison
    """at_least and at_most compare numbers, equals a number or a word; among says that the fact (of
    several words, one at least) is one of the value's words, lacks that it is none."""
    value: float | str | tuple[str, ...]
    """What it is compared with."""

    @model_validator(mode="after")
    def _compares_what_it_can(self) -> Condition:
        kinds: dict[Comparison, tuple[type, ...]] = {
            "at_least": (float,), "at_most": (float,), "equals": (float, str),
            "among": (tuple,), "lacks": (tuple,),
        }  # fmt: skip
        if not isinstance(self.value, kinds[self.comparison]):
            raise ValueError(f"{self.comparison} cannot compare with {self.value!r}")
        return self

    def holds(self, facts: Mapping[str, Fact]) -> bool | None:
        """Say whether it is so of a kernel; None where the fact is not known, or of another kind
        than what it is compared with."""
        fact, value = facts.get(self.feature), self.value
        if fact is None:
            return None
        if isinstance(value, tuple):
            words = frozenset({fact}) if isinstance(fact, str) else fact
            if not isinstance(words, frozenset):
                return None
            return words.isdisjoint(value) == (self.comparison == "lacks")
        if isinstance(value, str) or not isinstance(fact, float | int):
            return fact == value if isinstance(fact, type(value)) else None
        if self.comparison == "at_least":
            return fact >= value
        return fact <= value if self.comparison == "at_most" else fact == value

    def __str__(self) -> str:
        """In words, for example `sm at least 0.6`."""
        value = self.value
        if isinstance(value, tuple):
            said = ", ".join(value)
        else:
            said = value if isinstance(value, str) else f"{value:g}"
        words = {"at_least": "at least", "at_most": "at most", "equals": "is",
                 "among": "has one of", "lacks": "has none of"}  # fmt: skip
        return f"{self.feature} {words[self.comparison]} {said}"
