"""Puts launches together to one CUDA source: kernels of one text once, results in a workspace.

A result lives from the launch that writes it to the last that reads it; those whose lives do not
meet share a place. All offsets are constants, so that they fit either variant of the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ....harness.records.tasks import Task
from ....harness.records.tensors import DTYPE_BYTES
from ..program.arrays import Array, Storage
from ..program.free_names import free_name
from ..program.orders import never_more
from ..program.sizes import Sizes, atom, same_as_zero
from .missing import MissingKernel, Sketch, Unwritten
from .pen import C_TYPES, INDEX, Hole, Pen

THREADS = 256
_ALIGNMENT = 256
_KEPT = {INDEX: f"constexpr {INDEX}", "float": "const float", "double": "const double"}
"""How numbers stand in a kernel; what sqrtf gives is no constant expression."""


@dataclass
class _Kernel:
    """Launches that have one text, in their order."""

    name: str
    pens: list[Pen] = field(default_factory=list)

    @property
    def varying(self) -> list[Hole]:
        """The numbers that are not the same in all launches."""
        first = self.pens[0].holes
        return [
            hole for position, hole in enumerate(first)
            if any(pen.holes[position].text != hole.text for pen in self.pens)
        ]  # fmt: skip

    def definition(self) -> list[str]:
        """Return the kernel as text."""
        first, varying = self.pens[0], self.varying
        arguments = [f"{pointer.ctype} {pointer.name}" for pointer in first.pointers]
        arguments += [f"{hole.ctype} {hole.name}" for hole in varying]
        lines = [f"// {line}" for line in first.title.splitlines()]
        if len(self.pens) > 1:
            lines.append(f"// The first of {len(self.pens)} launches; sizes that differ are given.")
        lines += _call_like(f"__global__ void {self.name}(", arguments, ") {")
        lines += [
            f"    {_KEPT[hole.ctype]} {hole.name} = {hole.text};"
            for hole in first.holes if hole not in varying
        ]  # fmt: skip
        index = "long long" if any(pen.wide for pen in self.pens) else "int"
        return [_with_index(line, index) for line in [*lines, *first.lines, "}"]]

    def launch(self, pen: Pen) -> list[str]:
        """Return the statement that launches it for one operation."""
        names = {hole.name for hole in self.varying}
        index = "long long" if any(other.wide for other in self.pens) else "int"
        arguments = [_argument(pointer.array) for pointer in pen.pointers]
        arguments += [
            f"static_cast<{index}>({hole.text})" if hole.ctype == INDEX and not hole.text.isdigit()
            else hole.text
            for hole in pen.holes if hole.name in names
        ]  # fmt: skip
        grid = pen.block_per.text if pen.block_per else f"blocks_of({pen.threads.text})"
        return _call_like(f"{self.name}<<<{grid}, {THREADS}, 0, stream>>>(", arguments, ");", 4)


def source_of(task: Task, sizes: Sizes, launches: Sequence[Pen | Unwritten]) -> Sketch:
    """Return the CUDA source that does the launches in order."""
    taken = {tensor.name for tensor in task.full.tensors} | {
        "blocks_of", "larger", "workspace", "stream",
    }  # fmt: skip
    pens = [launch for launch in launches if isinstance(launch, Pen)]
    kernels = _kernels(pens, taken)
    functions = _functions(launches, taken)
    results = _results(launches)
    for storage in results:
        storage.name = free_name(storage.name, taken)
    slots, places = _places(results)
    before = ['#include "task.cuh"', "", *sizes.declarations]
    before += [""] if sizes.declarations else []
    for kernel in kernels:
        before += [*kernel.definition(), ""]
    lines: list[str] = []
    total = "0"
    scratch = [_aligned(function.scratch) for function in functions.values()]
    places_bytes = [_bytes(sharing, sizes) for sharing in slots]
    if any("larger(" in size for size in places_bytes):
        lines += [
            "constexpr size_t larger(size_t one, size_t other) {",
            "    return one > other ? one : other;", "}", "",
        ]  # fmt: skip
    for number, size in enumerate([*places_bytes, *scratch]):
        lines.append(f"constexpr size_t PLACE_{number} = {total};")
        total = f"PLACE_{number} + {size}"
    if lines:
        lines += [
            f"constexpr size_t WORKSPACE_BYTES = {total};", "",
            'extern "C" size_t workspace_bytes() { return WORKSPACE_BYTES; }', "",
        ]  # fmt: skip
    lines += [
        "static unsigned blocks_of(long long threads) {",
        f"    return static_cast<unsigned>((threads + {THREADS} - 1) / {THREADS});",
        "}",
        "",
        *_launch_head(task),
    ]
    of_pen = {id(pen): kernel for kernel in kernels for pen in kernel.pens}
    at = {key: len(slots) + number for number, key in enumerate(functions)}
    begun: set[int] = set()
    for launch in launches:
        for storage in launch.storages:
            if not storage.external and id(storage) not in begun:
                begun.add(id(storage))
                lines.append(_pointer(storage, places[id(storage)]))
        if isinstance(launch, Pen):
            called = of_pen[id(launch)].launch(launch)
        else:
            called = _call(launch, functions[launch.key].name, at[launch.key])
        lines += ["    " + line for line in called]
    lines.append("}")
    notes = tuple(f"{kernel.name}: {kernel.pens[0].title.splitlines()[0]}" for kernel in kernels)
    return Sketch(
        constants=tuple(sizes.declarations),
        before="\n".join(before) + "\n",
        after="\n".join(lines) + "\n",
        missing=tuple(functions.values()),
        notes=notes,
    )


def _functions(
    launches: Sequence[Pen | Unwritten], taken: set[str]
) -> dict[tuple[object, ...], MissingKernel]:
    """Return the functions that are missing, each by the key of the launches that call it."""
    found: dict[tuple[object, ...], MissingKernel] = {}
    for launch in launches:
        if isinstance(launch, Unwritten) and launch.key not in found:
            found[launch.key] = launch.kernel(free_name(f"launch_{launch.stem}", taken))
    return found


def _call(launch: Unwritten, name: str, place: int) -> list[str]:
    arguments = [_argument(pointer.array) for pointer in launch.pointers]
    arguments += [f"static_cast<char*>(workspace) + PLACE_{place}", "stream"]
    return _call_like(f"{name}(", arguments, ");", 4)


def _kernels(pens: Sequence[Pen], taken: set[str]) -> list[_Kernel]:
    found: dict[tuple[object, ...], _Kernel] = {}
    for pen in pens:
        parameters = tuple((pointer.name, pointer.ctype) for pointer in pen.pointers)
        holes = tuple((hole.name, hole.ctype) for hole in pen.holes)
        key = (pen.stem, tuple(pen.lines), parameters, holes)
        if key not in found:
            found[key] = _Kernel(free_name(f"{pen.stem}_kernel", taken))
        found[key].pens.append(pen)
    return list(found.values())


def _results(launches: Sequence[Pen | Unwritten]) -> list[Storage]:
    """Return what the launches hand on, in order of first use, with the launches that touch it."""
    results: list[Storage] = []
    for position, launch in enumerate(launches):
        for storage in launch.storages:
            if not storage.external:
                if not storage.launches:
                    results.append(storage)
                storage.launches.append(position)
    return results


def _places(results: Sequence[Storage]) -> tuple[list[list[Storage]], dict[int, int]]:
    """Return which results share each place, and the place of each by its identity."""
    slots: list[list[Storage]] = []
    places: dict[int, int] = {}
    for storage in results:
        free = [
            number for number, sharing in enumerate(slots)
            if sharing[-1].launches[-1] < storage.launches[0]
        ]  # fmt: skip
        # The place that grows least, and of those the one with the least room to spare.
        number = min(free, key=lambda slot: _misfit(slots[slot], storage), default=len(slots))
        if number == len(slots):
            slots.append([])
        slots[number].append(storage)
        places[id(storage)] = number
    return slots, places


def _misfit(sharing: Sequence[Storage], storage: Storage) -> tuple[int, int]:
    room = max(each.size.full * DTYPE_BYTES[each.dtype] for each in sharing)
    wanted = storage.size.full * DTYPE_BYTES[storage.dtype]
    return max(wanted - room, 0), room


def _bytes(sharing: Sequence[Storage], sizes: Sizes) -> str:
    """Return the size of a place as text: the largest of what shares it, aligned."""
    kept: list[str] = []
    for each in sharing:
        text = f"{atom(each.size)} * {DTYPE_BYTES[each.dtype]}"
        if not any(never_more(text, other, sizes.formulas) for other in kept):
            kept = [other for other in kept if not never_more(other, text, sizes.formulas)]
            kept.append(text)
    largest = kept[0]
    for text in kept[1:]:
        largest = f"larger({largest}, {text})"
    return _aligned(largest)


def _aligned(size: str) -> str:
    return f"({size} + {_ALIGNMENT - 1}) / {_ALIGNMENT} * {_ALIGNMENT}"


def _pointer(storage: Storage, place: int) -> str:
    ctype = C_TYPES[storage.dtype]
    start = f"static_cast<char*>(workspace) + PLACE_{place}"
    return f"    {ctype}* const {storage.name} = reinterpret_cast<{ctype}*>({start});"


def _launch_head(task: Task) -> list[str]:
    arguments = []
    for tensor in task.full.tensors:
        const = "" if tensor.role == "output" else "const "
        arguments.append(f"{const}{C_TYPES[tensor.dtype]}* {tensor.name}")
    arguments += ["void* workspace", "cudaStream_t stream"]
    return _call_like('extern "C" void launch(', arguments, ") {")


def _argument(array: Array) -> str:
    if same_as_zero(array.offset):
        return array.storage.name
    return f"{array.storage.name} + {atom(array.offset)}"


def _call_like(head: str, arguments: Sequence[str], tail: str, indent: int = 0) -> list[str]:
    """Return a list in parentheses, on one line or on as few as there is room for."""
    text = f"{head}{', '.join(arguments)}{tail}"
    if len(text) + indent <= 100:
        return [text]
    lines, line = [head], "   "
    for position, argument in enumerate(arguments):
        piece = f" {argument}{',' if position < len(arguments) - 1 else tail}"
        if len(line) + len(piece) + indent > 100 and line.strip():
            lines.append(line)
            line = "   "
        line += piece
    return [*lines, line]


def _with_index(line: str, index: str) -> str:
    return line.replace(INDEX, index)
