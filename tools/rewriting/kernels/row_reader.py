"""Reads a kernel as a row program: which row, then loops over the columns and what is between."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tree_sitter import Node

from ..records import NotRecognised
from ..source.constants import Constants
from ..source.loops import CountingLoop, accumulators, counting_loop
from ..source.syntax import (
    Kernel,
    Statement,
    declarations,
    definition,
    descendants,
    opened,
    operator,
    renamed,
    squeezed,
    statements,
    text_of,
    uses,
)
from ..source.threads import (
    WARP,
    feeds_index,
    group_lanes,
    is_block_index,
    is_global_index,
    is_thread_expression,
    is_thread_index,
    lanes_of,
    resolved,
    rest_of,
)
from .packs import unpack
from .row_steps import Loop, Plain, Step, check_sharing


@dataclass(frozen=True)
class RowBody:
    """The body of a row kernel, free of how it is spread over threads."""

    mapping: str
    """thread, warp or block."""
    width: int
    """Widest access asked for, in elements."""
    cached: bool
    """Whether elements that several loops read are kept in registers."""
    row: str
    row_type: str
    rows: str
    """Number of rows; empty where a block kernel leaves it to its grid."""
    columns: str
    steps: tuple[Step, ...]
    lanes: int = WARP
    """Where warps work on rows: how many of their lanes share one."""

    def with_steps(self, steps: Sequence[Step]) -> RowBody:
        """Return the program with other steps; the row stays in registers while two loops read."""
        loops = sum(isinstance(step, Loop) for step in steps)
        return replace(self, steps=tuple(steps), cached=self.cached and loops > 1)


def read_rows(kernel: Kernel, constants: Constants, block: str) -> RowBody:
    """Return the kernel as a row program.

    Raises:
        NotRecognised: it does something that a row program does not.
    """
    return _Reader(kernel, constants, block).read()


class _Reader:
    def __init__(self, kernel: Kernel, constants: Constants, block: str) -> None:
        self._kernel = kernel
        self._constants = constants
        self._block = block
        size = constants.own.get(block, block)
        self._block_texts = frozenset({block, size})
        self._local: dict[str, str] = {
            name: "32" for name in constants.own
            if "warp" in name.lower() and self._is_32(name) and name != block
        }  # fmt: skip
        self._mapping = ""
        self._lanes = WARP
        self._row = self._row_type = self._rows = ""
        self._columns = ""
        self._width = 1
        self._caches: dict[str, str] = {}
        self._chunk: dict[str, str] = {}
        self._steps: list[Step] = []
        self._uncombined: dict[str, str] = {}
        self._first_lane: set[str] = set()
        """Accumulators that only the first lane knows whole."""

    def _is_32(self, name: str) -> bool:
        pair = self._constants.pair(name)
        return pair is not None and pair.full == 32

    def read(self) -> RowBody:
        listed = statements(self._kernel.body)
        while listed:
            statement = listed.pop(0)
            inner = self._guarded_rest(statement, listed)
            if inner is not None:
                listed = inner
                continue
            self._statement(statement)
        if not self._row:
            raise NotRecognised("no variable is the row of a thread, a warp or a block")
        if not self._columns:
            raise NotRecognised("no loop runs over the columns of a row")
        if self._uncombined:
            raise NotRecognised(f"{', '.join(self._uncombined)} is not combined after its loop")
        if not self._rows and self._mapping != "block":
            raise NotRecognised("the number of rows is not checked")
        self._check_places()
        check_sharing(self._kernel, self._steps)
        return RowBody(
            self._mapping, self._width, bool(self._caches), self._row, self._row_type,
            self._rows, self._columns, tuple(self._steps), self._lanes,
        )  # fmt: skip

    def _check_places(self) -> None:
        """Check that a row's work depends on where its thread is through the row alone.

        Another grid than the author's has no other index (a batch in `blockIdx.z`) to give it.
        """
        for step in self._steps:
            for line in step.lines if isinstance(step, Loop) else (step.text,):
                if is_thread_expression(resolved(line, self._local)):
                    raise NotRecognised("the row depends on more than its index")

    # Statements

    def _statement(self, statement: Statement) -> None:
        node = statement.node
        kind = node.type
        if kind == "comment":
            self._steps.append(Plain(statement.text))
        elif kind == "declaration":
            self._declaration(statement)
        elif kind == "for_statement":
            self._loop(statement)
        elif kind == "if_statement":
            self._condition(node)
        elif kind == "expression_statement":
            self._expression(statement)
        elif kind == "static_assert_declaration":
            return
        else:
            raise NotRecognised(f"a row program has no {kind.replace('_', ' ')}")

    def _declaration(self, statement: Statement) -> None:
        node = statement.node
        text = text_of(node)
        if "__shared__" in text or "extern" in text:
            raise NotRecognised("the kernel keeps shared memory of its own")
        declared = declarations(node)
        if not declared:
            kind, _, name = text.partition("[")[0].rpartition(" ")
            known = re.fullmatch(r"Pack<.*>|[\w ]+", kind)
            if known is None or re.fullmatch(r"\w+_cache(?:_\d+)?", name) is None:
                raise NotRecognised("the kernel keeps an array of its own")
            self._caches[name] = ""
            return
        names = [item.name for item in declared]
        if names in (["VEC"], ["CHUNKS"]):
            if names == ["VEC"]:
                self._width = 4 if "4" in text else 2
            return
        if len(declared) == 1 and declared[0].value is not None:
            item = declared[0]
            assert item.value is not None
            value = resolved(text_of(item.value), self._local)
            if is_thread_expression(value):
                self._thread_variable(item.name, item.type, value)
                return
        self._check_combined(text)
        self._steps.append(Plain(statement.text))

    def _thread_variable(self, name: str, kind: str, value: str) -> None:
        """Take in a variable that says where the thread is."""
        mapping, lanes = "", None
        if is_global_index(value, "x", self._block_texts):
            mapping = "thread"
        elif lanes := group_lanes(value, self._block_texts):
            mapping = "warp"
        elif is_block_index(value):
            mapping = "block"
        later = rest_of(self._kernel, name)
        only_position = mapping and re.search(rf"\b{name}\b\s*(?:/|>>|%|&)", later)
        if not mapping or only_position or (mapping == "block" and "blockDim" in later
                                            and feeds_index(later, name)):  # fmt: skip
            self._local[name] = value
            return
        if self._row:
            raise NotRecognised("the kernel computes more than one index for a thread")
        self._row, self._mapping = name, mapping
        self._lanes = lanes or WARP
        self._row_type = kind.replace("const", "").strip()

    def _condition(self, node: Node) -> None:
        """Take in `if (row >= ROWS) return;` or `if (lane == 0) store;`."""
        condition = node.child_by_field_name("condition")
        body = node.child_by_field_name("consequence")
        if condition is None or body is None or node.child_by_field_name("alternative"):
            raise NotRecognised("the kernel branches")
        test = opened(condition.named_children[0])
        inner = statements(body)
        if len(inner) == 1 and inner[0].node.type == "return_statement":
            self._rows = self._bound(test, (">=",))
            return
        left = test.child_by_field_name("left")
        right = test.child_by_field_name("right")
        if left is None or right is None or operator(test) != "==" or text_of(right) != "0":
            raise NotRecognised("the kernel branches on something else than its row")
        who = resolved(text_of(left), self._local)
        if not (lanes_of(who) == self._lanes if self._mapping == "warp" else is_thread_index(who)):
            raise NotRecognised("the kernel branches on something else than its first lane")
        for statement in inner:
            self._steps.append(Plain(statement.text, stores=True))

    def _guarded_rest(self, statement: Statement, rest: list[Statement]) -> list[Statement] | None:
        """Return the statements inside `if (row < ROWS) {...}` when nothing follows it."""
        node = statement.node
        condition = node.child_by_field_name("condition")
        body = node.child_by_field_name("consequence")
        if node.type != "if_statement" or condition is None or body is None or not self._row:
            return None
        if node.child_by_field_name("alternative") is not None:
            return None
        test = opened(condition.named_children[0])
        left = test.child_by_field_name("left")
        if left is None or text_of(left) != self._row or operator(test) != "<":
            return None
        if any(other.node.type != "comment" for other in rest):
            return None
        self._rows = self._bound(test, ("<",))
        return statements(body)

    def _bound(self, test: Node, signs: Sequence[str]) -> str:
        left, right = test.child_by_field_name("left"), test.child_by_field_name("right")
        if left is None or right is None or operator(test) not in signs:
            raise NotRecognised("a return depends on something else than the row")
        if text_of(left) != self._row:
            raise NotRecognised("a return depends on something else than the row")
        return text_of(right)

    def _expression(self, statement: Statement) -> None:
        if not statement.node.named_children:
            raise NotRecognised("a statement is empty")
        node = statement.node.named_children[0]
        text = statement.text
        if node.type == "call_expression":
            raise NotRecognised(f"the kernel calls {text_of(node).split('(')[0]}")
        name = self._combination(node)
        if name:
            self._uncombined.pop(name, None)
            return
        self._check_combined(text)
        left = node.child_by_field_name("left")
        stores = left is not None and left.type == "subscript_expression"
        if stores and self._mapping in ("warp", "block"):
            raise NotRecognised("every thread of a row stores the same element")
        self._steps.append(Plain(text, stores))

    def _combination(self, node: Node) -> str:
        """Return the accumulator of `v = warp_sum(v)`, or nothing."""
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if self._mapping == "thread" or left is None or right is None:
            return ""
        name = text_of(left)
        if name in self._first_lane and squeezed(text_of(right)).endswith(f",{name},0)"):
            self._first_lane.remove(name)
            return name
        if name in self._uncombined and right.type == "call_expression":
            arguments = right.child_by_field_name("arguments")
            function = right.child_by_field_name("function")
            if arguments is None or function is None:
                return ""
            given = [text_of(a) for a in arguments.named_children]
            code = definition(self._kernel.node, text_of(function))
            if given == [name] and "__shfl" in code:
                kind = "max" if "max" in code else "min" if "min" in code else "sum"
                whole = "__syncthreads" in code or "block" in text_of(function).lower()
                part = re.match(r"lanes(\d+)_", text_of(function))
                lanes = int(part[1]) if part else WARP
                if whole != (self._mapping == "block") or (not whole and lanes != self._lanes):
                    raise NotRecognised(f"{name} is combined over other threads than its row's")
                if kind != self._uncombined[name]:
                    raise NotRecognised(f"{name} is summed and combined in different ways")
                return name
        return ""

    def _check_combined(self, text: str) -> None:
        for name in (*self._uncombined, *self._first_lane):
            if uses(text, name):
                raise NotRecognised(f"{name} is used before it is combined over the row")

    # Loops

    def _loop(self, statement: Statement) -> None:
        if self._shuffles(statement.node):
            return
        loop = counting_loop(statement.node)
        if loop is None:
            raise NotRecognised("a loop is no counting loop")
        if loop.bound == "CHUNKS":
            self._chunk_loop(loop)
            return
        variable, lines, pragma = loop.variable, self._lines(loop), statement.pragma
        self._check_stride(loop)
        unpacked = unpack(loop.body, loop.variable)
        if unpacked is not None:
            lines = unpacked[0]
        self._add_loop(loop, variable, lines, loop.bound, pragma)

    def _add_loop(
        self, loop: CountingLoop, variable: str, lines: list[str], bound: str, pragma: str
    ) -> None:
        if self._columns and not self._constants.equal(self._columns, bound):
            raise NotRecognised("the loops run over different numbers of columns")
        self._columns = self._columns or bound
        for line in lines:
            self._check_combined(line)
            if re.search(r"\b(return|break|continue|goto|__syncthreads|__shfl\w*)\b", line):
                raise NotRecognised("a loop over the columns leaves early or synchronises")
            if re.search(r"\bfor\b|\bwhile\b", line):
                raise NotRecognised("a loop over the columns holds another loop")
        carried = accumulators(lines)
        self._steps.append(
            Loop(variable, loop.type.replace("const", "").strip(), tuple(lines), carried, pragma)
        )
        if self._mapping != "thread":
            self._uncombined.update(carried)

    def _lines(self, loop: CountingLoop) -> list[str]:
        return [
            f"{inner.pragma}\n{inner.text}" if inner.pragma else inner.text
            for inner in statements(loop.body)
        ]

    def _check_stride(self, loop: CountingLoop) -> None:
        """Check that a loop starts and steps as its mapping does, in packs or not."""
        start = squeezed(resolved(loop.start, self._local))
        step = squeezed(resolved(loop.step, self._local))
        start, step = start.replace("*VEC", ""), step.replace("*VEC", "")
        if step == "VEC":
            step = "1"
        starts = {
            "thread": lambda: start == "0",
            "warp": lambda: lanes_of(start) == self._lanes,
            "block": lambda: is_thread_index(start),
        }
        lanes = {str(self._lanes), *(("warpSize",) if self._lanes == WARP else ())}
        steps = {"thread": {"1"}, "warp": lanes,
                 "block": {"blockDim.x", *self._block_texts}}  # fmt: skip
        if not self._mapping:
            raise NotRecognised("a loop comes before the row is known")
        if not starts[self._mapping]() or step.strip("()") not in steps[self._mapping]:
            raise NotRecognised("a loop does not run over the columns of a row")

    def _chunk_loop(self, loop: CountingLoop) -> None:
        """Take in a loop over the chunks that a thread keeps in registers."""
        listed = statements(loop.body)
        if len(listed) < 2:
            raise NotRecognised("a loop over chunks has another shape")
        first = declarations(listed[0].node)
        guard = listed[1].node
        condition, body = (guard.child_by_field_name(n) for n in ("condition", "consequence"))
        if len(first) != 1 or condition is None or body is None:
            raise NotRecognised("a loop over chunks has another shape")
        variable = first[0].name
        bound = opened(condition.named_children[0]).child_by_field_name("right")
        assert bound is not None
        inner = statements(body)
        fills = [self._fill(item.node, loop.variable) for item in inner]
        if all(fills):
            return
        unpacked = unpack(body, variable)
        lines = unpacked[0] if unpacked else [item.text for item in inner]
        lane = "j"
        for item in inner:
            if item.node.type == "for_statement":
                counted = counting_loop(item.node)
                lane = counted.variable if counted else lane
        restored = []
        for line in lines:
            for name, element in self._caches.items():
                text = renamed(element, {"CHUNK_COLUMN": variable})
                line = line.replace(f"{name}[{loop.variable}].at[{lane}]", text)
                line = line.replace(f"{name}[{loop.variable}]", text)
            restored.append(line)
        kind = CountingLoop(first[0].type, variable, "", "", "", loop.body)
        self._add_loop(kind, variable, restored, text_of(bound), "")

    def _fill(self, node: Node, chunk: str) -> bool:
        """Take in `x_cache[k] = ...;` and note which element the register holds."""
        for assignment in descendants(node, "assignment_expression"):
            left = assignment.child_by_field_name("left")
            right = assignment.child_by_field_name("right")
            match = re.fullmatch(rf"(\w+)\[{chunk}\]", text_of(left)) if left else None
            if match is None or match[1] not in self._caches or right is None:
                return False
            text = text_of(right)
            packed = re.match(r"load_pack<\w+>\(&(.*)\)$", text, re.S)
            element = packed[1] if packed else text
            owner = node.parent
            while owner is not None and owner.type != "for_statement":
                owner = owner.parent
            assert owner is not None
            column = declarations(statements(owner.child_by_field_name("body") or owner)[0].node)
            self._caches[match[1]] = renamed(element, {column[0].name: "CHUNK_COLUMN"})
            return True
        return False

    def _shuffles(self, node: Node) -> bool:
        """Take in a loop of shuffles over one accumulator, written in place."""
        text = text_of(node)
        body = node.child_by_field_name("body")
        if "__shfl" not in text or self._mapping != "warp" or self._lanes != WARP or body is None:
            return False
        for name, kind in list(self._uncombined.items()):
            if not uses(text_of(body), name):
                continue
            if ("max" in text) != (kind == "max") or ("min" in text) != (kind == "min"):
                raise NotRecognised(f"{name} is summed and combined in different ways")
            if "__shfl_xor_sync" in text:
                del self._uncombined[name]
            elif "__shfl_down_sync" in text:
                del self._uncombined[name]
                self._first_lane.add(name)
            return True
        raise NotRecognised("a shuffle works on something that no loop accumulates")
