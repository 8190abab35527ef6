"""The operations of a program with the arguments of both variants side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....harness.records.programs import Program, ProgramNode
from ....harness.records.tasks import Task
from .pointwise import number
from .running import with_running
from .sizes import ZERO, Sizes, as_dim, slid, times
from .values import ONE, CannotWrite, Dims

VIEWS = frozenset(
    ("t", "transpose", "permute", "numpy_T", "mT", "swapaxes", "swapdims", "movedim", "view",
     "reshape", "flatten", "unflatten", "view_as", "reshape_as", "ravel", "_unsafe_view",
     "unsqueeze", "squeeze", "expand", "expand_as", "broadcast_to", "broadcast_tensors", "select",
     "slice", "narrow", "split", "split_with_sizes", "chunk", "tensor_split", "unbind", "unfold",
     "diagonal", "detach", "alias", "getitem", "contiguous", "as_strided")
)  # fmt: skip
"""Operations whose results share memory with their first argument, where they need no copy."""


@dataclass(frozen=True)
class Reference:
    """An argument that is a value of the program."""

    name: str


@dataclass(frozen=True)
class Number:
    """A floating point argument that differs between the variants, as C text."""

    text: str


@dataclass(frozen=True)
class Call:
    """One ATen operation; numbers that differ between the variants are dimensions."""

    name: str
    op: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    dims: Dims | None
    dtype: str | None
    line: int | None

    @property
    def base(self) -> str:
        """Name of the operation without library, overload and the mark of working in place."""
        parts = self.op.split(".")
        base = parts[1] if parts[0] == "aten" and len(parts) > 1 else parts[-1]
        return base[:-1] if self.in_place else base

    @property
    def in_place(self) -> bool:
        """Whether the operation overwrites its first argument."""
        parts = self.op.split(".")
        name = parts[1] if len(parts) > 1 else parts[-1]
        return name.endswith("_") and not name.endswith("__")

    @property
    def where(self) -> str:
        """The operation and its line, for titles and reasons."""
        name = self.op.rsplit(".", 1)[0] if self.op.count(".") > 1 else self.op
        return f"{name} (line {self.line})" if self.line else name

    def get(self, position: int, keyword: str, default: Any = None) -> Any:
        """Return an argument by its place or name."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(keyword, default)

    def number(self, position: int, keyword: str, default: float) -> float:
        """Return an argument that is a number and the same in both variants."""
        value = self.get(position, keyword, default)
        if isinstance(value, bool | int | float):
            return float(value)
        raise CannotWrite(f"{keyword} of {self.where} differs between the variants")

    def flag(self, position: int, keyword: str, default: bool = False) -> bool:
        """Return an argument that says yes or no."""
        return bool(self.get(position, keyword, default))

    def sizes(self, position: int, keyword: str, rank: int, default: int) -> Dims:
        """Return one size for each of `rank` axes, from a list, a single number or the default."""
        value = self.get(position, keyword)
        if value is None or value == ():
            value = default
        listed = list(value) if isinstance(value, tuple) else [value]
        return tuple(as_dim(size) for size in (listed * rank if len(listed) == 1 else listed))

    def axis(self, position: int, keyword: str, rank: int, default: Any = None) -> int:
        """Return an axis, counted from the first."""
        value = self.get(position, keyword, default)
        if not isinstance(value, int):
            raise CannotWrite(f"{self.where} has the axis {value}")
        return value % max(rank, 1)

    def axes(self, position: int, keyword: str, rank: int) -> list[int]:
        """Return axes in order, all of them where none are given."""
        value = self.get(position, keyword)
        if value is None or value == ():
            return list(range(rank))
        listed = value if isinstance(value, tuple) else (value,)
        return sorted(int(axis) % max(rank, 1) for axis in listed)


def names_of(task: Task) -> list[Call]:
    """Return the operations that the outputs follow from, without arguments.

    Raises:
        CannotWrite: there is no program.
    """
    if task.program is None:
        raise CannotWrite(f"torch.export could not trace the reference: {task.program_failure}")
    program = with_running(task.program, task.full.tensors)
    needed = _needed(program)
    return [
        Call(node.name, node.op, (), {}, None, node.dtype, node.line)
        for node in program.nodes if node.name in needed
    ]  # fmt: skip


def calls_of(task: Task, sizes: Sizes, beside: Sequence[Task] = ()) -> list[Call]:
    """Return the operations that the outputs follow from, in order.

    Args:
        task: the task.
        sizes: its constants.
        beside: the same one, with other small variants in which all holds, too.

    Raises:
        CannotWrite: the program is not known for all variants, or is another in a small one.
    """
    if task.program is None:
        raise CannotWrite(f"torch.export could not trace the reference: {task.program_failure}")
    program = with_running(task.program, task.full.tensors)
    nodes = program.nodes
    others = [
        with_running(_small_program(each), task.full.tensors).nodes for each in (task, *beside)
    ]
    renamed = {theirs.name: ours.name
               for each in others for ours, theirs in zip(nodes, each, strict=True)}  # fmt: skip
    needed = _needed(program)
    tensors = [each.tensors for each in (task.full, *(each.verify for each in (task, *beside)))]
    shapes = {
        first.name: sizes.dims(first.shape, *(each.shape for each in rest))
        for first, *rest in zip(*tensors, strict=True)
    }
    calls = []
    for ours, *theirs in zip(nodes, *others, strict=True):
        if ours.name in needed:
            call = _Pairing(sizes, renamed, ours).call(*theirs, shapes=shapes)
            calls.append(call)
            if call.dims is not None:
                shapes[call.name] = call.dims
    return calls


