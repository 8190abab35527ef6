"""One run of nvcc: shut off from all but its toolchain, within limits, and what it opened."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import partial
from math import ceil
from pathlib import Path

from ..isolation.compiler import SYSTEM, enclose_compiler
from ..process.children import TimedOut, TooMuchOutput, read_log, run_process, scrubbed_environment
from ..records.builds import Diagnostic

SECONDS = 120.0
MEMORY_KIB = 3 << 20
"""Of each program that nvcc starts, one after another. CUB and Thrust together need 0.7 GiB."""
FILE_BYTES = 128 << 20
"""Of each file, intermediate ones too. All of CUB preprocessed is 20 MiB."""
LOG_BYTES = 4 << 20
KEPT_BYTES = {"candidate.so": 16 << 20, "candidate.ptx": 16 << 20, "candidate.cubin": 16 << 20}
"""Largest sizes of what a build keeps. A kernel of 4 MiB is a large one."""

_OPENED = "opened.d"
_TOO_LARGE = 153  # 128 + SIGXFSZ, as a shell says it


class Stopped(Exception):
    """The compiler was stopped at a limit; says in one line at which. A fault of the source."""


def run_nvcc(
    command: Sequence[str], directory: Path, programs: Iterable[Path], seconds: float = SECONDS
) -> tuple[int, str]:
    """Run a command of nvcc in the folder of a build; return its exit status and its log.

    It reads, and starts programs, in `programs` and the system's folders only, and writes in
    `directory`. Raises Stopped at a limit, TimedOut where it does not end within `seconds`.
    """
    log = directory / "nvcc.log"
    limits = (
        f"ulimit -v {MEMORY_KIB}; ulimit -f {FILE_BYTES // 512}; ulimit -t {ceil(SECONDS)}; "
        'ulimit -c 0; exec "$@"'
    )
    environment = scrubbed_environment(directory) | {"SUNPRO_DEPENDENCIES": _OPENED}
    try:
        status = run_process(
            ["/bin/sh", "-c", limits, "sh", *command],
            directory=directory, environment=environment, log=log, seconds=seconds,
            most_log_bytes=LOG_BYTES, confine=partial(enclose_compiler, [*programs], [directory]),
        )  # fmt: skip
    except TimedOut:
        raise TimedOut(f"compilation ran past its limit of {SECONDS:.0f} s") from None
    except TooMuchOutput:
        raise Stopped(f"the compiler printed more than {LOG_BYTES >> 20} MiB") from None
    text = read_log(log)
    if status:
        _raise_for_limits(directory, text)
    return status, text


def require_small(directory: Path) -> None:
    """Raise Stopped where a file that a build keeps is larger than it may be."""
    for name, most in KEPT_BYTES.items():
        size = (directory / name).stat().st_size
        if size > most:
            raise Stopped(
                f"{name} has {size >> 20} MiB; the limit is {most >> 20} MiB: large tables belong "
                "in the workspace, filled by a kernel"
            )


def foreign_files(directory: Path, programs: Iterable[Path]) -> tuple[Diagnostic, ...]:
    """Return one `forbidden_include` for each file the preprocessor opened that is none of its own.

    Where the kernel shuts the compiler off it cannot open any; where it does not, this holds.
    """
    places = [os.path.realpath(place) for place in (*SYSTEM, *map(str, (directory, *programs)))]
    folders: dict[str, bool] = {}
    found = []
    for path in _opened(directory):
        folder, name = os.path.split(os.path.join(directory, path))
        if folder not in folders:
            real = os.path.realpath(folder)
            folders[folder] = any(
                real == place or real.startswith(place + os.sep) for place in places
            )
        if not folders[folder] or name == "..":
            found.append(_refused_include(path))
    return tuple(found)


def _opened(directory: Path) -> list[str]:
    """Return what the preprocessor opened in any pass, as it was named, each once.

    Two passes write one list at a time, and cut names of each other's: what lines are said to come
    from counts whatever it is, and of the list what is there.
    """
    entered = _entered(directory)
    listed = (name for name in _listed(directory) if os.path.lexists(os.path.join(directory, name)))
    return [
        name for name in {**entered, **dict.fromkeys(listed)}
        if not os.path.isdir(os.path.join(directory, name))
    ]  # fmt: skip


def _listed(directory: Path) -> dict[str, None]:
    """Return what the host compiler lists; Clang lists nothing."""
    try:
        rules = (directory / _OPENED).read_text(errors="replace").replace("\\\n", " ")
    except FileNotFoundError:
        return {}
    files: dict[str, None] = {}
    for rule in rules.split("\n"):
        # The first word is the target; within a name, white space and # are escaped, $ is doubled.
        for word in re.findall(r"(?:\\.|[^\s\\])+", rule)[1:]:
            files[re.sub(r"\\(.)", r"\1", word).replace("$$", "$")] = None
    return files


def _entered(directory: Path) -> dict[str, None]:
    """Return the files that what was preprocessed says it entered."""
    found: dict[str, None] = {}
    for path in directory.glob("candidate.cpp*.ii"):
        # Of tens of thousands of lines few are marks: they are found before they are looked at.
        for line in (b"\n" + path.read_bytes()).split(b"\n# ")[1:]:
            if match := _ENTERS.match(line):
                found[match[1].decode(errors="replace")] = None
    return found


_ENTERS = re.compile(rb'\d+ "((?!<)[^"\n]*)" 1\b')
"""Unlike the mark that a #line leaves."""


def _refused_include(path: str) -> Diagnostic:
    return Diagnostic(
        kind="forbidden_include",
        message=f"{path[:200]}: only task.cuh and headers of the toolkit and the system are read",
    )


def denied_files(log: str) -> tuple[Diagnostic, ...]:
    """Return one `forbidden_include` for each file that the compiler says it may not read."""
    found: dict[Diagnostic, None] = {}
    for line in log.splitlines():
        if line.endswith(": Permission denied") and (match := _DENIED.match(line)):
            number = int(match[1]) if match[1] else None
            found[_refused_include(match[2]).model_copy(update={"line": number})] = None
    return tuple(found)


_DENIED = re.compile(
    r"(?:candidate\.cu:(\d+):\d+: |[^ :]*:(?:\d+:)* )?"
    r"(?:fatal error|[Ee]rror|Error): (?:can't open |file not found: |cannot open file )?"
    r"`?([^\s`']+)'?(?: for reading)?: Permission denied$"
)


def _raise_for_limits(directory: Path, log: str) -> None:
    """Raise Stopped where a failed run met a limit that the compiler does not name."""
    largest = max((path.stat().st_size for path in directory.iterdir()), default=0)
    if largest >= FILE_BYTES or "File too large" in log or f"returned {_TOO_LARGE}" in log:
        raise Stopped(f"the compiler wrote a file of more than {FILE_BYTES >> 20} MiB")
    if re.search(r"bad_alloc|out of memory|cannot allocate|memory exhausted", log, re.IGNORECASE):
        raise Stopped(f"the compiler needed more than {MEMORY_KIB >> 20} GiB of memory")
    if re.search(r"CPU time limit exceeded|signal 24\b", log):
        raise TimedOut(f"compilation ran past its limit of {SECONDS:.0f} s")
