"""Which members of a family run each time, and which by `pytest -m seldom` alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import pytest

Member = TypeVar("Member")

left_out = False
"""Whether what runs seldom is not even made a test: most of what a run collected was that."""


def _one_family(_: object) -> str:
    return "all"


def _none(_: object) -> bool:
    return False


def every(
    nth: int,
    members: Iterable[Member],
    family: Callable[[Member], Hashable] = _one_family,
    always: Callable[[Member], bool] = _none,
) -> list[Any]:
    """Return a parameter for each member.

    Of each family the first, every nth after it and those that `always` names run each time; the
    others are marked `seldom`, or left out where none of those is asked for. A member that is a
    tuple is one of several parameters.
    """
    seen: Counter[Hashable] = Counter()
    found = []
    for member in members:
        place = seen[family(member)]
        seen[family(member)] += 1
        often = place % nth == 0 or always(member)
        if left_out and not often:
            continue
        values = member if isinstance(member, tuple) else (member,)
        found.append(pytest.param(*values, marks=() if often else pytest.mark.seldom))
    return found
