"""Problems of a definition and its workloads (flashinfer-bench, SOL-ExecBench) as references.

A definition names axes, tensors and a PyTorch function `run`; a workload gives the axes their
sizes. Each pair becomes a reference in KernelBench form: the axes as integers of the module, so
that they can be shrunk for verification, the definition's text as it is, and a `Model` that calls
its `run`.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import UserError, printable, shown, told_of
from ..files import read_json, read_text
from .records import LeftOut, SuiteTask

LAYOUT = "definition.json and workload.jsonl in one folder, or definitions/ beside workloads/"

_FLOATS = ("float64", "float32", "float16", "bfloat16")
_DRAWS = {
    **{name: "torch.randn({shape}, dtype=torch.{dtype})" for name in _FLOATS},
    **dict.fromkeys(
        ("int64", "int32", "int16"), "torch.randint(-1024, 1024, {shape}, dtype=torch.{dtype})"
    ),
    "int8": "torch.randint(-128, 128, {shape}, dtype=torch.{dtype})",
    "uint8": "torch.randint(0, 256, {shape}, dtype=torch.{dtype})",
    "bool": "torch.randint(0, 2, {shape}, dtype=torch.{dtype})",
}
"""How an input without a source of its own is drawn, by its type."""
_EXPRESSION = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Name, ast.Load, ast.Constant, ast.Add, ast.Sub,
    ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.USub, ast.UAdd,
)  # fmt: skip
"""What the size of an axis may be computed with."""
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


class _Foreign(BaseModel):
    """What others wrote: fields that nobody reads here are passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Axis(_Foreign):
    """One dimension of a definition."""

    type: Literal["const", "var", "expr"]
    value: int | None = None
    expression: str = ""


class Tensor(_Foreign):
    """One input or output; a shape of None is a plain number."""

    shape: tuple[str | int, ...] | None
    dtype: str


class Definition(_Foreign):
    """What a problem computes."""

    name: str = Field(min_length=1)
    axes: dict[str, Axis]
    inputs: dict[str, Tensor]
    reference: str
    custom_inputs_entrypoint: str | None = None


class Source(_Foreign):
    """Where an input's values come from."""

    type: Literal["random", "scalar", "safetensors", "custom"]
    value: bool | int | float | None = None
    path: str = ""


class Workload(_Foreign):
    """One set of sizes and inputs of a definition."""

    uuid: str = ""
    axes: dict[str, int]
    inputs: dict[str, Source] = Field(default_factory=dict)
    tolerance: dict[str, float | bool | None] = Field(default_factory=dict)


class _Unfit(Exception):
    """A workload cannot be one of our tasks; says why."""


def is_problem(folder: Path) -> bool:
    """Say whether a folder holds one problem, or a set of definitions and workloads."""
    both = (folder / "definition.json").is_file() and (folder / "workload.jsonl").is_file()
    return both or ((folder / "definitions").is_dir() and (folder / "workloads").is_dir())


def read_problems(folder: Path) -> tuple[list[SuiteTask], list[LeftOut]]:
    """Return a task for each workload of each definition below a folder, and what is left out.

    A damaged file, a line that is no workload, or one of a definition that is not there keeps no
    other back.
    """
    tasks: list[SuiteTask] = []
    left_out: list[LeftOut] = []
    taken: set[str] = set()
    for definition, workloads, origin in _pairs(folder, left_out):
        for workload in workloads:
            name = _name(definition, workload, taken)
            taken.add(name)
            try:
                source = reference_of(definition, workload)
            except _Unfit as unfit:
                left_out.append(LeftOut(name=name, reason=printable(str(unfit))))
                continue
            except (RecursionError, MemoryError):  # The latter is how Python's parser says so.
                reason = "its reference or the size of an axis is nested too deeply to be read"
                left_out.append(LeftOut(name=name, reason=reason))
                continue
            tasks.append(
                SuiteTask(name=name, source=source, origin=origin, tolerance=workload.tolerance)
            )
    return tasks, left_out


