"""read_only_cache: pointers that do not alias, so that inputs load through the texture path."""

from __future__ import annotations

from ...harness.records import Task
from ..rewriting.records import Inapplicable, Outcome, Parameters, Rewritten
from ..rewriting.rewrite import Rewrite
from ..rewriting.syntax import Source, descendants, text_of


def rewrite() -> Rewrite:
    """Return the technique."""
    return Rewrite("read_only_cache", _apply)


def _apply(source: str, task: Task, parameters: Parameters) -> Outcome:
    parsed = Source(source)
    changed = []
    for kernel in parsed.kernels():
        declarator = kernel.node.child_by_field_name("declarator")
        assert declarator is not None
        for parameter in descendants(declarator, "parameter_declaration"):
            pointer = parameter.child_by_field_name("declarator")
            if pointer is None or pointer.type != "pointer_declarator":
                continue
            if "__restrict" in text_of(parameter):
                continue
            name = pointer.child_by_field_name("declarator")
            if name is not None and name.type == "identifier":
                parsed.replace(name, f"__restrict__ {text_of(name)}")
                changed.append(kernel.name)
    if not changed:
        return Inapplicable(reason="every pointer of every kernel is __restrict__ already")
    names = ", ".join(dict.fromkeys(changed))
    return Rewritten(source=parsed.result(), note=f"{names}: pointers do not alias")
