"""Find out what this machine can do, and say how to mend what it cannot."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil

from .cache import cache_root
from .devices import open_device
from .errors import UserError
from .records import Record
from .toolchain import find_toolchain


class Check(Record):
    """One thing examined."""

    name: str
    passed: bool
    required: bool
    """Without it no run is possible."""
    finding: str
    remedy: str = ""


async def examine(gpu: str) -> list[Check]:
    """Return the checks, the required ones first."""
    return await asyncio.to_thread(_examine, gpu)


def _examine(gpu: str) -> list[Check]:
    return [
        Check(
            name="python",
            passed=True,
            required=True,
            finding=f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        ),
        _compiler(),
        _device(gpu),
        _disk(),
        _gpu(),
        _profiler(),
    ]


def _compiler() -> Check:
    try:
        toolchain = find_toolchain()
    except UserError as error:
        return Check(
            name="compiler", passed=False, required=True, finding=str(error),
            remedy="pip install -c constraints.txt -e . brings nvcc; a host C++ compiler comes "
            "from the system (Debian, Ubuntu: apt install g++)",
        )  # fmt: skip
    return Check(name="compiler", passed=True, required=True, finding=toolchain.identity)


def _device(gpu: str) -> Check:
    try:
        identity = open_device("auto", gpu).identity
    except UserError as error:
        return Check(name="device", passed=False, required=True, finding=str(error))
    return Check(
        name="device",
        passed=True,
        required=True,
        finding=f"{identity.kind} {identity.gpu} ({identity.arch})",
    )


def _disk() -> Check:
    root = cache_root()
    existing = root
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free / 2**30
    writable = os.access(existing, os.W_OK)
    return Check(
        name="cache", passed=writable and free > 1.0, required=True,
        finding=f"{root}, {free:.1f} GiB free{'' if writable else ', not writable'}",
        remedy="free some space, or set KERNELBLASTER_CACHE to a directory with room",
    )  # fmt: skip


def _gpu() -> Check:
    present = shutil.which("nvidia-smi") is not None
    return Check(
        name="gpu", passed=present, required=False,
        finding="nvidia-smi is on PATH" if present else "no NVIDIA driver found",
        remedy="not needed: this version evaluates on the simulated device",
    )  # fmt: skip


def _profiler() -> Check:
    path = shutil.which("ncu")
    return Check(
        name="nsight compute", passed=path is not None, required=False,
        finding=path or "ncu is not on PATH",
        remedy="not needed: this version profiles on the simulated device",
    )  # fmt: skip
