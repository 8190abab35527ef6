"""Runs inside the reference child: torch.export's graph as a plain list of ATen operations.

The form of one node: {"name", "op", "args", "kwargs", "shape", "dtype", "line"}; a reference to
another value is {"ref": NAME}, an infinite or undefined number {"float": "inf" | "-inf" | "nan"},
and dtypes, devices and layouts are strings.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import InputKind, OutputKind

from ..loading.hints import instead_of_operator
from ..loading.model import Instance, flatten
from .taken_apart import taken_apart

_NO_EFFECT = ("aten._assert_tensor_metadata", "aten._assert_async", "aten._assert_scalar")
_SAME_VALUE = ("aten.lift_fresh_copy", "aten.detach", "aten.detach_", "aten.alias")

_MATMUL = {"mm", "bmm", "matmul", "linear", "addmm", "baddbmm", "mv", "dot", "einsum", "addmv",
           "inner", "outer"}  # fmt: skip
_SOFTMAX = {"softmax", "log_softmax", "_softmax", "_log_softmax"}
_NORMALIZATION = {"layer_norm", "native_layer_norm", "rms_norm", "group_norm", "batch_norm",
                  "instance_norm", "normalize"}  # fmt: skip
_REDUCTION = {"sum", "mean", "amax", "amin", "max", "min", "prod", "argmax", "argmin", "var", "std",
              "norm", "linalg_vector_norm", "logsumexp", "any", "all", "var_mean", "std_mean",
              "mse_loss", "l1_loss", "smooth_l1_loss", "kl_div", "cross_entropy_loss",
              "cosine_similarity", "nll_loss", "nll_loss_nd"}  # fmt: skip
_MOVEMENT = {"transpose", "permute", "t", "numpy_T", "swapaxes", "movedim", "mT"}
_VIEWS = {"view", "reshape", "unsqueeze", "squeeze", "expand", "contiguous", "clone", "flatten",
          "getitem", "to", "_to_copy", "_unsafe_view", "expand_as", "view_as", "type_as", "alias",
          "unflatten", "detach", "dropout"}  # fmt: skip
_STRUCTURAL = {"cat", "stack", "index", "gather", "scatter", "embedding", "cumsum", "cumprod",
               "sort", "topk", "index_select", "pad", "constant_pad_nd", "roll", "flip", "slice",
               "select", "tril", "triu", "split", "chunk", "repeat", "unfold", "lstm", "gru",
               "scaled_dot_product_attention", "upsample_nearest2d", "interpolate",
               "pixel_shuffle", "scatter_add", "index_add", "diag", "where"}  # fmt: skip


CONSTANT = "constant"
"""Stands for the operator of a tensor whose values the program holds."""
LARGEST_CONSTANT = 1024
"""Elements of a tensor whose values a program holds; a larger one is a buffer."""


class NotExportable(Exception):
    """torch.export's graph holds something a plain list of ATen operations cannot."""


def export_program(instance: Instance, path: str = "") -> dict[str, Any]:
    """Return the JSON form of a Program for a model and inputs (fake tensors are enough).

    Args:
        path: of the reference, whose lines operations are given; as PyTorch's traces have it.

    Raises NotExportable, or whatever torch.export raises.
    """
    model = instance.model
    with torch.no_grad(), _counting_no_batches(model), _returning_tensors(model):
        exported = taken_apart(torch.export.export(model, instance.arguments))
    return _Writer(exported, instance, path).program()


@contextmanager
def _counting_no_batches(model: torch.nn.Module) -> Iterator[None]:
    """Have batch norms that average over all batches so far (momentum=None) take this one alone.

    What they average is the same in the first call, and the number of calls is a tensor's value.
    """
    kind = torch.nn.modules.batchnorm._BatchNorm
    averaging = [
        module for module in model.modules() if isinstance(module, kind) and module.momentum is None
    ]
    for module in averaging:
        module.momentum = 1.0
    try:
        yield
    finally:
        for module in averaging:
            module.momentum = None


@contextmanager
def _returning_tensors(model: torch.nn.Module) -> Iterator[None]:
    """Have forward() return its tensors in order, whatever it has them in: torch.export takes no
    dictionaries of a kind of their own."""
    own = model.forward

    @functools.wraps(own)
    def forward(*arguments: Any) -> tuple[Any, ...]:
        return tuple(flatten(own(*arguments)))

    # That of forward() itself names what a bound one is not given.
    forward.__signature__ = inspect.signature(own)  # type: ignore[attr-defined]
    shadowed = vars(model).get("forward")
    object.__setattr__(model, "forward", forward)
    try:
        yield
    finally:
        if shadowed is None:
            object.__delattr__(model, "forward")
        else:
            object.__setattr__(model, "forward", shadowed)


