"""What the worker gives up before it loads a candidate, and what it could not give up."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

FILE_BYTES = 1 << 30
OPEN_FILES = 4096
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_NO_NEW_PRIVILEGES = 38

NEVER = (
    "an address space of its own (candidates share the worker's)",
    "a file system of its own",
    "a filter of system calls",
)
"""Not applied anywhere: the allow-list of host calls stands in for them."""


def give_up() -> list[str]:
    """Set limits and leave the network; return what could not be applied, in words.

    To be called before any thread is started. The limit of processor time and of address space is
    not among them: the worker lives long, and CUDA maps more than the machine has.
    """
    missing = list(NEVER)
    for kind, value in (
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
    ):
        hard = resource.getrlimit(kind)[1]
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (wanted, wanted))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        missing.append("no new privileges")
    failure = _leave_network(libc)
    if failure:
        missing.append(f"a network of its own ({failure})")
    return missing


def _leave_network(libc: ctypes.CDLL) -> str:
    """Enter an empty network namespace; return why not, or nothing."""
    if libc.unshare(_NEW_NETWORK) == 0:
        return ""
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_NEW_USER | _NEW_NETWORK) != 0:
        return os.strerror(ctypes.get_errno())
    try:
        # Without a map files could not be created: nobody would own them.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError as error:
        return f"no user map: {error.strerror}"
    return ""
