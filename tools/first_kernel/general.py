"""Writes a kernel for each operator of a program: what the shorter forms of writer.py do not cover.

Elementwise operators that only one other reads are computed where they are read; views are indices.
What no operator covers is named with its line in the reference, and left out (missing.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...harness.records.tasks import Task
from ...harness.task.names import constants_of
from .kernels.elementwise import OPERANDS
from .kernels.left_out import leave_out
from .kernels.missing import Sketch, Unwritten
from .kernels.nests import Lazy, Result, Scalar, Value, Writing
from .kernels.pen import Pen
from .kernels.source import source_of
from .operators import (
    attention,
    choices,
    filled,
    gathers,
    losses,
    movement,
    normalisations,
    products,
    ranks,
    recurrent,
    scans,
    scatters,
    searches,
    sums,
    windows,
)
from .program.arrays import Array, Storage, expanded, whole
from .program.calls import VIEWS, Call, Number, Reference, calls_of, names_of
from .program.layouts import in_order
from .program.sizes import Sizes, count, shapes_of
from .program.values import CannotWrite, Dim, IsRandom

Operator = Callable[[Writing, Call], Any]

OPERATORS: Mapping[str, Operator] = {
    **movement.OPERATORS, **filled.OPERATORS, **gathers.OPERATORS, **searches.OPERATORS,
    **scatters.OPERATORS, **windows.OPERATORS, **products.OPERATORS, **sums.OPERATORS,
    **normalisations.OPERATORS, **scans.OPERATORS, **attention.OPERATORS, **losses.OPERATORS,
    **choices.OPERATORS, **recurrent.OPERATORS, **ranks.OPERATORS,
}  # fmt: skip
MOST_OPERATIONS = 2500
"""More kernels are more host code than a candidate may have (`MOST_CODE_BYTES`)."""
_EFFECTLESS = ("_assert", "sym_constrain", "_check")


def write_general(task: Task, beside: Sequence[Task] = ()) -> Sketch:
    """Return the CUDA source of a task, but for operators that no kernel is known for.

    Args:
        task: the task.
        beside: the same one, with other small variants in which all holds, too.

    Raises:
        CannotWrite: its shapes, dtypes or views are outside the writer's reach.
    """
    named = names_of(task)
    unknown = _unknown(named)
    if len(named) > MOST_OPERATIONS:
        raise CannotWrite(
            f"it has {len(named)} operations, and a kernel for each of at most {MOST_OPERATIONS} "
            "is written: bring a part of it, a layer for example, as a task of its own, or write "
            "fewer steps (smaller sizes of what a loop runs over) into the file"
        )
    try:
        sizes = Sizes(task, beside)
        lowering = _Lowering(task, sizes, calls_of(task, sizes, beside), beside)
        sketch = source_of(task, sizes, lowering.launches())
    except CannotWrite as reason:
        raise CannotWrite(unknown or str(reason)) from reason
    reasons = dict.fromkeys([unknown, *(each.reason for each in sketch.missing)])
    return sketch.model_copy(update={"reason": "; ".join(filter(None, reasons))})


def _unknown(calls: list[Call]) -> str:
    """Return every operation that is not known, each with its lines; empty where all are."""
    lines: dict[str, list[int]] = {}
    for call in calls:
        if not _known(call):
            lines.setdefault(call.op, []).append(call.line or 0)
    named = [
        f"{op} (line {', '.join(map(str, sorted(set(found))))})" if any(found) else op
        for op, found in lines.items()
    ]
    return f"no kernel is known for {'; '.join(named)}" if named else ""


def _known(call: Call) -> bool:
    return (
        call.base in OPERATORS or call.base in OPERANDS or call.base in ("getitem", "copy")
        or call.base.startswith(_EFFECTLESS)
    )  # fmt: skip


class _Lowering:
    """One pass over the program; `values` maps ATen names to values."""

    def __init__(
        self, task: Task, sizes: Sizes, calls: list[Call], beside: Sequence[Task]
    ) -> None:
        self._write = Writing(sizes)
        self._calls = calls
        self.values: dict[str, Any] = {}
        shapes = [shapes_of(each.verify) for each in (task, *beside)]
        self._outputs: list[Array] = []
        for tensor in task.full.tensors:
            dims = sizes.dims(tensor.shape, *(each[tensor.name] for each in shapes))
            storage = Storage(tensor.name, tensor.dtype, count(dims), external=True)
            array = whole(storage, dims)
            if tensor.role == "output":
                self._outputs.append(array)
            else:
                self.values[tensor.name] = array
        for scalar, constant in constants_of(task.full).scalars.items():
            self.values[scalar] = Scalar(Number(f"static_cast<float>({constant})"))
        self._uses: Counter[str] = Counter()
        self._last: dict[str, int] = defaultdict(int)
        """Position of the last operation that reads a value by this name."""
        self._in_order = in_order(calls, self.values, OPERANDS.__contains__)
        self._roots: dict[str, str] = {}
        for position, call in enumerate(calls):
            names = set(_names_in([call.args, call.kwargs]))
            self._uses.update(names)
            self._last.update(dict.fromkeys(names, position))
        assert task.program is not None
        self._returned = task.program.outputs
        self._uses.update(self._returned)
        self._last.update(dict.fromkeys(self._returned, len(calls)))

    def launches(self) -> list[Pen | Unwritten]:
        """Lower every operation, then write the outputs; returns the launches."""
        for position, call in enumerate(self._calls):
            if call.base.startswith(_EFFECTLESS):
                continue
            self._keep(call, position, self._lowered(call))
        taken: set[int] = set()
        for name, out in zip(self._returned, self._outputs, strict=True):
            self._write.title = f"output {out.storage.name}"
            value = self._resolved(Reference(name))
            if isinstance(value, Array) and self._becomes(value, out, taken):
                continue
            if isinstance(value, Array) and not count(value.dims).same_as(count(out.dims)):
                raise CannotWrite(f"output {out.storage.name} has a shape that does not follow")
            self._write.assign(out, value)
        return self._write.launches

    def _lowered(self, call: Call) -> Any:
        """Return the result of an operation; what cannot be written is left to somebody else."""
        if not _known(call):
            return self._left(call, "")
        done = len(self._write.launches)
        try:
            return self._lower(call)
        except IsRandom:
            raise
        except CannotWrite as error:
            reason = str(error)
            if call.op not in reason and call.where not in reason:
                reason = f"{call.where}: {reason}"
            if call.base in ("getitem", "copy"):
                raise CannotWrite(reason) from error
        del self._write.launches[done:]
        return self._left(call, reason)

    def _left(self, call: Call, reason: str) -> Any:
        parts = {
            int(user.args[1]): (user.dims, user.dtype)
            for user in self._calls
            if user.base == "getitem" and user.args[0] == Reference(call.name)
        }
        shapes = {
            place: (dims, dtype)
            for place, (dims, dtype) in (parts or {0: (call.dims, call.dtype)}).items()
            if dims is not None and dtype is not None
        }
        if len(shapes) < len(parts or [call]):
            raise CannotWrite(reason or f"the shape of {call.where} is not known")
        self._write.title = call.where
        results = leave_out(self._write, self._with_values(call), reason, shapes)
        return results if parts else results[0]

    def _becomes(self, value: Array, out: Array, taken: set[int]) -> bool:
        """Have the kernel that computes a value write it into the output at once."""
        storage = value.storage
        if storage.external or id(storage) in taken or not value.is_whole or (
            storage.dtype != out.dtype):  # fmt: skip
            return False
        taken.add(id(storage))
        storage.name, storage.external = out.storage.name, True
        return True

    def _lower(self, call: Call) -> Any:
        write = self._write
        write.title = call.where
        if call.base == "copy":
            # What it overwrites is not read, and need not even be known.
            return self._copied(call, self._resolved(call.args[1]))
        resolved = self._with_values(call)
        base = call.base
        if base == "as_strided" and not self._is_where_pytorch_has_it(call.args[0]):
            raise CannotWrite(
                f"{call.where} of a value that may lie in memory in another order is not written: "
                "give it what contiguous() returns"
            )
        if base == "getitem":
            found = resolved.args[0][resolved.args[1]]
            return found.make() if isinstance(found, sums.Later) else found
        if base in ("clamp", "clamp_min", "clamp_max") and any(
            isinstance(each, Array | Lazy) for each in resolved.args[1:]
        ):
            names = {"clamp_min": (1, None), "clamp_max": (None, 1)}.get(base, (1, 2))
            low, high = (None if place is None else resolved.get(place, "") for place in names)
            return OPERATORS["clamp_by_tensors"](
                write, replace(resolved, args=(resolved.args[0], low, high))
            )
        if base in ("to", "type_as") or base not in OPERANDS or base in OPERATORS:
            return OPERATORS[base](write, resolved)
        return self._elementwise(resolved, base)

    def _is_where_pytorch_has_it(self, argument: Reference) -> bool:
        value, name = self.values.get(argument.name), argument.name
        if isinstance(value, Lazy):
            return name in self._in_order
        if not isinstance(value, Array):
            return False
        # A copy that PyTorch makes of part of a tensor is a view for us: it has another name.
        given = value.storage.external and value.storage.name == self._root(name)
        return given or (value.is_whole and name in self._in_order)

    def _with_values(self, call: Call) -> Call:
        return replace(
            call,
            args=tuple(self._resolved(each) for each in call.args),
            kwargs={key: self._resolved(each) for key, each in call.kwargs.items()},
        )

    def _copied(self, call: Call, value: Value) -> Value:
        if call.dims is None or call.dtype is None:
            raise CannotWrite(f"{call.where}: its shape is not known")
        copy = self._write.apply("copy", value, dtype=call.dtype)
        if len(copy.dims) == len(call.dims) and all(map(Dim.same_as, copy.dims, call.dims)):
            return copy
        return expanded(self._write.array(copy, call.name), call.dims)

    def _elementwise(self, call: Call, base: str) -> Value:
        many = OPERANDS[base]
        if base in ("pow",) and len(call.args) > 1 and isinstance(call.args[1], Array | Lazy):
            many = 2
        if base in ("add", "sub", "addcmul", "addcdiv", "lerp"):
            call = _with_factor(call, base)
            many = min(max(many, 2), len(call.args)) if base in ("add", "sub") else len(call.args)
        operands = list(call.args[:many])
        if base == "pow" and many == 1 and isinstance(operands[0], int | float):
            many, operands = 2, list(call.args[:2])
        if base == "elu" or base == "softplus":
            operands = operands[:1]
        if base == "threshold":
            operands = list(call.args[:3])
        defaults = {"softshrink": 0.5, "hardshrink": 0.5}
        if base in defaults and len(operands) < 2:
            operands.append(call.kwargs.get("lambd", defaults[base]))
        if base == "prelu":
            rank = len(operands[0].dims)
            operands[1] = normalisations.along_channels(operands[1], self._write, rank)
        options = call.args[len(operands):]
        return self._write.apply(
            base, *operands, dtype=call.dtype, options=options, keywords=call.kwargs
        )

    def _resolved(self, argument: Any) -> Any:
        if isinstance(argument, Reference):
            return self.values.get(argument.name, _Unread(argument.name))
        if isinstance(argument, tuple):
            return tuple(self._resolved(each) for each in argument)
        return argument

    def _keep(self, call: Call, position: int, result: Any) -> None:
        """Keep a result; what several read, or what is returned, is computed once."""
        several = self._uses[call.name] > 1 or call.name in self._returned or call.in_place
        if isinstance(result, Lazy):
            self._check(call, result)
            if several:
                result = self._write.array(result, call.name)
        elif isinstance(result, Array):
            self._check(call, result)
        if isinstance(result, Result):
            raise CannotWrite(f"{call.where}: its second result is not written")
        first = call.args[0] if call.args else None
        copied = call.base == "contiguous" and result is not self.values[call.args[0].name]
        if call.base in VIEWS and isinstance(first, Reference) and not copied:
            self._roots[call.name] = self._root(first.name)
        if call.in_place and isinstance(first, Reference):
            result = self._overwrite(call, position, result)
        self.values[call.name] = result

    def _overwrite(self, call: Call, position: int, result: Value) -> Value:
        """Have all names of a value that is overwritten mean the new one; returns it.

        Nothing is overwritten in memory: where other views of it are read later, the new value is
        written into a copy of all that they are views of.
        """
        name = call.args[0].name
        old, root = self.values.get(name), self._root(name)
        sharing = [each for each in self.values if self._root(each) == root]
        self._roots[call.name] = root
        self.values[name] = result
        others = [
            each for each in sharing
            if self.values[each] is not old and each != name and self._last[each] > position
        ]  # fmt: skip
        if old is not None and others:
            result = self._rewritten(call, old, others, result)
        for each in sharing:
            if self.values[each] is old:
                self.values[each] = result
        self.values[name] = result
        return result

    def _rewritten(self, call: Call, old: Value, others: list[str], result: Value) -> Array:
        if not isinstance(old, Array):
            raise CannotWrite(f"{call.where} changes what is also read by another view")
        before = old.storage
        copy = self._write.new(call.name, (before.size,), before.dtype)
        self._write.assign(copy, whole(before, (before.size,)))

        def moved(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(moved(each) for each in value)
            if not isinstance(value, Array) or value.storage is not before:
                raise CannotWrite(f"{call.where} changes what is also read by another view")
            return replace(value, storage=copy.storage)

        target: Array = moved(old)
        self._write.assign(target, result)
        for each in others:
            self.values[each] = moved(self.values[each])
        return target

    def _root(self, name: str) -> str:
        """Return the name of the value that another is a view of, or its own."""
        return self._roots.get(name, name)

    def _check(self, call: Call, value: Value) -> None:
        if call.dims is None:
            return
        wanted = call.dims
        if len(value.dims) != len(wanted) or not all(
            mine.same_as(other) for mine, other in zip(value.dims, wanted, strict=True)
        ):
            found = [dim.full for dim in value.dims]
            raise CannotWrite(
                f"{call.where} gives shape {found}, expected {[dim.full for dim in wanted]}"
            )


class _Unread:
    """A tensor that launch is not given, since no answer depends on its values."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, _: str) -> Any:
        raise CannotWrite(f"the value {self._name} is no tensor that launch is given")


def _with_factor(call: Call, base: str) -> Call:
    """Return addcmul, addcdiv and lerp with their factors as operands."""
    if base in ("addcmul", "addcdiv"):
        return replace(call, args=(*call.args[:3], call.kwargs.get("value", 1.0)), kwargs={})
    return call


def _names_in(value: Any) -> list[str]:
    if isinstance(value, Reference):
        return [value.name]
    if isinstance(value, Mapping):
        return [name for each in value.values() for name in _names_in(each)]
    if isinstance(value, tuple | list):
        return [name for each in value for name in _names_in(each)]
    return []
