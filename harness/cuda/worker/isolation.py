"""What the GPU's worker gives up for good at its start."""

from __future__ import annotations

import errno
from pathlib import Path

from ...isolation import landlock, seccomp
from ...isolation.candidate_process import attempt
from ...isolation.privileges import drop_capabilities, leave_network, no_new_privileges, set_limits

LIMITS = {"RLIMIT_FSIZE": 16 << 30, "RLIMIT_CORE": 0, "RLIMIT_NOFILE": 4096}
"""Processor time and address space are not among them: the worker lives long, and CUDA maps more
than the machine has. Files are as large as a task's largest input (input_files.py)."""
OWN_ENTRIES = Path("/proc/self")
"""Of this process in /proc: CUDA does not start (error 304) where it cannot write there."""

_DEVICES = ("nvidia*", "nvidia-caps/*", "nvidia-caps-imex-channels/*", "nvhost*", "nvmap", "nvgpu",
            "dxg", "null", "zero", "full", "random", "urandom")  # fmt: skip


def give_up() -> list[str]:
    """Set limits, leave the network, filter system calls; return what could not be applied.

    To be called before any thread is started. What remains is what PyTorch, its compilers and the
    driver need.
    """
    missing: list[str] = []
    set_limits(LIMITS)
    attempt(missing, "no new privileges", no_new_privileges)
    attempt(missing, "a network of its own", leave_network)
    error = seccomp.refuse_with(errno.EPERM)
    attempt(
        missing, "a filter of system calls",
        lambda: seccomp.install(seccomp.rules_for_worker(), error),
    )  # fmt: skip
    return missing


def shut_off(writable: list[Path]) -> list[str]:
    """Let this thread, and all that it starts, write only in these folders; return what is missing.

    Root's special rights go too: any user can compute on a GPU.

    Reading stays as it is: nobody can say where compilers and PyTorch keep their parts. But the
    environment and memory of processes outside can no longer be read. To be called when PyTorch is
    imported, so that Python's compiled modules have been written, and before CUDA starts threads.
    """
    missing: list[str] = []

    def restrict() -> None:
        missing.extend(
            landlock.restrict_files(
                readable=None, writable=[*writable, Path("/dev/shm"), OWN_ENTRIES],
                devices=devices(), for_trusted=True,
            )
        )  # fmt: skip

    attempt(missing, "dropping capabilities", drop_capabilities)
    attempt(missing, "a file system of its own", restrict)
    return missing


def devices(folder: Path = Path("/dev")) -> list[Path]:
    """Return the device files of GPUs, and those that every program may use."""
    return [path for pattern in _DEVICES for path in sorted(folder.glob(pattern))]