class _Writer:
    """Translates one exported graph; `values` maps graph names to how they are written."""

    def __init__(
        self, exported: torch.export.ExportedProgram, instance: Instance, path: str
    ) -> None:
        self.exported = exported
        self.path = path
        self.values: dict[str, Any] = {}
        self.constants: list[dict[str, Any]] = []
        """Nodes of tensors that the model neither learns nor keeps."""
        tensors = {*instance.inputs, *instance.parameters, *instance.buffers}
        self.taken = set(tensors)
        positions = iter(instance.input_names)
        for spec in exported.graph_signature.input_specs:
            name = spec.arg.name
            if spec.kind is InputKind.USER_INPUT:
                ours = next(positions, None)
                if ours is not None:
                    self.values[name] = {"ref": ours}
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
                # Shared parameters appear under each of their names; the first names the tensor.
                found = instance.qualified.get(spec.target or "")
                self.values[name] = {"ref": found or _shared(instance, spec.target or "")}
            elif spec.kind is InputKind.CONSTANT_TENSOR:
                tensor = exported.constants.get(spec.target or "")
                constant = _constant(tensor)
                if constant is not None:
                    self.values[name] = constant
                elif (node := _constant_node(name, tensor)) is not None:
                    self.constants.append(node)
                    self.values[name] = {"ref": name}
            else:
                raise NotExportable(f"an input of kind {spec.kind.name}")

    def program(self) -> dict[str, Any]:
        nodes = [*self.constants, *self._nodes()]
        outputs = []
        for spec in self.exported.graph_signature.output_specs:
            if spec.kind is OutputKind.USER_OUTPUT:
                if getattr(spec.arg, "value", spec) is None:
                    continue  # It returns None beside its tensors.
                value = self.values.get(spec.arg.name)
                if not isinstance(value, dict) or "ref" not in value:
                    raise NotExportable("an output that is a constant")
                outputs.append(value["ref"])
        return {"nodes": nodes, "outputs": outputs}

    def _nodes(self) -> Iterator[dict[str, Any]]:
        for node in self.exported.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            if node.op != "call_function":
                raise NotExportable(f"a {node.op} node ({node.target})")
            op = _op_name(node.target)
            if op.startswith(_NO_EFFECT):
                continue
            if op == "aten.copy_.default" and node.args[0].name not in self.values:
                # Overwritten before anything read it: a tensor that the model keeps for itself.
                self.values[node.name] = self._value(node.args[1])
                self.values[node.args[0].name] = self.values[node.name]
                continue
            if op.rsplit(".", 1)[0] in _SAME_VALUE and node.args[0].name in self.values:
                self.values[node.name] = self.values[node.args[0].name]
                continue
            name = node.name
            while name in self.taken:
                name += "_"
            self.taken.add(name)
            shape, dtype = self._result(node)
            yield {
                "name": name,
                "op": op,
                "args": [self._value(argument) for argument in node.args],
                "kwargs": {key: self._value(value) for key, value in node.kwargs.items()},
                "shape": shape,
                "dtype": dtype,
                "line": self._line(node),
            }
            self.values[node.name] = {"ref": name}

    def _result(self, node: torch.fx.Node) -> tuple[list[int] | None, str | None]:
        """Return shape and dtype of a result, or of the first of several."""
        value = node.meta.get("val")
        if isinstance(value, list | tuple) and value:
            value = value[0]
        if not isinstance(value, torch.Tensor):
            return None, None
        if not all(isinstance(size, int) for size in value.shape):
            line = self._line(node)
            where = f"{_op_name(node.target)} (line {line})" if line else _op_name(node.target)
            instead = instead_of_operator(_op_name(node.target))
            raise NotExportable(f"{where}, whose shape depends on values: {instead}")
        return list(value.shape), str(value.dtype).removeprefix("torch.")

    def _line(self, node: torch.fx.Node) -> int | None:
        """Return the innermost line of the reference that a node comes from."""
        frame = f'File "{self.path}", line '
        found = [line.split(frame)[1] for line in (node.stack_trace or "").splitlines()
                 if frame in line]  # fmt: skip
        return int(found[-1].split(",")[0]) if found else None

    def _value(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            if value.name not in self.values:
                raise NotExportable(
                    f"the value {value.name}, which is neither parameter nor buffer: give it to "
                    "register_buffer() in __init__"
                )
            return self.values[value.name]
        if isinstance(value, list | tuple):
            return [self._value(element) for element in value]
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
            return str(value)
        raise NotExportable(f"an argument of type {type(value).__name__}")


def op_class(program: Mapping[str, Any] | None, tensors: Sequence[Mapping[str, Any]]) -> str:
    """Return the class of a program by its operations: what kind of kernel it needs most.

    `tensors` are those of the launch signature: what returns less than it is given is not
    elementwise, whatever its operations are called.
    """
    if program is None:
        return "mixed"
    names = [
        node["op"].split(".")[1] if "." in node["op"] else node["op"] for node in program["nodes"]
    ]
    names = [name.removesuffix("_") for name in names]
    used = set(names)
    if used & _STRUCTURAL or any("conv" in name or "pool" in name for name in names):
        return "mixed"
    heavy = [
        label
        for label, family in (
            ("matmul", _MATMUL), ("softmax", _SOFTMAX), ("normalization", _NORMALIZATION),
        )
        if used & family
    ]  # fmt: skip
    reduces = bool(used & _REDUCTION)
    if len(heavy) > 1 or (heavy and reduces):
        return "mixed"
    if heavy:
        return heavy[0]
    if reduces:
        return _written_out(program, names)
    rest = used - _VIEWS
    if rest and rest <= _MOVEMENT:
        return "transpose"
    sizes = {role: 0 for role in ("output", "input")}
    for tensor in tensors:
        if tensor["role"] in sizes:
            sizes[tensor["role"]] = max(sizes[tensor["role"]], math.prod(tensor["shape"]))
    same_size = sizes["output"] >= sizes["input"]
    return "elementwise" if same_size and not used & _MOVEMENT else "mixed"


def _written_out(program: Mapping[str, Any], names: list[str]) -> str:
    """Tell softmax and norms written out by hand from plain reductions: results flow back in."""
    nodes = program["nodes"]
    sizes = {node["name"]: math.prod(node["shape"] or [1]) for node in nodes}
    final = max((sizes.get(name, 1) for name in program["outputs"]), default=1)
    reduced = [
        sizes[node["name"]] for node, name in zip(nodes, names, strict=True) if name in _REDUCTION
    ]
    if not reduced or final <= max(reduced):
        return "reduction"
    if "exp" in names and "div" in names:
        return "softmax"
    if {"rsqrt", "sqrt", "div"} & set(names) or "linalg_vector_norm" in names:
        return "normalization"
    return "mixed"


def _op_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    name = getattr(target, "__name__", "")
    if name == "getitem":
        return name
    raise NotExportable(f"a call of {target}, which is no ATen operation")


def _shared(instance: Instance, target: str) -> str:
    tensor: Any = instance.model
    for part in target.split("."):
        tensor = getattr(tensor, part)
    for name, candidate in (instance.parameters | instance.buffers).items():
        if candidate is tensor:
            return name
    raise NotExportable(f"the tensor {target}, which is neither parameter nor buffer")


def _constant(tensor: Any) -> Any:
    """Return the number in a one-element constant tensor; None for larger ones."""
    if isinstance(tensor, torch.Tensor) and tensor.numel() == 1:
        value = getattr(tensor, "constant", None)
        value = tensor if value is None else value
        number = value.item()
        if isinstance(number, float) and not math.isfinite(number):
            return {"float": str(number)}
        return number
    return None



def _constant_node(name: str, tensor: Any) -> dict[str, Any] | None:
    """Return a small tensor as the node that makes it; None for one that is none."""
    if not isinstance(tensor, torch.Tensor) or tensor.numel() > LARGEST_CONSTANT:
        return None
    value = getattr(tensor, "constant", None)
    known = tensor if value is None else value
    if isinstance(known, FakeTensor) or known.is_complex():
        return None
    numbers = [
        {"float": str(each)} if isinstance(each, float) and not math.isfinite(each) else each
        for each in known.detach().reshape(-1).tolist()
    ]
    return {
        "name": name, "op": CONSTANT, "args": [numbers], "kwargs": {}, "line": None,
        "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch."),
    }  # fmt: skip
