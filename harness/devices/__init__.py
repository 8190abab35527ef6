"""Devices behind one protocol."""

from __future__ import annotations

from ..errors import UserError
from .protocol import Device, Measurement

KINDS = ("auto", "simulated")

__all__ = ["KINDS", "Device", "Measurement", "device_choice", "open_device"]


def device_choice(kind: str) -> tuple[str, str]:
    """Return the kind of device that `kind` stands for and, for `auto`, why.

    Raises:
        UserError: no such kind; the message lists them.
    """
    if kind not in KINDS:
        raise UserError(f"unknown device {kind!r}: choose one of {', '.join(KINDS)}")
    if kind == "auto":
        return "simulated", "auto: no driver for a real GPU in this version, so the simulated one"
    return kind, ""


def open_device(kind: str, gpu: str) -> Device:
    """Open a device of the given kind for the named GPU.

    Raises:
        UserError: unknown kind or GPU, or no CUDA compiler.
    """
    device_choice(kind)
    from .simulated import SimulatedDevice

    return SimulatedDevice(gpu)
