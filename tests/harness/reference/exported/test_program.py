"""The class of a task by its program's operations."""

from __future__ import annotations

import pytest

from kernelblaster.harness.reference.exported.program import op_class


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (("linear",), "matmul"),
        (("linear", "addmm", "gelu"), "matmul"),
        (("softmax",), "softmax"),
        (("layer_norm",), "normalization"),
        (("linear", "softmax"), "mixed"),
        (("linear", "sum"), "mixed"),
    ],
)
def test_one_kind_of_heavy_operation_names_the_class(names: tuple[str, ...], wanted: str) -> None:
    nodes = [{"name": name, "op": f"aten.{name}.default", "shape": [4]} for name in names]
    assert op_class({"nodes": nodes, "outputs": [names[-1]]}, []) == wanted
