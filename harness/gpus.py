"""The GPUs that we know: limits, throughput, clocks and bandwidths, each figure with its source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType

from .errors import UserError


@dataclass(frozen=True)
class Limits:
    """Per-SM and per-block limits of a compute capability.

    Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and
    `cudaOccupancy` (cuda_occupancy.h) for the allocation granularities.
    """

    capability: tuple[int, int]
    warps: int
    """Resident warps per SM."""
    blocks: int
    """Resident blocks per SM."""
    shared_bytes: int
    """Shared memory per SM."""
    shared_bytes_optin: int
    """Largest dynamic plus static shared memory of one block, after cudaFuncSetAttribute."""
    shared_carveouts: tuple[int, ...]
    """Sizes in KiB that the driver may set aside of the unified L1 for shared memory."""
    l1_bytes: int
    """Unified L1 and shared memory per SM."""
    registers: int = 65536
    register_unit: int = 256
    """Registers are allocated to a warp in this many."""
    registers_per_thread: int = 255
    warp_unit: int = 4
    """Warps are spread over this many schedulers, each with a quarter of the registers."""
    shared_unit: int = 128
    shared_reserved: int = 1024
    """Shared memory that the system takes of every block (compute capability 8.0 and later)."""
    shared_default: int = 49152
    """Largest shared memory of one block without cudaFuncSetAttribute."""


@dataclass(frozen=True)
class Throughput:
    """Results per clock per SM: CUDA C++ Programming Guide, "Arithmetic Instructions"."""

    fp32: int
    fp64: int
    fp16: int
    """Scalar fp16 results; a half2 instruction gives two."""
    int32: int = 64
    special: int = 16
    tensor_fp16: int = 1024
    """Dense fp16 multiply-adds, from the data sheet's peak over SMs and boost clock."""


@dataclass(frozen=True)
class Gpu:
    """One GPU. Every figure but the last two is public; `source` says where from.

    A row of GPUS is all there is to adding one of an architecture that is known here: the simulated
    device, the deferred one and the prompts read it from there.
    """

    name: str
    full_name: str
    arch: str
    limits: Limits
    throughput: Throughput
    sms: int
    clock_ghz: float
    """Boost clock."""
    dram_gigabytes_per_second: float
    l2_bytes: int
    memory_bytes: int
    source: str
    l2_bytes_per_clock: float
    """What the whole L2 delivers: measured on the H200, assumed for the others."""
    dram_nanoseconds: float
    """Of a load from DRAM under load: the same."""


_HOPPER = Limits(
    (9, 0), 64, 32, 233472, 232448, (0, 8, 16, 32, 64, 100, 132, 164, 196, 228), 256 * 1024
)
_AMPERE_DATACENTER = Limits(
    (8, 0), 64, 32, 167936, 166912, (0, 8, 16, 32, 64, 100, 132, 164), 192 * 1024
)
_AMPERE = Limits((8, 6), 48, 16, 102400, 101376, (0, 8, 16, 32, 64, 100), 128 * 1024)
_ADA = Limits((8, 9), 48, 24, 102400, 101376, (0, 8, 16, 32, 64, 100), 128 * 1024)

_COMMON_WORDS = frozenset(
    "NVIDIA GEFORCE RTX TESLA SXM SXM4 SXM5 24GB 48GB 80GB 141GB HBM2E HBM3 HBM3E".split()
)
"""Words of a driver's name that name no other variant than the one whose figures we have."""

_FAMILIES = MappingProxyType(
    {"80": "ampere", "86": "ampere", "87": "ampere", "89": "ada", "90": "hopper"}
)
"""By compute capability; all others are named by its first digits."""

