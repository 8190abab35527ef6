"""A solution's torch-facing functions as `launch`: what they allocate, ask of tensors and start.

A function that allocates tensors, reads their sizes, computes a grid and starts kernels is the host
half of a candidate but for names: tensors become pointers, sizes constants of task.cuh, the stream
the caller's. Whatever else it does stands in the way, and its line is named.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

from tree_sitter import Node

from ...harness.records.tasks import Task
from ...harness.records.tensors import DTYPE_BYTES, TensorSpec
from ...harness.task.contract import ctype, signature
from ...harness.task.names import constants_of
from ..rewriting.source.syntax import Source, descendants, text_of
from .reading import EXPORTED, Argument, NotRestated, Solution

MOST_DEPTH = 8
"""Of functions that call each other."""
LONGEST_SIZE = 4096
"""Characters of a tensor's size with the values of locals in it, which can multiply without end."""

_FOREIGN = re.compile(r"\b(torch|at|c10|pybind11|caffe2)::|\b(TORCH|AT|C10|PYBIND11)_[A-Z_]+\b")
_CHECKS = re.compile(
    r"\w*CHECK\w*|AT_ASSERT\w*|TORCH_\w*|C10_\w*|cudaDeviceSynchronize|cudaStreamSynchronize"
    r"|cudaGetLastError|cudaPeekAtLastError|assert|printf|fprintf"
)
"""Calls that compute nothing: what they look at is checked by whoever judges a candidate."""
_ALLOCATIONS = ("empty_like", "zeros_like", "empty", "zeros")


@dataclass(frozen=True)
class Tensor:
    """A tensor as `launch` sees it."""

    pointer: str
    """Expression of its first element's address."""
    sizes: tuple[str, ...]
    """Of each axis, as expressions."""
    numel: str
    dtype: str
    is_given: bool = False
    """Whether it is an input, a parameter or a buffer, which nothing may write to."""


def restate(solution: Solution, task: Task) -> str:
    """Return a candidate's source that does what a solution does. Raises NotRestated."""
    if EXPORTED in solution.cuda:
        return _our_own(solution.cuda)
    try:
        return _Restating(solution, task).text()
    except RecursionError:
        raise NotRestated("its CUDA text is nested too deeply to be read") from None


def _our_own(cuda: str) -> str:
    """Return the kernel of a solution that was exported from a run."""
    declared = 'extern "C" size_t workspace_bytes();'
    body = cuda.partition(declared)[2].partition(EXPORTED)[0]
    return f'#include "task.cuh"\n{body.rstrip()}\n'


