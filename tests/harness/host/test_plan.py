"""A plan by itself: addresses in bytes, clusters, and what no copy may reach."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelblaster.harness.host.plan import (
    Content,
    Place,
    Plan,
    PlannedLaunch,
    PlannedTransfer,
    variable,
    variable_name,
)

ROWS = PlannedTransfer(
    True, 0, Place("a", 100), 50, Place("b", 0), 70, width=10, height=3, content=Content("")
)
"""Ends at 210 in a, at 150 in b."""
POINTS = Content("00" * 16, ((8, Place("c", -4)),))
LAUNCH = PlannedLaunch("k", (1, 1, 1), (32, 1, 1), 0, (), (POINTS,))


def test_addresses_are_put_where_the_buffers_lie() -> None:
    wanted = bytes(8) + (0x1234 - 4).to_bytes(8, "little")
    assert POINTS.at({"c": 0x1234}) == wanted
    between = Content("11" * 24, ((8, Place("c", 0)),)).at({"c": 0x1234})
    assert between == b"\x11" * 8 + (0x1234).to_bytes(8, "little") + b"\x11" * 8
    assert POINTS.at({"c": 0})[8:] == (2**64 - 4).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("attributes", "cluster"),
    [((), 1), (((4, (2, 3, 2)),), 12), (((4, (2, 0, 0)),), 2), (((4, (0, 2, 2)),), 1),
     (((6, (5, 1, 1)),), 1)],
)  # fmt: skip
def test_blocks_of_a_cluster(
    attributes: tuple[tuple[int, tuple[int, int, int]], ...], cluster: int
) -> None:
    assert replace(LAUNCH, attributes=attributes).cluster == cluster


@pytest.mark.parametrize(
    ("a", "b", "fine"), [(210, 150, True), (209, 150, False), (210, 149, False)]
)
def test_copies_stay_inside_their_buffers(a: int, b: int, fine: bool) -> None:
    plan = Plan((ROWS, LAUNCH), 0, {}, 0.0)
    plan.require_inside({"a": 210})
    if fine:
        plan.require_inside({"a": a, "b": b})
    else:
        with pytest.raises(ValueError, match="outside [ab]"):
            plan.require_inside({"a": a, "b": b})


def test_every_place_is_told() -> None:
    filled = replace(ROWS, source=None, content=POINTS)
    found = Plan((ROWS, LAUNCH, filled), 0, {}, 0.0)
    assert [place.buffer for place in found.places()] == ["a", "b", "c", "a", "c"]
    assert found.launches == [LAUNCH]
    assert variable_name(variable("v")) == "v" and variable_name("v") is None
