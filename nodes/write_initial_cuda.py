"""Initial CUDA: turn the PyTorch reference into a first, correct kernel.

Reads plan and summary; writes initial_source. A person's kernel (`--start`) takes its place.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, TypedDict

from ..harness.errors import UserError
from ..tools.workspace import Workspace, open_workspace
from .builtin.initial_cuda import NotWritten
from .builtin.initial_cuda import write_initial_cuda as write_builtin
from .progress import report_progress
from .records import RunPlan, TaskSummary

LARGEST_SOURCE_BYTES = 1_000_000


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary


async def write_initial_cuda(state: Reads) -> dict[str, Any]:
    """Write or read the first kernel and store its text.

    Raises:
        UserError: `--start` cannot be read, or nothing here can write CUDA for this reference.
    """
    return await asyncio.to_thread(_write, state["plan"], state["summary"])


def _write(plan: RunPlan, summary: TaskSummary) -> dict[str, Any]:
    with open_workspace(plan.run_directory, plan.device, plan.gpu) as workspace:
        if plan.start_path:
            source, author = read_source(Path(plan.start_path)), "person"
        else:
            source, author = _translate(workspace, summary), "builtin"
        sha256 = workspace.artifacts.put_text(source)
    report_progress("initial", author=author, lines=source.count("\n") + 1)
    return {"initial_source": sha256}


def read_source(path: Path) -> str:
    """Return the text of a CUDA source file.

    Raises:
        UserError: no such file, empty, too large, or not text.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if not data.strip():
        raise UserError(f"{path} is empty: give a CUDA source that defines `launch`")
    if len(data) > LARGEST_SOURCE_BYTES:
        raise UserError(
            f"{path} has {len(data):,} bytes: a kernel's source has at most "
            f"{LARGEST_SOURCE_BYTES:,}"
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file: byte {error.start} is not UTF-8") from error
    if "\0" in text:
        raise UserError(f"{path} is not a text file: it contains NUL bytes")
    return text


def _translate(workspace: Workspace, summary: TaskSummary) -> str:
    task = workspace.task(summary.artifact)
    written = write_builtin(task)
    if isinstance(written, NotWritten):
        raise UserError(
            f"no initial CUDA for {task.name}: {written.reason}; "
            "give a first kernel with --start KERNEL.cu"
        )
    return written.source
