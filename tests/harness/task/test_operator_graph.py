"""Operator graphs: what names a task's computation, and what of its sizes and names does not."""

from __future__ import annotations

from typing import Any

import pytest
from builtin_support import node, ref, task

from kernelblaster.harness.records.programs import Program
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.operator_graph import operator_graph


def made(rows: int, small: int, x: str = "x", **changes: Any) -> Task:
    """Returns x summed along an axis, reshaped, and scaled."""
    given = {"dim": [-1], "scale": 0.5, "op": "aten.sum.dim_IntList", "dtype": "float32"} | changes

    def nodes(count: int) -> list[Any]:
        return [
            node("view", "aten.view.default", [ref(x), [count, 2, 32]], (count, 2, 32)),
            node("total", given["op"], [ref("view"), given["dim"], True], (count, 2, 1)),
            node("scaled", "aten.mul.Tensor", [ref("total"), given["scale"]], (count, 2, 1)),
            node("part", "aten.slice.Tensor", [ref("scaled"), 0, 0, count], (count, 2, 1)),
        ]

    shapes = {x: ((rows, 64), (small, 64))}
    found = task("made", shapes, nodes(rows), {"part": ((rows, 2, 1), (small, 2, 1))})
    beside = Program(nodes=tuple(nodes(small)), outputs=("part",))
    return found.model_copy(update={"verify_program": beside, "dtype": given["dtype"]})


def test_sizes_names_and_types_are_no_part_of_a_graph() -> None:
    graph = operator_graph(made(4096, 32))
    assert graph.operators == ("mul", "slice", "sum", "view")
    for other in (made(8192, 32), made(4096, 16), made(4096, 32, x="values")):
        assert operator_graph(other) == graph
    assert operator_graph(made(4096, 32, dtype="float16")) == graph, "the type stands beside it"


@pytest.mark.parametrize(
    "changed", [{"dim": [1]}, {"scale": 0.25}, {"op": "aten.amax.default"}], ids=str
)
def test_whatever_changes_the_answer_changes_the_graph(changed: dict[str, Any]) -> None:
    assert operator_graph(made(4096, 32)).sha256 != operator_graph(made(4096, 32, **changed)).sha256


def test_ranks_and_what_feeds_what_are_part_of_a_graph() -> None:
    def product(left: str, right: str, leading: tuple[int, ...] = ()) -> str:
        shapes = {name: ((*leading, 64, 64), (*leading, 32, 32)) for name in ("a", "b")}
        nodes = [node("mm", "aten.matmul.default", [ref(left), ref(right)], (*leading, 64, 64))]
        return operator_graph(task("product", shapes, nodes, {"mm": shapes["a"]})).sha256

    assert len({product("a", "b"), product("b", "a"), product("a", "b", (4,))}) == 3


def test_a_reference_that_nobody_could_trace_has_none() -> None:
    untraced = made(64, 32).model_copy(update={"program": None})
    assert operator_graph(untraced).sha256 == "" and operator_graph(untraced).operators == ()
