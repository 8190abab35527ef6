"""The launch of a kernel: its grid and block as text, and how to change them."""

from __future__ import annotations

import functools
import re
from collections import Counter

from tree_sitter import Node

from ..records import NotRecognised
from .constants import Constants
from .syntax import (
    TREES,
    Declared,
    Kernel,
    Launch,
    Source,
    declarations,
    descendants,
    renamed,
    squeezed,
    statements,
    text_of,
    uses,
)

GRID, BLOCK = 0, 1


def components(launch: Launch, position: int) -> list[str]:
    """Return the x, y, z texts of the grid or block, as far as they are given.

    Raises:
        NotRecognised: none is given.
    """
    texts = _components(_origin(launch, position)[0])
    if not texts:
        raise NotRecognised("the launch has no grid or no block")
    return texts


def _components(node: Node) -> list[str]:
    if node.type in ("argument_list", "parameter_list"):
        return [text_of(child) for child in node.named_children]
    if node.type == "call_expression" and text_of(node).startswith("dim3"):
        arguments = node.child_by_field_name("arguments")
        return [text_of(child) for child in arguments.named_children] if arguments else []
    return [text_of(node)]


def set_components(source: Source, launch: Launch, position: int, texts: list[str]) -> None:
    """Change the grid or block of a launch, at the variable that holds it where there is one.

    The kernel's other launches have the same, and get the same.
    """
    node, own = _origin(launch, position)
    if own:
        _set(source, node, texts)
    else:
        for each in (launch, *launch.others):
            _set(source, each.configuration[position], texts)


def _set(source: Source, node: Node, texts: list[str]) -> None:
    joined = ", ".join(texts)
    if node.type in ("argument_list", "parameter_list"):
        source.replace(node, f"({joined})")
    elif len(texts) == 1 and not text_of(node).startswith("dim3"):
        source.replace(node, joined)
    else:
        source.replace(node, f"dim3({joined})")


def block_size(constants: Constants, launch: Launch) -> tuple[int, ...]:
    """Return the threads of a block along each axis given.

    Raises:
        NotRecognised: the block is no constant.
    """
    sizes = []
    for text in components(launch, BLOCK):
        pair = constants.pair(_local(launch, text))
        if pair is None or pair.full != pair.verify:
            raise NotRecognised("the block size is not a constant")
        sizes.append(pair.full)
    return tuple(sizes)


def block_name(source: Source, constants: Constants, launch: Launch) -> str:
    """Return the name of the file-level constant that is the (one-dimensional) block size.

    A literal is given a name first. `source` collects the edits.
    """
    size = block_size(constants, launch)
    if any(length != 1 for length in size[1:]):
        raise NotRecognised("the block has more than one dimension")
    text = components(launch, BLOCK)[0]
    file_level = _file_constants(source.root)
    if text in file_level:
        return text
    name = fresh_constant(source, "BLOCK")
    kernel = next(k for k in source.kernels() if k.name == launch.kernel)
    source.insert_before(kernel.node, f"constexpr int {name} = {size[0]};\n\n")
    set_components(source, launch, BLOCK, [name])
    return name


def fresh_constant(source: Source, wanted: str) -> str:
    """Return a name for a file-level constant that nothing in the source or its edits uses."""
    name, count = wanted, 1
    while name in source.taken or uses(source.text, name):
        count += 1
        name = f"{wanted}_{count}"
    source.taken.add(name)
    return name


def host_text(kernel: Kernel, launch: Launch, text: str) -> str:
    """Return a kernel's expression as the host can write it: parameters become arguments."""
    arguments = launch.node.child_by_field_name("arguments")
    assert arguments is not None
    given = [text_of(child) for child in arguments.named_children]
    names = {
        parameter.name: value if value.isidentifier() else f"({value})"
        for parameter, value in zip(kernel.parameters, given, strict=False)
    }
    return renamed(text, names)


