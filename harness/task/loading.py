"""A PyTorch reference file in, a Task out; PyTorch itself runs in a child process only."""

from __future__ import annotations

import ast
import contextlib
import contextvars
import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..build.cache import cache_root, new_entry
from ..errors import UserError
from ..files import read_regular
from ..process.children import TimedOut, off_loop, python_environment, read_log, signal_name
from ..process.fork_client import Program, run_forked, server_of
from ..process.scratch import scratch_folder
from ..records.identity import sha256_of, sha256_of_json
from ..records.readings import AS_WRITTEN, Reading
from ..records.tasks import REFERENCE_SECONDS, Task
from ..records.variations import Level, Variation
from ..records.versions import JUDGE_VERSION
from .dimensions import find_dimensions, find_literals
from .pytorch import torch_version
from .rules import TOLERANCES

TELL_SECONDS = 15.0
"""How often somebody who waits for the child is told so."""

Tell = Callable[[str], None]
"""Is told, from another thread, what is waited for."""

LARGEST_REFERENCE_BYTES = 1 << 20

INTEGERS_BEGIN: tuple[Level, ...] = ("any", "range", "own")
"""How freely integer inputs are drawn at first; the next where that crashes PyTorch itself, which
does not check all indices."""

DRAWING = "drawing"
"""File that the child makes beside its result before it draws integers."""

UNDER_WAY = "under_way"
"""File beside the child's result that names what of the reference is run: the latest it began."""

_STAGES = {
    "the file": "the file is being imported",
    "get_init_inputs()": "get_init_inputs() runs",
    "Model(...)": "Model(...) is being built",
    "get_inputs()": "get_inputs() runs",
}
_ANSWERING = "PyTorch works out the answers on the CPU"

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


def begin_loading(
    path: Path, overrides: Mapping[str, int] | None = None, reading: Reading = AS_WRITTEN
) -> None:
    """Have PyTorch begin to be imported where `load_task` is going to need it; never raises."""
    with contextlib.suppress(UserError, OSError):
        described = _described_in(_read(path), dict(overrides or {}), reading)
        if not (described / "task.json").is_file():
            server_of(os.getpid(), REFERENCE).warm()


def reference_seconds() -> float:
    """Return the time limit of the child, $KERNELBLASTER_REFERENCE_SECONDS, where none is given.

    Raises UserError where a bad one is set.
    """
    given = os.environ.get("KERNELBLASTER_REFERENCE_SECONDS", "")
    try:
        seconds = float(given or REFERENCE_SECONDS)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise UserError(
            f"$KERNELBLASTER_REFERENCE_SECONDS is {given}: set it to a number of seconds above 0"
        )
    return seconds


class Crashed(UserError):
    """The reference ended its process on integers that were drawn for it: PyTorch itself does so
    where an index leads astray."""


class ReferenceFails(UserError):
    """The reference itself does not do: it will not the next time either."""


async def load_task(
    path: Path,
    overrides: Mapping[str, int] | None = None,
    reading: Reading = AS_WRITTEN,
    tell: Tell | None = None,
    seconds: float | None = None,
) -> Task:
    """Load a task without blocking the event loop; see `load_task_now`."""
    return await off_loop(load_task_now, path, overrides, reading, tell, seconds)


def load_task_now(
    path: Path,
    overrides: Mapping[str, int] | None = None,
    reading: Reading = AS_WRITTEN,
    tell: Tell | None = None,
    seconds: float | None = None,
) -> Task:
    """Describe the reference in a file and prepare its cases; nothing is run twice.

    `overrides` sets sizes of the variant used for verification; `tell` hears now and then that
    PyTorch is still at work; `seconds` is how long it may, for this and all later answers:
    importing it, describing the task, answering the cases.
    Raises UserError for whatever is wrong with the file, in one line.
    """
    source = _read(path)
    limit = reference_seconds() if seconds is None else seconds
    sizes, literals = _sizes(path, source)
    chosen = dict(overrides or {})
    for name, value in chosen.items():
        if name not in sizes and name not in literals:
            known = ", ".join(sizes) or "none"
            raise UserError(f"{path}: no size {name} to set (it has: {known})")
        if value < 1:
            raise UserError(f"{path}: {name}={value}: a dimension is at least 1")
    final = _described_in(source, chosen, reading)
    described = _cached(final / "task.json")
    if described is None:
        with scratch_folder("cases", cache_root()) as scratch:
            for number, begun in enumerate(INTEGERS_BEGIN):
                cases = scratch / f"cases{number}"
                cases.mkdir()
                try:
                    result = run_reference(
                        path, source, chosen, None, cases, reading=reading, tell=tell,
                        seconds=limit, asks={"integers": begun},
                    )  # fmt: skip
                    break
                except Crashed:
                    if begun == INTEGERS_BEGIN[-1]:
                        raise
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
    described |= {"name": path.stem, "path": str(path), "reference_seconds": limit}
    return Task.model_validate(described)


