"""What of a file belongs to one kernel: its definition, and the functions that it reaches."""

from __future__ import annotations

import functools
import re

from tree_sitter import Node

from ....harness.vetting.symbols import bare_name
from .syntax import descendants, parse, text_of

_MACROS = ("preproc_def", "preproc_function_def")
_NAME = re.compile(r"[A-Za-z_]\w*")


@functools.lru_cache(maxsize=256)
def own_text(source: str, kernel: str) -> str | None:
    """Return the text of a kernel with that of functions and macros it uses, or those by others.

    Comments are left out, and so is what else stands outside of functions.

    Args:
        source: of the file.
        kernel: its name as a profiler gives it: arguments of a template are no part of the name.

    Returns:
        None where the file defines no kernel of that name.
    """
    functions: dict[str, list[Node]] = {}
    for node in descendants(parse(source.encode()), "function_definition", *_MACROS):
        if name := _name(node):
            functions.setdefault(name, []).append(node)
    wanted = bare_name(kernel)
    if not any("__global__" in _head(node) for node in functions.get(wanted, ())):
        return None
    reached: dict[str, str] = {}
    waiting = [wanted]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached[name] = "\n".join(_without_comments(text_of(node)) for node in functions[name])
        called = set(_NAME.findall(reached[name])) & functions.keys()
        waiting += sorted(each for each in called if each not in reached)
    return "\n".join(reached.values())


def _name(function: Node) -> str | None:
    """Return what a function or a macro is called; None where its head is not read."""
    if function.type in _MACROS:
        named = function.child_by_field_name("name")
        return None if named is None else text_of(named)
    declarator = function.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    named = declarator.child_by_field_name("declarator") if declarator else None
    return None if named is None else text_of(named).rpartition("::")[2]


def _head(function: Node) -> str:
    return text_of(function).split("{")[0]


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)
