"""Runs inside the reference child: a KernelBench file loaded at given dimensions and called.

A fault of the file is a `ReferenceFault`, one line that names what it did and on which line.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import random
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from ..records import DTYPE_BYTES
from ..task.dimensions import with_dimensions
from ..task.names import is_macro

_CPP_WORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl
    const constexpr const_cast continue decltype default delete do double dynamic_cast else
    enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public
    register reinterpret_cast return short signed sizeof static static_assert static_cast
    struct switch template this thread_local throw true try typedef typeid typename union
    unsigned using virtual void volatile wchar_t while xor xor_eq launch workspace stream
    workspace_bytes main size_t cudaStream_t
    """.split()
)


class ReferenceFault(Exception):
    """What is wrong with the reference, in one line."""


def lacks_memory(error: BaseException) -> bool:
    """Say whether memory that could not be had is the reason: another time there may be more."""
    words = ("allocate memory", "out of memory")
    return isinstance(error.__cause__ or error, MemoryError) or any(w in str(error) for w in words)


@dataclass(frozen=True)
class Instance:
    """One seeded model and its inputs: what `launch` is given, by role."""

    model: torch.nn.Module
    arguments: tuple[Any, ...]
    """Contiguous copies of what get_inputs() returned."""
    inputs: dict[str, torch.Tensor]
    parameters: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]
    scalars: dict[str, float | int | bool]
    qualified: dict[str, str]
    """Qualified name of a parameter or buffer to its identifier."""
    input_names: tuple[str | None, ...]
    """Identifier of each flattened argument; None for one that is no tensor."""


class Reference:
    """A loaded reference file."""

    def __init__(
        self, source: str, path: str, dimensions: Mapping[str, int], device: str = "cpu"
    ) -> None:
        """Execute the file with its module-level integers replaced. Raises ReferenceFault.

        With another `device` models and inputs are made on it; what the file insists on making
        elsewhere is moved there.
        """
        self.path = path
        self.device = torch.device(device)
        tree = with_dimensions(ast.parse(source, path), dimensions)
        module = types.ModuleType("kernelblaster_reference")
        module.__file__ = path
        sys.modules[module.__name__] = module
        linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
        with self.running("the file"):
            exec(compile(tree, path, "exec"), module.__dict__)
        self._names: dict[str, Any] = module.__dict__
        for name in ("Model", "get_inputs"):
            if not callable(self._names.get(name)):
                kind = "class Model" if name == "Model" else "function get_inputs()"
                raise ReferenceFault(
                    f"it defines no {kind}: a task is a KernelBench file with class Model, "
                    "get_inputs() and, where Model takes arguments, get_init_inputs()"
                )

    def instance(self, seed: int) -> Instance:
        """Build the model and its inputs under a seed. Raises ReferenceFault."""
        if self.device.type != "cpu":
            return self._elsewhere(seed)
        return _named(*self._made(seed))

    def _elsewhere(self, seed: int) -> Instance:
        try:
            with torch.device(self.device):
                model, arguments = self._made(seed)
        except ReferenceFault as fault:
            if isinstance(fault.__cause__, torch.OutOfMemoryError):
                raise
            # Some files insist on the CPU, for example by a random generator of their own.
            model, arguments = self._made(seed)
        moved = clone_arguments(arguments, lambda tensor: tensor.to(self.device))
        return _named(model.to(self.device), moved)

    def _made(self, seed: int) -> tuple[torch.nn.Module, tuple[Any, ...]]:
        torch.manual_seed(seed)
        random.seed(seed)
        numpy.random.seed(seed)
        initial: Any = []
        if callable(self._names.get("get_init_inputs")):
            with self.running("get_init_inputs()"):
                initial = self._names["get_init_inputs"]()
        with self.running("Model(...)"):
            model = self._names["Model"](*initial)
        if not isinstance(model, torch.nn.Module):
            raise ReferenceFault(f"Model is no torch.nn.Module but a {type(model).__name__}")
        with self.running("get_inputs()"):
            arguments = self._names["get_inputs"]()
        if not isinstance(arguments, list | tuple):
            raise ReferenceFault(f"get_inputs() returns a {type(arguments).__name__}, not a list")
        contiguous: tuple[Any, ...] = clone_arguments(
            tuple(arguments),
            lambda tensor: tensor.detach().clone(memory_format=torch.contiguous_format),
        )
        return model, contiguous

    def outputs(self, model: torch.nn.Module, arguments: Sequence[Any]) -> list[torch.Tensor]:
        """Call forward and return its tensors in order. Raises ReferenceFault."""
        # Tensors that forward() makes itself belong where its inputs are.
        place = nullcontext() if self.device.type == "cpu" else torch.device(self.device)
        with self.running("forward()"), torch.no_grad(), place:
            result = model(*arguments)
        tensors = list(_flatten(result))
        for value in tensors:
            if not isinstance(value, torch.Tensor):
                raise ReferenceFault(f"forward() returns a {type(value).__name__}, not a tensor")
        if not tensors:
            raise ReferenceFault("forward() returns no tensor")
        return tensors

    @contextmanager
    def running(self, what: str) -> Iterator[None]:
        """Turn whatever the user's code raises, SystemExit included, into a ReferenceFault."""
        try:
            yield
        except (Exception, SystemExit) as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == self.path]
            where = f" (line {lines[-1]})" if lines else ""
            message = " ".join(str(error).split())[:300]
            raise ReferenceFault(
                f"{what} raises {type(error).__name__}: {message}{where}"
            ) from error


