"""What a thread's index expressions mean: element of the grid, lane, warp, block."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tree_sitter import Node

from .syntax import (
    Kernel,
    canonical,
    expression,
    factors,
    opened,
    operator,
    squeezed,
    terms,
    text_of,
)

_BUILTINS = re.compile(r"\b(threadIdx|blockIdx|blockDim|gridDim)\b")


def resolved(text: str, local: Mapping[str, str]) -> str:
    """Return an expression with local names replaced by what they stand for, in parentheses."""
    for _ in range(4):
        changed = re.sub(
            r"(?<![\w.])[A-Za-z_]\w*",
            lambda found: f"({local[found[0]]})" if found[0] in local else found[0],
            text,
        )
        if changed == text:
            break
        text = changed
    return text


def is_thread_expression(text: str) -> bool:
    """Whether an initial value only says where the thread is."""
    return _BUILTINS.search(text) is not None


def is_global_index(text: str, axis: str, block: frozenset[str]) -> bool:
    """Whether an expression is the thread's index in the grid along an axis.

    Args:
        block: texts that equal the block's size along the axis, besides blockDim.
    """
    found = canonical(expression(text))
    return any(
        found == frozenset({tuple(sorted((f"blockIdx.{axis}", size))), (f"threadIdx.{axis}",)})
        for size in {f"blockDim.{axis}", *block}
    )


def is_block_index(text: str, axis: str = "x") -> bool:
    """Whether an expression is the block's index."""
    return canonical(expression(text)) == frozenset({(f"blockIdx.{axis}",)})


def is_thread_index(text: str, axis: str = "x") -> bool:
    """Whether an expression is the thread's index in its block."""
    return canonical(expression(text)) == frozenset({(f"threadIdx.{axis}",)})


def is_lane(text: str) -> bool:
    """Whether an expression is the lane of the thread in its warp."""
    plain = squeezed(text).replace("(", "").replace(")", "")
    return plain in ("threadIdx.x%32", "threadIdx.x&31", "threadIdx.x&0x1f", "threadIdx.x&0x1F",
                     "threadIdx.x%warpSize")  # fmt: skip


def is_global_warp(text: str, block: frozenset[str]) -> bool:
    """Whether an expression is the warp's index in the grid."""
    node = opened(expression(text))
    inner = _over_32(node)
    if inner is not None:
        return is_global_index(text_of(inner), "x", block)
    summands = [opened(term) for term in terms(node)]
    if len(summands) != 2:
        return False
    by_block = [term for term in summands if "blockIdx" in text_of(term)]
    by_thread = [term for term in summands if "threadIdx" in text_of(term)]
    if len(by_block) != 1 or len(by_thread) != 1:
        return False
    quotient = _over_32(by_thread[0])
    if quotient is None or not is_thread_index(text_of(quotient)):
        return False
    return _is_warps_of_block(by_block[0], block)


def _is_warps_of_block(node: Node, block: frozenset[str]) -> bool:
    others = [part for part in factors(node) if part != "blockIdx.x"]
    sizes = {f"{size}/32" for size in {"blockDim.x", *block}}
    sizes |= {f"{size}>>5" for size in {"blockDim.x", *block}}
    sizes |= {str(int(size) // 32) for size in block if size.isdigit()}
    return len(others) == 1 and others[0].strip("()") in sizes


def _over_32(node: Node) -> Node | None:
    """Return the dividend of a division by 32, also as a shift."""
    node = opened(node)
    if node.type != "binary_expression":
        return None
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is None or right is None:
        return None
    divisor = squeezed(text_of(opened(right)))
    if (operator(node), divisor) in (("/", "32"), (">>", "5"), ("/", "warpSize")):
        return opened(left)
    return None


def rest_of(kernel: Kernel, name: str) -> str:
    """Return the kernel's text after the declaration of a name."""
    text = text_of(kernel.body)
    match = re.search(rf"\b{re.escape(name)}\b", text)
    return text[match.end() :] if match else ""


def feeds_index(later: str, name: str) -> bool:
    """Whether a block index is multiplied by the block's size to make another index."""
    pattern = rf"\b{name}\b\s*\*\s*blockDim|blockDim\.x\s*\*\s*{name}\b"
    return re.search(pattern, later) is not None
