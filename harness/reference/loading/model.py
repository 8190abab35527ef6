"""Runs inside the reference child: a KernelBench file loaded at given dimensions and called.

A fault of the file is a `ReferenceFault`, one line that names what it did and on which line.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import random
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.nn.parameter import is_lazy

from ...records.readings import AS_WRITTEN, Reading
from ...records.tensors import DTYPE_BYTES
from ...task.dimensions import with_dimensions
from ...task.names import identifier
from .copies import with_copied_closures
from .drawn import NAMED, drawn_of, may_draw, names_of, take_draws
from .hints import instead_of, said
from .surroundings import Surroundings
from .under_way import begin

_TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}

_DISTRIBUTIONS = {
    "cv2": "opencv-python", "PIL": "pillow", "sklearn": "scikit-learn", "skimage": "scikit-image",
    "yaml": "pyyaml", "flash_attn": "flash-attn", "torch_geometric": "torch-geometric",
    "torch_scatter": "torch-scatter", "torch_sparse": "torch-sparse", "mamba_ssm": "mamba-ssm",
    "causal_conv1d": "causal-conv1d",
}  # fmt: skip
"""Modules that come in a package of another name."""

_ONE_FILE = "a reference is one file, which also runs on other hosts"
_PUT_INTO = "put what it needs of that into it"
_CALLED_WITH = {
    "Model(...)": "get_init_inputs() returns the list of its arguments",
    "forward()": "get_inputs() returns the list of its arguments",
}
"""Who gives what is called its arguments."""


class ReferenceFault(Exception):
    """What is wrong with the reference, in one line."""


def lacks_memory(error: BaseException) -> bool:
    """Say whether memory that could not be had is the reason: another time there may be more."""
    words = ("allocate memory", "out of memory", "ALLOC_FAILED")
    kinds = (MemoryError, torch.OutOfMemoryError)
    return any(isinstance(each, kinds) for each in _causes(error)) or any(
        each in str(error) for each in words
    )


def lacks_gpu_memory(error: BaseException) -> bool:
    """Say whether memory that a GPU could not give is the reason."""
    return any(isinstance(each, torch.OutOfMemoryError) for each in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what it was raised from, down to the first of all."""
    while error is not None:
        yield error
        error = error.__cause__


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

    @property
    def draws(self) -> tuple[str, ...]:
        """Identifiers of the last inputs: random numbers that forward() would draw itself."""
        count = len(getattr(self.model, NAMED, ()))
        return tuple(map(str, self.input_names[len(self.input_names) - count :]))


