"""Turns a program of ATen operations into values, cut into stages that become one kernel each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....harness.records.programs import ProgramNode
from ....harness.records.tasks import Task
from ....harness.task.names import constants_of
from ..program.pointwise import POINTWISE, number
from ..program.values import (
    ONE,
    Buffer,
    CannotWrite,
    Dim,
    Dims,
    Load,
    Pointwise,
    Product,
    Scalar,
    Value,
    load_of,
    product,
    products,
    reductions,
    same,
    walk,
)
from .builder import Builder, Squeezed, Stage, permuted, same_geometry, unwrapped

_TYPES = ("float32", "float16", "bfloat16")
_IDENTITIES = frozenset(
    ("contiguous", "clone", "detach", "alias", "dropout", "to", "_to_copy", "lift_fresh_copy",
     "native_dropout", "type_as", "float", "identity")
)  # fmt: skip


MOST_TOGETHER = 200
"""Operations of a program whose values are described together, each by those before it."""


def lower_program(task: Task) -> list[Stage]:
    """Return the stages that compute the task's outputs, in order of execution.

    Raises:
        CannotWrite: an operation, dtype or shape is outside the writer's reach.
    """
    if task.program is None:
        raise CannotWrite("torch.export could not trace the reference")
    return _Lowering(task).stages()


class _Lowering:
    """One pass over the program; `values` maps ATen names to values."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._build = Builder({tensor.name for tensor in task.full.tensors})
        self.values: dict[str, Value] = {}
        verify = {tensor.name: tensor for tensor in task.verify.tensors}
        self._outputs: list[Buffer] = []
        for tensor in task.full.tensors:
            other = verify[tensor.name]
            if len(other.shape) != len(tensor.shape):
                raise CannotWrite(f"tensor {tensor.name} changes its rank between the variants")
            if tensor.dtype not in _TYPES:
                raise CannotWrite(f"tensor {tensor.name} is {tensor.dtype}; only floating point "
                                  "of 32 or 16 bits is written")  # fmt: skip
            dims = tuple(
                Dim(f"{tensor.name.upper()}_SIZE_{axis}", full, small)
                for axis, (full, small) in enumerate(zip(tensor.shape, other.shape, strict=True))
            )
            buffer = Buffer(tensor.name, tensor.dtype, dims)
            if tensor.role == "output":
                self._outputs.append(buffer)
            else:
                self.values[tensor.name] = load_of(buffer)
        for scalar, constant in constants_of(task.full).scalars.items():
            self.values[scalar] = Scalar(scalar, (), text=f"static_cast<float>({constant})")

    def stages(self) -> list[Stage]:
        """Lower every node, then give each output to a stage."""
        program = self._task.program
        assert program is not None
        if len(program.nodes) > MOST_TOGETHER:
            raise CannotWrite(f"{len(program.nodes)} operations are too many to join in kernels")
        for node in program.nodes:
            base = node.op.split(".")[1] if node.op.startswith("aten.") else node.op
            unread = "getitem" in node.op and node.args[1] != 0
            if base.startswith("_assert") or unread:
                continue
            if node.dtype not in (None, *_TYPES):
                # A cast to it changes values, and what is computed in it is not what a float is.
                raise CannotWrite(f"{node.op} computes in {node.dtype}")
            self.values[node.name] = self._lower(node)
            self._check_shape(node)
        finals = []
        for name, buffer in zip(program.outputs, self._outputs, strict=True):
            value = unwrapped(self._get({"ref": name}))
            if not same(_trimmed(value.dims), _trimmed(buffer.dims)) and not product(
                value.dims
            ).same_as(product(buffer.dims)):
                raise CannotWrite(f"output {buffer.name} has a shape that could not be followed")
            finals.append((value, buffer))
        self._build.stages += _grouped(finals)
        return self._build.stages

    def _check_shape(self, node: ProgramNode) -> None:
        value = self.values[node.name]
        if node.shape is None or node.op.endswith("getitem>"):
            return
        full = tuple(dim.full for dim in value.dims)
        small = tuple(dim.verify for dim in value.dims)
        if tuple(node.shape) not in (full, small):
            raise CannotWrite(f"{node.op} gives shape {list(node.shape)}, expected {list(full)}")

    # Access to operands

    def _get(self, argument: Any) -> Value:
        """Return an argument as a value: a reference to an earlier one, or a number."""
        if isinstance(argument, Mapping) and "ref" in argument:
            name = argument["ref"]
            if name not in self.values:
                raise CannotWrite(f"value {name} is not a tensor the writer knows")
            value = self.values[name]
            return self._build.stored.get(id(value), value)
        if isinstance(argument, Mapping) and "float" in argument:
            argument = float(argument["float"])
        if isinstance(argument, bool) or not isinstance(argument, (int, float, str)):
            raise CannotWrite(f"argument {argument!r} is neither tensor nor number")
        return Scalar("number", (), text=number(float(argument)))

    # Lowering of one node

    def _lower(self, node: ProgramNode) -> Value:
        parts = node.op.strip("<>").split(".")
        base = parts[1] if parts[0] == "aten" and len(parts) > 1 else parts[-1]
        if "getitem" in node.op:
            return self._get(node.args[0])
        base = base[:-1] if base.endswith("_") and not base.startswith("_") else base
        if base in _IDENTITIES:
            if base.endswith("dropout") and node.args[2:3] == (True,):
                raise CannotWrite("dropout in training is random: read it with --mode eval")
            return self._get(node.args[0])
        if base in _VIEWS:
            return self._view(base, node)
        if node.op.endswith(("max.other", "min.other")):
            base = f"{base}imum"
        if base in _PRODUCTS:
            return self._product(base, node)
        if base in _REDUCTIONS:
            return self._reduction(base, node)
        if base in _COMPOSITES:
            return self._composite(base, node)
        if base in POINTWISE:
            operands = [self._get(argument) for argument in _tensor_first(base, node.args)]
            options = node.args[len(operands) :]
            return self._build.apply(base, operands, node.name, options, node.kwargs)
        raise CannotWrite(f"operation {node.op} is not among those the writer knows")

    # Families

    def _reduction(self, base: str, node: ProgramNode) -> Value:
        source = self._get(node.args[0])
        arguments = list(node.args[1:])
        axes_given = arguments[0] if arguments else node.kwargs.get("dim")
        keep = bool(node.kwargs.get("keepdim", False))
        position = 2 if base in ("var", "std", "linalg_vector_norm", "norm") else 1
        if base in ("linalg_vector_norm", "norm"):
            axes_given = arguments[1] if len(arguments) > 1 else node.kwargs.get("dim")
        if len(arguments) > position and isinstance(arguments[position], bool):
            keep = arguments[position]
        elif (
            base not in ("linalg_vector_norm", "norm")
            and len(arguments) > 1
            and (isinstance(arguments[1], bool))
        ):
            keep = arguments[1]
        axes = _axes(axes_given, len(source.dims))
        count = product([source.dims[axis] for axis in axes])
        result = self._reduced_value(base, node, source, axes, count)
        return result if keep else self._build.squeeze(result, axes)

    def _reduced_value(
        self, base: str, node: ProgramNode, source: Value, axes: Sequence[int], count: Dim
    ) -> Value:
        name = node.name
        if base in ("sum", "amax", "amin", "max", "min"):
            kind = {"amax": "max", "amin": "min"}.get(base, base)
            return self._build.reduce(kind, source, axes, f"row_{kind}")
        if base == "mean":
            return self._mean(source, axes, count, name)
        if base == "logsumexp":
            largest = self._build.reduce("max", source, axes, "row_max")
            shifted = self._build.apply("sub", [source, largest], "shifted")
            exponential = self._build.apply("exp", [shifted], "exponential")
            total = self._build.reduce("sum", exponential, axes, "row_sum")
            log_sum = self._build.apply("log", [total], "log_sum")
            return self._build.apply("add", [log_sum, largest], name)
        if base in ("linalg_vector_norm", "norm"):
            if node.args[1:2] not in ((), (2,), (2.0,)) or node.kwargs.get("ord", 2) not in (
                2,
                2.0,
            ):
                raise CannotWrite("only the Euclidean norm is written")
            squares = self._build.apply("square", [source], "square")
            total = self._build.reduce("sum", squares, axes, "row_squares")
            return self._build.apply("sqrt", [total], name)
        correction = node.kwargs.get("correction", 1)
        if len(node.args) > 2 and isinstance(node.args[2], bool):
            correction = 1 if node.args[2] else 0
        variance = self._variance(source, axes, count, correction)
        return self._build.apply("sqrt", [variance], name) if base == "std" else variance

    def _mean(self, source: Value, axes: Sequence[int], count: Dim, name: str) -> Value:
        total = self._build.reduce("sum", source, axes, "row_sum")
        return self._build.apply("div", [total, Scalar("count", (), count=count)], name)

    def _variance(
        self, source: Value, axes: Sequence[int], count: Dim, correction: float, name: str = "var"
    ) -> Value:
        mean = self._mean(source, axes, count, "mean")
        centred = self._build.apply("sub", [source, mean], "centred")
        squares = self._build.reduce("sum", self._build.apply("square", [centred], "square"), axes,
                               "square_sum")  # fmt: skip
        divisor = Scalar("count", (), count=count, correction=int(correction))
        return self._build.apply("div", [squares, divisor], name)

    def _composite(self, base: str, node: ProgramNode) -> Value:
        source = self._get(node.args[0])
        rank = len(source.dims)
        if isinstance(source, Squeezed) or products(source):
            source = self._build.materialise(source)
        if base in ("softmax", "_softmax", "log_softmax", "_log_softmax"):
            axes = _axes([node.args[1] if len(node.args) > 1 else node.kwargs["dim"]], rank)
            largest = self._build.reduce("max", source, axes, "row_max")
            shifted = self._build.apply("sub", [source, largest], "shifted")
            exponential = self._build.apply("exp", [shifted], "exponential")
            total = self._build.reduce("sum", exponential, axes, "row_sum")
            if "log" in base:
                log_sum = self._build.apply("log", [total], "log_sum")
                return self._build.apply("sub", [shifted, log_sum], node.name)
            return self._build.apply("div", [exponential, total], node.name)
        arguments = dict(enumerate(node.args))
        axes = list(range(rank - len(node.args[1]), rank))
        count = product([source.dims[axis] for axis in axes])
        weight = arguments.get(2, node.kwargs.get("weight"))
        if base in ("rms_norm", "_fused_rms_norm"):
            bias, given = None, arguments.get(3, node.kwargs.get("eps"))
            epsilon = 1.1920928955078125e-07 if given is None else given
            squares = self._build.apply("square", [source], "square")
            spread = self._mean(squares, axes, count, "mean_square")
            centred: Value = source
        else:
            bias = arguments.get(3, node.kwargs.get("bias"))
            epsilon = arguments.get(4, node.kwargs.get("eps", 1e-5))
            spread = self._variance(source, axes, count, 0)
            mean = next(
                value for value in walk(spread)
                if isinstance(value, Pointwise) and value.name.startswith("mean")
            )  # fmt: skip
            centred = self._build.apply("sub", [source, mean], "centred")
        shifted = self._build.apply("add", [spread, self._get(float(epsilon))], "shifted")
        scale = self._build.apply("rsqrt", [shifted], "inverse_deviation")
        result = self._build.apply("mul", [centred, scale], node.name)
        if weight is not None:
            result = self._build.apply("mul", [result, self._get(weight)], node.name)
        if bias is not None:
            result = self._build.apply("add", [result, self._get(bias)], node.name)
        return result

    def _product(self, base: str, node: ProgramNode) -> Value:
        bias: Value | None = None
        arguments = list(node.args)
        if base == "addmm":
            bias = self._get(arguments.pop(0))
        left, right = (self._build.materialise(self._get(argument)) for argument in arguments[:2])
        if base == "linear" and len(right.dims) == 2:
            right = permuted(right, (1, 0))
            bias = self._get(arguments[2]) if len(arguments) > 2 and arguments[2] else None
            if bias is None and node.kwargs.get("bias"):
                bias = self._get(node.kwargs["bias"])
        if len(left.dims) < 2 or len(right.dims) != 2:
            raise CannotWrite(f"{node.op} of ranks {len(left.dims)} and {len(right.dims)}: only a "
                              "product with a single matrix on the right is written")  # fmt: skip
        if len(left.dims) > 2 and not left.is_contiguous:
            raise CannotWrite(f"{node.op} of a permuted batch is not written")
        if not left.dims[-1].same_as(right.dims[0]):
            raise CannotWrite(f"{node.op}: inner sizes differ")
        dims = (*left.dims[:-1], right.dims[1])
        result: Value = Product(self._build.name(node.name), dims, left=left, right=right)
        alpha, beta = node.kwargs.get("alpha", 1), node.kwargs.get("beta", 1)
        if alpha != 1:
            result = self._build.apply("mul", [result, self._get(alpha)], node.name)
        if bias is not None and beta != 0:
            if beta != 1:
                bias = self._build.apply("mul", [bias, self._get(beta)], node.name)
            result = self._build.apply("add", [result, bias], node.name)
        return result

    def _view(self, base: str, node: ProgramNode) -> Value:
        source = self._get(node.args[0])
        rank = len(source.dims)
        if base in ("t", "transpose", "permute", "numpy_T", "mT"):
            order = list(range(rank))
            if base == "permute":
                order = [int(axis) % rank for axis in node.args[1]]
            elif rank >= 2:
                first, second = node.args[1:3] if base == "transpose" else (rank - 2, rank - 1)
                if base == "numpy_T":
                    order.reverse()
                else:
                    order[first % rank], order[second % rank] = second % rank, first % rank
            return permuted(self._build.materialise(source), order)
        if base == "unsqueeze":
            return self._unsqueezed(source, int(node.args[1]) % (rank + 1))
        if base == "squeeze":
            axes = _axes(node.args[1], rank) if len(node.args) > 1 else range(rank)
            return self._build.squeeze(source, [axis for axis in axes if source.dims[axis].is_one])
        if base in ("expand", "expand_as"):
            return source  # broadcasting is decided where the value is used
        return self._reshaped(source, node)

    def _unsqueezed(self, source: Value, position: int) -> Value:
        dims = (*source.dims[:position], ONE, *source.dims[position:])
        if isinstance(source, Squeezed) and same(source.inner.dims, dims):
            return source.inner
        view = self._build.materialise(source)
        strides = (*view.strides[:position], None, *view.strides[position:])
        return Load(view.name, dims, buffer=view.buffer, strides=strides)

    def _reshaped(self, source: Value, node: ProgramNode) -> Value:
        """View whose dimensions are runs of the source's, merged; a split has no symbolic size."""
        shape = node.shape or ()
        dims: list[Dim] = []
        left = list(source.dims)
        for size in shape:
            if size == 1:
                dims.append(ONE)
                continue
            run: list[Dim] = []
            while left and size not in (product(run).full, product(run).verify):
                run.append(left.pop(0))
            if size not in (product(run).full, product(run).verify):
                raise CannotWrite(f"{node.op} splits a dimension, which is not written")
            dims.append(product(run))
        if not all(dim.is_one for dim in left):
            raise CannotWrite(f"{node.op} to {list(shape)} is not written")
        view = self._build.materialise(source)
        if not view.is_contiguous:
            raise CannotWrite(f"{node.op} of a permuted tensor is not written")
        whole = Buffer(view.buffer.name, view.buffer.dtype, tuple(dims))
        return load_of(whole, view.name)


