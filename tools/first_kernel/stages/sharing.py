"""Finds kernels that differ in names alone, as equal layers have them, and keeps one for all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ....harness.records.tasks import Task
from ....harness.task.names import constants_of
from ..program.free_names import free_name
from ..program.sizes import shapes_of
from ..program.values import Buffer, same
from .builder import RESERVED

_WORD = re.compile(r"(?<![.\w])[A-Za-z_]\w*")
"""A name that is no member's, as threadIdx.x has one."""
_LOCAL = re.compile(r"\b(?:float|int|long long)\s+(\w+)\s*=")

Sizes = Mapping[str, tuple[int, int]]
"""Constants by name, with their values in the full and in the verified variant."""


@dataclass(frozen=True)
class StageKernel:
    """Text of one kernel: constants before it, its definition, and how it is launched."""

    name: str
    constants: tuple[str, ...]
    sizes: Sizes
    """What the constants are."""
    parameters: tuple[str, ...]
    """Its pointers, results first, under the names that its first launch passes."""
    results: int
    """How many of them are results."""
    definition: tuple[str, ...]
    before_launch: tuple[str, ...]
    """Host variables that the configuration names."""
    configuration: str
    """Grid and block."""
    form: str

    @property
    def note(self) -> str:
        """What it is, in a line."""
        return f"{self.name}: {self.form}"


@dataclass(frozen=True)
class StageLaunch:
    """One launch: which kernel, and the pointers that it is given."""

    kernel: int
    arguments: tuple[str, ...]


def shared(
    kernels: Sequence[StageKernel], task: Task
) -> tuple[list[StageKernel], list[StageLaunch]]:
    """Return the kernels without those that differ from an earlier one in names alone.

    Sizes are names too where their values are the same in both variants of the task. The launches
    come in the order of the kernels given.
    """
    known = _sizes_of(task)
    first: dict[str, int] = {}
    groups: list[list[StageKernel]] = []
    launches = []
    for kernel in kernels:
        place = first.setdefault(_pattern(kernel, known), len(groups))
        if place == len(groups):
            groups.append([])
        groups[place].append(kernel)
        launches.append(StageLaunch(place, kernel.parameters))
    return [_one_for(group) for group in groups], launches


def _sizes_of(task: Task) -> Sizes:
    small = shapes_of(task.verify)
    sizes = {
        f"{tensor.name.upper()}_SIZE_{axis}": pair
        for tensor in task.full.tensors
        for axis, pair in enumerate(zip(tensor.shape, small[tensor.name], strict=True))
    }
    named = constants_of(task.full).dimensions
    return sizes | {
        constant: (task.full.dimensions[name], task.verify.dimensions[name])
        for name, constant in named.items()
    }


def _pattern(kernel: StageKernel, known: Sizes) -> str:
    """Return its text with numbers for its own names and values for those of sizes."""
    text = "\n".join(kernel.definition)
    own = {kernel.name, *kernel.parameters, *_LOCAL.findall(text)}
    numbers: dict[str, int] = {}

    def anonymous(match: re.Match[str]) -> str:
        word = match[0]
        if word in own:
            return f"#{numbers.setdefault(word, len(numbers))}"
        size = kernel.sizes.get(word) or known.get(word)
        return word if size is None else f"<{size[0]}, {size[1]}>"

    values = [str(size) for size in kernel.sizes.values()]
    return "\n".join([_WORD.sub(anonymous, text), *values])


def _one_for(group: Sequence[StageKernel]) -> StageKernel:
    """Return the first of equal kernels, its pointers named by what their names have in common."""
    first = group[0]
    if len(group) == 1:
        return first
    text = "\n".join(first.definition)
    code = "\n".join(line for line in first.definition if not line.startswith("//"))
    taken = set(_WORD.findall(code)) - set(first.parameters)
    names = {
        name: free_name(
            _in_common(kernel.parameters[place] for kernel in group)
            or ("result" if place < first.results else "operand"),
            taken,
        )
        for place, name in enumerate(first.parameters)
    }
    renamed = _WORD.sub(lambda match: names.get(match[0], match[0]), text)
    return replace(
        first,
        parameters=tuple(names.values()),
        definition=tuple(renamed.split("\n")),
        form=f"{first.form}, launched {len(group)} times",
    )


def _in_common(names: Iterable[str]) -> str:
    """Return the words that all names have, as up_weight of up_0_weight and up_1_weight."""
    parts = [name.split("_") for name in names]
    kept = [part for part in parts[0] if all(part in other for other in parts)]
    name = "_".join(part for part in kept if not part.isdigit())
    return name if re.fullmatch(r"[A-Za-z]\w*", name) and name not in RESERVED else ""


def places_of(scratch: Sequence[Buffer], launches: Sequence[StageLaunch]) -> dict[str, str]:
    """Return whose place each intermediate result takes: its own, or that of one read before.

    Only those of one shape share: of others it may differ between variants which is the larger.
    """
    used: dict[str, list[int]] = {}
    for number, launch in enumerate(launches):
        for name in launch.arguments:
            used.setdefault(name, []).append(number)
    owners: list[tuple[Buffer, int]] = []
    found: dict[str, str] = {}
    for buffer in sorted(scratch, key=lambda each: used[each.name][0]):
        first, last = used[buffer.name][0], used[buffer.name][-1]
        place = next(
            (
                number for number, (owner, until) in enumerate(owners)
                if until < first and same(owner.dims, buffer.dims)
            ),
            len(owners),
        )  # fmt: skip
        owner = owners[place][0] if place < len(owners) else buffer
        owners[place : place + 1] = [(owner, last)]
        found[buffer.name] = owner.name
    return found
