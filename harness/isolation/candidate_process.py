"""Shuts a process off before it loads a candidate: for processes that then do little else."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from . import landlock, seccomp
from .kernel import Refused
from .privileges import drop_capabilities, leave_network, no_new_privileges

_SYSTEM = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")


def enclose_process(readable: Iterable[Path], writable: Iterable[Path]) -> list[str]:
    """Shut this process off for good; return in words what could not be applied here.

    Afterwards files can be read only in `readable`, in the system's folders and in those of
    libraries that are loaded and packages that are imported; made, changed and removed only in
    `writable`. Asking the kernel for a process, a thread, a socket or another process ends this one
    with SIGSYS. To be called by the only thread, when everything needed is imported.
    """
    missing: list[str] = []
    places = [*readable, *library_folders(), *imported_packages()]

    def restrict() -> None:
        devices = map(Path, _DEVICES)
        missing.extend(
            landlock.restrict_files(readable=places, writable=writable, devices=devices)
        )

    attempt(missing, "no new privileges", no_new_privileges)
    attempt(missing, "dropping capabilities", drop_capabilities)
    attempt(missing, "a file system of its own", restrict)
    # Last: afterwards nothing more can be given up.
    if not attempt(missing, "a filter of system calls", _filter):
        attempt(missing, "a network of its own", leave_network)
    return missing


def attempt(missing: list[str], what: str, action: Callable[[], None]) -> bool:
    """Do something, or note in words that it could not be done; say whether it was."""
    try:
        action()
    except Refused as refused:
        missing.append(f"{what} ({refused})")
        return False
    return True


def library_folders() -> list[Path]:
    """Return where Python's modules and shared libraries are read from, now and later."""
    maps = Path("/proc/self/maps")
    loaded = re.findall(r" (/\S+\.so[.\d]*)$", maps.read_text(), re.MULTILINE)
    # Not all of the search path: it may name a folder of the user's own.
    python = {os.path.dirname(os.__file__), *(os.path.dirname(path) for path in loaded)}
    python |= {path for path in sys.path if path.endswith(("/site-packages", "/dist-packages"))}
    harness = Path(__file__).resolve().parent.parent
    return [*map(Path, _SYSTEM), harness, *map(Path, sorted(python))]


def imported_packages() -> list[Path]:
    """Return where packages lie that this process has imported, wherever: they import more later.

    Of our own package `library_folders` has what is needed.
    """
    own = __name__.partition(".")[0]
    return [
        Path(path)
        for name, module in list(sys.modules.items())
        if "." not in name and name != own
        for path in getattr(module, "__path__", ())
    ]


def _filter() -> None:
    refusal = seccomp.KILL if seccomp.can_kill() else seccomp.refuse_with(errno.EPERM)
    seccomp.install(seccomp.rules_for_candidate(refusal), refusal)
