"""The sizes that a reference file is written for: found and set in its syntax, wherever they stand.

A size has one name under which it is set (`--set NAME=VALUE`) and a constant in task.cuh:

    rows = 4096                              rows
    shape = (16, 3, 224)                     shape_0, shape_1, shape_2
    get_inputs: return [torch.rand(B, 64)]   x_1, after the argument of forward() and its place
    get_inputs: n = 64                       n
    get_init_inputs: return [64, 128]        after the arguments of Model(...)
    class Model: def __init__(self, d=64)    d, where get_init_inputs() leaves it out
    other integers in classes and functions  literal_512: all that are written 512, as one

The last are found only where they are asked for: most of them are no sizes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Place = Literal["module", "inputs", "initial", "default", "literal"]

LEAST_LITERAL = 16
"""Smaller integers in classes and functions are taken to be counts, kernel sizes and axes."""

_INPUTS, _INITIAL = "get_inputs", "get_init_inputs"


@dataclass(frozen=True)
class Dimension:
    """One size."""

    name: str
    value: int
    place: Place
    axis: int | None = None
    """Of a size written into a call in get_inputs(): its place among the arguments."""


@dataclass(frozen=True)
class _Site:
    """A size and the expressions that hold it; a statement where a whole name is set."""

    dimension: Dimension
    nodes: tuple[ast.expr, ...]
    statement: ast.stmt | None = None


def find_dimensions(tree: ast.Module) -> dict[str, Dimension]:
    """Return the sizes of a file by name, literals in classes and functions left out."""
    return {
        site.dimension.name: site.dimension
        for site in _sites(tree)
        if site.dimension.place != "literal"
    }


def find_literals(tree: ast.Module) -> dict[str, Dimension]:
    """Return the integers in classes and functions that may be sizes, by name."""
    return {
        site.dimension.name: site.dimension
        for site in _sites(tree)
        if site.dimension.place == "literal"
    }


def with_dimensions(tree: ast.Module, dimensions: Mapping[str, int]) -> ast.Module:
    """Return the module with other sizes; unknown names are passed over.

    A name of the module is set again right after its own statement; others change in place.
    """
    replaced: dict[int, int] = {}
    again: dict[int, list[tuple[str, int]]] = {}
    for site in _sites(tree):
        name = site.dimension.name
        if name not in dimensions or dimensions[name] == site.dimension.value:
            continue
        if site.statement is not None:
            again.setdefault(id(site.statement), []).append((name, dimensions[name]))
        replaced |= {id(node): dimensions[name] for node in site.nodes}
    body: list[ast.stmt] = []
    for statement in tree.body:
        if replaced:
            _Replace(replaced).visit(statement)
        body.append(statement)
        for name, value in again.get(id(statement), ()):
            target = ast.Name(id=name, ctx=ast.Store())
            assigned = ast.Assign(targets=[target], value=ast.Constant(value))
            body.append(ast.fix_missing_locations(ast.copy_location(assigned, statement)))
    return ast.Module(body=body, type_ignores=tree.type_ignores)


class _Replace(ast.NodeTransformer):
    def __init__(self, values: Mapping[int, int]) -> None:
        self._values = values

    def visit(self, node: ast.AST) -> ast.AST:
        if id(node) not in self._values:
            return self.generic_visit(node)
        return ast.copy_location(ast.Constant(self._values[id(node)]), node)


def _sites(tree: ast.Module) -> list[_Site]:
    """Return all sizes; those of the same module always have the same names."""
    found: list[_Site] = []
    taken: set[str] = set()
    named = [*_module_sites(tree), *_inner_sites(tree)]
    used = {id(node) for site in named for node in site.nodes}
    for site in (*named, *_literal_sites(tree, used)):
        name = base = site.dimension.name
        number = 2
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name)
        dimension = Dimension(name, site.dimension.value, site.dimension.place,
                              site.dimension.axis)  # fmt: skip
        found.append(_Site(dimension, site.nodes, site.statement))
    return found


def _module_sites(tree: ast.Module) -> Iterator[_Site]:
    """Yield what the module sets once, at its top level: integers, and those within a value."""
    times: dict[str, int] = {}
    sites: dict[str, list[_Site]] = {}
    for statement in tree.body:
        for name, value in _assignments(statement):
            times[name] = times.get(name, 0) + 1
            if value is None:
                continue
            integer = _constant(value)
            if integer is not None:
                sites[name] = [_Site(Dimension(name, integer, "module"), (), statement)]
            else:
                sites[name] = [
                    _Site(Dimension(_joined(name, path), size, "module"), (node,))
                    for path, node, size in _leaves(value)
                ]
    for name, each in sites.items():
        if times[name] == 1:
            yield from each


def _inner_sites(tree: ast.Module) -> Iterator[_Site]:
    """Yield what stands in get_inputs(), get_init_inputs(), and the defaults of Model(...)."""
    functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
    model = next(
        (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == "Model"),
        None,
    )
    methods = {each.name: each for each in model.body if isinstance(each, ast.FunctionDef)} if (
        model
    ) else {}
    forward, initial = (
        _argument_names(methods[name]) if name in methods else []
        for name in ("forward", "__init__")
    )
    if _INPUTS in functions:
        yield from _function_sites(functions[_INPUTS], forward, "input", "inputs")
    if _INITIAL in functions:
        yield from _function_sites(functions[_INITIAL], initial, "init", "initial")
    if "__init__" in methods:
        yield from _default_sites(methods["__init__"], functions.get(_INITIAL))


def _function_sites(
    function: ast.FunctionDef, names: list[str], otherwise: str, place: Place
) -> Iterator[_Site]:
    for name, value, is_returned in _named_values(function, names, otherwise):
        integer = _constant(value)
        if integer is not None:
            # A plain number that forward() is given is a scalar of the task, and no size.
            if place == "initial" or not is_returned:
                yield _Site(Dimension(name, integer, place), (value,))
            continue
        for path, node, size in _leaves(value):
            axis = path[-1] if path and isinstance(path[-1], int) else None
            yield _Site(Dimension(_joined(name, path), size, place, axis), (node,))


def _named_values(
    function: ast.FunctionDef, names: list[str], otherwise: str
) -> Iterator[tuple[str, ast.expr, bool]]:
    """Yield each value that a function sets or returns: (name, value, whether it is returned)."""
    for statement in ast.walk(function):
        if isinstance(statement, ast.Return) and statement.value is not None:
            value = statement.value
            if isinstance(value, ast.List | ast.Tuple):
                for index, element in enumerate(value.elts):
                    known = index < len(names)
                    yield names[index] if known else f"{otherwise}{index}", element, True
            elif isinstance(value, ast.Dict):
                for key, element in zip(value.keys, value.values, strict=True):
                    text = key.value if isinstance(key, ast.Constant) else otherwise
                    yield _word(str(text)), element, True
            else:
                yield otherwise, value, True
        elif isinstance(statement, ast.stmt):
            for name, assigned in _assignments(statement):
                if assigned is not None:
                    yield name, assigned, False


def _default_sites(
    function: ast.FunctionDef, initial: ast.FunctionDef | None
) -> Iterator[_Site]:
    """Yield the defaults of Model(...) that get_init_inputs() leaves as they are."""
    given, named = 0, set()
    if initial is not None:
        value = next(
            (each.value for each in ast.walk(initial) if isinstance(each, ast.Return)), None
        )
        if isinstance(value, ast.List | ast.Tuple):
            given = len(value.elts)
            if any(isinstance(element, ast.Starred) for element in value.elts):
                return
            named = {
                key.value
                for element in value.elts if isinstance(element, ast.Dict)
                for key in element.keys if isinstance(key, ast.Constant)
            }  # fmt: skip
        elif isinstance(value, ast.Dict):
            named = {key.value for key in value.keys if isinstance(key, ast.Constant)}
        elif value is not None:
            return
    arguments = [*function.args.posonlyargs, *function.args.args]
    defaults: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(arguments[len(arguments) - len(function.args.defaults) :], function.args.defaults,
             strict=True),
        *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True),
    ]  # fmt: skip
    for argument, default in defaults:
        place = arguments.index(argument) if argument in arguments else len(arguments)
        if default is None or place <= given or argument.arg in named:
            continue
        integer = _constant(default)
        if integer is not None:
            yield _Site(Dimension(argument.arg, integer, "default"), (default,))
        else:
            for path, node, size in _leaves(default):
                yield _Site(Dimension(_joined(argument.arg, path), size, "default"), (node,))


def _literal_sites(tree: ast.Module, used: set[int]) -> Iterator[_Site]:
    """Yield the integers in classes and functions, those of one value together; no `used` ones."""
    found: dict[int, list[ast.expr]] = {}
    for statement in tree.body:
        if not isinstance(statement, ast.ClassDef | ast.FunctionDef):
            continue
        if statement.name in (_INPUTS, _INITIAL):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Constant) and type(node.value) is int and id(node) not in used:
                if node.value >= LEAST_LITERAL:
                    found.setdefault(node.value, []).append(node)
    for value, nodes in sorted(found.items()):
        yield _Site(Dimension(f"literal_{value}", value, "literal"), tuple(nodes))


def _leaves(
    value: ast.expr, path: tuple[int | str, ...] = ()
) -> Iterator[tuple[tuple[int | str, ...], ast.expr, int]]:
    """Yield (path, expression, value) of the integers above 1 within an expression."""
    integer = _constant(value)
    if integer is not None:
        if integer > 1:
            yield path, value, integer
    elif isinstance(value, ast.List | ast.Tuple):
        for index, element in enumerate(value.elts):
            yield from _leaves(element, (*path, index))
    elif isinstance(value, ast.Dict):
        for key, element in zip(value.keys, value.values, strict=True):
            text = key.value if isinstance(key, ast.Constant) else "value"
            yield from _leaves(element, (*path, _word(str(text))))
    elif isinstance(value, ast.Call):
        yield from _leaves(value.func, path)
        for index, argument in enumerate(value.args):
            alone = len(value.args) == 1
            yield from _leaves(argument, path if alone else (*path, index))
        for keyword in value.keywords:
            # dim=1, dtype and the like are no sizes; size=(3, 4) is.
            if keyword.arg in ("size", "low", "high"):
                yield from _leaves(keyword.value, (*path, keyword.arg))
    elif isinstance(value, ast.BinOp):
        for side in (value.left, value.right):
            # The 2 of `2 * rows` is no size by itself; the list of `[64] * 4` holds some.
            if _constant(side) is None:
                yield from _leaves(side, path)
    elif isinstance(value, ast.Attribute | ast.Starred):
        yield from _leaves(value.value, path)


def _assignments(statement: ast.stmt) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield (name, value) of an assignment; the value is None where it is no plain one."""
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


def _argument_names(function: ast.FunctionDef) -> list[str]:
    return [each.arg for each in (*function.args.posonlyargs, *function.args.args)][1:]


def _joined(name: str, path: tuple[int | str, ...]) -> str:
    return "_".join([name, *map(str, path)])


def _word(text: str) -> str:
    word = "".join(c if c.isalnum() and c.isascii() else "_" for c in text)
    return word if word and not word[0].isdigit() else f"value_{word}"


def _constant(node: ast.expr) -> int | None:
    """Return the value of an integer constant, int(1e6) too, or of + - * // ** on such.

    None for all else.
    """
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int":
        given = node.args[0] if len(node.args) == 1 and not node.keywords else None
        value = given.value if isinstance(given, ast.Constant) else None
        return int(value) if isinstance(value, float) and value.is_integer() else None
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
