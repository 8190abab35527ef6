"""Module-level integers of a reference: found, replaced, shrunk."""

from __future__ import annotations

import ast

from hypothesis import given
from hypothesis import strategies as st

from kernelblaster.harness.task.dimensions import (
    module_integers,
    shrunk,
    shrunk_apart,
    with_dimensions,
)

SOURCE = """
A = 4096
B: int = 2 * 1024 + 1
C = D = 16
E, F = 1 << 4, -3
G = A * 2
H = 1
H = 2
I = 5
I += 1
J = True
K = 2.5
L, M = f()
N = "x"
O = 7 // 0
def f():
    P = 9
"""


def test_integers_set_once_are_found() -> None:
    assert module_integers(ast.parse(SOURCE)) == {
        "A": 4096, "B": 2049, "C": 16, "D": 16, "E": 16, "F": -3,
    }  # fmt: skip


def test_values_are_replaced_and_others_follow() -> None:
    source = "A = 4096\nB, C = 2, 3\nD = A * B\nE = F = 8\n"
    tree = with_dimensions(ast.parse(source), {"A": 5, "C": 7, "F": 1})
    names: dict[str, int] = {}
    exec(compile(tree, "x", "exec"), names)
    assert {name: names[name] for name in "ABCDEF"} == {
        "A": 5, "B": 2, "C": 7, "D": 10, "E": 8, "F": 1,
    }  # fmt: skip


def test_shrunk_keeps_small_values_and_remainders() -> None:
    assert [shrunk(v) for v in (1, 128, 160, 161, 255, 256, 4096, 4097, 4099)] == [
        1, 128, 160, 161, 255, 128, 128, 129, 131,
    ]  # fmt: skip


@given(st.dictionaries(st.sampled_from("ABCDEF"), st.integers(1, 1 << 20), min_size=1),
       st.sampled_from([128, 64, 32, 16]))  # fmt: skip
def test_shrinking_apart_keeps_equality_and_alignment(values: dict[str, int], base: int) -> None:
    small = shrunk_apart(values, base)
    for a in values:
        assert 1 <= small[a] <= values[a]
        for b in values:
            if values[a] == values[b]:
                assert small[a] == small[b]
            elif max(values[a], values[b]) > 8 * base:
                assert small[a] != small[b]
        if small[a] != values[a]:
            assert small[a] % base == values[a] % base
