"""A winner as an installable PyTorch operator: a folder that pip installs, with no compiler.

It holds machine code and a list of launches for each shape that was verified, which the CUDA driver
is given through ctypes: what runs is what was verified, whatever compiler, Python and PyTorch
the user has. The host half of the kernel is not in it: what that asks for is the list.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from string import Template
from typing import Any

from ...harness.build.toolchain import Toolchain, build_now
from ...harness.errors import UserError
from ...harness.gpus import GPUS, Gpu, is_called
from ...harness.host.plan import Plan
from ...harness.host.planning import Asked, plan_launch
from ...harness.host.process import host_program
from ...harness.host.properties import properties_of
from ...harness.judge.findings import judge_build
from ...harness.records.evaluations import StageResult
from ...harness.records.outcomes import outcome_in_words
from ...harness.records.tasks import Task
from ...harness.records.tensors import TensorSpec
from ...harness.task.contract import header
from .winner import Winner

_RUNTIME = Path(__file__).with_name("operator_runtime.py")

_MODULE = Template('''\
"""$title

    from $package import $name
    answer = $name($call)

$facts
"""

from pathlib import Path

import torch

from .runtime import Operator

_operator = Operator(Path(__file__).parent)


@torch.library.custom_op(
    "kernelblaster::$unique", mutates_args=(), schema="($schema) -> $returned"
)
def $name($arguments):
    """Run the kernel. Raises ValueError for shapes, dtypes and devices it was not verified for."""
    return $answer


@$name.register_fake
def _($arguments):
    return $fake_answer
''')

_PROJECT = Template('''\
[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"

[project]
name = "$distribution"
version = "1.0.0+$short"
description = "$title"
requires-python = ">=3.10"
dependencies = ["torch>=2.4", "numpy"]

[tool.setuptools]
packages = ["$package"]

[tool.setuptools.package-data]
$package = ["*.json", "*.cubin", "*.cu", "reference.txt"]
''')

_README = Template('''\
# $package

$title

    pip install .

```python
import torch
from $package import $name

answer = torch.compile($name, fullgraph=True)($call)
```

$facts

It was verified on $gpu for these shapes, and refuses others, and other types and GPUs, with a
sentence:

$shapes

There is no backward pass. No compiler is needed: the package holds machine code
(`*.cubin`) and what is launched of it (`kernels.json`); `kernel.cu` is its source.
''')


def operator_package(winner: Winner, toolchain: Toolchain) -> dict[str, bytes]:
    """Return the files of the package by path.

    Raises:
        UserError: the source does not build, its host half cannot be planned, or the operator would
            have no tensor to be called with.
    """
    full, package = winner.task.full, f"{winner.name}_op"
    given = [spec for spec in full.tensors if spec.role != "output"]
    if not given:
        raise UserError(
            f"{winner.task.name}: it takes no tensor, and PyTorch finds an operator by its tensors"
        )
    files: dict[str, bytes] = {}
    variants: list[dict[str, Any]] = []
    for number, task in enumerate((winner.task, *winner.others)):
        image, plan = _built(winner, task, toolchain)
        name = f"kernel_{number}.cubin"
        files[f"{package}/{name}"] = image
        variants.append(_described(task, name, plan))
    capability = re.fullmatch(r"sm_(\d+)(\d)\w?", winner.device.arch)
    assert capability is not None
    described = {
        "name": winner.name, "gpu": winner.device.gpu,
        "capability": [int(part) for part in capability.groups()], "variants": variants,
    }  # fmt: skip
    words = _words(winner, given, package)
    texts = {
        "pyproject.toml": _PROJECT.substitute(words),
        "README.md": _README.substitute(words),
        f"{package}/__init__.py": _MODULE.substitute(words),
        f"{package}/runtime.py": _RUNTIME.read_text(encoding="utf-8"),
        f"{package}/kernels.json": json.dumps(described, indent=1) + "\n",
        f"{package}/kernel.cu": winner.whole_source(full),
        # No module of the package: its imports need not be there.
        f"{package}/reference.txt": winner.task.source,
    }
    return files | {path: text.encode() for path, text in texts.items()}


def _words(winner: Winner, given: list[TensorSpec], package: str) -> Mapping[str, str]:
    names = [f"{spec.name}_" if keyword.iskeyword(spec.name) else spec.name for spec in given]
    outputs = winner.task.full.of_role("output")
    several = len(outputs) > 1
    lines = [*winner.facts, f"Run {winner.run} on {winner.device}."]
    for name, spec in zip(names, given, strict=True):
        where = winner.interface.qualified.get(spec.name)
        lines.append(f"{name}: {spec.role}{f' {where}' if where else ''}, {spec.dtype}.")
    return {
        "title": f"{winner.task.name} as one CUDA kernel or a few, written by KernelBlaster.",
        "package": package,
        "distribution": f"kernelblaster-op-{winner.name.replace('_', '-')}",
        "name": winner.name,
        "unique": f"{winner.name}_{winner.sha256[:12]}",
        "short": winner.sha256[:12],
        "gpu": winner.device.gpu,
        "call": ", ".join(names),
        "arguments": ", ".join(names),
        "schema": ", ".join(f"Tensor {name}" for name in names),
        "returned": f"({', '.join('Tensor' for _ in outputs)})" if several else "Tensor",
        "answer": _answer(f"_operator([{', '.join(names)}])", several),
        "fake_answer": _answer(f"_operator.outputs([{', '.join(names)}])", several),
        "shapes": "\n".join(_shapes(each) for each in (winner.task, *winner.others)),
        "facts": "\n".join(" ".join(line.split()) for line in lines),
    }


def _shapes(task: Task) -> str:
    given = [spec for spec in task.full.tensors if spec.role != "output"]
    return f"- {', '.join(f'{spec.name} {list(spec.shape)}' for spec in given)}"


def _answer(outputs: str, several: bool) -> str:
    return f"tuple({outputs})" if several else f"{outputs}[0]"


def _built(winner: Winner, task: Task, toolchain: Toolchain) -> tuple[bytes, Plan]:
    """Return the machine code at a task's shapes, and what launch() does there."""
    built = build_now(toolchain, winner.source, header(task.full), winner.device.arch)
    failed: StageResult | None = judge_build(built, winner.source)
    if failed is None:
        gpu = properties_of(_gpu(winner.device.gpu))
        asked = Asked(built, task.full.tensors, gpu, gpu.memory_bytes // 2)
        plan = plan_launch(host_program(toolchain.cuda_headers()), asked)
        if isinstance(plan, Plan):
            return Path(built.directory, "candidate.cubin").read_bytes(), plan
        failed = plan
    words = outcome_in_words(failed.outcome, failed.reason)
    raise UserError(f"{winner.task.name}: the winner does not build here any more: {words}")


def _gpu(name: str) -> Gpu:
    for known, gpu in GPUS.items():
        if is_called(name, known):
            return gpu
    raise UserError(
        f"{name} is none of {', '.join(GPUS)}: what launch() asks for cannot be worked out for it; "
        "export the winner with --format modelnew"
    )


def _described(task: Task, image: str, plan: Plan) -> dict[str, Any]:
    def tensors(*roles: str) -> list[dict[str, Any]]:
        return [
            {"name": spec.name, "dtype": spec.dtype, "shape": spec.shape}
            for spec in task.full.of_role(*roles)
        ]

    return {
        "outputs": tensors("output"),
        "given": tensors("input", "parameter", "buffer"),
        "image": image,
        "plan": {name: value for name, value in asdict(plan).items()
                 if name in ("steps", "workspace_bytes", "dynamic_shared")},
    }  # fmt: skip
