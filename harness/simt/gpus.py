"""The GPUs that can be simulated: public figures, and the time model's constants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from ..errors import UserError


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
class TimeConstants:
    """Constants of the time model that no data sheet gives. Clocks are SM clocks."""

    dram_efficiency: float
    """Achievable share of the data sheet's DRAM bandwidth."""
    dirty_bytes: float
    """Written lines that lie in the L2 after a flush that only writes."""
    dram_accesses_per_nanosecond: float
    """Accesses of DRAM to single places far apart."""
    l2_read_sectors_per_clock: float
    """32-byte sectors that the whole L2 delivers."""
    l2_read_requests_per_clock: float
    """Requests of single sectors."""
    l2_write_sectors_per_clock: float
    l2_write_requests_per_clock: float
    clocks_per_block: float
    """Chip-wide clocks between two block launches."""
    dram_latency: float
    """Clocks of a load from DRAM under load."""
    latency_spread: float
    """Standard deviation of that, as a share of it: of several loads the last is waited for."""
    l2_latency: float
    l1_latency: float
    launch_microseconds: float
    """Launch overhead that a timed call sees."""
    atomic_nanoseconds: float
    """Between two floating-point atomics on the same address."""
    integer_atomic_nanoseconds: float
    atomic_passes_per_nanosecond: float
    """Scattered atomics of the whole chip."""
    atomic_turns_per_nanosecond: float
    """Atomics on a single line; more lines lie in more slices of the L2."""
    barrier_clocks: float
    """Clocks of an SM for one warp at a barrier."""
    tensor_efficiency: float
    """Share of the tensor cores' peak that mma.sync reaches."""
    tensor_clock_share: float
    """Share of the boost clock that is held while the tensor cores work."""
    issue_efficiency: float
    """Share of the issue slots that a kernel of nothing but multiply-adds fills."""
    overlap: float
    """Exponent of the norm that combines the resources: infinity would be a perfect overlap."""
    block_turnover: float
    """Clocks between a block's end and its successor's first instruction."""
    origin: str
    """Where the constants are from."""


@dataclass(frozen=True)
class Gpu:
    """One GPU. Every figure but `constants` is public; `source` says where."""

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
    constants: TimeConstants
    source: str


_HOPPER = Limits(
    (9, 0), 64, 32, 233472, 232448, (0, 8, 16, 32, 64, 100, 132, 164, 196, 228), 256 * 1024
)
_AMPERE_DATACENTER = Limits(
    (8, 0), 64, 32, 167936, 166912, (0, 8, 16, 32, 64, 100, 132, 164), 192 * 1024
)
_AMPERE = Limits((8, 6), 48, 16, 102400, 101376, (0, 8, 16, 32, 64, 100), 128 * 1024)
_ADA = Limits((8, 9), 48, 24, 102400, 101376, (0, 8, 16, 32, 64, 100), 128 * 1024)

_H200_CONSTANTS = TimeConstants(
    dram_efficiency=0.897,
    dirty_bytes=21.7e6,
    dram_accesses_per_nanosecond=41.0,
    l2_read_sectors_per_clock=146.0,
    l2_read_requests_per_clock=76.0,
    l2_write_sectors_per_clock=73.0,
    l2_write_requests_per_clock=36.8,
    clocks_per_block=1.19,
    dram_latency=857.0,
    latency_spread=0.28,
    l2_latency=281.0,
    l1_latency=34.0,
    launch_microseconds=2.73,
    atomic_nanoseconds=1.758,
    integer_atomic_nanoseconds=0.733,
    atomic_passes_per_nanosecond=103.0,
    atomic_turns_per_nanosecond=1.45,
    barrier_clocks=2.4,
    tensor_efficiency=0.65,
    tensor_clock_share=0.914,
    issue_efficiency=0.978,
    overlap=2.82,
    block_turnover=416.0,
    origin="measured on one H200 with micro-kernels (benchmarks/ground_truth/constants.cu)",
)