def _pairs(
    folder: Path, left_out: list[LeftOut]
) -> Iterator[tuple[Definition, list[Workload], str]]:
    """Yield each definition with its workloads and where it lies; what cannot be read is added to
    what is left out."""
    if (folder / "definitions").is_dir():
        definitions: dict[str, Definition] = {}
        for path in sorted((folder / "definitions").rglob("*.json")):
            with _left_out_alone(left_out, path):
                definition = _definition(path)
                definitions[definition.name] = definition
        workloads: dict[str, list[Workload]] = {name: [] for name in definitions}
        before = len(left_out)
        for path in sorted((folder / "workloads").rglob("*.jsonl")):
            for line, text in _lines(path, left_out):
                with _left_out_alone(left_out, path):
                    said = _said(path, line, text)
                    name = str(said.get("definition"))
                    if name not in workloads:
                        raise UserError(f"{path}, line {line}: there is no definition {name}")
                    workloads[name].append(_workload(path, line, said.get("workload")))
        for name, definition in definitions.items():
            if not workloads[name] and len(left_out) == before:  # Else that may be why.
                left_out.append(LeftOut(name=shown(name), reason="no workload is of it"))
                before += 1
            yield definition, workloads[name], f"{folder}: {name}"
        return
    found = []
    for path in sorted(folder.rglob("definition.json")):
        beside = path.with_name("workload.jsonl")
        if not beside.is_file():
            words = "no workload.jsonl lies beside its definition.json"
            left_out.append(LeftOut(name=shown(path.parent.name), reason=words))
            continue
        with _left_out_alone(left_out, path):
            definition = _definition(path)
            read = []
            for line, text in _lines(beside, left_out):
                with _left_out_alone(left_out, beside):
                    said = _said(beside, line, text)
                    # Both ways are in use: the workload itself, and as in a set of several.
                    read.append(_workload(beside, line, said.get("workload", said)))
            found.append((definition, read, str(path.parent)))
    yield from found


@contextmanager
def _left_out_alone(left_out: list[LeftOut], path: Path) -> Iterator[None]:
    """Leave out what cannot be read, under the name of its file, and nothing beside it."""
    try:
        yield
    except UserError as error:
        left_out.append(LeftOut(name=shown(path.name), reason=printable(str(error))))


def _definition(path: Path) -> Definition:
    what, remedy = "a definition", "bring it in order, or take its folder out of the suite"
    try:
        return Definition.model_validate(read_json(path, what, remedy))
    except ValidationError as error:
        raise UserError(f"{path} is no definition: {told_of(error)}; {remedy}") from error


def _lines(path: Path, left_out: list[LeftOut]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that hold something, with their numbers."""
    with _left_out_alone(left_out, path):
        for number, line in enumerate(read_text(path, "a file of workloads").splitlines(), 1):
            if line.strip():
                yield number, line


def _said(path: Path, line: int, text: str) -> dict[str, Any]:
    from pydantic_core import from_json

    try:
        said = from_json(text)
    except ValueError as error:
        raise UserError(f"{path}, line {line} is not JSON: {error}") from error
    if not isinstance(said, dict):
        raise UserError(f"{path}, line {line}: a workload is a JSON object")
    return said


def _workload(path: Path, line: int, said: object) -> Workload:
    try:
        return Workload.model_validate(said)
    except ValidationError as error:
        raise UserError(f"{path}, line {line} is no workload: {told_of(error)}") from error


def _name(definition: Definition, workload: Workload, taken: Collection[str]) -> str:
    """Return a workload's name: the definition's and the sizes, numbered where there is one so."""
    sizes = "_".join(f"{name}{value}" for name, value in workload.axes.items())
    parts = [_NAME.sub("-", part) for part in (definition.name, sizes) if part]
    name = "__".join(parts)
    number = 2
    while name in taken:
        name = "__".join([*parts, str(number)])
        number += 1
    return name


def reference_of(definition: Definition, workload: Workload) -> str:
    """Return the reference in KernelBench form that a definition is at a workload's sizes.

    Raises:
        _Unfit: it needs what a reference of ours cannot have; says what.
    """
    functions = _functions(definition)
    sizes = _sizes(definition, workload)
    taken = functions | {"torch", "nn", "Model", "get_inputs", "get_init_inputs"}
    if clash := sorted(taken & set(sizes)):
        raise _Unfit(f"the axis {clash[0]} has the name of something else in the reference")
    inputs = [
        _input(name, tensor, workload.inputs.get(name), definition)
        for name, tensor in definition.inputs.items()
    ]
    entry = definition.custom_inputs_entrypoint
    custom = ""
    if any(text.startswith("custom[") for text in inputs):
        if entry not in functions:
            raise _Unfit(f"its inputs come from {entry or 'a function'}, which is not there")
        scalars = {
            name: source.value
            for name, source in workload.inputs.items() if source.type == "scalar"
        }  # fmt: skip
        given = [f"{name!r}: {name}" for name in sizes]
        given += [f"{name!r}: {_number(value)}" for name, value in scalars.items()]
        custom = f"    custom = {entry}({{{', '.join(given)}}}, torch.device('cpu'))\n"
    drawn = "".join(f"        {text},\n" for text in inputs)
    assigned = "".join(f"{name} = {value}\n" for name, value in sizes.items())
    arguments = ", ".join(definition.inputs)
    return f'''{definition.reference.strip()}


import torch
import torch.nn as nn

{assigned}

class Model(nn.Module):
    def forward(self, {arguments}):
        return run({arguments})


def get_inputs():
{custom}    return [
{drawn}    ]


def get_init_inputs():
    return []
'''


def _functions(definition: Definition) -> set[str]:
    """Return the names that a definition's text gives to something at its top."""
    try:
        body = ast.parse(definition.reference).body
    except (SyntaxError, ValueError) as error:
        raise _Unfit(f"its reference is no Python: {error}") from error
    found = {each.name: each for each in body if isinstance(each, ast.FunctionDef)}
    if "run" not in found:
        raise _Unfit("its reference has no function run()")
    arguments = found["run"].args
    named = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    required, given = named[: len(named) - len(arguments.defaults)], list(definition.inputs)
    if named[: len(given)] != given or len(required) > len(given):
        raise _Unfit(f"run({', '.join(named)}) does not take the inputs in their order")
    defined = [each for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef)]
    assigned = {
        node.id
        for each in body if each not in defined
        for node in ast.walk(each) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }  # fmt: skip
    return assigned | {each.name for each in defined}


