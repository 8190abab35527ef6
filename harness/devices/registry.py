"""Devices by name: those of this folder, and those that installed packages bring."""

from __future__ import annotations

from importlib import metadata

from ..errors import UserError
from ..gpus import is_called
from .protocol import Device, Measurement

KINDS = ("auto", "simulated", "cuda", "deferred")

DEFERRED_SIMULATED = "deferred:simulated"
"""A deferred run whose jobs a simulated device answers: for trying it out without any GPU."""

SIMULATED_GPU = "H100"
"""What is simulated when no GPU is named."""

ENTRY_POINTS = "kernelblaster.devices"
"""Group under which a package names functions that open its devices: `(gpu: str) -> Device`."""

__all__ = ["DEFERRED_SIMULATED", "ENTRY_POINTS", "KINDS", "Device", "Measurement", "brought",
           "device_choice", "open_device", "parse_gpus"]  # fmt: skip


def brought() -> list[str]:
    """Return the names of the devices that installed packages bring, in alphabetical order."""
    return sorted(metadata.entry_points(group=ENTRY_POINTS).names)


def device_choice(kind: str, gpu: str = "") -> tuple[str, str]:
    """Return the device that `kind` stands for, without `auto`, and why it was chosen.

    `auto` is this machine's GPU where there is one that PyTorch and a compiler can use, unless
    another GPU is asked for by name; the simulated device otherwise.

    Raises:
        UserError: no such device; the message lists them.
    """
    if kind == DEFERRED_SIMULATED:
        return kind, ""
    name, colon, detail = kind.partition(":")
    if name not in KINDS and kind in brought():
        return kind, ""
    if name not in KINDS or (colon and (name != "cuda" or _indexes(detail) is None)):
        raise UserError(
            f"unknown device {kind!r}: choose one of {', '.join((*KINDS, *brought()))}, or "
            "cuda:0,1 for several GPUs"
        )
    if kind != "auto":
        return kind, ""
    obstacle = _why_not_cuda(gpu)
    if obstacle:
        return "simulated", f"simulated, because {obstacle}"
    return "cuda", "this machine's GPU"


def parse_gpus(text: str) -> tuple[int, ...]:
    """Return the numbers that `--gpus` gives: `0,1`.

    Raises:
        UserError: it is no such list, or names a GPU twice.
    """
    numbers = _indexes(text)
    if numbers is None:
        raise UserError(f"--gpus {text!r}: write numbers with commas between, for example 0,1")
    if len(set(numbers)) < len(numbers):
        raise UserError(f"--gpus {text!r}: name each GPU once, for example 0,1")
    return numbers


def _indexes(text: str) -> tuple[int, ...] | None:
    """Return the numbers of a list such as `0,1`; None where it is no such list."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 9 for part in parts):
        return None
    return tuple(int(part) for part in parts)


def _why_not_cuda(gpu: str) -> str:
    """Return why a measurement on a GPU here is out of the question; empty where it is not."""
    from ..build.toolchain import find_toolchain
    from ..cuda.present_gpus import find_gpus
    from ..task.pytorch import require_matching_torch

    try:
        found = find_gpus()[0]
        require_matching_torch(find_toolchain())
    except UserError as error:
        return str(error)
    if gpu and not is_called(found.name, gpu):
        return f"{gpu} is asked for and this machine has {found.name}"
    return ""


def open_device(kind: str, gpu: str, gpu_index: int = 0) -> Device:
    """Open a device of the given kind.

    Args:
        kind: one of KINDS or of `brought()`, or `cuda:0,1`: which of the visible GPUs work, each
            on a stage of its own.
        gpu: the GPU to simulate (an H100 when not given) or, with `deferred`, to await results
            from (it must be named). With `cuda` it must be the name of the real one, when given.
            A device that a package brings is given it as it is: empty, or in a run that goes on
            the name that the device itself gave.
        gpu_index: with `cuda` alone, which of the visible GPUs.

    Raises:
        UserError: unknown kind or GPU, no driver or CUDA compiler where one is needed, or a
            package that brings no device under this name.
    """
    chosen, _ = device_choice(kind, gpu)
    if chosen.partition(":")[0] not in KINDS:
        return _open_brought(chosen, gpu)
    if chosen.startswith("cuda"):
        from .cuda import CudaDevice

        device = CudaDevice(_indexes(chosen.partition(":")[2]) or (gpu_index,))
        if gpu and not is_called(device.identity.gpu, gpu):
            raise UserError(
                f"--gpu {gpu}: this machine has {device.identity.gpu}; leave --gpu out to measure "
                "on it, or simulate the other with --device simulated"
            )
        return device
    if chosen in ("deferred", DEFERRED_SIMULATED):
        from .deferred import DeferredDevice

        return DeferredDevice(gpu, "simulated" if chosen == DEFERRED_SIMULATED else "cuda")
    from .simulated.device import SimulatedDevice

    return SimulatedDevice(gpu or SIMULATED_GPU)


def _open_brought(name: str, gpu: str) -> Device:
    """Open a device of an installed package; what is wrong with the package is one line."""
    first, *others = metadata.entry_points(group=ENTRY_POINTS, name=name)
    origin = f"the entry point {name} = {first.value} ({ENTRY_POINTS})"
    if others:
        raise UserError(f"{origin} brings a device that {others[0].value} brings too; remove one")
    try:
        device = first.load()(gpu)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{origin} cannot be opened: {error!r}; mend or remove it") from error
    if Device not in type(device).__mro__:
        raise UserError(f"{origin} gives no Device but {type(device).__name__}; mend or remove it")
    opened: Device = device
    return opened