_VIEWS = frozenset(
    ("t", "transpose", "permute", "numpy_T", "mT", "unsqueeze", "squeeze", "expand", "expand_as",
     "view", "reshape", "_unsafe_view", "flatten")
)  # fmt: skip
_PRODUCTS = frozenset(("mm", "matmul", "linear", "addmm"))
_REDUCTIONS = frozenset(
    ("sum", "mean", "amax", "amin", "max", "min", "var", "std", "logsumexp", "norm",
     "linalg_vector_norm")
)  # fmt: skip
_COMPOSITES = frozenset(
    ("softmax", "_softmax", "log_softmax", "_log_softmax", "layer_norm", "native_layer_norm",
     "rms_norm", "_fused_rms_norm")
)  # fmt: skip


def _tensor_first(base: str, arguments: Sequence[Any]) -> Sequence[Any]:
    """Return the arguments that are operands; the rest are options of the operation."""
    return arguments[: POINTWISE[base]]


def _axes(given: Any, rank: int) -> list[int]:
    """Return axes as sorted non-negative numbers; all of them when none are given."""
    if given is None or (isinstance(given, Sequence) and not given):
        return list(range(rank))
    listed = given if isinstance(given, Sequence) else [given]
    return sorted(int(axis) % rank for axis in listed)


def _trimmed(dims: Dims) -> Dims:
    return tuple(dim for dim in dims if not dim.is_one)


def _grouped(finals: Sequence[tuple[Value, Buffer]]) -> list[Stage]:
    """Group outputs that one kernel can write: row programs of one geometry, or equal shapes."""
    groups: list[list[tuple[Value, Buffer]]] = []
    for value, buffer in finals:
        for group in groups:
            if _together(group[0][0], value):
                group.append((value, buffer))
                break
        else:
            groups.append([(value, buffer)])
    return [Stage(tuple(group)) for group in groups]


def _together(left: Value, right: Value) -> bool:
    if products(left) or products(right):
        return False
    ours, theirs = reductions(left), reductions(right)
    if ours and theirs:
        return same_geometry(ours[0], theirs[0])
    return not ours and not theirs and same(left.dims, right.dims)
