"""Removes what a rewrite left without use: constants, device functions, spare blank lines."""

from __future__ import annotations

import re
from collections import Counter

from tree_sitter import Node

from .syntax import Source, declarations, text_of


def tidied(before: str, after: str) -> str:
    """Return the new source without what it no longer uses.

    Only what the source before had used, or did not have, goes: an author's spare names stay.
    """
    used_before = _words(before)
    while True:
        source, used = Source(after), _words(after)
        unused = next(
            (
                (node, name)
                for node in source.root.named_children
                if (name := _defined(node)) and used[name] == 1 != used_before[name]
            ),
            None,
        )
        if unused is None:
            return re.sub(r"\n{3,}", "\n\n", after)
        node = unused[0]
        start = node.start_byte
        above = node.prev_named_sibling
        if above is not None and above.type == "comment" and node.type != "declaration":
            start = above.start_byte
        end = source.data.find(b"\n", node.end_byte) + 1
        source.cut(start, end)
        after = source.result()


def _defined(node: Node) -> str:
    """Return the name of a file-level constant, device function or static one, else nothing."""
    if node.type == "declaration":
        found = declarations(node)
        if len(found) == 1 and found[0].type.startswith("constexpr"):
            return found[0].name
    if node.type == "function_definition" and text_of(node).startswith(("__device__", "static ")):
        declarator = node.child_by_field_name("declarator")
        name = declarator.child_by_field_name("declarator") if declarator else None
        return text_of(name) if name is not None else ""
    return ""


def _words(text: str) -> Counter[str]:
    """Return how often each word stands in a text."""
    return Counter(re.findall(r"\w+", text))
