"""The steps of a row program, and whether the threads of a row can share them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tree_sitter import Node

from ..records import NotRecognised
from ..source.syntax import (
    Kernel,
    declarations,
    descendants,
    fragment,
    renamed,
    squeezed,
    terms,
    text_of,
    uses,
)


@dataclass(frozen=True)
class Plain:
    """A statement once a row; `stores` says that it writes to global memory."""

    text: str
    stores: bool = False


@dataclass(frozen=True)
class Loop:
    """A loop over the columns; `lines` are for the single column `variable`."""

    variable: str
    type: str
    lines: tuple[str, ...]
    carried: tuple[tuple[str, str], ...]
    """Accumulators and their kinds."""
    pragma: str = ""


Step = Plain | Loop


def check_sharing(kernel: Kernel, steps: Sequence[Step]) -> None:
    """Check that no column needs what another column wrote.

    Raises:
        NotRecognised: an array that is written is read at another place, or written at one place
            by every column.
    """
    pointers = row_pointers(steps)
    seen: dict[str, set[str]] = {}
    written: set[str] = set()
    for step in steps:
        variable = step.variable if isinstance(step, Loop) else ""
        text = "\n".join(step.lines) if isinstance(step, Loop) else step.text
        for node in descendants(fragment(text), "subscript_expression"):
            argument = node.child_by_field_name("argument")
            name = text_of(argument) if argument is not None else ""
            base = pointers.get(name, (name, ()))[0]
            place = squeezed(renamed(text_of(node), {variable: "COLUMN"} if variable else {}))
            seen.setdefault(base, set()).add(place)
            if not _is_stored(node):
                continue
            written.add(base)
            if variable and not uses(text_of(node), variable):
                raise NotRecognised(f"every column writes {text_of(node)}")
    for base in written:
        if len(seen[base]) > 1:
            raise NotRecognised(f"{base} is written at one place of a row and used at another")


def _is_stored(node: Node) -> bool:
    parent = node.parent
    if parent is None:
        return False
    if parent.type == "update_expression":
        return True
    left = parent.child_by_field_name("left")
    return parent.type == "assignment_expression" and left is not None and left.id == node.id


def row_pointers(steps: Sequence[Step]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return local pointers to a row: name to the array and the other summands."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for step in steps:
        if not isinstance(step, Plain):
            continue
        for node in descendants(fragment(step.text), "declaration"):
            for item in declarations(node):
                if not item.is_pointer or item.value is None:
                    continue
                summands = [text_of(term) for term in terms(item.value)]
                arrays = [text for text in summands if text.isidentifier()]
                if len(arrays) == 1:
                    rest = tuple(text for text in summands if text != arrays[0])
                    found[item.name] = (arrays[0], rest)
    return found
