"""Occupancy, instruction costs, the warp's scoreboard and the time model, each on its own."""

from __future__ import annotations

import numpy as np
import pytest

from kernelblaster.harness.errors import UserError
from kernelblaster.harness.gpus import GPUS, find_gpu
from kernelblaster.harness.occupancy import occupancy, shared_carveout
from kernelblaster.harness.simt import constants_of
from kernelblaster.harness.simt.model.time_model import Demand, estimate
from kernelblaster.harness.simt.ptx.parser import parse
from kernelblaster.harness.simt.sample.instructions.instruction_mix import (
    machine_instructions,
    tensor_operations,
)
from kernelblaster.harness.simt.sample.instructions.warp_chain import chain_clocks

H200 = find_gpu("H200")

PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 k_param_0)
{
    .reg .pred %p<2>; .reg .f32 %f<9>; .reg .b32 %r<9>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [k_param_0];
    ld.global.f32 %f1, [%rd1];
    ld.global.f32 %f2, [%rd1+4];
    add.f32 %f3, %f1, %f2;
    fma.rn.f32 %f4, %f3, %f3, %f3;
    div.rn.f32 %f5, %f4, %f3;
    st.global.f32 [%rd1], %f5;
    ld.shared.f32 %f1, [%r1];
    ld.shared.f32 %f2, [%r1+4];
    ld.shared.f32 %f3, [%r1+8];
    ld.shared.f32 %f4, [%r1+12];
    ld.shared.f32 %f5, [%r1+128];
    ret;
}
"""


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "limiter"),
    [
        # Nsight Compute's launch__occupancy_limit_* on an H200 for such launches.
        (256, 16, 0, 8, "warps"), (32, 16, 0, 32, "blocks"), (1024, 16, 4224, 2, "warps"),
        (256, 104, 8192, 2, "registers"), (256, 48, 0, 5, "registers"),
        (256, 37, 1024, 6, "registers"), (128, 32, 100_000, 2, "shared_mem"),
        (1024, 128, 0, 0, "registers"),
    ],
)  # fmt: skip
def test_occupancy(threads: int, registers: int, shared: int, blocks: int, limiter: str) -> None:
    held = occupancy(H200.limits, threads, registers, shared)
    assert held.blocks == blocks
    assert limiter in held.limiters
    assert held.percent == pytest.approx(100 * blocks * -(-threads // 32) / 64)


def test_shared_carveout_is_the_smallest_that_fits() -> None:
    assert shared_carveout(H200.limits, 0, 1) == 8 * 1024
    assert shared_carveout(H200.limits, 8192, 8) == 100 * 1024
    assert shared_carveout(H200.limits, 227 * 1024, 1) == 228 * 1024


def test_every_gpu_is_complete() -> None:
    for gpu in GPUS.values():
        assert gpu.source and constants_of(gpu).origin
        assert gpu.arch == "sm_{}{}".format(*gpu.limits.capability)
    assert find_gpu("rtx 4090") is GPUS["RTX4090"]
    with pytest.raises(UserError, match="H200, H100"):
        find_gpu("K80")


def test_machine_instructions_of_ptx() -> None:
    module = parse(PTX)
    costs = [dict(machine_instructions(instruction)) for instruction in module.instructions]
    assert costs[:5] == [{}, {"lsu": 1}, {"lsu": 1}, {"fma": 1}, {"fma": 1}]
    assert sum(costs[5].values()) > 8  # an exact division is a subroutine's worth
    assert all(tensor_operations(instruction) == 0 for instruction in module.instructions)


def test_a_warp_waits_once_for_two_independent_loads() -> None:
    module = parse(PTX)
    both = np.arange(0, 5, dtype=np.int32)
    clocks = chain_clocks(module, both, lambda index: 500.0)
    assert 500 < clocks < 560
    assert chain_clocks(module, both, lambda index: 30.0) < clocks - 400


def test_a_loop_costs_its_turns() -> None:
    module = parse(PTX)
    turn = np.array([3, 4], dtype=np.int32)
    once = chain_clocks(module, turn, lambda index: 0.0)
    many = chain_clocks(module, np.tile(turn, 1000), lambda index: 0.0)
    assert 400 * once < many < 1001 * once


def _demand(**changes: object) -> Demand:
    plain = {
        "blocks": 65536, "resident_blocks": 8, "pipes": {"alu": 1e6, "lsu": 1e6},
        "tensor_operations": 0.0, "global_wavefronts": 1e6, "shared_wavefronts": 0.0,
        "l2_read_sectors": 4e6, "l2_read_requests": 1e6, "l2_write_sectors": 0.0,
        "l2_write_requests": 0.0, "dram_read_bytes": 1e9, "dram_write_bytes": 0.0,
        "dram_accesses": 0.0, "atomic_nanoseconds": 0.0, "atomic_turns": 0.0,
        "atomic_passes": 0.0, "contended_lines": 1.0, "contended_share": 1.0,
        "chain_clocks": 1500.0,
    }  # fmt: skip
    return Demand(**(plain | changes))  # type: ignore[arg-type]


def test_each_resource_can_be_the_bottleneck() -> None:
    cases = {
        "dram": _demand(),
        "l2": _demand(l2_read_sectors=1e9),
        "lsu": _demand(global_wavefronts=1e9),
        "shared_memory": _demand(shared_wavefronts=1e9),
        "compute": _demand(pipes={"fma": 1e9}),
        "tensor": _demand(tensor_operations=1e13),
        "latency": _demand(chain_clocks=1e6),
        "launch": _demand(blocks=20_000_000, chain_clocks=10.0),
        "atomic": _demand(atomic_passes=1e7, atomic_nanoseconds=2e7),
    }
    for name, demand in cases.items():
        assert estimate(H200, demand).bottleneck == name


def test_more_demand_never_takes_less_time() -> None:
    base = estimate(H200, _demand()).microseconds
    for change in (
        {"dram_read_bytes": 2e9}, {"l2_read_sectors": 1e9}, {"chain_clocks": 1e5},
        {"shared_wavefronts": 1e8}, {"atomic_passes": 1e6, "atomic_turns": 1e6},
        {"l2_write_requests": 1e8}, {"dram_accesses": 1e8}, {"pipes": {"fma": 1e9}},
    ):  # fmt: skip
        assert estimate(H200, _demand(**change)).microseconds > base


def test_streaming_takes_its_bytes_over_the_bandwidth() -> None:
    found = estimate(H200, _demand(dram_read_bytes=48e9))
    assert found.microseconds == pytest.approx(48e9 / 4.8e12 * 1e6 / 0.897, rel=0.02)
    assert found.ties == ()


def test_blocks_that_wait_in_turns_add_their_phases() -> None:
    apart = {"shared_wavefronts": 3e7, "resident_blocks": 2}
    freely = estimate(H200, _demand(**apart)).microseconds
    in_turns = estimate(H200, _demand(**apart, barriers_per_warp=1.0)).microseconds
    assert in_turns > 1.2 * freely
    copied = _demand(**apart, barriers_per_warp=1.0, copied_share=1.0)
    assert estimate(H200, copied).microseconds == freely


def test_time_has_no_cliffs_over_barriers_and_resident_blocks() -> None:
    apart = {"shared_wavefronts": 3e7}
    for resident in (1, 2, 3, 4, 8, 16):
        times = [
            estimate(H200, _demand(**apart, resident_blocks=resident, barriers_per_warp=n / 8))
            .microseconds for n in range(0, 800)
        ]  # fmt: skip
        steps = [later / earlier for earlier, later in zip(times, times[1:], strict=False)]
        assert min(steps) >= 1 and max(steps) < 1.06
    fewer = [
        estimate(H200, _demand(**apart, resident_blocks=n, barriers_per_warp=4.0)).microseconds
        for n in range(1, 33)
    ]
    assert all(one >= other for one, other in zip(fewer, fewer[1:], strict=False))


def test_the_longest_block_is_waited_for() -> None:
    alone = _demand(blocks=132, resident_blocks=8, chain_clocks=1e8)
    longest = _demand(blocks=132, resident_blocks=8, chain_clocks=1e8, longest_block=4.0)
    times = [estimate(H200, each).microseconds for each in (alone, longest)]
    assert times[1] > 3.9 * times[0]


def test_atomics_on_few_lines_are_slower_than_on_many() -> None:
    asked = {"atomic_passes": 1e7, "atomic_turns": 1e7}
    times = [
        estimate(H200, _demand(**asked, contended_lines=lines)).terms["atomic"]
        for lines in (1.0, 32.0, 1e6)
    ]
    assert times[0] > times[1] > times[2] > 0