class Reference:
    """A loaded reference file."""

    def __init__(
        self,
        source: str,
        path: str,
        dimensions: Mapping[str, int],
        device: str = "cpu",
        reading: Reading = AS_WRITTEN,
        double_is_dispensable: bool = False,
    ) -> None:
        """Execute the file at other sizes. Raises ReferenceFault.

        With another `device` models and inputs are made on it; what the file insists on making
        elsewhere is moved there. `reading` says what else is asked of the model. Where double
        precision is dispensable, nothing is known in it for which memory is short.
        """
        self.path = path
        self.reading = reading
        self.device = torch.device(device)
        self.surroundings = Surroundings(path, source, self.device)
        self.double_is_dispensable = double_is_dispensable
        self.lacked_memory_for_double = False
        """Whether an answer was done without in double precision, for want of memory."""
        self.double_comes_in_pieces = 0
        """In how many pieces of the batch there was the memory for one the last time; 0 where all
        at once has not lacked it."""
        self._may_draw = may_draw(source)
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
            if lacks_gpu_memory(fault):
                raise
            # Some files insist on the CPU, for example by a random generator of their own.
            model, arguments = self._made(seed)
        moved = clone_arguments(arguments, lambda tensor: tensor.to(self.device))
        return _named(model.to(self.device), moved)

    def _made(self, seed: int) -> tuple[torch.nn.Module, tuple[Any, ...]]:
        seed_all(seed)
        positional, named = self._initial()
        with self.running("Model(...)"):
            model = self._names["Model"](*positional, **named)
        if not isinstance(model, torch.nn.Module):
            raise ReferenceFault(
                f"Model(...) makes a {type(model).__name__}, which is no torch.nn.Module: derive "
                "class Model from torch.nn.Module, and compute in its forward()"
            )
        _register_tensors(model)
        with_copied_closures(model)
        with self.running("get_inputs()"):
            given = self._names["get_inputs"]()
            given = list(given) if isinstance(given, Iterator) else given
        arguments = tuple(_positional(model, given))
        if self.reading.mode != "file":
            model.train(self.reading.mode == "train")
        wanted = _TYPES.get(self.reading.dtype)
        if wanted is not None:
            _cast(model, wanted)

        def own(tensor: torch.Tensor) -> torch.Tensor:
            _require_dense("one of get_inputs()", tensor)
            copied = tensor.detach().clone(memory_format=torch.contiguous_format)
            return copied.to(wanted) if wanted and copied.is_floating_point() else copied

        contiguous: tuple[Any, ...] = clone_arguments(arguments, own)
        if any(map(is_lazy, model.parameters())):
            # A lazy module has its parameters once it was called.
            self.answer(model, clone_arguments(contiguous, torch.clone))
        if not self._may_draw:
            return model, contiguous
        with self.running("forward()"):
            drawn = drawn_of(model, contiguous, self.path)
        if drawn:
            take_draws(model, len(contiguous), names_of(drawn))
        return model, (*contiguous, *(own(tensor) for _, _, tensor in drawn))

    def _initial(self) -> tuple[list[Any], dict[str, Any]]:
        """Return what Model(...) is given: in order, and by name where that is a dictionary."""
        initial: Any = []
        if callable(self._names.get("get_init_inputs")):
            with self.running("get_init_inputs()"):
                initial = self._names["get_init_inputs"]()
        if isinstance(initial, dict):
            return [], initial
        if not isinstance(initial, list | tuple):
            raise ReferenceFault(
                f"get_init_inputs() returns a {type(initial).__name__}: a list of the arguments of "
                "Model(...), or a dictionary by name"
            )
        return _split(list(initial), self._names["Model"].__init__)

    def answer(self, model: torch.nn.Module, arguments: Sequence[Any]) -> Any:
        """Call forward and return what it returns. Raises ReferenceFault."""
        # Tensors that forward() makes itself belong where its inputs are.
        place = nullcontext() if self.device.type == "cpu" else torch.device(self.device)
        with self.running("forward()"), torch.no_grad(), place:
            return model(*arguments)

    def outputs(self, model: torch.nn.Module, arguments: Sequence[Any]) -> list[torch.Tensor]:
        """Call forward and return its tensors in order. Raises ReferenceFault."""
        tensors = list(flatten(self.answer(model, arguments)))
        for value in tensors:
            if not isinstance(value, torch.Tensor):
                raise ReferenceFault(
                    f"forward() returns a {type(value).__name__}, not a tensor: let it return "
                    "tensors, or lists, tuples and dictionaries of them"
                )
        if not tensors:
            raise ReferenceFault("forward() returns no tensor")
        return tensors

    @contextmanager
    def running(self, what: str) -> Iterator[None]:
        """Turn whatever the user's code raises, SystemExit included, into a ReferenceFault."""
        begin(what)
        try:
            with self.surroundings.entered():
                yield
        except (Exception, SystemExit) as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == self.path]
            where = f" (line {lines[-1]})" if lines else ""
            message = said(error)
            if isinstance(error, ImportError):
                raise ReferenceFault(_missing(error, self.path, where)) from error
            if isinstance(error, FileNotFoundError):
                where += f"; {_ONE_FILE}: let it draw what it loads"
            if isinstance(error, TypeError) and not lines and what in _CALLED_WITH:
                where += f"; {_CALLED_WITH[what]}"
            elif hint := instead_of(error):
                where += f"; {hint}"
            if not message:
                # An assertion without words says what it asserts.
                line = linecache.getline(frames[-1].filename, frames[-1].lineno or 0).strip()
                message = line[:200] or "it gives no reason"
            raise ReferenceFault(
                f"{what} raises {type(error).__name__}: {message}{where}"
            ) from error


def seed_all(seed: int) -> None:
    """Have all that draws numbers draw from a seed."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


def clone_arguments(arguments: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return the arguments with each tensor replaced by `change` of it; containers are rebuilt."""
    if isinstance(arguments, torch.Tensor):
        return change(arguments)
    if isinstance(arguments, list):
        return [clone_arguments(value, change) for value in arguments]
    if isinstance(arguments, tuple):
        cloned = [clone_arguments(value, change) for value in arguments]
        made = getattr(type(arguments), "_make", tuple)
        return made(cloned)
    if isinstance(arguments, dict):
        return {name: clone_arguments(value, change) for name, value in arguments.items()}
    return arguments


def _register_tensors(model: torch.nn.Module) -> None:
    """Make buffers of the tensors that modules hold as plain attributes.

    A kernel is given them as any other, and they go where the model goes.
    """
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor):
                delattr(module, name)
                module.register_buffer(name, value.detach(), persistent=False)


def _cast(model: torch.nn.Module, wanted: torch.dtype) -> None:
    """Give a model's floating parameters and buffers a type; what is shared stays shared.

    `Module.to` swaps tensors in place, which fake ones cannot.
    """
    made: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in list(tensors.items()):
                if tensor is None or not tensor.is_floating_point():
                    continue
                if id(tensor) not in made:
                    changed = tensor.detach().to(wanted)
                    is_parameter = tensors is module._parameters
                    made[id(tensor)] = (
                        torch.nn.Parameter(changed, tensor.requires_grad)
                        if is_parameter else changed
                    )  # fmt: skip
                setattr(module, name, made[id(tensor)])


