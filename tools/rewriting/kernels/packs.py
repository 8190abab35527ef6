"""Neighbouring elements moved as one: finds what can be packed in a loop body, and undoes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from ..records import NotRecognised
from ..source.syntax import (
    declarations,
    descendants,
    fragment,
    opened,
    operator,
    renamed,
    squeezed,
    statements,
    terms,
    text_of,
    uses,
)

PACK_HELPERS = """\
// WIDTH neighbouring values, moved by one instruction; the address is a multiple of its size.
template <typename T, int WIDTH>
struct alignas(sizeof(T) * WIDTH) Pack {
    T at[WIDTH];
};

template <int WIDTH, typename T>
__device__ __forceinline__ Pack<T, WIDTH> load_pack(const T* address) {
    return *reinterpret_cast<const Pack<T, WIDTH>*>(address);
}

template <int WIDTH, typename T>
__device__ __forceinline__ void store_pack(T* address, const Pack<T, WIDTH>& values) {
    *reinterpret_cast<Pack<T, WIDTH>*>(address) = values;
}
"""


_BYTES = {
    "float": 4, "int": 4, "unsigned": 4, "unsigned int": 4, "__half": 2, "half": 2,
    "__nv_bfloat16": 2, "double": 8, "long long": 8, "signed char": 1, "unsigned char": 1,
}  # fmt: skip
_LARGEST_ACCESS = 16


def fits_pack(kind: str, width: int) -> bool:
    """Whether one access can move so many elements of a C type; vector types are no elements."""
    return _BYTES.get(kind, _LARGEST_ACCESS + 1) * width <= _LARGEST_ACCESS


@dataclass(frozen=True)
class Element:
    """An array element whose index moves by one with the loop variable."""

    text: str
    """As first written, for example `x[row * COLS + c]`."""
    array: str
    rest: tuple[str, ...]
    """The other summands of the index."""
    loaded: bool
    stored: bool


@dataclass(frozen=True)
class Packed:
    """A loop body for one pack: what to load before, the lines for one value, what to store."""

    loads: tuple[str, ...]
    lines: tuple[str, ...]
    stores: tuple[str, ...]
    lane: str
    """Name of the index within the pack."""


def elements(lines: Sequence[str], variable: str) -> list[Element]:
    """Return the array elements of a loop body that neighbour each other in neighbouring steps."""
    found: dict[str, Element] = {}
    for node in descendants(fragment("\n".join(lines)), "subscript_expression"):
        element = _element(node, variable)
        if element is None:
            continue
        key = squeezed(element.text)
        before = found.get(key)
        if before is None:
            found[key] = element
        else:
            found[key] = Element(
                before.text, before.array, before.rest,
                before.loaded or element.loaded, before.stored or element.stored,
            )  # fmt: skip
    return list(found.values())


def _element(node: Node, variable: str) -> Element | None:
    argument, indices = node.child_by_field_name("argument"), node.child_by_field_name("indices")
    if argument is None or indices is None or argument.type != "identifier":
        return None
    if len(indices.named_children) != 1:
        return None
    summands = [text_of(term) for term in terms(indices.named_children[0])]
    if summands.count(variable) != 1:
        return None
    rest = tuple(text for text in summands if text != variable)
    if any(uses(text, variable) for text in rest):
        return None
    stored, loaded = _direction(node)
    return Element(text_of(node), text_of(argument), rest, loaded, stored)


def _direction(node: Node) -> tuple[bool, bool]:
    """Return whether the element is stored and whether it is loaded at this place."""
    parent = node.parent
    if parent is not None and parent.type == "assignment_expression":
        left = parent.child_by_field_name("left")
        if left is not None and left.id == node.id:
            return True, operator(parent) != "="
    if parent is not None and parent.type == "update_expression":
        return True, True
    return False, True


def pack(
    lines: Sequence[str],
    variable: str,
    width: str,
    packable: Callable[[Element], bool],
    type_of: Callable[[str], str],
    cached: Mapping[str, str] | None = None,
) -> Packed:
    """Return the loop body in packs of `width`.

    Args:
        lines: statements for the single element at `variable`.
        width: C text of the width of a pack.
        type_of: element type of an array.
        packable: whether an element's address is aligned at the start of a pack.
        cached: squeezed element text to the pack that holds it already.

    Raises:
        NotRecognised: nothing can be packed, or a store happens under a condition.
    """
    text = "\n".join(lines)
    cached = cached or {}
    chosen = [e for e in elements(lines, variable) if packable(e) or squeezed(e.text) in cached]
    if not chosen:
        raise NotRecognised("no access moves by one element a step from an aligned address")
    lane = next(name for name in ("j", "part", "lane_part") if not uses(text, name))
    names: dict[str, str] = {}
    loads, stores = [], []
    for element in chosen:
        key = squeezed(element.text)
        if key in cached:
            names[key] = cached[key]
            continue
        name = _fresh(f"{element.array}_pack", text, set(names.values()))
        names[key] = name
        if element.loaded:
            const = "" if element.stored else "const "
            loads.append(f"{const}auto {name} = load_pack<{width}>(&{element.text});")
        else:
            loads.append(f"Pack<{type_of(element.array)}, {width}> {name};")
        if element.stored:
            stores.append(f"store_pack(&{element.text}, {name});")
    block = fragment(text)
    for statement in statements(block):
        top = statement.node
        simple = top.type == "expression_statement"
        for node in descendants(top, "subscript_expression"):
            if _direction(node)[0] and not simple and squeezed(text_of(node)) in names:
                raise NotRecognised("a store happens under a condition")
    body = _substituted(block, variable, lane, names)
    return Packed(tuple(loads), tuple(body), tuple(stores), lane)


def _fresh(wanted: str, text: str, taken: set[str]) -> str:
    name, count = wanted, 1
    while name in taken or uses(text, name):
        count += 1
        name = f"{wanted}_{count}"
    return name


def _substituted(block: Node, variable: str, lane: str, names: dict[str, str]) -> list[str]:
    """Return the statements with packed elements and the variable of the single value."""
    lines = []
    for statement in statements(block):
        node = statement.node
        data = node.text or b""
        edits = []
        for found in descendants(node, "subscript_expression"):
            name = names.get(squeezed(text_of(found)))
            if name is not None:
                start = found.start_byte - node.start_byte
                edits.append((start, found.end_byte - node.start_byte, f"{name}.at[{lane}]"))
        result, last = [], 0
        for start, end, text in sorted(edits):
            result.append(_shifted(data[last:start].decode(), variable, lane))
            result.append(text)
            last = end
        result.append(_shifted(data[last:].decode(), variable, lane))
        line = "".join(result)
        lines.append(f"{statement.pragma}\n{line}" if statement.pragma else line)
    return lines


def _shifted(text: str, variable: str, lane: str) -> str:
    return renamed(text, {variable: f"({variable} + {lane})"})


def unpack(body: Node, variable: str) -> tuple[list[str], str] | None:
    """Return the statements for a single element and the pack's width, or None: not packed.

    Undoes what `pack` writes, so that a packed loop can be changed further.
    """
    listed = statements(body)
    inner = [s.node for s in listed if s.node.type == "for_statement"]
    if len(inner) != 1:
        return None
    originals: dict[str, str] = {}
    for statement in listed:
        node = statement.node
        for call in descendants(node, "call_expression"):
            match = re.match(r"(load|store)_pack\b", text_of(call))
            arguments = call.child_by_field_name("arguments")
            if match is None or arguments is None:
                continue
            address = opened(arguments.named_children[0])
            element = text_of(address).lstrip("&").strip()
            if match[1] == "store":
                originals[text_of(arguments.named_children[1])] = element
            else:
                declared = declarations(node)
                if len(declared) == 1:
                    originals[declared[0].name] = element
    loop = inner[0]
    condition = loop.child_by_field_name("condition")
    inner_body = loop.child_by_field_name("body")
    if condition is None or inner_body is None:
        return None
    sides = condition.named_children
    lane, width = text_of(sides[0]), text_of(sides[1])
    if not width.startswith("VEC"):
        return None
    lines = []
    for statement in statements(inner_body):
        text = statement.text
        for name, element in originals.items():
            text = text.replace(f"{name}.at[{lane}]", element)
        text = text.replace(f"({variable} + {lane})", variable)
        lines.append(text)
    return lines, width
