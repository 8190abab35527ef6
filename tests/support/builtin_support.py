"""Tasks made by hand and by PyTorch for the tests of the built-in writer and the rewrites."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.programs import Program, ProgramNode
from kernelblaster.harness.records.tasks import Task, TaskVariant
from kernelblaster.harness.records.tensors import TensorSpec
from kernelblaster.harness.task.rules import TOLERANCES
from kernelblaster.tools.first_kernel.writer import InitialKernel, write_initial_cuda
from kernelblaster.tools.rewriting.records import Inapplicable, Rewritten
from kernelblaster.tools.techniques.catalogue import rewrites

Shape = tuple[int, ...]


def ref(name: str) -> dict[str, str]:
    """A reference to another value of the program."""
    return {"ref": name}


def node(name: str, op: str, args: list[Any], shape: Shape, **kwargs: Any) -> ProgramNode:
    """One ATen operation."""
    return ProgramNode(name=name, op=op, args=tuple(args), kwargs=kwargs, shape=shape)


def task(
    name: str,
    inputs: Mapping[str, tuple[Shape, Shape]],
    nodes: list[ProgramNode],
    outputs: Mapping[str, tuple[Shape, Shape]],
    dtype: str = "float32",
) -> Task:
    """A task without a reference file: shapes are (full, verify); outputs by the value's name."""
    variants = []
    for position, variant in enumerate(("full", "verify")):
        specs = [
            TensorSpec(name=f"out{index}", shape=shapes[position], dtype=dtype, role="output")
            for index, shapes in enumerate(outputs.values())
        ]
        specs += [
            TensorSpec(name=tensor, shape=shapes[position], dtype=dtype, role="input")
            for tensor, shapes in inputs.items()
        ]
        variants.append(TaskVariant(name=variant, dimensions={}, tensors=tuple(specs)))
    return Task(
        name=name, path="", reference_sha256="0" * 64, source="", op_class="mixed", dtype=dtype,
        tolerance=TOLERANCES[dtype], full=variants[0], verify=variants[1],
        program=Program(nodes=tuple(nodes), outputs=tuple(outputs)),
    )  # fmt: skip


ROWS = ((4096, 1024), (33, 40))


def softmax_task(columns: int = 1024) -> Task:
    """Softmax over the rows of x."""
    shapes = ((4096, columns), (33, 40))
    operation = node("softmax", "aten.softmax.int", [ref("x"), -1], shapes[0])
    return task("softmax", {"x": shapes}, [operation], {"softmax": shapes})


def gelu_task() -> Task:
    """GELU of every element of x."""
    operation = node("gelu", "aten.gelu.default", [ref("x")], ROWS[0])
    return task("gelu", {"x": ROWS}, [operation], {"gelu": ROWS})


def norm_task() -> Task:
    """Layer norm over the rows of x."""
    arguments = [ref("x"), [1024], ref("w"), ref("b"), 1e-5]
    operation = node("norm", "aten.layer_norm.default", arguments, ROWS[0])
    inputs = {"x": ROWS, "w": ((1024,), (40,)), "b": ((1024,), (40,))}
    return task("norm", inputs, [operation], {"norm": ROWS})


def product_task() -> Task:
    """The product of a and b."""
    operation = node("mm", "aten.mm.default", [ref("a"), ref("b")], (512, 384))
    inputs = {"a": ((512, 256), (33, 20)), "b": ((256, 384), (20, 50))}
    return task("product", inputs, [operation], {"mm": ((512, 384), (33, 50))})


def transpose_task() -> Task:
    """The transpose of x."""
    nodes = [
        node("t", "aten.t.default", [ref("x")], (1024, 4096)),
        node("copy", "aten.contiguous.default", [ref("t")], (1024, 4096)),
    ]
    return task("turn", {"x": ROWS}, nodes, {"copy": ((1024, 4096), (40, 33))})


def initial(made: Task) -> str:
    """The built-in initial CUDA of a task."""
    written = write_initial_cuda(made)
    assert isinstance(written, InitialKernel), written
    return written.source


def change(source: str, made: Task, technique: str, **parameters: int) -> str:
    """The source after one technique, which must apply."""
    outcome = attempt(source, made, technique, **parameters)
    assert isinstance(outcome, Rewritten), f"{technique}: {outcome.reason}"
    return outcome.source


def attempt(source: str, made: Task, technique: str, **parameters: int) -> Rewritten | Inapplicable:
    """What comes of one technique."""
    found = next(item for item in rewrites() if item.technique == technique)
    return found.apply(source, made, parameters)


def reference(folder: Path, name: str, body: str, constants: str) -> Path:
    """Write a reference file: `body` is the class Model and get_inputs."""
    path = folder / f"{name}.py"
    head = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"
    tail = "\n\ndef get_init_inputs():\n    return []\n"
    path.write_text(f"{head}{constants}\n\n\n{body}{tail}")
    return path


async def verified(device: SimulatedDevice, made: Task, source: str) -> StageResult:
    """Run the source on the simulated device, with all checks, against PyTorch."""
    return await device.verify(made, source)


async def written_and_verified(made: Task) -> None:
    """Require that the first kernel of a loaded task is written, and right on a simulated GPU."""
    written = write_initial_cuda(made)
    assert isinstance(written, InitialKernel), written
    device = SimulatedDevice("H100")
    try:
        result = await verified(device, made, written.source)
        assert result.outcome is Outcome.PASSED, result.reason
    finally:
        device.close()
