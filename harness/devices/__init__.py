"""Devices behind one protocol."""

from __future__ import annotations

from ..errors import UserError
from .protocol import Device, Measurement

KINDS = ("auto", "simulated", "cuda")

__all__ = ["KINDS", "Device", "Measurement", "device_choice", "open_device"]


def device_choice(kind: str) -> tuple[str, str]:
    """Return the kind of device that `kind` stands for and, for `auto`, why.

    `auto` is the simulated device until whole runs on `cuda` have been tried out.

    Raises:
        UserError: no such kind; the message lists them.
    """
    if kind not in KINDS:
        raise UserError(f"unknown device {kind!r}: choose one of {', '.join(KINDS)}")
    if kind != "auto":
        return kind, ""
    return "simulated", "auto: the simulated device; --device cuda measures on this machine's GPU"


def open_device(kind: str, gpu: str, gpu_index: int = 0) -> Device:
    """Open a device of the given kind.

    Args:
        kind: one of KINDS.
        gpu: the GPU to simulate. With `cuda` it is not looked at: the GPU is the real one, and
            `identity.gpu` names it.
        gpu_index: with `cuda`, which of the visible GPUs.

    Raises:
        UserError: unknown kind or GPU, or no driver or CUDA compiler where one is needed.
    """
    chosen, _ = device_choice(kind)
    if chosen == "cuda":
        from .cuda import CudaDevice

        return CudaDevice(gpu_index)
    from .simulated import SimulatedDevice

    return SimulatedDevice(gpu)
