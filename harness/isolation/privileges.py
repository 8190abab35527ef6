"""Rights that a process gives up beside files and system calls: limits, identities, the network."""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from collections.abc import Mapping
from pathlib import Path

from .kernel import Refused, library_call, process_control, system_call

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_NO_NEW_PRIVILEGES = 38
_CAPABILITIES_VERSION = 0x20080522
_OVERRIDE_FILE_MODES = 1 << 1


def set_limits(limits: Mapping[str, int]) -> None:
    """Set resource limits (RLIMIT_... to a number) for good, no higher than they are.

    Who runs past the processor time ends with SIGXCPU, which says so; SIGKILL might be anybody's.
    """
    for name, value in limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        last = wanted + (kind == resource.RLIMIT_CPU and hard != wanted)
        resource.setrlimit(kind, (wanted, last))


def no_new_privileges() -> None:
    """Let no program started from here gain rights. Raises Refused."""
    process_control(_NO_NEW_PRIVILEGES, 1)


def drop_capabilities() -> None:
    """Give up root's special rights, but for passing over file modes. Raises Refused.

    What root may read and write by passing over modes stays so: a cache may belong to another user.
    Without the others, another process's environment and memory are out of reach even to root, whom
    Linux 6.15 and later would let past Landlock there.
    """
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITIES_VERSION, 0), 8)
    sets = ctypes.create_string_buffer(24)
    system_call("capget", header, sets)
    # Effective, permitted, inheritable: the low halves, then the high ones.
    permitted, high = (struct.unpack("IIIIII", sets.raw)[place] for place in (1, 4))
    if permitted or high:
        kept = permitted & _OVERRIDE_FILE_MODES
        wanted = ctypes.create_string_buffer(struct.pack("IIIIII", kept, kept, 0, 0, 0, 0), 24)
        system_call("capset", header, wanted)


def leave_network() -> None:
    """Enter an empty network namespace; only before any thread is started. Raises Refused."""
    try:
        library_call("unshare", _NEW_NETWORK)
        return
    except Refused:
        # Not ours to do: in a user namespace of our own it is.
        pass
    user, group = os.getuid(), os.getgid()
    library_call("unshare", _NEW_USER | _NEW_NETWORK)
    try:
        # Without a map files could not be created: nobody would own them.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError as error:
        raise Refused(error.errno or 0, f"no user map: {error.strerror}") from error
