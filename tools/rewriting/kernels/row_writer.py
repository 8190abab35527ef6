"""Writes a row program for a thread, a warp or a block a row, in packs, or out of registers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..records import NotRecognised
from ..source.constants import Constants
from ..source.syntax import (
    Kernel,
    descendants,
    expression,
    factors,
    fragment,
    indented,
    renamed,
    squeezed,
    text_of,
)
from .helpers import workers
from .packs import Element, elements, fits_pack, pack
from .row_reader import RowBody
from .row_steps import Loop, Plain, row_pointers

CACHE_LIMIT = 64
"""Most values of a row that a thread keeps in registers: more would spill."""


@dataclass(frozen=True)
class RowShape:
    """What the writer needs to know of the kernel round the body."""

    kernel: Kernel
    constants: Constants
    block: str
    threads: int
    """Threads of a block."""
    columns: str
    """Number of columns as a constant expression; empty where it is none."""


def write_rows(shape: RowShape, body: RowBody) -> list[str]:
    """Return the lines of the kernel's body.

    Raises:
        NotRecognised: no access can be packed, or no element is worth keeping in registers.
    """
    return indented(_Writer(shape, body).lines())


class _Writer:
    def __init__(self, shape: RowShape, body: RowBody) -> None:
        self._shape = shape
        self._body = body
        self._pointers = row_pointers(body.steps)
        self._caches: dict[str, tuple[str, Element, str]] = {}

    @property
    def _workers(self) -> str:
        body = self._body
        return {"thread": "1", "warp": str(body.lanes), "block": self._shape.block}[body.mapping]

    @property
    def _worker(self) -> str:
        return {"thread": "0", "warp": "lane", "block": "threadIdx.x"}[self._body.mapping]

    def lines(self) -> list[str]:
        body = self._body
        lines = self._position()
        if body.width > 1:
            lines += self._width_lines()
        if body.cached:
            lines += self._cache_lines()
        filled = not body.cached
        for step in body.steps:
            if isinstance(step, Plain):
                lines += self._plain(step)
                continue
            if not filled:
                lines += self._fill(step)
                filled = True
            lines += self._loop(step)
            for name, kind in step.carried:
                if body.mapping != "thread":
                    who = workers(body.mapping, body.lanes)
                    lines.append(f"{name} = {who}_{kind}({name});")
        return lines

    def _position(self) -> list[str]:
        body = self._body
        kind = f"const {body.row_type}"
        first = "static_cast<long long>(blockIdx.x)" if "long" in body.row_type else "blockIdx.x"
        guard = f"if ({body.row} >= {body.rows}) return;"
        if body.mapping == "thread":
            return [f"{kind} {body.row} = {first} * blockDim.x + threadIdx.x;", guard]
        if body.mapping == "warp":
            return [
                f"{kind} {body.row} = ({first} * blockDim.x + threadIdx.x) / {body.lanes};",
                f"const int lane = threadIdx.x % {body.lanes};",
                guard,
            ]
        return [f"{kind} {body.row} = blockIdx.x;"]

    def _width_lines(self) -> list[str]:
        columns = _factor(self._shape.columns)
        if not self._shape.columns:
            raise NotRecognised("the number of columns is not a constant")
        text = f"{columns} % 2 == 0 ? 2 : 1"
        if self._body.width == 4:
            text = f"{columns} % 4 == 0 ? 4 : {text}"
        return [f"constexpr int VEC = {text};"]

    def _cache_lines(self) -> list[str]:
        pair = self._shape.constants.pair(self._shape.columns)
        if pair is None:
            raise NotRecognised("the number of columns is not a constant")
        if self._body.mapping == "thread":
            raise NotRecognised("a thread cannot keep a whole row in registers")
        sharing = self._body.lanes if self._body.mapping == "warp" else self._shape.threads
        if -(-pair.full // sharing) > CACHE_LIMIT:
            raise NotRecognised(
                f"a thread would keep {-(-pair.full // sharing)} values of a row, more than "
                f"{CACHE_LIMIT}: share the row among more threads"
            )
        vec = " * VEC" if self._body.width > 1 else ""
        span = f"{self._workers}{vec}"
        unit = span if span.isidentifier() or span.isdigit() else f"({span})"
        columns = _factor(self._shape.columns)
        lines = [f"constexpr int CHUNKS = ({columns} + {span} - 1) / {unit};"]
        for element in self._worth_keeping():
            kind = self._type_of(element.array)
            name = f"{element.array}_cache"
            packed = self._body.width > 1 and self._packable(element)
            holder = f"Pack<{kind}, VEC>" if packed else kind
            self._caches[squeezed(element.text)] = (name, element, holder)
            lines.append(f"{holder} {name}[CHUNKS];")
        return lines

    def _worth_keeping(self) -> list[Element]:
        """Return the elements that several loops read and none stores, by the first variable."""
        seen: dict[str, tuple[int, Element]] = {}
        stored: set[str] = set()
        loops = [step for step in self._body.steps if isinstance(step, Loop)]
        first = loops[0].variable
        for loop in loops:
            lines = [renamed(line, {loop.variable: first}) for line in loop.lines]
            for element in elements(lines, first):
                if element.stored:
                    stored.add(element.array)
                if element.loaded and not element.stored:
                    key = squeezed(element.text)
                    seen[key] = (seen[key][0] + 1 if key in seen else 1, element)
        chosen = [e for count, e in seen.values() if count > 1 and e.array not in stored]
        if not chosen:
            raise NotRecognised("no element of the row is read by more than one loop")
        names = [element.array for element in chosen]
        if len(set(names)) != len(names):
            raise NotRecognised("one array is read at several places of a row")
        return chosen

    def _plain(self, step: Plain) -> list[str]:
        if not step.stores or self._body.mapping == "thread":
            return [step.text]
        who = "lane" if self._body.mapping == "warp" else "threadIdx.x"
        return [f"if ({who} == 0) {step.text}"]

    # Loops

    def _loop(self, loop: Loop) -> list[str]:
        if self._body.cached:
            return self._cached_loop(loop)
        vec = " * VEC" if self._body.width > 1 else ""
        start = f"{self._worker}{vec}" if self._worker != "0" else "0"
        step = f"{self._workers}{vec}" if self._workers != "1" else ("VEC" if vec else "1")
        advance = f"++{loop.variable}" if step == "1" else f"{loop.variable} += {step}"
        head = (
            f"for ({loop.type} {loop.variable} = {start}; {loop.variable} < {self._body.columns}; "
            f"{advance}) {{"
        )
        inner = self._packed(loop, {}) if vec else list(loop.lines)
        pragma = [loop.pragma] if loop.pragma else []
        return [*pragma, head, *indented(inner), "}"]

    def _cached_loop(self, loop: Loop) -> list[str]:
        cached = {
            squeezed(renamed(element.text, {self._first_variable(): loop.variable})): name
            for name, element, _ in self._caches.values()
        }
        if self._body.width > 1:
            packs = {key: f"{name}[chunk]" for key, name in cached.items()}
            inner = self._packed(loop, packs)
        else:
            inner = [_with_registers(line, cached) for line in loop.lines]
        return self._chunks(loop.variable, loop.type, inner)

    def _fill(self, loop: Loop) -> list[str]:
        variable = self._first_variable()
        inner = []
        for name, element, holder in self._caches.values():
            text = f"load_pack<VEC>(&{element.text})" if "VEC" in holder else element.text
            inner.append(f"{name}[chunk] = {text};")
        return self._chunks(variable, loop.type, inner)

    def _chunks(self, variable: str, kind: str, inner: list[str]) -> list[str]:
        worker = f"chunk * {self._workers} + {self._worker}"
        column = f"({worker}) * VEC" if self._body.width > 1 else worker
        return [
            "#pragma unroll",
            "for (int chunk = 0; chunk < CHUNKS; ++chunk) {",
            f"    const {kind} {variable} = {column};",
            f"    if ({variable} < {self._body.columns}) {{",
            *indented(inner, 2),
            "    }",
            "}",
        ]

    def _packed(self, loop: Loop, cached: Mapping[str, str]) -> list[str]:
        chosen = [e for e in elements(loop.lines, loop.variable) if self._packable(e)]
        packed = (
            pack(loop.lines, loop.variable, "VEC", self._packable, self._type_of, cached)
            if chosen else None
        )  # fmt: skip
        if packed is None:
            lane = "j"
            lines = [
                renamed(li, {loop.variable: f"({loop.variable} + {lane})"}) for li in loop.lines
            ]
            return ["#pragma unroll", f"for (int {lane} = 0; {lane} < VEC; ++{lane}) {{",
                    *indented(lines), "}"]  # fmt: skip
        return [
            *packed.loads,
            "#pragma unroll",
            f"for (int {packed.lane} = 0; {packed.lane} < VEC; ++{packed.lane}) {{",
            *indented(list(packed.lines)),
            "}",
            *packed.stores,
        ]

    def _first_variable(self) -> str:
        return next(step.variable for step in self._body.steps if isinstance(step, Loop))

    # Addresses

    def _packable(self, element: Element) -> bool:
        """Whether the element before the row's first is at a multiple of the columns."""
        pointer = self._pointers.get(element.array, (element.array, ()))[0]
        kind = self._shape.kernel.element_type(pointer)
        if kind is None or not fits_pack(kind, self._body.width):
            return False
        return all(self._whole_rows(term) for term in element.rest) and all(
            self._whole_rows(term) for term in self._pointers.get(element.array, ("", ()))[1]
        )

    def _whole_rows(self, term: str) -> bool:
        columns = squeezed(self._body.columns)
        return any(
            part == columns or self._shape.constants.equal(part, columns)
            for part in factors(expression(term))
        )

    def _type_of(self, array: str) -> str:
        found = self._shape.kernel.element_type(array)
        if found is None and array in self._pointers:
            found = self._shape.kernel.element_type(self._pointers[array][0])
        if found is None:
            raise NotRecognised(f"the type of {array} is not known")
        return found


def _with_registers(line: str, cached: Mapping[str, str]) -> str:
    """Return a statement that reads the registers of this chunk instead of memory."""
    node = fragment(line)
    data = line.encode()
    shift = len(b"void f() {\n")
    edits = []
    for found in descendants(node, "subscript_expression"):
        name = cached.get(squeezed(text_of(found)))
        if name is not None:
            edits.append((found.start_byte - shift, found.end_byte - shift, f"{name}[chunk]"))
    for start, end, text in sorted(edits, reverse=True):
        data = data[:start] + text.encode() + data[end:]
    return data.decode()


def _factor(text: str) -> str:
    return text if re.fullmatch(r"\w+", text) else f"({text})"
