"""What a GPU offers a kernel: limits of a block and an SM, peaks, tensor-core shapes, in words."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ...harness.gpus import GPUS, Gpu, Limits, known_gpu
from ...harness.simt import constants_of


class Peaks(NamedTuple):
    """What the chip could do at most, from public figures."""

    dram_bytes: float
    """Bytes a second."""
    fp32: float
    """Floating-point operations a second, a multiply-add counted as two."""
    fp64: float
    tensor_fp16: float
    """Dense products of half or bfloat16 with float sums."""


def peaks_of(gpu: Gpu) -> Peaks:
    """Return a GPU's peaks at its boost clock."""
    clocks = gpu.sms * gpu.clock_ghz * 1e9
    return Peaks(
        dram_bytes=gpu.dram_gigabytes_per_second * 1e9,
        fp32=2 * gpu.throughput.fp32 * clocks,
        fp64=2 * gpu.throughput.fp64 * clocks,
        tensor_fp16=2 * gpu.throughput.tensor_fp16 * clocks,
    )


def device_text(gpu: str, arch: str, kind: str) -> str:
    """Return what a kernel's writer must know of the device, a line a subject.

    Args:
        gpu: its name, ours or the driver's.
        arch: what is compiled for, for example sm_90a.
        kind: of DeviceIdentity; the simulated device knows fewer instructions.
    """
    known = known_gpu(gpu)
    limits = known.limits if known else _limits_of(arch)
    lines = [f"{known.full_name if known else gpu}, compiled for {arch}."]
    if known:
        peaks = peaks_of(known)
        lines.append(
            f"Peaks: {known.sms} SMs at {known.clock_ghz:g} GHz; DRAM "
            f"{peaks.dram_bytes / 1e9:.0f} GB/s; L2 {known.l2_bytes >> 20} MiB; FP32 "
            f"{peaks.fp32 / 1e12:.1f} TFLOPS; FP64 {peaks.fp64 / 1e12:.1f}; fp16/bf16 tensor cores "
            f"{peaks.tensor_fp16 / 1e12:.0f}, TF32 half of that."
        )
    else:
        lines.append("Its peaks are not known here; percentages of peak are the profiler's.")
    if limits:
        lines.append(
            f"A block: at most 1024 threads, {limits.registers_per_thread} registers a thread, "
            f"{limits.shared_default >> 10} KiB of shared memory, up to "
            f"{limits.shared_bytes_optin} bytes when dynamic and after cudaFuncSetAttribute("
            "kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)."
        )
        lines.append(
            f"An SM: {limits.warps} warps, {limits.blocks} blocks, {limits.registers} registers, "
            f"{limits.shared_bytes >> 10} KiB shared (each block takes "
            f"{limits.shared_reserved >> 10} KiB more), {limits.l1_bytes >> 10} KiB with L1."
        )
    lines += _instructions(_capability(arch), arch, kind)
    return "\n".join(lines)


_OPERANDS = ("half", "tf32", "double", "int8")
"""Of tensor cores, by the names of `_tensor`."""
_SERVED_BY: Mapping[str, tuple[str, ...]] = {
    "float16": ("half",), "bfloat16": ("half",), "float32": ("half", "tf32"),
    "float64": ("double",), "int8": ("int8",), "uint8": ("int8",),
}  # fmt: skip
"""Operands that products of a type can be computed by; several: split, or rounded."""


def tensor_text(gpu: str, arch: str, kind: str, dtype: str = "") -> str:
    """Return the tensor-core shapes and types that a kernel can use there; a line a way.

    Args:
        gpu: name of the GPU.
        arch: its architecture.
        kind: of the device.
        dtype: of the task's elements: shapes of types that serve none of that type are left out;
            empty: all are told.
    """
    known, capability = known_gpu(gpu), _capability(arch)
    lines = _tensor(capability, arch, kind, _SERVED_BY.get(dtype, _OPERANDS))
    if known and capability == 90:
        share = constants_of(known).tensor_efficiency
        lines.append(f"Through wmma and mma.sync about {share:.0%} of the peak can be reached.")
    return "\n".join(lines)


def _capability(arch: str) -> int:
    digits = re.sub(r"\D", "", arch)
    return int(digits) if digits else 0


def _limits_of(arch: str) -> Limits | None:
    capability = _capability(arch)
    for gpu in GPUS.values():
        if gpu.limits.capability == divmod(capability, 10):
            return gpu.limits
    return None


def _instructions(capability: int, arch: str, kind: str) -> list[str]:
    found = []
    if capability >= 80:
        found.append(
            "cp.async: 4, 8 or 16 bytes a thread from global to shared memory "
            "(__pipeline_memcpy_async, __pipeline_commit, __pipeline_wait_prior)."
        )
    if kind == "simulated":
        found.append(
            "This device is a simulator. It refuses wgmma, TMA and bulk copies, clusters, fp8 "
            "products and textures."
        )
    elif arch.startswith("sm_90a"):
        found.append("TMA (cp.async.bulk.tensor), mbarrier and thread block clusters exist.")
    return found


def _tensor(capability: int, arch: str, kind: str, types: Collection[str]) -> list[str]:
    """Return shapes as MxNxK, of operands of these types.

    Source: CUDA C++ Programming Guide, "Element Types and Matrix Sizes" (wmma); PTX ISA, "Matrix
    multiply-accumulate instructions" (mma.sync, ldmatrix, wgmma). The simulator's:
    simt/decode/matrix.py.
    """
    if capability < 80:
        return []
    wmma = {
        "half": "16x16x16, 32x8x16, 8x32x16 of half (sums float or half) and bfloat16 (sums float)",
        "tf32": "16x16x8 of tf32",
        "double": "8x8x4 of double",
        "int8": "16x16x16, 32x8x16, 8x32x16 of int8 (sums int)",
    }
    mma = {
        "half": "m16n8k8, m16n8k16 of fp16 and bf16",
        "tf32": "m16n8k4, m16n8k8 of tf32",
        "int8": "m16n8k32 of int8" + (" and fp8" * (capability >= 89 and kind != "simulated")),
    }
    wgmma = {
        "half": "m64nNk16 of fp16 and bf16", "tf32": "m64nNk8 of tf32",
        "int8": "m64nNk32 of fp8 and int8",
    }  # fmt: skip
    found = [f"wmma (mma.h): {_of(wmma, types)}."]
    if told := _of(mma, types):
        found.append(f"mma.sync (PTX): {told}; operands by ldmatrix.")
    if arch.startswith("sm_90a") and kind != "simulated" and (told := _of(wgmma, types)):
        found.append(
            f"wgmma (four warps, operands in shared memory): {told}, N a multiple of 8 up to 256."
        )
    return found


def _of(shapes: Mapping[str, str], types: Collection[str]) -> str:
    return "; ".join(words for name, words in shapes.items() if name in types)
