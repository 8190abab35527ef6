"""Shuts off what compiles a candidate: a compiler reads whatever file its source names."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path

from . import landlock, seccomp
from .candidate_process import attempt
from .privileges import drop_capabilities, no_new_privileges

SYSTEM = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache")
"""Where a compiler's programs, headers and libraries lie, beside its own folders."""


def enclose_compiler(programs: Iterable[Path], writable: Iterable[Path]) -> list[str]:
    """Shut this thread, and what it starts, off for good; return what could not be applied here.

    Files are read, and programs started, in `programs` and in the system's folders only; made,
    changed and removed only in `writable`. There is no network. Refused system calls fail with an
    error. To be called on a thread that does nothing else: Linux keeps all this for each thread.
    """
    missing: list[str] = []
    places = [*map(Path, SYSTEM), *programs]

    def restrict() -> None:
        missing.extend(
            landlock.restrict_files(
                readable=(), programs=places, writable=writable, devices=[Path("/dev/null")]
            )
        )

    refusal = seccomp.refuse_with(errno.EPERM)
    attempt(missing, "no new privileges for compilers", no_new_privileges)
    attempt(missing, "dropping capabilities of compilers", drop_capabilities)
    attempt(missing, "a file system of their own for compilers", restrict)
    attempt(
        missing, "a filter of system calls for compilers",
        lambda: seccomp.install(seccomp.rules_for_compiler(), refusal),
    )  # fmt: skip
    return missing
