"""Numbers that a source gives a name: found, and changed, whoever wrote the source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tree_sitter import Node

from .syntax import Source, declarations, descendants, text_of

_LITERAL = re.compile(r"\s*(0[xX][0-9a-fA-F]+|[1-9]\d*|0)([uUlL]*)\s*(?://.*|/\*.*\*/\s*)?")
"""A whole number alone; what a line of the preprocessor says after it is part of its value."""


def named_numbers(source: str) -> dict[str, int]:
    """Return the whole numbers that a source names once and writes as such, by their names.

    A `#define`, a `const` or `constexpr`, or the default of a template's parameter. One that is
    computed of others follows these by itself.
    """
    return {name: int(_literal(node)[1], 0) for name, node in _named(source).items()}


def with_numbers(source: str, values: Mapping[str, int]) -> str:
    """Return the source with other values of numbers that `named_numbers` knows.

    Raises:
        KeyError: the source names no such number.
    """
    parsed, found = Source(source), _named(source)
    for name, value in values.items():
        literal = _literal(found[name])
        start = found[name].start_byte  # What comes before the number is ASCII: blanks alone.
        parsed.cut(start + literal.start(1), start + literal.end(1), str(value))
    return parsed.result()


def name_of(parameter: str, names: Sequence[str]) -> str | None:
    """Return the one of a source's names that stands for a technique's parameter: `tile` for
    `TILE` or `kTile`; None where none does, or several do."""
    wanted = _plain(parameter)
    found = [name for name in names if _plain(name) == wanted]
    return found[0] if len(found) == 1 else None


def neighbours(value: int, listed: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the values next to one: of those listed, where it is among them, else powers of two.

    The smaller comes first.
    """
    around = listed if value in listed else [1 << bits for bits in range(value.bit_length() + 1)]
    below = [each for each in around if each < value]
    above = [each for each in around if each > value]
    return (*([max(below)] if below else []), *([min(above)] if above else []))


def _named(source: str) -> dict[str, Node]:
    found: dict[str, list[Node]] = {}
    for name, node in _all_named(Source(source).root):
        found.setdefault(name, []).append(node)
    return {
        name: nodes[0]
        for name, nodes in found.items()
        if len(nodes) == 1 and _LITERAL.fullmatch(text_of(nodes[0]))
    }


def _all_named(root: Node) -> Iterator[tuple[str, Node]]:
    for node in descendants(root, "preproc_def"):
        name, value = (node.child_by_field_name(part) for part in ("name", "value"))
        if name is not None and value is not None:
            yield text_of(name), value
    for node in descendants(root, "declaration"):
        for declared in declarations(node):
            if declared.value is not None and re.search(r"\bconst(expr)?\b", declared.type):
                yield declared.name, declared.value
    for node in descendants(root, "optional_parameter_declaration"):
        value, target = (
            node.child_by_field_name(part) for part in ("default_value", "declarator")
        )
        if value is not None and target is not None:
            yield text_of(target), value


def _literal(node: Node) -> re.Match[str]:
    found = _LITERAL.fullmatch(text_of(node))
    assert found is not None
    return found


def _plain(name: str) -> str:
    name = re.sub(r"^k(?=[A-Z])", "", name)
    return name.replace("_", "").lower()
