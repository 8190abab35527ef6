"""A Landlock domain: from now on this thread, and all that it starts, reach only named files."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

from .kernel import Refused, system_call

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << i for i in range(6))
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK = (
    1 << i for i in range(6, 12)
)
_MAKE_SYM, _REFER, _TRUNCATE, _IOCTL_DEV = (1 << i for i in range(12, 16))
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _READ_FILE | _READ_DIR
_WRITE = (
    _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_FIFO | _REFER
    | _TRUNCATE
)  # fmt: skip
_DEVICE = _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
_ALL_CHANGES = (
    _WRITE | _MAKE_CHAR | _MAKE_SOCK | _MAKE_BLOCK | _MAKE_SYM | _IOCTL_DEV
)  # fmt: skip

_SINCE = {_REFER: 2, _TRUNCATE: 3, _IOCTL_DEV: 5}
"""Version of Landlock that knows a right; the others came with the first."""
_TCP_SINCE, _SCOPE_SINCE = 4, 6
_BIND_AND_CONNECT = 0b11
_SCOPE = 0b11
"""Signals and abstract sockets end at the domain's border."""
_VERSION_FLAG, _PATH_BENEATH = 1, 1


def version() -> int:
    """Return the version of this kernel's Landlock. Raises Refused where it has none."""
    return system_call("landlock_create_ruleset", 0, 0, _VERSION_FLAG)


def restrict_files(
    *,
    readable: Iterable[Path] | None,
    writable: Iterable[Path],
    devices: Iterable[Path] = (),
    for_trusted: bool = False,
    scoped: bool = True,
) -> list[str]:
    """Restrict this thread and all that it starts; return what this kernel cannot restrict.

    The arguments are `open_ruleset`'s. Needs no_new_privileges() first. Raises Refused.
    """
    ruleset, lacking = open_ruleset(
        readable=readable, writable=writable, devices=devices, for_trusted=for_trusted,
        scoped=scoped,
    )  # fmt: skip
    try:
        system_call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)
    return lacking


def open_ruleset(
    *,
    readable: Iterable[Path] | None,
    writable: Iterable[Path],
    devices: Iterable[Path] = (),
    for_trusted: bool = False,
    scoped: bool = True,
) -> tuple[int, list[str]]:
    """Return a descriptor of the rules, and what this kernel cannot restrict. The caller closes it.

    Args:
        readable: files and folders, with all below them; None leaves reading as it is. Where it is
            given, no program can be started.
        writable: folders in which files are made, changed and removed. They are readable too.
        devices: device files that are read, written and controlled.
        for_trusted: writable folders may also get symbolic links and sockets.
        scoped: no signals and no abstract sockets across the border either.

    Paths that do not exist are left out. Raises Refused.
    """
    known = version()
    if for_trusted and known < 2:
        # Nothing could be moved between folders, which compilers' caches do.
        raise Refused(0, "this kernel's Landlock is of version 1")
    supported = sum(1 << i for i in range(16) if _SINCE.get(1 << i, 1) <= known)
    write = _READ | _WRITE | ((_MAKE_SYM | _MAKE_SOCK) if for_trusted else 0)
    handled = _ALL_CHANGES | (0 if readable is None else _READ | _EXECUTE)
    ruleset = _create(handled & supported, known, scoped)
    try:
        for paths, rights in ((readable or (), _READ), (writable, write), (devices, _DEVICE)):
            for path in dict.fromkeys(paths):
                _add(ruleset, path, rights & handled & supported)
    except BaseException:
        os.close(ruleset)
        raise
    lacking = {
        "truncating files": _SINCE[_TRUNCATE],
        "commands to devices": _SINCE[_IOCTL_DEV],
        "signals to others": _SCOPE_SINCE if scoped else 0,
    }
    return ruleset, [
        f"Landlock over {what} (it is of version {known})"
        for what, since in lacking.items()
        if known < since
    ]


def _create(rights: int, known: int, scoped: bool) -> int:
    network = _BIND_AND_CONNECT if known >= _TCP_SINCE else 0
    scope = _SCOPE if scoped else 0
    length = 8 if known < _TCP_SINCE else 16 if known < _SCOPE_SINCE else 24
    attributes = struct.pack("QQQ", rights, network, scope)[:length]
    buffer = ctypes.create_string_buffer(attributes, length)
    return system_call("landlock_create_ruleset", buffer, length, 0)


def _add(ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _ON_FILES
        if rights:
            rule = ctypes.create_string_buffer(struct.pack("<Qi", rights, descriptor), 12)
            system_call("landlock_add_rule", ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)
