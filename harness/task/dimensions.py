"""The module-level integers of a reference file: its dimensions, found and set in the syntax."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping


def module_integers(tree: ast.Module) -> dict[str, int]:
    """Return each name that the module sets once, at its top level, to an integer constant.

    `A = 4096`, `A: int = 4096`, `A = B = 16`, `A, B = 16, 2 * 1024` all count; a value computed
    from other names does not (it follows them).
    """
    values: dict[str, int] = {}
    times: dict[str, int] = {}
    for statement in tree.body:
        for name, value in _assignments(statement):
            times[name] = times.get(name, 0) + 1
            integer = _constant(value) if value is not None else None
            if integer is not None:
                values[name] = integer
    return {name: value for name, value in values.items() if times[name] == 1}


def with_dimensions(tree: ast.Module, dimensions: Mapping[str, int]) -> ast.Module:
    """Return the module with other values: each is set again right after its own statement."""
    body: list[ast.stmt] = []
    for statement in tree.body:
        body.append(statement)
        for name, value in _assignments(statement):
            if name in dimensions and value is not None and _constant(value) is not None:
                target = ast.Name(id=name, ctx=ast.Store())
                again = ast.Assign(targets=[target], value=ast.Constant(dimensions[name]))
                body.append(ast.fix_missing_locations(ast.copy_location(again, statement)))
    return ast.Module(body=body, type_ignores=tree.type_ignores)


def shrunk(value: int, base: int = 128) -> int:
    """Return a dimension small enough to be checked quickly.

    The remainder modulo `base` is kept, so that vector widths and partial tiles behave as at full
    size; what is not much larger than `base` stays.
    """
    return value if value <= base + base // 4 else base + value % base


def shrunk_apart(dimensions: Mapping[str, int], base: int = 128) -> dict[str, int]:
    """Shrink all dimensions such that different ones stay different, in the same order.

    Otherwise a kernel that takes rows for columns would pass on a matrix that became square. What
    would coincide is moved on by whole multiples of `base`, so remainders are kept.
    """
    found: dict[int, int] = {}
    for value in sorted(set(dimensions.values())):
        small = shrunk(value, base)
        while small in found.values() and small < value:
            small = min(small + base, value)
        found[value] = small
    return {name: found[value] for name, value in dimensions.items()}


def _assignments(statement: ast.stmt) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield (name, value) of a top-level assignment; the value is None where it is no plain one."""
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from _pairs(target, statement.value)
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        yield from _pairs(statement.target, statement.value)
    elif isinstance(statement, ast.AugAssign):
        yield from _pairs(statement.target, None)


def _pairs(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        values: list[ast.expr | None] = [None] * len(target.elts)
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            values = list(value.elts)
        for element, part in zip(target.elts, values, strict=True):
            yield from _pairs(element, part)


def _constant(node: ast.expr) -> int | None:
    """Return the value of an integer constant or of + - * // ** on such; None for all else."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _constant(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp):
        left, right = _constant(node.left), _constant(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.FloorDiv) and right != 0:
            return left // right
        if isinstance(node.op, ast.LShift) and 0 <= right < 63:
            return left << right
        if isinstance(node.op, ast.Pow) and 0 <= right < 63 and abs(left) <= 1024:
            value = left**right
            return value if abs(value) < 2**63 else None
    return None
