"""Loops and what they carry: counting loops, and the accumulators of a reduction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tree_sitter import Node

from ..records import NotRecognised
from .syntax import (
    declarations,
    descendants,
    fragment,
    opened,
    operator,
    squeezed,
    statements,
    text_of,
)


@dataclass(frozen=True)
class CountingLoop:
    """`for (T v = start; v < bound; v += step) body`."""

    type: str
    variable: str
    start: str
    bound: str
    step: str
    body: Node


def counting_loop(node: Node) -> CountingLoop | None:
    """Return a for statement as a counting loop, or None."""
    if node.type != "for_statement":
        return None
    parts = [node.child_by_field_name(n) for n in ("initializer", "condition", "update", "body")]
    if any(part is None for part in parts):
        return None
    initializer, condition, update, body = (part for part in parts if part is not None)
    declared = declarations(initializer)
    if len(declared) != 1 or declared[0].value is None:
        return None
    variable = declared[0].name
    if condition.type != "binary_expression" or operator(condition) != "<":
        return None
    left, right = condition.child_by_field_name("left"), condition.child_by_field_name("right")
    if left is None or right is None or text_of(left) != variable:
        return None
    step = _step(update, variable)
    if step is None:
        return None
    start = text_of(declared[0].value)
    return CountingLoop(declared[0].type, variable, start, text_of(right), step, body)


def _step(update: Node, variable: str) -> str | None:
    text = squeezed(text_of(update))
    if text in (f"{variable}++", f"++{variable}"):
        return "1"
    if update.type == "assignment_expression":
        left, right = update.child_by_field_name("left"), update.child_by_field_name("right")
        if left is None or right is None or text_of(left) != variable:
            return None
        if operator(update) == "+=":
            return text_of(right)
        match = re.fullmatch(rf"{variable}\+(.+)", squeezed(text_of(right)))
        return match[1] if match and operator(update) == "=" else None
    return None


def is_zero(text: str) -> bool:
    """Whether an initial value is the number zero, from which a sum starts."""
    return re.fullmatch(r"0(\.0*)?f?", text) is not None


def accumulators(lines: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the scalars that a loop body carries, each with its kind: sum, max or min.

    Raises:
        NotRecognised: something is carried from step to step in another way.
    """
    block = fragment("\n".join(lines))
    local = {d.name for node in descendants(block, "declaration") for d in declarations(node)}
    found: dict[str, str] = {}
    mentions: dict[str, int] = {}
    allowed: dict[str, int] = {}
    for node in descendants(block, "identifier"):
        mentions[text_of(node)] = mentions.get(text_of(node), 0) + 1
    for node in descendants(block, "assignment_expression", "update_expression"):
        target = node.child_by_field_name("left") or node.child_by_field_name("argument")
        if target is None or target.type != "identifier" or text_of(target) in local:
            continue
        name = text_of(target)
        kind, count = _kind(node, name)
        if found.setdefault(name, kind) != kind:
            raise NotRecognised(f"{name} is both {found[name]} and {kind}")
        allowed[name] = allowed.get(name, 0) + count
    for name, count in allowed.items():
        if mentions[name] != count:
            raise NotRecognised(f"the loop reads {name} while it accumulates it")
    return tuple(found.items())


def _kind(node: Node, name: str) -> tuple[str, int]:
    """Return how a scalar is carried, and how often the accumulation itself mentions it."""
    refusal = NotRecognised(f"the loop carries {name} in a way that is no sum, maximum or minimum")
    right = node.child_by_field_name("right")
    if right is None:
        raise refusal
    if operator(node) == "+=":
        return "sum", 1
    if operator(node) != "=":
        raise refusal
    value = opened(right)
    if value.type == "binary_expression" and operator(value) == "+":
        left = value.child_by_field_name("left")
        other = value.child_by_field_name("right")
        if name in (text_of(left) if left else "", text_of(other) if other else ""):
            return "sum", 2
    if value.type == "call_expression":
        match = re.match(r"(?:std::)?(f?max|f?min)f?\b", text_of(value))
        arguments = value.child_by_field_name("arguments")
        given = [text_of(a) for a in arguments.named_children] if arguments else []
        if match and len(given) == 2 and name in given:
            return ("max" if "max" in match[1] else "min"), 2
    if value.type == "conditional_expression":
        kind = _selected(value, name)
        if kind is not None:
            return kind, 3
    guard = _guard(node)
    if guard is not None:
        kind = _compared(guard, name, text_of(right))
        if kind is not None:
            return kind, 2
    raise refusal


def _selected(value: Node, name: str) -> str | None:
    """Kind of `e > v ? e : v` and its relatives."""
    condition, first, second = (
        value.child_by_field_name(part) for part in ("condition", "consequence", "alternative")
    )
    if condition is None or first is None or second is None:
        return None
    a, b = squeezed(text_of(opened(first))), squeezed(text_of(opened(second)))
    if name not in (a, b):
        return None
    other = b if a == name else a
    kind = _compared(opened(condition), name, other)
    if kind is None:
        return None
    chosen_when_larger = a != name
    return kind if chosen_when_larger else {"max": "min", "min": "max"}[kind]


def _compared(condition: Node, name: str, other: str) -> str | None:
    """Kind of an assignment of `other` to the name under a comparison of the two."""
    condition = opened(condition)
    if condition.type != "binary_expression":
        return None
    left, right = condition.child_by_field_name("left"), condition.child_by_field_name("right")
    if left is None or right is None:
        return None
    sides = squeezed(text_of(opened(left))), squeezed(text_of(opened(right)))
    sign = operator(condition)
    if sides == (squeezed(other), name):
        return {">": "max", ">=": "max", "<": "min", "<=": "min"}.get(sign)
    if sides == (name, squeezed(other)):
        return {"<": "max", "<=": "max", ">": "min", ">=": "min"}.get(sign)
    return None


def _guard(node: Node) -> Node | None:
    """Return the condition of the `if` whose whole consequence is the assignment."""
    statement = node.parent
    owner = statement.parent if statement is not None else None
    if owner is not None and owner.type == "compound_statement":
        if len(statements(owner)) != 1:
            return None
        owner = owner.parent
    if owner is None or owner.type != "if_statement":
        return None
    if owner.child_by_field_name("alternative") is not None:
        return None
    clause = owner.child_by_field_name("condition")
    return clause.named_children[0] if clause is not None and clause.named_children else None