class _Restating:
    def __init__(self, solution: Solution, task: Task) -> None:
        self._solution, self._task = solution, task
        self._source = Source(solution.cuda)
        self._functions = {
            name: node for node in descendants(self._source.root, "function_definition")
            if (name := _name_of(node))
        }  # fmt: skip
        self._kernels = {
            name: node for name, node in self._functions.items() if "__global__" in text_of(node)
        }
        self._constants = constants_of(task.full)
        self._outputs = list(task.full.of_role("output"))
        self._workspace: list[str] = []
        """Bytes of each tensor in the workspace."""

    def text(self) -> str:
        """Return the whole file."""
        held = dict(zip(self._solution.inputs, self._inputs(), strict=False))
        answers = {name: spec for name, spec in zip(self._solution.returned, self._outputs,
                                                    strict=False)}  # fmt: skip
        if len(self._solution.returned) != len(self._outputs):
            raise NotRestated(
                f"forward() returns {len(self._solution.returned)} tensors, and the task's "
                f"{len(self._outputs)}"
            )
        lines = []
        for call in self._solution.calls:
            wanted = [answers.get(name) for name in call.results]
            given = [self._given(each, held) for each in call.arguments]
            block, results = self.inlined(call.function, given, wanted, call.line, 0)
            lines += ["    {", *(f"        {line}" for line in block), "    }"]
            held |= dict(zip(call.results, results, strict=False))
            if len(results) != len(call.results):
                raise NotRestated(f"{call.function}() returns {len(results)} tensors", call.line)
        for name, spec in answers.items():
            if name not in held or held[name].pointer != spec.name:
                raise NotRestated("forward() returns a tensor that no kernel has written")
        body = "\n".join(lines)
        rest = self._rest()
        return (
            f'#include "task.cuh"\n#include <algorithm>\n#include <cmath>\n{rest.strip()}\n\n'
            f"{self._workspace_function()}{signature(self._task)} {{\n{body}\n}}\n"
        )

    def _inputs(self) -> Iterator[Tensor]:
        for spec in self._task.full.of_role("input"):
            yield _tensor_of(spec)

    def _given(self, argument: Argument, held: dict[str, Tensor]) -> Tensor | str:
        """Return what an argument of forward()'s call is to `launch`."""
        if argument.kind == "local":
            if argument.text not in held:
                raise NotRestated(f"{argument.text} is no tensor of the task", argument.line)
            return held[argument.text]
        if argument.kind == "model":
            name = re.sub(r"\W", "_", argument.text, flags=re.ASCII)
            for spec in self._task.full.of_role("parameter", "buffer"):
                if spec.name == name:
                    return _tensor_of(spec)
            raise NotRestated(
                f"self.{argument.text} is no parameter of the task's model, nor a known number",
                argument.line,
            )
        if argument.text in self._constants.dimensions:
            return self._constants.dimensions[argument.text]
        if argument.text in ("True", "False"):
            return argument.text.lower()
        if not re.fullmatch(r"-?[\d.]+(e-?\d+)?", argument.text):
            raise NotRestated(f"the value of {argument.text} is not known here", argument.line)
        return argument.text

    def inlined(
        self,
        function: str,
        given: list[Tensor | str],
        wanted: list[TensorSpec | None],
        line: int | None,
        depth: int,
    ) -> tuple[list[str], list[Tensor]]:
        """Return a function's statements as `launch` has them, and the tensors it returns."""
        node = self._functions.get(function)
        if node is None or node.child_by_field_name("body") is None or function in self._kernels:
            raise NotRestated(f"{function}() is no host function of its CUDA text", line)
        if depth > MOST_DEPTH:
            raise NotRestated(f"{function}() calls itself", line)
        names = _parameters(node)
        if len(names) != len(given):
            raise NotRestated(f"{function}() takes {len(names)} arguments, not {len(given)}", line)
        tensors = {name: each for (name, _), each in zip(names, given, strict=True)
                   if isinstance(each, Tensor)}  # fmt: skip
        lines = [f"const {kind} {name} = {each};" for (name, kind), each in
                 zip(names, given, strict=True) if isinstance(each, str)]  # fmt: skip
        numbers = {name: each for (name, _), each in zip(names, given, strict=True)
                   if isinstance(each, str)}  # fmt: skip
        body = _Body(self, function, tensors, numbers, wanted, depth)
        block = node.child_by_field_name("body")
        assert block is not None
        return [*lines, *body.lines(block)], body.results

    def kernel_takes(self, kernel: str, place: int) -> str:
        """Return a kernel's parameter as written; empty where it is not known."""
        node = self._kernels.get(kernel)
        listed = [] if node is None else list(_parameter_nodes(node))
        return text_of(listed[place]) if place < len(listed) else ""

    def is_function(self, name: str) -> bool:
        """Say whether the text defines a host function that takes tensors."""
        node = self._functions.get(name)
        return node is not None and name not in self._kernels and "Tensor" in text_of(node)

    def line_of(self, node: Node) -> int:
        """Return the line of the solution's file that a node stands on."""
        return self._solution.lines[min(node.start_point[0], len(self._solution.lines) - 1)]

    def allocate(self, dtype: str, sizes: tuple[str, ...], node: Node) -> str:
        """Return the address of a new tensor in the workspace."""
        numel = _product(sizes)
        if re.search(r"[a-z]", numel):
            raise NotRestated("the size of a tensor between kernels is no constant",
                              self.line_of(node))  # fmt: skip
        offset = " + ".join(["0", *self._workspace])
        # As far apart as PyTorch's allocator has them.
        self._workspace.append(f"({numel} * {DTYPE_BYTES[dtype]} + 511) / 512 * 512")
        place = f"static_cast<char*>(workspace) + ({offset})"
        return f"reinterpret_cast<{ctype(dtype)}*>({place})"

    def _workspace_function(self) -> str:
        if not self._workspace:
            return ""
        total = " + ".join(self._workspace)
        return f'extern "C" size_t workspace_bytes() {{\n    return {total};\n}}\n\n'

    def _rest(self) -> str:
        """Return the CUDA text without what faces PyTorch."""
        for node in self._source.root.children:
            text = text_of(node)
            if node.type in ("preproc_include", "preproc_def", "preproc_function_def"):
                if re.search(r"torch/|ATen|c10|pybind11|Tensor|is_cuda|CHECK", text):
                    self._source.replace(node, "")
            elif _FOREIGN.search(text) and "__global__" not in text and "__device__" not in text:
                self._source.replace(node, "")
        rest = self._source.result()
        if found := _FOREIGN.search(rest):
            before = self._solution.cuda.find(found[0])
            line = self._solution.cuda[:before].count("\n")
            raise NotRestated(f"a kernel uses {found[0]}", self._solution.lines[line])
        return rest


