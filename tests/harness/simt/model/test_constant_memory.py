"""Reads of constant memory take turns: counted by words, priced by words, and never for nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from simt_support import compile_ptx_text, execute, kernel_named

from kernelblaster.harness.build.toolchain import find_toolchain
from kernelblaster.harness.gpus import find_gpu
from kernelblaster.harness.simt.counters import Counts, LaunchCounters
from kernelblaster.harness.simt.model.demand import demand
from kernelblaster.harness.simt.model.profile import describe_launch
from kernelblaster.harness.simt.model.time_model import estimate
from kernelblaster.harness.simt.ptx.parser import parse
from kernelblaster.harness.simt.sample.instructions.instruction_counts import count_by_kind
from kernelblaster.harness.simt.sample.instructions.warp_chain import chain_clocks
from kernelblaster.harness.simt.sample.traffic.memory_traffic import constant_waits
from kernelblaster.harness.simt.sass.labelled import machine_listing
from kernelblaster.harness.simt.sass.listing import MachineInstruction, read_listing
from kernelblaster.harness.simt.sass.mix import reads_by_register
from kernelblaster.harness.simt.sass.sums import KernelCode

H200 = find_gpu("H200")
READS, WARPS, BLOCKS = 64, 8, 528
SOURCE = r"""
struct Table { unsigned word[64]; };
__constant__ uint4 places[64];
extern "C" __global__ void k(unsigned* out, Table table, int n, unsigned distinct, unsigned step) {
    unsigned lane = threadIdx.x % 32, x = lane % distinct * step;
    #pragma unroll 4
    for (int i = 0; i < n; i++) {
        BODY
    }
    out[threadIdx.x] = x;
}
"""
WORD = "x += *(const unsigned*)((const char*)places + x);"
WIDE = """uint4 v = *(const uint4*)((const char*)places + x);
          x += v.x + v.y + v.z + v.w;"""
PARAMETER = "x += table.word[x / 4];"
SAME = "x += ((const unsigned*)places)[i % 4];"
KNOWN = "x += ((const unsigned*)places)[3] * i;"


@dataclass(frozen=True)
class Found:
    """One kernel, by PTX and by machine code."""

    words: int
    """Counted by the core, in all."""
    ptx: Counts
    machine: Counts
    microseconds: tuple[float, float]
    """By PTX and by machine code."""
    advice: tuple[str, ...]


def _found(body: str, distinct: int = 1, step: int = 4) -> Found:
    path = compile_ptx_text(SOURCE.replace("BODY", body))
    module = parse(path.read_text())
    name = kernel_named(module, "k")
    result, _ = execute(
        module, "k", 1, 32 * WARPS, np.zeros(32 * WARPS, np.uint32),
        np.frombuffer(bytes(256), "V256")[0], READS,
        np.uint32(distinct), np.uint32(step),
    )  # fmt: skip
    assert not result.reports
    listing = machine_listing(find_toolchain(), path, "sm_90")
    if listing is None:
        pytest.skip("ptxas or nvdisasm is missing")
    code = KernelCode(module, module.functions[name], read_listing(listing)[name])
    warps = float(WARPS * BLOCKS)
    executions = code.executions(result, BLOCKS, warps)
    shares = code.shares(executions, result, BLOCKS)
    plain = count_by_kind(module, result, BLOCKS)
    made = code.replace(plain, executions, result, BLOCKS, warps, shares)
    waits = constant_waits(H200, result)
    chains = (
        chain_clocks(module, result.first_warp_path, lambda index: 0.0, waits.__getitem__),
        code.chain(executions, warps, [0.0] * len(waits), None, waits),
    )
    launches = [_launch(counts, chain) for counts, chain in zip((plain, made), chains, strict=True)]
    times = [estimate(H200, demand(H200, each, each.samples[0])).microseconds for each in launches]
    profile, _ = describe_launch(H200, None, launches[1])
    return Found(
        int(result.counters["constant_words"].sum()), plain, made, (times[0], times[1]),
        profile.advice,
    )  # fmt: skip


def _launch(counts: Counts, chain: float) -> LaunchCounters:
    return LaunchCounters(
        "k", (BLOCKS, 1, 1), (32 * WARPS, 1, 1), 0, [counts], 1, 4, chain, 0.0, 0.0, 1.0, 0.0,
        0.0, 0.0,
    )  # fmt: skip


@pytest.mark.parametrize("distinct", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("step", [4, 16])
def test_lanes_name_as_many_words_as_they_read_addresses(distinct: int, step: int) -> None:
    found = _found(WORD, distinct, step)
    assert found.words == distinct * READS * WARPS
    for counts in (found.ptx, found.machine):
        assert counts.constant_requests == pytest.approx(READS * WARPS * BLOCKS)
        assert counts.constant_words == pytest.approx(found.words * BLOCKS)
    assert found.machine.load_requests == 0


def test_a_wide_read_takes_the_turns_of_its_words() -> None:
    narrow, wide = _found(WORD, 8, 16), _found(WIDE, 8, 16)
    assert wide.words == narrow.words
    assert wide.ptx.constant_words == pytest.approx(4 * narrow.ptx.constant_words)
    assert wide.machine.constant_words == pytest.approx(4 * narrow.machine.constant_words)


def test_parameters_by_a_register_are_constants_too() -> None:
    found = _found(PARAMETER, 16)
    assert found.words == 16 * READS * WARPS
    # That nobody comes to the rest behind the unrolled loop is not quite seen.
    assert found.machine.constant_words == pytest.approx(found.words * BLOCKS, rel=0.01)


def test_places_that_the_compiler_knows_are_operands() -> None:
    found = _found(KNOWN)
    assert found.words == found.ptx.constant_words == found.machine.constant_words == 0


def test_the_zero_register_is_no_index() -> None:
    def reads(arguments: str) -> bool:
        return reads_by_register(MachineInstruction("LDC", arguments, "", 1))

    assert reads("R2, c[0x3][R5]") and reads("R2, c[0x0][R5+0x210]")
    assert not any(map(reads, ("R9, c[0x0][RZ]", "R1, c[0x0][0x28]", "R2, c[0x3][UR4]")))


def test_more_addresses_never_make_a_read_faster() -> None:
    times = [_found(WORD, distinct).microseconds for distinct in range(1, 33)]
    for way in zip(*times, strict=True):
        assert all(earlier < later for earlier, later in zip(way, way[1:], strict=False))
        # 4 blocks an SM, 2 clocks a word: nothing else takes as long.
        assert way[31] == pytest.approx(4 * WARPS * READS * 32 * 2.01 / 1980, rel=0.2)


def test_advice_names_divergent_constants_and_no_others() -> None:
    def told(found: Found) -> bool:
        return any("constant memory" in each for each in found.advice)

    assert told(_found(WORD, 32))
    assert not told(_found(WORD, 1)) and not told(_found(SAME))


@pytest.mark.parametrize(("kept", "share"), [(1024, 0.0), (4096, 0.25), (65536, 0.95)])
def test_what_the_cache_of_constants_lacks_costs_more(kept: int, share: float) -> None:
    counts = Counts(pipes={"lsu": 1e5}, constant_requests=1e5, constant_words=3e6)
    plain, table = (_launch(counts, 100.0) for _ in range(2))
    table.constant_bytes = float(kept)
    needs = demand(H200, table, counts)
    assert needs.constant_missed == pytest.approx(share, abs=0.02)
    times = [estimate(H200, demand(H200, each, counts)).terms["compute"] for each in (plain, table)]
    assert (times[1] > 2 * times[0]) is (share > 0)