def clone_arguments(arguments: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return the arguments with each tensor replaced by `change` of it; containers are rebuilt."""
    if isinstance(arguments, torch.Tensor):
        return change(arguments)
    if isinstance(arguments, list):
        return [clone_arguments(value, change) for value in arguments]
    if isinstance(arguments, tuple):
        return tuple(clone_arguments(value, change) for value in arguments)
    return arguments


def tensor_spec(name: str, tensor: torch.Tensor, role: str) -> dict[str, Any]:
    """Return the JSON form of a TensorSpec. Raises ReferenceFault for what launch cannot take."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPE_BYTES:
        known = ", ".join(DTYPE_BYTES)
        raise ReferenceFault(f"{role} {name} has dtype {dtype}; supported are {known}")
    if tensor.layout is not torch.strided:
        raise ReferenceFault(f"{role} {name} is a sparse tensor; only dense ones are supported")
    if tensor.numel() == 0:
        raise ReferenceFault(f"{role} {name} has no elements (shape {list(tensor.shape)})")
    return {"name": name, "shape": list(tensor.shape), "dtype": dtype, "role": role}


def specs(instance: Instance, outputs: Sequence[torch.Tensor]) -> list[dict[str, Any]]:
    """Return all tensors in the order of the launch signature."""
    found = [tensor_spec(f"out{k}", tensor, "output") for k, tensor in enumerate(outputs)]
    for role, tensors in (
        ("input", instance.inputs),
        ("parameter", instance.parameters),
        ("buffer", instance.buffers),
    ):
        found += [tensor_spec(name, tensor, role) for name, tensor in tensors.items()]
    return found


def _named(model: torch.nn.Module, arguments: tuple[Any, ...]) -> Instance:
    taken: set[str] = {f"OUT{k}" for k in range(64)}
    inputs: dict[str, torch.Tensor] = {}
    scalars: dict[str, float | int | bool] = {}
    input_names: list[str | None] = []
    for path, value in _argument_paths(model, arguments):
        if isinstance(value, torch.Tensor):
            name = _identifier(path, taken)
            inputs[name] = value
            input_names.append(name)
        elif isinstance(value, bool | int | float):
            scalars[_identifier(path, taken)] = value
            input_names.append(None)
        elif value is None:
            input_names.append(None)
        else:
            raise ReferenceFault(
                f"get_inputs() gives {path} as a {type(value).__name__}; tensors, numbers and "
                "lists of tensors are supported"
            )
    parameters: dict[str, torch.Tensor] = {}
    buffers: dict[str, torch.Tensor] = {}
    qualified: dict[str, str] = {}
    for target, named in (
        (parameters, model.named_parameters()),
        (buffers, model.named_buffers()),
    ):
        for path, tensor in named:
            name = qualified[path] = _identifier(path, taken)
            target[name] = tensor
    return Instance(
        model, arguments, inputs, parameters, buffers, scalars, qualified, tuple(input_names)
    )


def _argument_paths(
    model: torch.nn.Module, arguments: tuple[Any, ...]
) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of each flattened argument, named as forward() names it."""
    names: list[str] = []
    for parameter in inspect.signature(model.forward).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{k}" for k in range(len(arguments) - len(names))]
        elif parameter.kind is not parameter.VAR_KEYWORD:
            names.append(parameter.name)
    names += [f"input{k}" for k in range(len(names), len(arguments))]

    def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, list | tuple):
            for index, element in enumerate(value):
                yield from leaves(f"{name}_{index}", element)
        else:
            yield name, value

    for name, value in zip(names, arguments, strict=False):
        yield from leaves(name, value)


def _identifier(path: str, taken: set[str]) -> str:
    """Return a C++ identifier for a name, distinct from others also when upper-cased."""
    name = re.sub(r"\W", "_", path, flags=re.ASCII)
    if name[:1].isdigit() or name in _CPP_WORDS or name.startswith("__") or is_macro(name):
        name = f"t_{name}"
    while name.upper() in taken:
        name += "_"
    taken.add(name.upper())
    return name


def _flatten(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for element in value:
            yield from _flatten(element)
    elif value is not None:
        yield value