def small_variant_in_words(task: Task) -> str:
    """Return at which sizes candidates are verified, in one line."""
    small = {
        name: f"{name} {value} → {task.verify.dimensions[name]}"
        for name, value in task.full.dimensions.items()
        if task.verify.dimensions[name] != value
    }
    return f"verified at {', '.join(small.values())}" if small else "verified at its full sizes"


def _described_in(source: str, chosen: Mapping[str, int], reading: Reading) -> Path:
    tolerances = {dtype: found.model_dump() for dtype, found in TOLERANCES.items()}
    key = sha256_of_json(
        [sha256_of(source), chosen, tolerances, torch_version(), JUDGE_VERSION,
         reading.model_dump()]
    )  # fmt: skip
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
    reading: Reading = AS_WRITTEN,
    asks: Mapping[str, Any] | None = None,
    tell: Tell | None = None,
    seconds: float = REFERENCE_SECONDS,
) -> dict[str, Any]:
    """Run the child once (see reference/child.py) and return its result.

    `asks` is for something else than to describe the task or to make cases.

    Raises ReferenceFails where the reference is at fault, UserError for all else.
    """
    with scratch_folder("reference", cache_root()) as folder:
        request = {
            "path": str(path.absolute()), "source": source, "set": dict(chosen),
            "verify": None if verify is None else dict(verify), "cases": str(cases),
            "answers": None if answers is None else str(answers), "exact": exact,
            "outputs": outputs,
            "variation": (variation or Variation()).model_dump(), "secret": secret,
            "reading": reading.model_dump(), **(asks or {}),
        }  # fmt: skip
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        files = [str(folder / name) for name in ("request.json", "result.json")]
        log = folder / "log"
        try:
            with _telling(tell, path, seconds, folder / UNDER_WAY):
                status = run_forked(
                    REFERENCE, files, directory=folder, log=log, seconds=seconds,
                    environment=python_environment(folder) | dict(REFERENCE.environment),
                )  # fmt: skip
        except TimedOut:
            stage = _stage(folder / UNDER_WAY)
            during, mend = "", "choose smaller sizes for verification with --set NAME=VALUE"
            if stage != _ANSWERING:
                during, mend = f" ({stage})", "see what it waits for or repeats there"
            raise UserError(
                f"{path}: the reference ran past {seconds:.0f} s{during}: {mend}, or give it more "
                "with --reference-seconds"
            ) from None
        try:
            result: dict[str, Any] = json.loads((folder / "result.json").read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            # On what it brings itself it will crash the next time too.
            drew = (folder / DRAWING).exists()
            astray = drew and status < 0 and status != -signal.SIGKILL
            kind = Crashed if astray else UserError
            raise kind(f"{path}: {_death(status, read_log(log), path)}") from None
    if "error" in result:
        kind = UserError if result.get("passing") else ReferenceFails
        raise kind(f"{path}: {result['error']}")
    return result


@contextlib.contextmanager
def _telling(tell: Tell | None, path: Path, limit: float, under_way: Path) -> Iterator[None]:
    """Have `tell` told every TELL_SECONDS what the child is at."""
    if tell is None:
        yield
        return
    ended = threading.Event()

    def repeat(tell: Tell = tell) -> None:
        waited = TELL_SECONDS
        while not ended.wait(TELL_SECONDS):
            tell(
                f"{path.name}: {_stage(under_way)}, {waited:.0f} s of at most {limit:.0f} "
                "(--reference-seconds)"
            )
            waited += TELL_SECONDS

    thread = threading.Thread(target=contextvars.copy_context().run, args=(repeat,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _stage(under_way: Path) -> str:
    """Return in words what the child says it is at."""
    try:
        return _STAGES.get(under_way.read_text(encoding="utf-8"), _ANSWERING)
    except OSError:
        return _ANSWERING


def _death(status: int, log: str, path: Path) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    last = lines[-1][:300] if lines else "no message"
    if status == -9:
        return "the reference was killed, most likely for memory; try --set NAME=VALUE"
    if status < 0:
        return _crash(signal_name(-status), log, path)
    return f"the reference ended its process (exit status {status}): {last}"


def _crash(name: str, log: str, path: Path) -> str:
    """Return what a crash says: where Python was, of which faulthandler writes the inmost first."""
    said, _, stack = log.partition("Fatal Python error: ")
    found = re.search(rf'File "{re.escape(str(path.absolute()))}", line (\d+)', stack)
    where = f" in line {found[1]}" if found else ""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    words = f": {lines[-1][:300]}" if lines else ""
    return (
        f"the reference crashed its process ({name}){where}{words}; what is called there does so "
        "by itself, with numbers that it does not check mostly: see what it is given"
    )


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


def _sizes(path: Path, source: str) -> tuple[list[str], list[str]]:
    """Return the names of the sizes of a reference, and of what else in it can be set."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno}: not Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{path}: not Python: {error}") from None
    return [*find_dimensions(tree)], [*find_literals(tree)]


def _cached(path: Path) -> dict[str, Any] | None:
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        Task.model_validate(described)
    except (OSError, ValueError):
        return None
    return dict(described)
