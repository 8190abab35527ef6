"""What host code is told of the GPU that it launches on."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from ..gpus import Gpu, Limits

DEVICE_LOW, DEVICE_HIGH = 1 << 44, 1 << 46
"""Where host code finds the device's memory: addresses that are nobody's, in any process. Linux
gives a program's own memory places far below and far above."""


@dataclass(frozen=True)
class GpuProperties:
    """One GPU as `cudaGetDeviceProperties` and the occupancy calculator know it."""

    name: str
    limits: Limits
    sms: int
    clock_khz: int
    l2_bytes: int
    memory_bytes: int


class NativeProperties(ctypes.Structure):
    """kb_gpu of runtime/runtime.h."""

    _fields_ = [
        ("name", ctypes.c_char * 256),
        *[(name, ctypes.c_int32) for name in (
            "major", "minor", "sms", "warps", "blocks", "shared_per_sm", "shared_optin",
            "shared_default", "shared_reserved", "shared_unit", "registers", "register_unit",
            "warp_unit", "clock_khz")],
        ("l2_bytes", ctypes.c_int64),
        ("memory_bytes", ctypes.c_int64),
        ("device_low", ctypes.c_uint64),
        ("device_high", ctypes.c_uint64),
        ("largest_copy", ctypes.c_uint64),
    ]  # fmt: skip


def native(
    gpu: GpuProperties,
    *,
    device: tuple[int, int] = (DEVICE_LOW, DEVICE_HIGH),
    largest_copy: int = 0,
) -> NativeProperties:
    """Return the record that the stand-in runtime is opened with.

    Args:
        gpu: the GPU.
        device: first address of the device's memory, and the end.
        largest_copy: bytes of a copy from the host up to which they are recorded.
    """
    limits = gpu.limits
    return NativeProperties(
        name=gpu.name.encode()[:255],
        major=limits.capability[0],
        minor=limits.capability[1],
        sms=gpu.sms,
        warps=limits.warps,
        blocks=limits.blocks,
        shared_per_sm=limits.shared_bytes,
        shared_optin=limits.shared_bytes_optin,
        shared_default=limits.shared_default,
        shared_reserved=limits.shared_reserved,
        shared_unit=limits.shared_unit,
        registers=limits.registers,
        register_unit=limits.register_unit,
        warp_unit=limits.warp_unit,
        clock_khz=gpu.clock_khz,
        l2_bytes=gpu.l2_bytes,
        memory_bytes=gpu.memory_bytes,
        device_low=device[0],
        device_high=device[1],
        largest_copy=largest_copy,
    )


def properties_of(gpu: Gpu) -> GpuProperties:
    """Return what host code is told of a GPU of our own table."""
    return GpuProperties(
        name=f"{gpu.full_name} (simulated)",
        limits=gpu.limits,
        sms=gpu.sms,
        clock_khz=int(gpu.clock_ghz * 1e6),
        l2_bytes=gpu.l2_bytes,
        memory_bytes=gpu.memory_bytes,
    )
