"""A solution's Python: where its CUDA text stands, and what forward() calls with what."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

EXPORTED = "\nsize_t kernelblaster_workspace_bytes()"
"""What stands after the kernel in a solution that was exported from a run."""

IDENTITIES = ("contiguous", "cuda", "float", "detach")
"""Methods of a tensor that leave it as `launch` is given it."""


class NotRestated(Exception):
    """What stands in the way of a solution becoming `launch`, and on which line of its file."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line


@dataclass(frozen=True)
class Argument:
    """What forward() passes to a function: a tensor, or the text of a number."""

    text: str
    """Name of a local or an input; dotted path of a model's tensor; a number as Python writes
    it."""
    kind: str
    """local, model or number."""
    line: int


@dataclass(frozen=True)
class Call:
    """One call of a CUDA function in forward()."""

    function: str
    arguments: tuple[Argument, ...]
    results: tuple[str, ...]
    """Locals that hold what it returns."""
    line: int


@dataclass(frozen=True)
class Solution:
    """A solution's parts."""

    cuda: str
    """All CUDA text."""
    lines: tuple[int, ...]
    """Of the file, for each line of the CUDA text."""
    inputs: tuple[str, ...]
    """Arguments of forward(), in order."""
    calls: tuple[Call, ...]
    returned: tuple[str, ...]
    """Locals that forward() returns, in order."""


def is_solution(text: str) -> bool:
    """Say whether a text is a Python file with a ModelNew, and no CUDA source."""
    return re.search(r"^class ModelNew\b", text, re.MULTILINE) is not None


def read_solution(text: str) -> Solution:
    """Return the parts of a solution; of one that was exported from a run its CUDA text alone.

    Raises NotRestated.
    """
    try:
        return _read(text)
    except SyntaxError as error:
        raise NotRestated(f"it is not Python: {error.msg}", error.lineno) from None
    except (RecursionError, MemoryError):  # The latter is how the parser says the same.
        raise NotRestated("its Python is nested too deeply to be read") from None


def _read(text: str) -> Solution:
    tree = ast.parse(text)
    texts = dict(_texts(tree))
    sources = [each for call in _compilations(tree) for each in _sources(call, texts)]
    if not sources:
        raise NotRestated("it compiles no CUDA text with load_inline")
    cuda, lines = "", []
    for node in sources:
        value = str(node.value)
        if re.search("[\0\ud800-\udfff]", value):
            raise NotRestated("its CUDA text holds what no source file can", node.lineno)
        cuda += value.rstrip("\n") + "\n"
        lines += _lines(ast.get_source_segment(text, node) or "", node.lineno, value)
    if EXPORTED in cuda:
        return Solution(cuda, tuple(lines), (), (), ())
    model = next(
        (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == "ModelNew"),
        None,
    )
    methods = {each.name: each for each in model.body if isinstance(each, ast.FunctionDef)} if (
        model
    ) else {}
    if "forward" not in methods:
        raise NotRestated("ModelNew defines no forward()", model.lineno if model else None)
    forward = methods["forward"]
    inputs = tuple(each.arg for each in (*forward.args.posonlyargs, *forward.args.args))[1:]
    numbers = _numbers(methods.get("__init__"))
    calls, returned = _Forward(inputs, numbers).read(forward.body)
    return Solution(cuda, tuple(lines), inputs, calls, returned)


def _lines(written: str, first: int, value: str) -> list[int]:
    """Return the line of the file that each line of a text is written on."""
    raw = re.match(r"[bBfF]?[rR]", written) is not None
    found = [first]
    for number, line in enumerate(written.split("\n")):
        found += [first + number] * (0 if raw else len(re.findall(r"(?<!\\)\\n", line)))
        if raw or not line.endswith("\\"):  # Such a line goes on in the next.
            found.append(first + number + 1)
    return found[: value.rstrip("\n").count("\n") + 1]


