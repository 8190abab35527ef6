"""What norms of batches change beside their result: the running mean and variance they keep.

ATen's schema does not say that batch_norm and instance_norm overwrite these, so that a program has
no operation for it: here it gets some. Those that nothing reads are left out like others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ....harness.records.programs import Program, ProgramNode
from ....harness.records.tensors import TensorSpec

_NORMS = ("aten.batch_norm.default", "aten.instance_norm.default")


def with_running(program: Program, tensors: Sequence[TensorSpec]) -> Program:
    """Return a program in which updates of running means and variances are operations.

    Args:
        program: the reference, as it was exported.
        tensors: what launch is given, whose names an operation cannot have.
    """
    taken = {node.name for node in program.nodes} | {tensor.name for tensor in tensors}
    nodes: list[ProgramNode] = []
    for node in program.nodes:
        nodes += [node, *_updates(node, taken)]
    return program if len(nodes) == len(program.nodes) else (
        program.model_copy(update={"nodes": tuple(nodes)}))  # fmt: skip


def _updates(node: ProgramNode, taken: set[str]) -> Iterator[ProgramNode]:
    """Yield the operations that overwrite what a norm keeps, if it keeps anything."""
    if node.op not in _NORMS or len(node.args) < 7 or not node.args[5] or node.shape is None:
        return
    value, momentum = node.args[0], node.args[6]
    rank, alone = len(node.shape), "instance" in node.op
    axes = [axis for axis in range(rank) if axis > 1 or (axis == 0 and not alone)]
    dtype = "float64" if node.dtype == "float64" else "float32"

    def operation(title: str, op: str, *args: Any, shape: tuple[int, ...]) -> ProgramNode:
        name = f"{node.name}_{title}"
        while name in taken:
            name += "_"
        taken.add(name)
        return ProgramNode(name=name, op=op, args=args, shape=shape, dtype=dtype, line=node.line)

    channels = node.shape[1:2]
    for title, op, running in (
        ("mean", "aten.mean.dim", node.args[3]),
        ("var", "aten.var.dim", node.args[4]),
    ):
        if not isinstance(running, dict) or "ref" not in running:
            continue
        found = operation(title, op, value, axes, shape=node.shape[:2] if alone else channels)
        yield found
        if alone:  # Each sample has its own: what is kept is their mean.
            found = operation(
                f"{title}_of_all", "aten.mean.dim", {"ref": found.name}, [0], shape=channels
            )
            yield found
        yield operation(
            f"running_{title}", "aten.lerp_.Scalar", running, {"ref": found.name}, momentum,
            shape=channels,
        )  # fmt: skip
