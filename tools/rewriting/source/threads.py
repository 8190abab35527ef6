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

WARP = 32
PARTS = (32, 16, 8, 4, 2)
"""Lanes that may share a row."""
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


def lanes_of(text: str) -> int | None:
    """Return how many lanes of a warp an expression counts through, as `threadIdx.x % 8` does."""
    plain = squeezed(text).replace("(", "").replace(")", "")
    found = re.fullmatch(r"threadIdx\.x([%&])(\w+)", plain)
    if found is None:
        return None
    if found[2] == "warpSize":
        return WARP if found[1] == "%" else None
    if not re.fullmatch(r"[1-9]\d*|0[xX][0-9a-fA-F]+", found[2]):
        return None
    lanes = int(found[2], 0) + (found[1] == "&")
    return lanes if lanes in PARTS else None


def group_lanes(text: str, block: frozenset[str]) -> int | None:
    """Return of how many lanes a warp, or a part of one, is whose index in the grid this is."""
    divided = _over_lanes(opened(expression(text)))
    if divided is not None:
        inner, lanes = divided
        return lanes if is_global_index(text_of(inner), "x", block) else None
    return WARP if _is_warp_by_block(text, block) else None


def _is_warp_by_block(text: str, block: frozenset[str]) -> bool:
    """Whether an expression adds the warp's index in its block to the warps of those before."""
    summands = [opened(term) for term in terms(opened(expression(text)))]
    if len(summands) != 2:
        return False
    by_block = [term for term in summands if "blockIdx" in text_of(term)]
    by_thread = [term for term in summands if "threadIdx" in text_of(term)]
    if len(by_block) != 1 or len(by_thread) != 1:
        return False
    quotient = _over_lanes(by_thread[0])
    if quotient is None or quotient[1] != WARP or not is_thread_index(text_of(quotient[0])):
        return False
    return _is_warps_of_block(by_block[0], block)


def _is_warps_of_block(node: Node, block: frozenset[str]) -> bool:
    others = [part for part in factors(node) if part != "blockIdx.x"]
    sizes = {f"{size}/32" for size in {"blockDim.x", *block}}
    sizes |= {f"{size}>>5" for size in {"blockDim.x", *block}}
    sizes |= {str(int(size) // 32) for size in block if size.isdigit()}
    return len(others) == 1 and others[0].strip("()") in sizes


def _over_lanes(node: Node) -> tuple[Node, int] | None:
    """Return the dividend of a division by the lanes of a warp or a part, also as a shift."""
    node = opened(node)
    if node.type != "binary_expression":
        return None
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is None or right is None:
        return None
    divisor = squeezed(text_of(opened(right)))
    for lanes in PARTS:
        if (operator(node), divisor) in (("/", str(lanes)), (">>", str(lanes.bit_length() - 1))):
            return opened(left), lanes
    return (opened(left), WARP) if (operator(node), divisor) == ("/", "warpSize") else None


def rest_of(kernel: Kernel, name: str) -> str:
    """Return the kernel's text after the declaration of a name."""
    text = text_of(kernel.body)
    match = re.search(rf"\b{re.escape(name)}\b", text)
    return text[match.end() :] if match else ""


def feeds_index(later: str, name: str) -> bool:
    """Whether a block index is multiplied by the block's size to make another index."""
    pattern = rf"\b{name}\b\s*\*\s*blockDim|blockDim\.x\s*\*\s*{name}\b"
    return re.search(pattern, later) is not None