def _texts(tree: ast.Module) -> Iterator[tuple[str, ast.Constant]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        yield target.id, node.value


def _compilations(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2].endswith(
            "load_inline"
        ):
            yield node


def _sources(call: ast.Call, texts: dict[str, ast.Constant]) -> Iterator[ast.Constant]:
    given = {each.arg: each.value for each in call.keywords}
    value = given.get("cuda_sources") or (call.args[2] if len(call.args) > 2 else None)
    if value is None:
        return
    for node in value.elts if isinstance(value, ast.List | ast.Tuple) else [value]:
        known = texts.get(node.id) if isinstance(node, ast.Name) else node
        if not (isinstance(known, ast.Constant) and isinstance(known.value, str)):
            raise NotRestated("its CUDA text is put together, not written as one", node.lineno)
        yield known


def _numbers(initial: ast.FunctionDef | None) -> dict[str, str]:
    """Return what __init__ sets attributes of the model to: numbers, or names of its arguments."""
    found: dict[str, str] = {}
    if initial is None:
        return found
    defaults = dict(
        zip(
            reversed([each.arg for each in initial.args.args]),
            reversed([ast.unparse(each) for each in initial.args.defaults]),
            strict=False,
        )
    )
    for node in ast.walk(initial):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)):
            continue
        value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
            found[node.targets[0].attr] = repr(value.value)
        elif isinstance(value, ast.Name):
            found[node.targets[0].attr] = defaults.get(value.id, value.id)
    return found


class _Forward:
    """Reads the statements of forward(): calls of CUDA functions and nothing else."""

    def __init__(self, inputs: tuple[str, ...], numbers: dict[str, str]) -> None:
        self._names = {name: name for name in inputs}
        """What each local stands for."""
        self._numbers = numbers
        self._calls: list[Call] = []

    def read(self, body: list[ast.stmt]) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        for statement in body:
            if isinstance(statement, ast.Return) and statement.value is not None:
                value = statement.value
                items = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
                held = [self._value(each) for each in items]
                returned = tuple(name for names in held for name in names)
                return tuple(self._calls), returned
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._assign(statement.targets[0], statement.value)
            elif not (
                isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            ) and not isinstance(statement, ast.Assert):
                what = ast.unparse(statement).splitlines()[0]
                raise NotRestated(f"forward() does more than call kernels: {what}",
                                  statement.lineno)  # fmt: skip
        raise NotRestated("forward() returns nothing", body[-1].lineno)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        names = [each.id for each in targets if isinstance(each, ast.Name)]
        if len(names) != len(targets):
            raise NotRestated(f"forward() sets {ast.unparse(target)}", target.lineno)
        held = self._value(value, len(names))
        if len(held) != len(names):
            words = f"forward() takes {ast.unparse(value)} for {len(names)} tensors"
            raise NotRestated(words, value.lineno)
        self._names |= dict(zip(names, held, strict=True))

    def _value(self, node: ast.expr, count: int = 1) -> tuple[str, ...]:
        """Return the locals that an expression of tensors stands for."""
        if isinstance(node, ast.Name) and node.id in self._names:
            return (self._names[node.id],)
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr in IDENTITIES:
                if not node.args:
                    return self._value(function.value)
            name = ast.unparse(function).rpartition(".")[2]
            # By name or in order makes no difference to what is missing in the end.
            given = (*node.args, *(each.value for each in node.keywords))
            arguments = tuple(self._argument(each) for each in given)
            results = tuple(f"result{len(self._calls)}_{k}" for k in range(count))
            self._calls.append(Call(name, arguments, results, node.lineno))
            return results
        raise NotRestated(f"forward() computes {ast.unparse(node)} in PyTorch", node.lineno)

    def _argument(self, node: ast.expr) -> Argument:
        text, line = ast.unparse(node), node.lineno
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and (
            node.func.attr in IDENTITIES and not node.args
        ):
            node = node.func.value
            text = ast.unparse(node)
        if isinstance(node, ast.Constant | ast.UnaryOp):
            return Argument(text, "number", line)
        if isinstance(node, ast.Call):
            return Argument(self._value(node)[0], "local", line)
        if text.startswith("self."):
            path = text.removeprefix("self.").removesuffix(".data")
            if path in self._numbers:
                return Argument(self._numbers[path], "number", line)
            return Argument(path, "model", line)
        if isinstance(node, ast.Name) and node.id in self._names:
            return Argument(self._names[node.id], "local", line)
        raise NotRestated(f"forward() passes {text} to a kernel", line)