class _Body:
    """One call of a function of the solution: its statements as they stand in `launch`."""

    def __init__(
        self,
        owner: _Restating,
        function: str,
        tensors: dict[str, Tensor],
        numbers: dict[str, str],
        wanted: list[TensorSpec | None],
        depth: int,
    ) -> None:
        self._owner, self._function, self._depth = owner, function, depth
        self._tensors, self._wanted = dict(tensors), wanted
        self._numbers = dict(numbers)
        """Values of locals and arguments that are no tensors, as expressions."""
        self._streams: set[str] = set()
        self._returned: list[str] = []
        self.results: list[Tensor] = []

    def lines(self, block: Node) -> list[str]:
        """Return the statements of a function's body."""
        for node in descendants(block, "return_statement"):
            self._returned = self._names_returned(node)
        found = [line for node in block.named_children for line in self._statement(node)]
        self.results = [self._tensors[name] for name in self._returned if name in self._tensors]
        if not self._returned or len(self.results) != len(self._returned):
            raise NotRestated(f"{self._function}() returns no tensor that it allocates",
                              self._owner.line_of(block))  # fmt: skip
        return found

    def _names_returned(self, node: Node) -> list[str]:
        text = re.sub(r"^return\s*|;$", "", text_of(node)).strip()
        text = re.sub(r"^[\w:<>]*\s*[{(](.*)[})]$", r"\1", text, flags=re.DOTALL)
        return [part.strip() for part in text.split(",")]

    def _statement(self, node: Node) -> Iterator[str]:
        text = text_of(node).strip()
        if node.type in ("comment", "return_statement", ";") or not text:
            return
        if node.type == "declaration" and (yield from self._declaration(node)):
            return
        if node.type == "expression_statement":
            called = next(descendants(node, "call_expression"), None)
            function = called.child_by_field_name("function") if called else None
            name = text_of(function) if function is not None else text.rstrip(";")
            if name.startswith("AT_DISPATCH"):
                yield from self._dispatched(node)
                return
            if _CHECKS.fullmatch(name):
                return
            if called is not None and self._owner.is_function(name):
                yield from self._called(called, name, None)
                return
        if node.type == "if_statement" and re.search(r"cudaSuccess|throw|TORCH_CHECK", text):
            if "<<<" not in text:
                return
        yield from self._rewritten(node).split("\n")

    def _declaration(self, node: Node) -> Generator[str, None, bool]:
        """Yield what a declaration of a tensor, a stream or options becomes.

        The value says whether it was one.
        """
        declared = node.child_by_field_name("declarator")
        value = declared.child_by_field_name("value") if declared is not None else None
        target = declared.child_by_field_name("declarator") if declared is not None else None
        if value is None or target is None:
            return False
        name, text = text_of(target).lstrip("&* "), " ".join(text_of(value).split())
        if not re.fullmatch(r"\w+", name):
            return False
        if "urrentCUDAStream" in text:
            self._streams.add(name)
            return True
        if re.search(r"TensorOptions|\.options\(\)", text) and not _allocation(text):
            return True
        if "cudaGetLastError" in text or "cudaPeekAtLastError" in text:
            return True
        alias = re.fullmatch(r"(\w+)(\.contiguous\(\))?", text)
        if alias and alias[1] in self._tensors:
            self._tensors[name] = self._tensors[alias[1]]
            return True
        if kind := _allocation(text):
            yield from self._allocated(name, kind, value)
            return True
        called = re.match(r"(\w+)\s*\(", text)
        if called and self._owner.is_function(called[1]):
            call = next(descendants(value, "call_expression"))
            yield from self._called(call, called[1], name)
            return True
        if target.type == "identifier":
            self._numbers[name] = f"({self._rewritten(value)})"
        return False

    def _allocated(self, name: str, kind: str, value: Node) -> Iterator[str]:
        call = next(descendants(value, "call_expression"))
        listed = call.child_by_field_name("arguments")
        assert listed is not None
        given = listed.named_children
        like = self._tensors.get(text_of(given[0])) if given else None
        dtype = self._dtype_of(value)
        if kind.endswith("_like"):
            if like is None:
                raise NotRestated(f"{text_of(value)} is like no tensor of the task",
                                  self._owner.line_of(value))  # fmt: skip
            sizes, dtype = like.sizes, dtype or like.dtype
        else:
            wanted = self._sizes(given[0]) if given else None
            if wanted is None:
                raise NotRestated(f"the sizes of {text_of(value)} are not written out",
                                  self._owner.line_of(value))  # fmt: skip
            sizes, dtype = wanted, dtype or "float32"
        spec = None
        if name in self._returned and self._returned.index(name) < len(self._wanted):
            spec = self._wanted[self._returned.index(name)]
        if spec is not None:
            tensor = replace(_tensor_of(spec), is_given=False)
        else:
            known = tuple(self._expanded(each) for each in sizes)
            place = self._owner.allocate(dtype, known, value)
            tensor = Tensor(place, known, _product(known), dtype)
        self._tensors[name] = tensor
        if kind.startswith("zeros"):
            size = f"{tensor.numel} * {DTYPE_BYTES[tensor.dtype]}"
            yield f"cudaMemsetAsync({tensor.pointer}, 0, {size}, stream);"

    def _sizes(self, node: Node) -> tuple[str, ...] | None:
        text = text_of(node)
        like = re.fullmatch(r"(\w+)\.sizes\(\)", text)
        if like and like[1] in self._tensors:
            return self._tensors[like[1]].sizes
        if node.type == "initializer_list":
            return tuple(self._rewritten(each) for each in node.named_children)
        return None

    def _expanded(self, text: str) -> str:
        """Return an expression with the values of locals in their place."""
        for _ in self._numbers:
            for name, value in self._numbers.items():
                text = re.sub(rf"\b{name}\b", value.replace("\\", r"\\"), text)
                if len(text) > LONGEST_SIZE:
                    raise NotRestated(f"{self._function}() computes a size that is too long")
        return text

    def _dtype_of(self, value: Node) -> str:
        text = text_of(value)
        for word, dtype in (("kFloat32", "float32"), ("kFloat", "float32"), ("kHalf", "float16"),
                            ("kFloat16", "float16"), ("kBFloat16", "bfloat16"), ("kInt64", "int64"),
                            ("kLong", "int64"), ("kInt", "int32"), ("kInt32", "int32"),
                            ("kShort", "int16"), ("kInt16", "int16"), ("kChar", "int8"),
                            ("kInt8", "int8"), ("kByte", "uint8"), ("kUInt8", "uint8"),
                            ("kBool", "bool"), ("kDouble", "float64")):  # fmt: skip
            if re.search(rf"\b{word}\b", text):
                return dtype
        like = re.search(r"(\w+)\.options\(\)", text)
        return self._tensors[like[1]].dtype if like and like[1] in self._tensors else ""

    def _called(self, call: Node, name: str, result: str | None) -> Iterator[str]:
        """Yield the statements of another function of the solution that is called."""
        listed = call.child_by_field_name("arguments")
        assert listed is not None
        given: list[Tensor | str] = [
            self._tensors[text_of(each)] if text_of(each) in self._tensors
            else self._rewritten(each) for each in listed.named_children
        ]  # fmt: skip
        wanted: list[TensorSpec | None] = [None]
        if result in self._returned and result is not None:
            wanted = self._wanted[self._returned.index(result) :][:1]
        line = self._owner.line_of(call)
        block, results = self._owner.inlined(name, given, wanted, line, self._depth + 1)
        yield from ["{", *(f"    {each}" for each in block), "}"]
        if result is not None and results:
            self._tensors[result] = results[0]

    def _dispatched(self, node: Node) -> Iterator[str]:
        """Yield the body of a dispatch over types, for the one type that the task has."""
        floating = [each.dtype for each in self._tensors.values() if each.dtype.startswith(
            ("float", "bfloat")
        )]  # fmt: skip
        body = next(
            (each.child_by_field_name("body") for each in descendants(node, "lambda_expression")),
            None,
        )
        if body is None or not floating:
            raise NotRestated("a dispatch over types holds no lambda", self._owner.line_of(node))
        yield "{"
        yield f"    using scalar_t = {ctype(floating[0])};"
        for each in body.named_children:
            yield from (f"    {line}" for line in self._statement(each))
        yield "}"

    def _rewritten(self, node: Node) -> str:
        """Return a statement with pointers and constants in place of what is asked of tensors."""
        text = text_of(node)
        for call in descendants(node, "call_expression"):
            if any(child.type == "kernel_call_syntax" for child in call.children):
                text = text.replace(text_of(call), self._launched(call))
        text = self._asked(text, "")
        unknown = [name for name in self._tensors if re.search(rf"(?<![\w.]){name}\s*\.", text)]
        if unknown or (found := _FOREIGN.search(text)):
            what = f"{unknown[0]}." if unknown else found and found[0]
            raise NotRestated(
                f"{self._function}() does what launch() cannot: {what} in "
                f"{' '.join(text_of(node).split())[:80]}",
                self._owner.line_of(node),
            )
        return text

    def _launched(self, call: Node) -> str:
        """Return a kernel's launch on the caller's stream, with pointers for tensors."""
        function = call.child_by_field_name("function")
        listed = call.child_by_field_name("arguments")
        syntax = next(each for each in call.children if each.type == "kernel_call_syntax")
        assert function is not None and listed is not None
        parts = [self._asked(text_of(each), "") for each in syntax.named_children][:3]
        parts += ["0"] * (3 - len(parts)) + ["stream"]
        name = re.sub(r"<.*", "", text_of(function), flags=re.DOTALL)
        arguments = [
            self._asked(text_of(each), self._owner.kernel_takes(name, place))
            for place, each in enumerate(listed.named_children)
        ]
        configured = ", ".join(parts)
        return f"{text_of(function)}<<<{configured}>>>({', '.join(arguments)})"

    def _size(self, sizes: tuple[str, ...], axis: int) -> str:
        if -len(sizes) <= axis < len(sizes):
            return sizes[axis]
        words = f"{self._function}() asks for axis {axis} of a tensor with {len(sizes)}"
        raise NotRestated(words)

    def _asked(self, text: str, parameter: str) -> str:
        """Return code with what it asks of tensors answered; `parameter` is what takes it."""
        for name, tensor in self._tensors.items():
            pointer = tensor.pointer
            if tensor.is_given and "const" not in parameter:
                pointer = f"const_cast<{ctype(tensor.dtype)}*>({pointer})"
            own = rf"(?<![\w.]){name}\s*\.\s*"
            asked = rf"{own}(?:mutable_|const_)?data_ptr(?:<[^<>()]*>)?\s*\(\s*\)"
            text = re.sub(asked, pointer.replace("\\", r"\\"), text)
            numel = tensor.numel.replace("\\", r"\\")
            text = re.sub(rf"{own}numel\(\)", f"({numel})", text)
            text = re.sub(rf"{own}(?:dim|ndimension)\(\)", str(len(tensor.sizes)), text)
            asked = rf"{own}sizes?(?:\(\)\s*\[|\()\s*(-?\d+)\s*[\])]"
            while found := re.search(asked, text):
                size = self._size(tensor.sizes, int(found[1]))
                text = f"{text[: found.start()]}({size}){text[found.end() :]}"
        for name in self._streams - {"stream"}:
            text = re.sub(rf"\b{name}\b", "stream", text)
        return re.sub(r"\b(?:at|c10)::cuda::getCurrentCUDAStream\(\)", "stream", text)


