"""A PyTorch reference file in, a Task out; PyTorch itself runs in a child process only."""

from __future__ import annotations

import ast
import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..build.cache import cache_root, new_entry
from ..errors import UserError
from ..files import read_regular
from ..process.children import TimedOut, off_loop, python_environment, read_log
from ..process.fork_client import Program, run_forked, server_of
from ..process.scratch import scratch_folder
from ..records import JUDGE_VERSION, TOLERANCES, Task, Variation, sha256_of, sha256_of_json
from .dimensions import module_integers
from .pytorch import torch_version

REFERENCE_SECONDS = 600.0
"""Time limit of the child: importing PyTorch, describing the task, answering the cases."""

LARGEST_REFERENCE_BYTES = 1 << 20

REFERENCE = Program(
    "harness.reference.child",
    (
        ("CUDA_VISIBLE_DEVICES", ""), ("OMP_WAIT_POLICY", "PASSIVE"),
        ("MALLOC_MMAP_THRESHOLD_", str(32 << 20)), ("MALLOC_TRIM_THRESHOLD_", str(1 << 30)),
    ),
)  # fmt: skip
"""Runs a reference, with what spares processor time. Its allocator (glibc's; others pass over it)
uses again what comparing answers frees, rather than have it faulted in anew page by page; and
threads that wait for each other sleep, where the other cores are busy with compilers."""


def begin_loading(path: Path, overrides: Mapping[str, int] | None = None) -> None:
    """Have PyTorch begin to be imported where `load_task` is going to need it; never raises."""
    with contextlib.suppress(UserError, OSError):
        if not (_described_in(_read(path), dict(overrides or {})) / "task.json").is_file():
            server_of(os.getpid(), REFERENCE).warm()


class ReferenceFails(UserError):
    """The reference itself does not do: it will not the next time either."""


async def load_task(path: Path, overrides: Mapping[str, int] | None = None) -> Task:
    """Load a task without blocking the event loop; see `load_task_now`."""
    return await off_loop(load_task_now, path, overrides)


def load_task_now(path: Path, overrides: Mapping[str, int] | None = None) -> Task:
    """Describe the reference in a file and prepare its cases; nothing is run twice.

    `overrides` sets module-level integers of the variant used for verification. Raises UserError
    for whatever is wrong with the file, in one line.
    """
    source = _read(path)
    integers = _integers(path, source)
    chosen = dict(overrides or {})
    for name, value in chosen.items():
        if name not in integers:
            known = ", ".join(integers) or "none"
            raise UserError(f"{path}: no module-level integer {name} to set (it has: {known})")
        if value < 1:
            raise UserError(f"{path}: {name}={value}: a dimension is at least 1")
    final = _described_in(source, chosen)
    described = _cached(final / "task.json")
    if described is None:
        with scratch_folder("cases", cache_root()) as scratch:
            cases = scratch / "cases"
            cases.mkdir()
            result = run_reference(path, source, chosen, None, cases)
            described = {
                **result["task"],
                "name": path.stem,
                "path": str(path),
                "reference_sha256": sha256_of(source),
                "source": source,
            }
            task = Task.model_validate(described)
            with new_entry(cases_directory(task)) as directory:
                for item in cases.iterdir():
                    item.rename(directory / item.name)
        with new_entry(final) as directory:
            (directory / "task.json").write_text(json.dumps(described), encoding="utf-8")
    described |= {"name": path.stem, "path": str(path)}
    return Task.model_validate(described)


def _described_in(source: str, chosen: Mapping[str, int]) -> Path:
    tolerances = {dtype: found.model_dump() for dtype, found in TOLERANCES.items()}
    key = sha256_of_json(
        [sha256_of(source), chosen, tolerances, torch_version(), JUDGE_VERSION]
    )
    return cache_root() / "tasks" / key[:2] / key


def cases_directory(task: Task) -> Path:
    """Return where the cases of a task are kept, whether or not they are there."""
    key = sha256_of(task.id, torch_version(), JUDGE_VERSION)
    return cache_root() / "cases" / key[:2] / key


def full_case_directories(task: Task) -> tuple[Path, Path]:
    """Return where the inputs at full dimensions are kept, and, apart from them, the answers."""
    keys = [sha256_of(part, task.id, torch_version(), JUDGE_VERSION)
            for part in ("full-inputs", "full-answers")]  # fmt: skip
    inputs, answers = (cache_root() / "full" / key[:2] / key for key in keys)
    return inputs, answers


def run_reference(
    path: Path,
    source: str,
    chosen: Mapping[str, int],
    verify: Mapping[str, int] | None,
    cases: Path,
    answers: Path | None = None,
    *,
    outputs: Sequence[Sequence[int]] = (),
    exact: bool = False,
    variation: Variation | None = None,
    secret: int = 0,
) -> dict[str, Any]:
    """Run the child once (see reference/child.py) and return its result.

    Raises ReferenceFails where the reference is at fault, UserError for all else.
    """
    with scratch_folder("reference", cache_root()) as folder:
        request = {
            "path": str(path), "source": source, "set": dict(chosen),
            "verify": None if verify is None else dict(verify), "cases": str(cases),
            "answers": None if answers is None else str(answers), "exact": exact,
            "outputs": outputs,
            "variation": (variation or Variation()).model_dump(), "secret": secret,
        }  # fmt: skip
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        files = [str(folder / name) for name in ("request.json", "result.json")]
        log = folder / "log"
        try:
            status = run_forked(
                REFERENCE, files, directory=folder, log=log, seconds=REFERENCE_SECONDS,
                environment=python_environment(folder) | dict(REFERENCE.environment),
            )  # fmt: skip
        except TimedOut:
            raise UserError(
                f"{path}: the reference ran past {REFERENCE_SECONDS:.0f} s: choose smaller sizes "
                "for verification with --set NAME=VALUE"
            ) from None
        try:
            result: dict[str, Any] = json.loads((folder / "result.json").read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            raise UserError(f"{path}: {_death(status, read_log(log))}") from None
    if "error" in result:
        kind = UserError if result.get("passing") else ReferenceFails
        raise kind(f"{path}: {result['error']}")
    return result


def _death(status: int, log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    last = lines[-1][:300] if lines else "no message"
    if status == -9:
        return "the reference was killed, most likely for memory; try --set NAME=VALUE"
    if status < 0:
        return f"the reference crashed with signal {-status}: {last}"
    return f"the reference ended its process (exit status {status}): {last}"


def _read(path: Path) -> str:
    if not path.exists():
        raise UserError(f"{path}: no such file")
    what = "a reference in KernelBench form"
    try:
        return read_regular(path, LARGEST_REFERENCE_BYTES, what).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path}: not Python source (no UTF-8 text)") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _integers(path: Path, source: str) -> dict[str, int]:
    try:
        return module_integers(ast.parse(source))
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno}: not Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{path}: not Python: {error}") from None


def _cached(path: Path) -> dict[str, Any] | None:
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        Task.model_validate(described)
    except (OSError, ValueError):
        return None
    return dict(described)
