"""Which kernel is confirmed next: after a wrong one not all that were made of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kernelblaster.memory.records.evidence import Step
from kernelblaster.nodes.common.history.steps import Way
from kernelblaster.nodes.run.ending.contenders import Contenders


def ways(times: Mapping[str, float]) -> dict[str, Way]:
    """Return ways to kernels that are named by their steps: `bs` was made of `b`."""

    def step(name: str) -> Step:
        return Step.model_construct(child_sha256=name, microseconds_after=times.get(name, 99.0))

    made = {name: tuple(step(name[: at + 1]) for at in range(len(name))) for name in times}
    return dict(sorted(made.items(), key=lambda each: times[each[0]]))


LINE = {"bsvc": 100.8, "bsv": 101.7, "bs": 102.7, "b": 103.4, "pb": 125.9, "p": 193.5}


def asked(times: Mapping[str, float], wrong: str, most: int = 9) -> tuple[list[str], list[str]]:
    """Return which kernels are asked for, and which steps are blamed.

    Those are wrong that were made by a step of `wrong`.
    """
    by_name = ways(times)
    names = {id(way): name for name, way in by_name.items()}
    contenders, found = Contenders(list(by_name.values())), []
    while len(found) < most and (way := contenders.next()) is not None:
        found.append(names[id(way)])
        if set(found[-1]) & set(wrong):
            contenders.is_wrong(way, "wrong")
        else:
            contenders.holds(way)
    return found, [names[id(way)] for way, _ in contenders.blamed()]


@pytest.mark.parametrize(
    ("wrong", "tried", "blamed"),
    [
        ("", ["bsvc"], []),
        ("s", ["bsvc", "bs", "b"], ["bs"]),
        ("b", ["bsvc", "bs", "b", "pb", "p"], ["b", "pb"]),
        # What lies between is no faster, as far as is told apart: nobody knows which step it was.
        ("v", ["bsvc", "bs"], []),
        ("bp", ["bsvc", "bs", "b", "pb", "p"], ["b", "p"]),
    ],
)
def test_the_way_to_a_wrong_kernel_is_halved(
    wrong: str, tried: list[str], blamed: list[str]
) -> None:
    assert asked(LINE, wrong) == (tried, blamed)


def test_what_lies_between_is_tried_where_it_is_faster() -> None:
    times = {"bsvc": 50.0, "bsv": 60.0, "bs": 100.0, "b": 110.0}
    assert asked(times, "c") == (["bsvc", "bs", "bsv"], ["bsvc"])
    assert asked(times, "v") == (["bsvc", "bs", "bsv"], ["bsv"])


def test_each_is_asked_for_once_and_none_that_was_made_of_a_wrong_one() -> None:
    times = {"abcd": 1.0, "abce": 1.1, "ab": 2.0, "abf": 2.5, "a": 3.0, "g": 4.0}
    found, blamed = asked(times, "a")
    assert found == ["abcd", "ab", "a", "g"] and blamed == ["a"]
