"""read_only_cache: pointers that do not alias, so that inputs load through the texture path."""

from __future__ import annotations

from ...harness.records.tasks import Task
from ..rewriting.records import Inapplicable, Kernels, Outcome, Parameters, Rewritten
from ..rewriting.source.syntax import Source, descendants, text_of
from .conditions import AtHand
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="read_only_cache",
        moves=("+l1_hit",),
        description=(
            "Tell the compiler that inputs are never written and never aliased: const "
            "__restrict__, __ldg."
        ),
        applies_when=(
            "Pointers lack const __restrict__, so that loads cannot be moved across stores nor "
            "merged; the same input is read repeatedly."
        ),
        avoid_when="A buffer is read and written by the same kernel.",
        side_effects="None on correct code; wrong results where pointers really alias.",
        notes=(
            "Qualify every input const T* __restrict__ and every output T* __restrict__. The "
            "compiler then issues LDG.CONSTANT and hoists loads from loops. Mostly a step that "
            "lets unrolling and vectorisation work."
        ),
        sources=(
            'CUDA C++ Programming Guide, "__restrict__" and "Read-Only Data Cache Load Function"',
        ),
        change=_apply,
        unfit=_restricted,
    )


def _restricted(at_hand: AtHand) -> str | None:
    known = "__restrict__" in at_hand.source and at_hand.alone
    return "pointers are __restrict__ already" if known else None


def _apply(source: str, task: Task, parameters: Parameters, _: Kernels) -> Outcome:
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
