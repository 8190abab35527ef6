"""Which of a task's operators each kernel of a file can be computing, read off its text.

A file's kernels share the work of its task: one multiplies matrices, another goes over rows. What
is read is what a kernel cannot be doing: nothing over rows without a loop or threads that meet, no
product where no two values are multiplied and added up, no rows where products are all that is
added up. What by this reading none of them would do, the reading missed: any may do it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator

from tree_sitter import Node

from ...harness.records.tasks import Task
from ...memory.knowledge.states.conditions import operators
from ..rewriting.source.kernel_text import own_text
from ..rewriting.source.syntax import descendants, operator, parse, squeezed, text_of
from .operators import ROWS, SCANS, SORTS, WITH_PRODUCTS

_ROWS = frozenset({*ROWS, *SCANS, *SORTS}) - frozenset(WITH_PRODUCTS)
_PRODUCTS = frozenset(WITH_PRODUCTS)
_LOOPS = re.compile(r"\b(?:for|while)\b")
_TENSOR = re.compile(r"\bw?g?mma\w*\s*[:.(<]|\bmma_sync|mma\.sync|wgmma")
_MEETING = re.compile(r"__shfl\w*|__reduce\w*|\batomic\w*|\bred\.|\batom\.|__syncthreads|\.sync\(")
_SHARED_RESULT = re.compile(r"__shfl\w*|__reduce\w*|\batomic\w*|\bred\.|\batom\.")
_MULTIPLY_ADD = re.compile(r"^(?:__)?h?fmaf?2?(?:_rn|_relu)?$")
_MAXIMUM = re.compile(r"^(?:std::)?(?:__h|f)?(?:max|min)2?f?$")
_COUNTED = (
    r"\b(?:int|unsigned|long|short|char|size_t|ptrdiff_t|u?int\d+_t)\s+(?:const\s+)?%s\b"
    r"|\*\s*(?:const\s+|__restrict__\s+)*%s\b\s*[,)=;]"
)
"""Declares a whole number or a pointer of that name."""


def operators_of(task: Task, source: str, kernels: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return, by kernel, the operators of the task that it can be computing.

    Args:
        task: what the file computes.
        source: of the file.
        kernels: its kernels by the names that a profiler gives; those whose text is not found can
            be computing anything.
    """
    known = operators(task)
    found = {kernel: known - _impossible(own_text(source, kernel)) for kernel in kernels}
    missed = known - frozenset().union(*found.values())
    return {kernel: names | missed for kernel, names in found.items()}


@functools.lru_cache(maxsize=256)
def _impossible(text: str | None) -> frozenset[str]:
    """Return the operators that no kernel of this text computes."""
    if text is None:
        return frozenset()
    multiplies = bool(_TENSOR.search(text))
    if not (multiplies or _LOOPS.search(text) or _MEETING.search(text)):
        return _ROWS | _PRODUCTS
    root = parse(text.encode())
    added = list(_sums(root, text))
    multiplies = multiplies or any(added)
    if not multiplies:
        return _PRODUCTS
    # A product of a matrix and a vector is one of rows too: what is said of products stands.
    only = all(added) and not _SHARED_RESULT.search(text)
    return _ROWS if only else frozenset()


def _sums(root: Node, text: str) -> Iterator[bool]:
    """Say of each thing that is added up, or kept the largest of, whether it is products of two."""
    for node in descendants(root, "assignment_expression"):
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        sign, around = node.child_by_field_name("operator"), node.parent
        if left is None or right is None or sign is None:
            continue
        if around is not None and around.type == "for_statement":
            continue  # its step
        called, given = _call(right) if right.type == "call_expression" else ("", [])
        if _MULTIPLY_ADD.match(called) and len(given) == 3:
            yield given[0] != given[1]
        elif _MAXIMUM.match(called) and squeezed(text_of(left)) in given:
            yield False
        elif text_of(sign) == "+=" and not _counts(text_of(left), text):
            yield _is_product(right)


def _is_product(node: Node) -> bool:
    """Say whether an expression is one value times another, which no square is, or a sum of
    such."""
    while node.type == "parenthesized_expression" and node.named_child_count == 1:
        node = node.named_children[0]
    if node.type != "binary_expression":
        return False
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is None or right is None:
        return False
    if operator(node) == "+":
        return _is_product(left) and _is_product(right)
    return operator(node) == "*" and squeezed(text_of(left)) != squeezed(text_of(right))


def _call(node: Node) -> tuple[str, list[str]]:
    function, given = (node.child_by_field_name(name) for name in ("function", "arguments"))
    names = [squeezed(text_of(each)) for each in given.named_children] if given else []
    return (text_of(function) if function else "", names)


def _counts(target: str, text: str) -> bool:
    """Say whether what is added to is a whole number or a pointer, and no sum of the task's."""
    name = re.escape(re.split(r"\W", target.lstrip("*("), maxsplit=1)[0])
    return "[" not in target and re.search(_COUNTED % (name, name), text) is not None
