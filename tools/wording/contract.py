"""The task as a kernel's writer must know it: `launch`, task.cuh at both sizes, the reference."""

from __future__ import annotations

import re

from ...harness.records.tasks import Task
from ...harness.task.contract import ctype, header, role_of, signature
from ...harness.task.names import constants_of

_DOCSTRING = re.compile(r'\A\s*("""|\'\'\').*?\1\s*', re.DOTALL)


def launch_signature(task: Task) -> str:
    """Return the prototype that a file must define, word for word."""
    return signature(task)


def task_header(task: Task) -> str:
    """Return what task.cuh defines, each value at full dimensions and at those of verification.

    One text for the two files that are generated: `full | verify`, one value where they agree.
    """
    includes = re.findall(r"^#include (<[^>\n]+>)", header(task.full), re.MULTILINE)
    lines = [
        f"// task.cuh, generated, includes {' '.join(includes)}, declares launch and",
        "// workspace_bytes, and defines (at full dimensions | at those of verification):",
    ]
    names = constants_of(task.full)
    dimensions = [
        f"{names.dimensions[name]} = {_both(value, task.verify.dimensions[name])}"
        for name, value in task.full.dimensions.items()
    ]
    if dimensions:
        lines.append(f"constexpr long long {', '.join(dimensions)};")
    lines += [f"constexpr {scalar};" for scalar in _scalars(task)]
    lines.append(
        "// for each tensor T here: constexpr long long T_NUMEL, T_SIZE_0, T_SIZE_1, ...; "
        "constexpr int T_RANK"
    )
    lines += [
        f"// {role_of(full)} {full.name.upper()}: {ctype(full.dtype)} "
        f"{_both(list(full.shape), list(verify.shape))}"
        for full, verify in zip(task.full.tensors, task.verify.tensors, strict=True)
    ]
    return "\n".join(lines)


def reference_text(task: Task) -> str:
    """Return the reference's source without what says nothing of the mathematics."""
    text = _DOCSTRING.sub("", task.source)
    kept = [line for line in text.split("\n") if not re.match(r"\s*(import|from)\s", line)]
    return re.sub(r"\n{2,}", "\n", "\n".join(kept)).strip("\n")


def program_text(task: Task) -> str:
    """Return the traced ATen operations, one a line; empty where the reference has no trace."""
    if task.program is None:
        return ""
    lines = []
    for node in task.program.nodes:
        arguments = [_argument(value) for value in node.args]
        arguments += [f"{name}={_argument(value)}" for name, value in node.kwargs.items()]
        shape = list(node.shape) if node.shape is not None else ""
        lines.append(f"{node.name} = {node.op}({', '.join(arguments)})  # {shape}")
    lines.append(f"return {', '.join(task.program.outputs)}")
    return "\n".join(lines)


def compulsory_bytes(task: Task) -> int:
    """Return the bytes of all tensors at full dimensions, each moved once."""
    return sum(tensor.nbytes for tensor in task.full.tensors)


def _both(full: object, verify: object) -> str:
    return f"{full}" if full == verify else f"{full} | {verify}"


def _scalars(task: Task) -> list[str]:
    names = constants_of(task.full).scalars
    kinds = {bool: "bool", int: "long long", float: "double"}
    return [
        f"{kinds[type(full)]} {names[name]} = "
        f"{_both(str(full).lower(), str(task.verify.scalars[name]).lower())}"
        for name, full in task.full.scalars.items()
    ]


def _argument(value: object) -> str:
    if isinstance(value, dict) and set(value) == {"ref"}:
        return str(value["ref"])
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_argument, value))}]"
    return str(value)
