"""What was proposed before stays on the table as long as it can act on the kernel at hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kernelblaster.nodes.optimization_proposer.kept import still_on


def test_what_cannot_act_on_the_file_any_more_leaves_the_table() -> None:
    asked: list[str] = []

    def beliefs(where: Any, names: list[str], context: Any, at: int) -> list[Any]:
        asked.extend(names)
        return [SimpleNamespace(settings=()) for _ in names]

    refused = {"fast_math": "tried"}
    table: Any = SimpleNamespace(
        refusal=refused.get, unfit={"vectorize_memory_access": "its accesses are wide"},
        kernels=("k",), where=None, aimed=lambda aims: aims,
    )  # fmt: skip
    names = ("fast_math", "vectorize_memory_access", "split_k")
    kept: Any = [SimpleNamespace(technique=n, optimization=None, launch=None) for n in names]
    knowledge: Any = SimpleNamespace(beliefs=beliefs)
    assert still_on(table, kept, knowledge, 0) == ()
    assert asked == ["split_k"]