def _small_program(task: Task) -> Program:
    """Return the program at the small dimensions. Raises CannotWrite where it is another."""
    assert task.program is not None
    small = task.verify_program
    if small is None:
        if task.full.dimensions != task.verify.dimensions or any(
            ours.shape != theirs.shape
            for ours, theirs in zip(task.full.tensors, task.verify.tensors, strict=True)
        ):
            raise CannotWrite("the program at the small dimensions is not known")
        small = task.program
    if [node.op for node in task.program.nodes] != [node.op for node in small.nodes]:
        raise CannotWrite(
            f"the program has {len(task.program.nodes)} operations, and at the small dimensions "
            f"{len(small.nodes)} others: its loops depend on dimensions, which must stay"
        )
    return small


def _needed(program: Program) -> set[str]:
    """Return the names of operations that the outputs depend on.

    What overwrites a value belongs to that value, also for those who read it by its older name.
    """
    roots: dict[str, str] = {}
    found = []
    for node in program.nodes:
        references = list(_references([node.args, node.kwargs]))
        call = Call(node.name, node.op, (), {}, None, None, None)
        if references and (call.in_place or call.base in VIEWS):
            roots[node.name] = roots.get(references[0], references[0])
        found.append((node.name, references, call.in_place))
    needed = set(program.outputs)
    shared = {roots.get(name, name) for name in needed}
    for name, references, in_place in reversed(found):
        if name in needed or (in_place and roots.get(name) in shared):
            needed.update((name, *references))
            shared.update(roots.get(each, each) for each in (name, *references))
    return needed


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if "ref" in value:
            yield value["ref"]
        else:
            for each in value.values():
                yield from _references(each)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for each in value:
            yield from _references(each)


def places_of_windows(call: Call, shapes: Mapping[str, Dims]) -> Dims:
    """Return the last sizes of a result that a window slides over, as follows from its rule.

    How a half is rounded is the rule's: sizes in all variants may be even.

    Args:
        call: any operation; nothing is returned for one without a window, or of another rule.
        shapes: of the values before it, by name.
    """
    rank = next((rank for rank in (1, 2, 3) if call.base.endswith(f"{rank}d")), 0)
    first, *rest = (shapes.get(getattr(each, "name", "")) for each in (*call.args[:2], None))
    if not rank or first is None or len(first) < rank:
        return ()
    averages = call.base == f"avg_pool{rank}d"
    if call.base == f"conv{rank}d" and rest[0] is not None:
        window, place = rest[0][-rank:], 3
    elif averages or call.base == f"max_pool{rank}d":
        window, place = call.sizes(1, "kernel_size", rank, 1), 2
        if call.flag(4 if averages else 5, "ceil_mode"):
            return ()
    else:
        return ()
    padding = call.get(place + 1, "padding", 0)
    if padding == "same":
        return ()
    given = call.get(place, "stride")
    stride = window if place == 2 and given in (None, ()) else (
        call.sizes(place, "stride", rank, 1))  # fmt: skip
    padded = (ZERO,) * rank if padding == "valid" else call.sizes(place + 1, "padding", rank, 0)
    gaps = (ONE,) * rank if averages else call.sizes(place + 2, "dilation", rank, 1)
    if not all(each.is_number for each in (*stride, *padded, *gaps)):
        return ()
    return tuple(
        slid(size, times(extent, gap), 2 * pad.full + gap.full - 1 + step.full, step.full)
        for size, extent, gap, pad, step in zip(
            first[-rank:], window, gaps, padded, stride, strict=True
        )
    )


class _Pairing:
    """Lays the arguments of one operation in all variants over each other."""

    def __init__(self, sizes: Sizes, renamed: Mapping[str, str], node: ProgramNode) -> None:
        self._sizes = sizes
        self._renamed = renamed
        self._node = node

    def call(self, *others: ProgramNode, shapes: Mapping[str, Dims]) -> Call:
        """Return the operation; `shapes` are those of the values before it."""
        node = self._node
        kwargs = {
            key: self._joined(value, *(each.kwargs[key] for each in others))
            for key, value in node.kwargs.items()
        }
        args = self._joined(node.args, *(each.args for each in others))
        call = Call(node.name, node.op, args, kwargs, None, node.dtype, node.line)
        small = [each.shape for each in others if each.shape is not None]
        if node.shape is None or len(small) < len(others):
            return call
        likely = places_of_windows(call, shapes)
        return replace(call, dims=self._sizes.dims(node.shape, *small, likely=likely))

    def _joined(self, full: Any, *others: Any) -> Any:
        if isinstance(full, Mapping):
            if "ref" in full:
                names = {self._renamed.get(each["ref"], each["ref"]) for each in others}
                if names != {full["ref"]}:
                    raise CannotWrite(f"{self._node.op} has other arguments when shrunk")
                return Reference(full["ref"])
            return float(full["float"])
        if isinstance(full, list | tuple):
            if any(len(each) != len(full) for each in others):
                raise CannotWrite(f"{self._node.op} has other arguments when shrunk")
            return tuple(map(self._joined, full, *others))
        if all(each == full for each in others):
            return full
        if isinstance(full, bool | str) or None in (full, *others):
            raise CannotWrite(f"{self._node.op} is given {full}, and {others[0]} when shrunk")
        if all(isinstance(each, int) for each in (full, *others)):
            return self._sizes.of(full, others[0], others[1:])
        texts = [number(float(each)) for each in (full, *others)]
        return Number(f"({self._sizes.chosen(*texts)})")