def _tensor_of(spec: TensorSpec) -> Tensor:
    name = spec.name.upper()
    sizes = tuple(f"{name}_SIZE_{axis}" for axis in range(len(spec.shape)))
    return Tensor(spec.name, sizes, f"{name}_NUMEL", spec.dtype, is_given=spec.role != "output")


def _product(sizes: tuple[str, ...]) -> str:
    return " * ".join(f"({size})" for size in sizes) or "1"


def _allocation(text: str) -> str:
    found = re.match(r"(?:torch|at)::(\w+)\s*\(", text)
    return found[1] if found and found[1] in _ALLOCATIONS else ""


def _name_of(node: Node) -> str:
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    return text_of(name) if name is not None else ""


def _parameter_nodes(node: Node) -> Iterator[Node]:
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    listed = declarator.child_by_field_name("parameters") if declarator is not None else None
    for each in listed.named_children if listed is not None else ():
        if each.type in ("parameter_declaration", "optional_parameter_declaration"):
            yield each


def _parameters(node: Node) -> list[tuple[str, str]]:
    """Return the name and the type of each parameter of a host function."""
    found = []
    for each in _parameter_nodes(node):
        text = text_of(each).partition("=")[0].strip()
        name = re.search(r"(?<!\w)(\w+)$", text)
        kind = re.sub(r"\bconst\b|&", "", text[: name.start()] if name else text).strip()
        found.append((name[1] if name else "", kind))
    return found
