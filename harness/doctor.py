"""Find out what this machine can do, and say how to mend what it cannot."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil

from .build.cache import cache_root
from .build.toolchain import find_toolchain
from .cuda.parent.inspection import try_counters
from .cuda.present_gpus import FoundGpu, find_gpus
from .devices.registry import KINDS, brought, device_choice, open_device
from .errors import UserError
from .isolation.probe import sandbox
from .nsight.ncu import find_ncu
from .nsight.sanitizer import find_sanitizer
from .records.record import Record
from .task.pytorch import require_matching_torch, torch_version


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
        _sandbox(),
        *_gpus(),
        *map(_brought, brought()),
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
    return Check(name="compiler", passed=True, required=True, finding=toolchain.described)


def _device(gpu: str) -> Check:
    try:
        _, why = device_choice("auto", gpu)
        identity = open_device("auto", gpu).identity
    except UserError as error:
        return Check(name="device", passed=False, required=True, finding=str(error))
    return Check(
        name="device",
        passed=True,
        required=True,
        finding=f"{identity.kind} {identity.gpu} ({identity.arch}): {why}",
    )


def _brought(name: str) -> Check:
    """Return whether a device that a package brings can be opened."""
    title = f"device {name}"
    try:
        if name in KINDS:
            raise UserError("a package brings a device of a name that is taken: it is not used")
        identity = open_device(name, "").identity
    except UserError as error:
        return Check(name=title, passed=False, required=False, finding=str(error))
    return Check(
        name=title, passed=True, required=False,
        finding=f"{identity}: --device {name}",
    )  # fmt: skip


def _disk() -> Check:
    remedy = "free some space, or set KERNELBLASTER_CACHE to a directory with room"
    try:
        root = cache_root()
    except UserError as error:
        return Check(name="cache", passed=False, required=True, finding=str(error), remedy=remedy)
    existing = root
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free / 2**30
    writable = os.access(existing, os.W_OK)
    return Check(
        name="cache", passed=writable and free > 1.0, required=True,
        finding=f"{root}, {free:.1f} GiB free{'' if writable else ', not writable'}",
        remedy=remedy,
    )  # fmt: skip


def _gpus() -> list[Check]:
    """Return what can be measured here, and why not what cannot."""
    try:
        gpus = find_gpus()
    except UserError as error:
        remedy = "not needed: kernels are then simulated; to measure, install NVIDIA's driver"
        return [
            Check(name="gpu", passed=False, required=False, finding=str(error), remedy=remedy),
            *(
                Check(name=name, passed=False, required=False, finding="no GPU to use it on")
                for name in ("pytorch on the gpu", "counters", "sanitizer")
            ),
        ]
    listed = ", ".join(f"{number}: {gpu.name}" for number, gpu in enumerate(gpus))
    driver = f"{listed}; driver {gpus[0].driver}"
    return [
        Check(name="gpu", passed=True, required=False, finding=driver),
        _pytorch(),
        _counters(gpus[0]),
        _sanitizer(),
    ]


def _pytorch() -> Check:
    try:
        require_matching_torch(find_toolchain())
    except UserError as error:
        return Check(
            name="pytorch on the gpu", passed=False, required=False, finding=str(error),
            remedy="without it, kernels are simulated and not measured",
        )  # fmt: skip
    return Check(name="pytorch on the gpu", passed=True, required=False, finding=torch_version())


def _counters(gpu: FoundGpu) -> Check:
    ncu = find_ncu()
    try:
        found = try_counters(find_toolchain(), gpu)
    except UserError as error:
        return Check(name="counters", passed=False, required=False, finding=str(error))
    if found.profile is None:
        return Check(
            name="counters", passed=False, required=False,
            finding=f"{found.reason}: runs go on with event times", remedy=found.remedy,
        )  # fmt: skip
    return Check(name="counters", passed=True, required=False, finding=f"{ncu} reads them")


def _sanitizer() -> Check:
    path = find_sanitizer()
    return Check(
        name="sanitizer", passed=path is not None, required=False,
        finding=str(path or "compute-sanitizer is not on PATH: winners are not checked by it"),
        remedy="" if path else "install compute-sanitizer with the CUDA toolkit",
    )  # fmt: skip


def _sandbox() -> Check:
    found = sandbox()
    return Check(
        name="sandbox", passed=found.complete, required=False, finding=found.finding,
        remedy=found.remedy,
    )  # fmt: skip