def argument_of(kernel: Kernel, launch: Launch, parameter: str) -> str | None:
    """Return the text that a launch passes for a parameter."""
    arguments = launch.node.child_by_field_name("arguments")
    if arguments is None:
        return None
    for found, value in zip(kernel.parameters, arguments.named_children, strict=False):
        if found.name == parameter:
            return text_of(value)
    return None


def ceiling(count: str, per_block: str) -> str:
    """Return the text of a division that rounds up."""
    whole = count if re.fullmatch(r"\w+|[\w ]+([*] [\w ]+)*", count) else f"({count})"
    added = per_block if re.fullmatch(r"[\w */]+", per_block) else f"({per_block})"
    divisor = per_block if re.fullmatch(r"\w+", per_block) else f"({per_block})"
    return f"({whole} + {added} - 1) / {divisor}"


def counted_by_function(source: Source, launch: Launch) -> str | None:
    """Return how many threads a grid is for that a function of the file counts in blocks.

    The function divides its only parameter by the block's size, which is a number, and rounds up.
    """
    grid, block = components(launch, GRID), components(launch, BLOCK)
    found = re.fullmatch(r"(\w+)\((.+)\)", grid[0], re.DOTALL)
    function = source.function(found[1]) if found and len(grid) == len(block) == 1 else None
    if found is None or function is None or not block[0].isdigit():
        return None
    body = function.child_by_field_name("body")
    heads = list(descendants(function, "parameter_list"))
    counted = [text_of(each) for each in descendants(heads[0], "identifier")] if heads else []
    returned = statements(body) if body is not None else []
    if len(counted) != 1 or len(returned) != 1 or returned[0].node.type != "return_statement":
        return None
    value = re.sub(r"[()]", "", squeezed(text_of(returned[0].node.named_children[0])))
    return found[2] if value == f"{counted[0]}+{block[0]}-1/{block[0]}" else None


def _origin(launch: Launch, position: int) -> tuple[Node, bool]:
    """Return the node that gives the value, and whether this kernel's launches alone use it."""
    if position >= len(launch.configuration):
        raise NotRecognised("the launch has no grid and block")
    node = launch.configuration[position]
    if node.type != "identifier":
        return node, not launch.others
    name = text_of(node)
    value = _value_of(launch, name)
    if value is None:
        return node, not launch.others
    named = _named_in(launch.function)[name]
    return value, named == 2 + len(launch.others)


def _local(launch: Launch, text: str) -> str:
    """Return the value of a host variable, or the text itself."""
    value = _value_of(launch, text)
    return text if value is None else text_of(value)


def _value_of(launch: Launch, name: str) -> Node | None:
    """Return what the function of a launch gives a variable, if it gives it anything."""
    given = _given_in(launch.function)
    return next((each.value for each in given if each.name == name), None)


@functools.lru_cache(maxsize=TREES)
def _given_in(function: Node) -> tuple[Declared, ...]:
    """Return the variables that a function gives values; it may hold many launches."""
    body = function.child_by_field_name("body")
    assert body is not None
    return tuple(
        declared
        for statement in descendants(body, "declaration")
        for declared in declarations(statement)
        if declared.value is not None
    )


@functools.lru_cache(maxsize=TREES)
def _named_in(function: Node) -> Counter[str]:
    """Return how often a function names each identifier."""
    body = function.child_by_field_name("body")
    assert body is not None
    return Counter(text_of(node) for node in descendants(body, "identifier"))


def host_values(launch: Launch, text: str) -> str:
    """Return an expression of the host with its local variables replaced by their values."""
    local = {
        declared.name: f"({text_of(declared.value)})"
        for declared in _given_in(launch.function)
        if declared.value is not None and "dim3" not in declared.type
    }
    for _ in range(4):
        text = renamed(text, local)
    return text


@functools.lru_cache(maxsize=TREES)
def _file_constants(root: Node) -> frozenset[str]:
    return frozenset(
        declared.name
        for node in root.named_children
        for declared in declarations(node)
        if "constexpr" in declared.type or "const" in declared.type
    )