def _split(given: list[Any], function: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments in order and by name; a last dictionary holds names of the function's."""
    if given and isinstance(given[-1], dict) and given[-1]:
        last = given[-1]
        names = inspect.signature(function).parameters
        if all(isinstance(key, str) and key in names for key in last):
            return given[:-1], last
    return given, {}


def _positional(model: torch.nn.Module, given: Any) -> list[Any]:
    """Return what get_inputs() gives as the arguments of forward(), in order."""
    signature = inspect.signature(model.forward)
    ordered: list[Any]
    named: dict[str, Any]
    if isinstance(given, dict):
        ordered, named = [], given
    elif isinstance(given, list | tuple):
        ordered, named = _split(list(given), model.forward)
    else:
        raise ReferenceFault(
            f"get_inputs() returns a {type(given).__name__}, not a list of the arguments of "
            "forward(), or a dictionary by name"
        )
    if not named:
        return ordered
    try:
        bound = signature.bind(*ordered, **named)
    except TypeError as error:
        raise ReferenceFault(f"get_inputs() does not fit forward(): {error}") from error
    if bound.kwargs:
        kinds = inspect.Parameter
        only = [n for n, p in signature.parameters.items() if p.kind is kinds.KEYWORD_ONLY]
        # What follows an argument that was left out is by name too: give that its default.
        bound.apply_defaults()
        if bound.kwargs:
            words = ", ".join(only or bound.kwargs)
            raise ReferenceFault(
                f"forward() takes {words} by keyword only: let it be given in order as well "
                "(without the * before it)"
            )
    return list(bound.args)


def _missing(error: ImportError, path: str, where: str) -> str:
    """Return what to do about a module that cannot be imported."""
    words = " ".join(str(error).split())[:200]
    name = error.name or ""
    top = name.split(".")[0]
    if "relative import" in words:
        return f"it imports from the package around it{where}: {_ONE_FILE}: {_PUT_INTO}"
    if not isinstance(error, ModuleNotFoundError) or not top:
        return f"an import fails: {type(error).__name__}: {words}{where}"
    beside = Path(path).resolve().parent / top
    if beside.with_suffix(".py").is_file() or beside.is_dir():
        return f"it imports {name}, which lies beside it{where}: {_ONE_FILE}: {_PUT_INTO}"
    package = _DISTRIBUTIONS.get(top, top)
    return f"it imports {name}, which is not installed{where}: pip install {package}"


def tensor_spec(name: str, tensor: torch.Tensor, role: str) -> dict[str, Any]:
    """Return the JSON form of a TensorSpec. Raises ReferenceFault for what launch cannot take."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPE_BYTES:
        known = ", ".join(DTYPE_BYTES)
        parts = "; torch.view_as_real gives its parts as one tensor" if tensor.is_complex() else ""
        raise ReferenceFault(f"{role} {name} has dtype {dtype}; supported are {known}{parts}")
    _require_dense(f"{role} {name}", tensor)
    if tensor.numel() == 0:
        raise ReferenceFault(
            f"{role} {name} has no elements (shape {list(tensor.shape)}): there is nothing to read "
            "or write; leave it out, or give it a size of at least 1"
        )
    return {"name": name, "shape": list(tensor.shape), "dtype": dtype, "role": role}


def _require_dense(what: str, tensor: torch.Tensor) -> None:
    """Raise ReferenceFault for a tensor whose elements are not all there, in order."""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        kind = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else "sparse"
        raise ReferenceFault(
            f"{what} is a {kind} tensor; only dense ones are supported: give what it consists of"
        )


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
            name = identifier(path, taken)
            inputs[name] = value
            input_names.append(name)
        elif isinstance(value, bool | int | float):
            scalars[identifier(path, taken)] = value
            input_names.append(None)
        elif value is None or isinstance(value, str):
            input_names.append(None)
        else:
            raise ReferenceFault(
                f"get_inputs() gives {path} as a {type(value).__name__}; tensors, numbers, words, "
                "and lists and dictionaries of them are supported"
            )
    parameters: dict[str, torch.Tensor] = {}
    buffers: dict[str, torch.Tensor] = {}
    qualified: dict[str, str] = {}
    for target, named in (
        (parameters, model.named_parameters()),
        (buffers, model.named_buffers()),
    ):
        for path, tensor in named:
            name = qualified[path] = identifier(path, taken)
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
        elif isinstance(value, dict):
            for key, element in value.items():
                yield from leaves(f"{name}_{key}", element)
        else:
            yield name, value

    for name, value in zip(names, arguments, strict=False):
        yield from leaves(name, value)


def flatten(value: Any) -> Iterator[Any]:
    """Yield what an answer consists of, in order; what is None is left out."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for element in value:
            yield from flatten(element)
    elif value is not None:
        yield value