def _sizes(definition: Definition, workload: Workload) -> dict[str, str]:
    """Return each axis with its value, or with what it is computed from, in an order that works."""
    sizes: dict[str, str] = {}
    computed: dict[str, str] = {}
    for name, axis in definition.axes.items():
        if not name.isidentifier() or keyword.iskeyword(name):
            raise _Unfit(f"the axis {name!r} has a name that Python has no variable for")
        if axis.type == "expr":
            computed[name] = _expression(name, axis.expression)
            continue
        value = axis.value if axis.type == "const" else workload.axes.get(name)
        if value is None or value < 1:
            raise _Unfit(f"the axis {name} has no size of at least 1")
        sizes[name] = str(value)
    while computed:
        ready = {
            name: text for name, text in computed.items()
            if not {each.id for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Name)}
            - {"int", *sizes}
        }  # fmt: skip
        if not ready:
            raise _Unfit(f"the axis {next(iter(computed))} is computed from what is not there")
        sizes |= ready
        computed = {name: text for name, text in computed.items() if name not in ready}
    return sizes


def _expression(name: str, text: str) -> str:
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError) as error:
        raise _Unfit(f"the axis {name} is no expression: {text}") from error
    if not all(isinstance(node, _EXPRESSION) for node in ast.walk(tree)):
        raise _Unfit(f"the axis {name} is computed with more than arithmetic: {text}")
    plain = ast.unparse(tree)
    return f"int({plain})" if "/" in plain else plain


def _input(name: str, tensor: Tensor, source: Source | None, definition: Definition) -> str:
    """Return the expression of one input in get_inputs()."""
    kind = source.type if source else "random"
    if kind == "safetensors":
        raise _Unfit(f"its input {name} is stored in a file of tensors")
    if kind == "scalar" and source is not None:
        if source.value is None:
            raise _Unfit(f"its input {name} is a number without a value")
        return _number(source.value)
    if kind == "custom":
        return f"custom[{name!r}]"
    if tensor.shape is None:
        raise _Unfit(f"its input {name} is a number, and the workload gives none")
    if tensor.dtype not in _DRAWS:
        raise _Unfit(f"its input {name} is of type {tensor.dtype}")
    unknown = [each for each in map(str, tensor.shape)
               if not re.fullmatch("[0-9]+", each) and each not in definition.axes]  # fmt: skip
    if unknown:
        raise _Unfit(f"its input {name} has an axis {unknown[0]} that is not there")
    shape = "".join(f"{each}, " for each in tensor.shape).strip()
    return _DRAWS[tensor.dtype].format(shape=f"({shape})", dtype=tensor.dtype)


def _number(value: bool | int | float | None) -> str:
    """Return a number as Python writes it; what is infinite or undefined has no literal."""
    text = repr(value)
    endless = isinstance(value, float) and not math.isfinite(value)
    return f"float({text!r})" if endless else text


def accepted(tolerance: Mapping[str, float | bool | None]) -> str:
    """Return what an origin accepts, in a few words; empty where it says nothing."""
    return ", ".join(f"{name} {value}" for name, value in tolerance.items() if value is not None)