def _assumed(
    l2_bytes_per_clock: float,
    sms: int,
    clock_ghz: float,
    *,
    dram_nanoseconds: float,
    tensor_efficiency: float = 0.95,
) -> TimeConstants:
    """Return constants carried over from the H200, scaled where the chip's size says how."""
    h200 = _H200_CONSTANTS
    size = l2_bytes_per_clock / 32 / h200.l2_read_sectors_per_clock
    speed = clock_ghz / 1.98
    return replace(
        h200,
        dirty_bytes=h200.dirty_bytes * size,
        dram_accesses_per_nanosecond=h200.dram_accesses_per_nanosecond * size,
        l2_read_sectors_per_clock=h200.l2_read_sectors_per_clock * size,
        l2_read_requests_per_clock=h200.l2_read_requests_per_clock * size,
        l2_write_sectors_per_clock=h200.l2_write_sectors_per_clock * size,
        l2_write_requests_per_clock=h200.l2_write_requests_per_clock * size,
        dram_latency=dram_nanoseconds * clock_ghz,
        atomic_nanoseconds=h200.atomic_nanoseconds / speed,
        integer_atomic_nanoseconds=h200.integer_atomic_nanoseconds / speed,
        atomic_passes_per_nanosecond=h200.atomic_passes_per_nanosecond * size * speed,
        atomic_turns_per_nanosecond=h200.atomic_turns_per_nanosecond * speed,
        tensor_efficiency=tensor_efficiency,
        origin="assumed: the H200's constants scaled by L2 and clock, not measured on this GPU",
    )


GPUS: MappingProxyType[str, Gpu] = MappingProxyType(
    {
        gpu.name: gpu
        for gpu in (
            Gpu(
                "H200", "NVIDIA H200 SXM", "sm_90", _HOPPER,
                Throughput(fp32=128, fp64=64, fp16=128, tensor_fp16=2048),
                sms=132, clock_ghz=1.98, dram_gigabytes_per_second=4800.0, l2_bytes=50 << 20,
                memory_bytes=141 * 10**9, constants=_H200_CONSTANTS,
                source="NVIDIA H200 data sheet (4.8 TB/s, 67 TFLOPS FP32); H100 white paper (SM)",
            ),
            Gpu(
                "H100", "NVIDIA H100 SXM", "sm_90", _HOPPER,
                Throughput(fp32=128, fp64=64, fp16=128, tensor_fp16=2048),
                sms=132, clock_ghz=1.98, dram_gigabytes_per_second=3350.0, l2_bytes=50 << 20,
                memory_bytes=80 * 10**9,
                constants=_assumed(
                    4350.0, 132, 1.98, dram_nanoseconds=430.0, tensor_efficiency=0.65
                ),
                source="NVIDIA H100 data sheet (3.35 TB/s, 67 TFLOPS FP32); H100 white paper",
            ),
            Gpu(
                "A100", "NVIDIA A100 SXM 80GB", "sm_80", _AMPERE_DATACENTER,
                Throughput(fp32=64, fp64=32, fp16=256, tensor_fp16=1024),
                sms=108, clock_ghz=1.41, dram_gigabytes_per_second=2039.0, l2_bytes=40 << 20,
                memory_bytes=80 * 10**9,
                constants=_assumed(3200.0, 108, 1.41, dram_nanoseconds=450.0),
                source="NVIDIA A100 data sheet (2,039 GB/s, 19.5 TFLOPS FP32); A100 white paper",
            ),
            Gpu(
                "L40S", "NVIDIA L40S", "sm_89", _ADA,
                Throughput(fp32=128, fp64=2, fp16=128, tensor_fp16=512),
                sms=142, clock_ghz=2.52, dram_gigabytes_per_second=864.0, l2_bytes=96 << 20,
                memory_bytes=48 * 10**9,
                constants=_assumed(2000.0, 142, 2.52, dram_nanoseconds=500.0),
                source="NVIDIA L40S data sheet (864 GB/s, 91.6 TFLOPS FP32); Ada white paper",
            ),
            Gpu(
                "A6000", "NVIDIA RTX A6000", "sm_86", _AMPERE,
                Throughput(fp32=128, fp64=2, fp16=128, tensor_fp16=512),
                sms=84, clock_ghz=1.80, dram_gigabytes_per_second=768.0, l2_bytes=6 << 20,
                memory_bytes=48 * 10**9,
                constants=_assumed(1500.0, 84, 1.80, dram_nanoseconds=500.0),
                source="NVIDIA RTX A6000 data sheet (768 GB/s, 38.7 TFLOPS FP32); GA102 paper",
            ),
            Gpu(
                "RTX4090", "NVIDIA GeForce RTX 4090", "sm_89", _ADA,
                Throughput(fp32=128, fp64=2, fp16=128, tensor_fp16=512),
                sms=128, clock_ghz=2.52, dram_gigabytes_per_second=1008.0, l2_bytes=72 << 20,
                memory_bytes=24 * 10**9,
                constants=_assumed(2000.0, 128, 2.52, dram_nanoseconds=500.0),
                source="NVIDIA Ada white paper (1,008 GB/s, 82.6 TFLOPS FP32, 72 MB L2)",
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