GPUS: MappingProxyType[str, Gpu] = MappingProxyType(
    {
        gpu.name: gpu
        for gpu in (
            Gpu(
                "H200", "NVIDIA H200 SXM", "sm_90", _HOPPER,
                Throughput(fp32=128, fp64=64, fp16=128, tensor_fp16=2048),
                sms=132, clock_ghz=1.98, dram_gigabytes_per_second=4800.0, l2_bytes=50 << 20,
                memory_bytes=141 * 10**9,
                source="NVIDIA H200 data sheet (4.8 TB/s, 67 TFLOPS FP32); H100 white paper (SM)",
                l2_bytes_per_clock=4672.0, dram_nanoseconds=433.0,
            ),
            Gpu(
                "H100", "NVIDIA H100 SXM", "sm_90", _HOPPER,
                Throughput(fp32=128, fp64=64, fp16=128, tensor_fp16=2048),
                sms=132, clock_ghz=1.98, dram_gigabytes_per_second=3350.0, l2_bytes=50 << 20,
                memory_bytes=80 * 10**9,
                source="NVIDIA H100 data sheet (3.35 TB/s, 67 TFLOPS FP32); H100 white paper",
                l2_bytes_per_clock=4350.0, dram_nanoseconds=430.0,
            ),
            Gpu(
                "A100", "NVIDIA A100 SXM 80GB", "sm_80", _AMPERE_DATACENTER,
                Throughput(fp32=64, fp64=32, fp16=256, tensor_fp16=1024),
                sms=108, clock_ghz=1.41, dram_gigabytes_per_second=2039.0, l2_bytes=40 << 20,
                memory_bytes=80 * 10**9,
                source="NVIDIA A100 data sheet (2,039 GB/s, 19.5 TFLOPS FP32); A100 white paper",
                l2_bytes_per_clock=3200.0, dram_nanoseconds=450.0,
            ),
            Gpu(
                "L40S", "NVIDIA L40S", "sm_89", _ADA,
                Throughput(fp32=128, fp64=2, fp16=128, tensor_fp16=512),
                sms=142, clock_ghz=2.52, dram_gigabytes_per_second=864.0, l2_bytes=96 << 20,
                memory_bytes=48 * 10**9,
                source="NVIDIA L40S data sheet (864 GB/s, 91.6 TFLOPS FP32); Ada white paper",
                l2_bytes_per_clock=2000.0, dram_nanoseconds=500.0,
            ),
            Gpu(
                "A6000", "NVIDIA RTX A6000", "sm_86", _AMPERE,
                Throughput(fp32=128, fp64=2, fp16=128, tensor_fp16=512),
                sms=84, clock_ghz=1.80, dram_gigabytes_per_second=768.0, l2_bytes=6 << 20,
                memory_bytes=48 * 10**9,
                source="NVIDIA RTX A6000 data sheet (768 GB/s, 38.7 TFLOPS FP32); GA102 paper",
                l2_bytes_per_clock=1500.0, dram_nanoseconds=500.0,
            ),
            Gpu(
                "RTX4090", "NVIDIA GeForce RTX 4090", "sm_89", _ADA,
                Throughput(fp32=128, fp64=2, fp16=128, tensor_fp16=512),
                sms=128, clock_ghz=2.52, dram_gigabytes_per_second=1008.0, l2_bytes=72 << 20,
                memory_bytes=24 * 10**9,
                source="NVIDIA Ada white paper (1,008 GB/s, 82.6 TFLOPS FP32, 72 MB L2)",
                l2_bytes_per_clock=2000.0, dram_nanoseconds=500.0,
            ),
        )
    }
)  # fmt: skip
"""By the name used on the command line."""


def find_gpu(name: str) -> Gpu:
    """Return the GPU of that name, in any case, with or without spaces and dashes.

    Raises:
        UserError: no such GPU; the message lists the names.
    """
    wanted = "".join(letter for letter in name.upper() if letter.isalnum())
    gpu = GPUS.get(wanted)
    if gpu is None:
        raise UserError(f"unknown GPU {name!r}: choose one of {', '.join(GPUS)}")
    return gpu


def is_called(name: str, wanted: str) -> bool:
    """Say whether a driver's name (`NVIDIA GeForce RTX 4090`) holds a person's (`RTX4090`, `h200`).

    Whole words alone count: a GH200 is no H200.
    """
    words = [word.upper() for word in re.findall(r"[A-Za-z0-9]+", name)]
    asked = "".join(re.findall(r"[A-Za-z0-9]+", wanted)).upper()
    return any(
        asked == "".join(words[start:end])
        for start in range(len(words))
        for end in range(start + 1, len(words) + 1)
    )


def known_gpu(name: str) -> Gpu | None:
    """Return the figures of a GPU by our name or the driver's (`NVIDIA H100 80GB HBM3`).

    None for a GPU we have no figures of, and for other variants of one that we have (H100 PCIe,
    RTX 4090 Laptop): their clocks and bandwidths differ.
    """
    words = re.findall(r"[A-Z0-9]+", name.upper())
    for gpu in GPUS.values():
        for start in range(len(words)):
            for end in range(start + 1, len(words) + 1):
                others = words[:start] + words[end:]
                if "".join(words[start:end]) == gpu.name and _COMMON_WORDS.issuperset(others):
                    return gpu
    return None


def architecture_family(arch: str) -> str:
    """Return the family of an architecture such as sm_90: what gains carry over within."""
    digits = "".join(letter for letter in arch if letter.isdigit())
    return _FAMILIES.get(digits, f"sm_{digits[:-1]}x" if digits else arch)
