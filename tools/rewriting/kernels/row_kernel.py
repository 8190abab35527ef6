"""A kernel that works on rows: recognised from its syntax tree, written again in another mapping.

The intermediate form keeps every expression of the author. It says who works on a row (a thread, a
warp, a block), how wide an access is, and whether the row is kept in registers. Whatever is written
from it is recognised again, so techniques compose in any order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from ....harness.records.tasks import Task
from ..records import Kernels, NotRecognised
from ..source.constants import Constants
from ..source.launches import (
    GRID,
    block_name,
    block_size,
    ceiling,
    components,
    host_text,
    host_values,
    set_components,
)
from ..source.syntax import Kernel, Launch, Source, squeezed, uses
from ..source.threads import WARP
from .helpers import add_helpers
from .recognised import recognised
from .row_reader import RowBody, read_rows
from .row_steps import Loop, Plain, Step
from .row_writer import RowShape, write_rows

Mapping = Literal["thread", "warp", "block"]


@dataclass(frozen=True)
class RowKernel:
    """A row kernel in its source, with its launch."""

    source: Source
    constants: Constants
    kernel: Kernel
    launch: Launch
    block: str
    """Name of the constant that is the block size."""
    body: RowBody

    @property
    def loops(self) -> list[Loop]:
        """The loops over the columns."""
        return [step for step in self.body.steps if isinstance(step, Loop)]


def row_kernels(
    text: str, task: Task, kernels: Kernels = (), shared: Source | None = None
) -> list[RowKernel]:
    """Return the row kernels of a source, each with edits to a source of its own or one.

    Raises:
        NotRecognised: there is none; the reason is that of the last kernel looked at.
    """
    return recognised(text, task, _read_one, "no kernel works on rows", kernels, shared)


def _read_one(
    source: Source, constants: Constants, kernel: Kernel, launch: Launch
) -> RowKernel:
    block = block_name(source, constants, launch)
    body = read_rows(kernel, constants, block)
    if not body.rows:
        body = replace(body, rows=components(launch, GRID)[0])
    return RowKernel(source, constants, kernel, launch, block, body)


def written(found: RowKernel, body: RowBody) -> str:
    """Return the source with the row kernel in another form, and its grid to match."""
    columns = known_columns(found)
    threads = block_size(found.constants, found.launch)[0]
    shape = RowShape(found.kernel, found.constants, found.block, threads, columns)
    lines = write_rows(shape, body)
    source = found.source
    kinds = {kind for step in body.steps if isinstance(step, Loop) for _, kind in step.carried}
    add_helpers(source, kinds, body.mapping, body.width > 1, body.lanes)
    start = found.kernel.node.start_byte
    before = found.kernel.node.prev_named_sibling
    comment = _who(body)
    if before is not None and before.type == "comment" and _COMMENT.fullmatch(before.text or b""):
        start = before.start_byte
    head = found.kernel.head
    new = "\n".join([comment, f"{head} {{", *lines, "}"])
    source.cut(start, found.kernel.node.end_byte, new)
    if (body.mapping, body.lanes) != (found.body.mapping, found.body.lanes):
        rows = host_text(found.kernel, found.launch, body.rows)
        set_components(source, found.launch, GRID, [_grid(rows, body, found.block)])
    return source.result()


def known_columns(found: RowKernel) -> str:
    """Return the number of columns as a constant expression, or nothing where it is none."""
    for text in (found.body.columns, host_text(found.kernel, found.launch, found.body.columns)):
        whole = host_values(found.launch, text)
        if found.constants.pair(whole) is not None:
            return whole if not _is_parameter(found, text) else ""
    return ""


def _is_parameter(found: RowKernel, text: str) -> bool:
    return any(uses(text, parameter.name) for parameter in found.kernel.parameters)


_COMMENT = re.compile(rb"// (?:One (?:thread|warp|block) computes|\d+ lanes compute) one row\.")


def _who(body: RowBody) -> str:
    if body.mapping == "warp" and body.lanes != WARP:
        return f"// {body.lanes} lanes compute one row."
    return f"// One {body.mapping} computes one row."


def _grid(rows: str, body: RowBody, block: str) -> str:
    if body.mapping == "thread":
        return ceiling(rows, block)
    return ceiling(rows, f"{block} / {body.lanes}") if body.mapping == "warp" else rows


def with_mapping(found: RowKernel, mapping: Mapping, lanes: int = WARP) -> str:
    """Return the source with another worker for each row: of a warp, so many of its lanes.

    Raises:
        NotRecognised: a sum does not start at zero, so it cannot be shared out.
    """
    if mapping != "thread" and block_size(found.constants, found.launch)[0] % 32:
        raise NotRecognised("a block is not made of whole warps")
    for position, step in enumerate(found.body.steps):
        if isinstance(step, Loop):
            for name, kind in step.carried:
                if kind == "sum" and found.body.mapping == "thread":
                    _require_zero(found.body.steps[:position], name)
    return written(found, replace(found.body, mapping=mapping, lanes=lanes))


def _require_zero(before: tuple[Step, ...], name: str) -> None:
    """Check that the last statement that sets the name gives it zero."""
    for step in reversed(before):
        if isinstance(step, Plain) and uses(step.text, name):
            value = next(
                (part.split("=")[1] for part in step.text.rstrip(";").split(",")
                 if "=" in part and uses(part.split("=")[0], name)), "",
            )  # fmt: skip
            if squeezed(value).rstrip("f").rstrip("0").rstrip(".") in ("", "0") and value.strip():
                return
            break
    raise NotRecognised(f"the sum {name} does not start at zero")
