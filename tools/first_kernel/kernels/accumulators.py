"""What a reduction keeps while it runs: how it begins, and how it takes one more element."""

from __future__ import annotations

from collections.abc import Sequence

from ..program.arrays import FLOATING
from ..program.values import Dim
from .pen import Pen, type_of


def begun(pen: Pen, kind: str, computed: str) -> str:
    """Write the declaration of what a reduction starts from; returns its name."""
    if kind.startswith("arg"):
        name = pen.name("position")
        pen.line(f"{type_of(computed)} best = {lowest(kind[3:], computed)};")
        pen.line(f"long long {name} = 0;")
        return name
    name = pen.name("total" if kind == "sum" else "result")
    start = {"sum": "0", "prod": "1", "any": "false", "all": "true"}.get(kind)
    text = start or lowest(kind, computed)
    if start and computed in FLOATING:
        text = f"{start}.0f"
    pen.line(f"{type_of(computed)} {name} = {text};")
    return name


def accumulate(
    pen: Pen, kind: str, accumulator: str, text: str, computed: str,
    indices: Sequence[str], dims: Sequence[Dim],
) -> None:  # fmt: skip
    """Write what takes one more element into the result.

    Args:
        text: of the element.
        indices: where it is in the axes that are reduced, of sizes `dims`.
    """
    if kind in ("sum", "prod"):
        pen.line(f"{accumulator} {'+' if kind == 'sum' else '*'}= {text};")
        return
    if kind in ("any", "all"):
        pen.line(f"{accumulator} = {accumulator} {'||' if kind == 'any' else '&&'} {text};")
        return
    compare = ">" if kind.endswith("max") else "<"
    value = pen.name("value")
    pen.line(f"const {type_of(computed)} {value} = {text};")
    # What is no number is larger than any, as PyTorch has it.
    undefined = f" || {value} != {value}" if computed in FLOATING else ""
    if not kind.startswith("arg"):
        pen.line(f"if ({value} {compare} {accumulator}{undefined}) {accumulator} = {value};")
        return
    flat = "0"
    for dim, index in zip(dims, indices, strict=True):
        flat = index if flat == "0" else f"({flat}) * {pen.size(dim, 'width')} + {index}"
    first = f"({value} {compare} best{undefined})"
    guard = f"{first} && best == best" if undefined else first
    with pen.block(f"if ({guard})"):
        pen.line(f"best = {value};")
        pen.line(f"{accumulator} = {flat};")


def lowest(kind: str, dtype: str) -> str:
    """Return the text of what every number is at least as good as, for max or min."""
    if dtype in FLOATING:
        return "-INFINITY" if kind == "max" else "INFINITY"
    if dtype == "bool":
        return "false" if kind == "max" else "true"
    bits = {"int64": 63, "int32": 31, "int16": 15, "int8": 7, "uint8": 8}[dtype]
    largest = f"{2**bits - 1}LL"
    return (("0" if dtype == "uint8" else f"(-{largest} - 1)") if kind == "max" else largest)


def counted_in(dtype: str) -> str:
    """Return the C type in which values are put together."""
    return "float" if dtype in FLOATING else "long long"
