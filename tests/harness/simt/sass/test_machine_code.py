"""GpuSession code by PTX statements: labels, blocks and loops, executions, chains, widths."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from simt_support import compile_ptx_text

from kernelblaster.harness.build.toolchain import find_toolchain
from kernelblaster.harness.simt.ptx.loops import loops_around
from kernelblaster.harness.simt.ptx.parser import parse
from kernelblaster.harness.simt.ptx.printing import print_module
from kernelblaster.harness.simt.run.records import Trace
from kernelblaster.harness.simt.run.replay import trace_shape
from kernelblaster.harness.simt.sass.chain import machine_chain_clocks
from kernelblaster.harness.simt.sass.counts import block_executions
from kernelblaster.harness.simt.sass.labelled import machine_listing
from kernelblaster.harness.simt.sass.listing import MachineInstruction, read_listing
from kernelblaster.harness.simt.sass.mix import pipe_of, registers_of, tensor_units

PTX = """//
// Generated
.version 8.0
.target sm_90
.address_size 64
\t.file 1 "/somewhere/a; b.cu"
.global .align 4 .b8 table[8] = {1, 2, 3, 4};
.visible .entry k(
\t.param .u64 k_param_0,
\t.param .u32 k_param_1
)
.maxntid 256, 1, 1
{
\t.reg .pred %p<2>; .reg .f32 %f<4>; .reg .b32 %r<4>; .reg .b64 %rd<4>;
\t.loc 1 7 3
\tld.param.u64 %rd1, [k_param_0];
\tld.param.u32 %r1, [k_param_1];
\tcvta.to.global.u64 %rd2, %rd1;
\tmov.f32 %f1, 0f00000000;
$L__BB0_1:
\t.loc 1 8 3
\tld.global.f32 %f2, [%rd2];
\t// begin inline asm
\tfma.rn.f32 %f1, %f2, %f2, %f1;
\tadd.s64 %rd2, %rd2, 4;
\tadd.s32 %r1, %r1, -1;
\tsetp.ne.s32 %p1, %r1, 0;
@%p1 bra $L__BB0_1;
\tst.global.f32 [%rd1], %f1;
\tret;
}
\t.section\t.debug_str
\t{
.b8 1
\t}
"""


def _listing(code: str) -> str:
    return f".text.k:\n{code}"


def _line(address: int, text: str, statement: int) -> str:
    return (f'\t//## File "statements", line {statement}\n'
            f"        /*{address:04x}*/                   {text} ;\n")  # fmt: skip


def test_every_statement_gets_its_number_and_stays_what_it_was() -> None:
    labelled = print_module(parse(PTX))
    before, after = parse(PTX), parse(labelled)
    assert [(each.opcode, each.modifiers, each.operands) for each in before.instructions] == [
        (each.opcode, each.modifiers, each.operands) for each in after.instructions
    ]
    assert [each.line for each in after.instructions] == list(range(1, 13))
    assert after.variables["table"].initial == before.variables["table"].initial
    assert ".section" not in labelled and "somewhere" not in labelled


def test_labels_leave_the_machine_code_as_it_is(tmp_path: Path) -> None:
    toolchain = find_toolchain()
    ptxas, nvdisasm = toolchain.tool("ptxas"), toolchain.tool("nvdisasm")
    if ptxas is None or nvdisasm is None:
        pytest.skip("ptxas or nvdisasm is missing")
    (tmp_path / "k.ptx").write_text(PTX)
    command = [str(ptxas), "-arch=sm_90", "-O3", "k.ptx", "-o", "k.cubin"]
    subprocess.run(command, cwd=tmp_path, check=True)
    plain = subprocess.run(
        [str(nvdisasm), "-c", "k.cubin"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    listing = machine_listing(toolchain, tmp_path / "k.ptx", "sm_90")
    assert listing is not None
    code = re.compile(r"/\*[0-9a-f]{4}\*/ +([^;]*);")
    assert code.findall(listing) == code.findall(plain)
    found = {
        instruction.base: instruction.statement
        for block in read_listing(listing)["k"].blocks
        for instruction in block.instructions
        if instruction.base in ("LDG", "STG", "FFMA")
    }
    assert found["LDG"] == 5 and found["FFMA"] == 6 and found["STG"] == 11


UNROLLED = _listing(
    _line(0x00, "LDC R1, c[0x0][0x28]", 1)
    + _line(0x10, "ISETP.GT.AND P1, PT, R6, 0x3, PT", 9)
    + _line(0x20, "@!P1 BRA `(.L_x_2)", 10)
    + ".L_x_1:\n"
    + "".join(
        _line(0x30 + 0x20 * turn, "LDG.E R2, desc[UR4][R4.64]", 5)
        + _line(0x40 + 0x20 * turn, "FFMA R3, R2, R2, R3", 6)
        for turn in range(4)
    )
    + _line(0xB0, "@P1 BRA `(.L_x_1)", 10)
    + ".L_x_2:\n"
    + _line(0xC0, "ISETP.GT.AND P1, PT, R6, RZ, PT", 9)
    + _line(0xD0, "@!P1 BRA `(.L_x_4)", 10)
    + ".L_x_3:\n"
    + _line(0xE0, "LDG.E R2, desc[UR4][R4.64]", 5)
    + _line(0xF0, "FFMA R3, R2, R2, R3", 6)
    + _line(0x100, "@P1 BRA `(.L_x_3)", 10)
    + ".L_x_4:\n"
    + _line(0x110, "STG.E desc[UR4][R4.64], R3", 11)
    + _line(0x120, "EXIT", 12)
    + ".L_x_5:\n"
    + _line(0x130, "BRA `(.L_x_5)", 12)
    + _line(0x140, "NOP", 12)
)


def _executions(turns: int) -> dict[int, float]:
    """Count by block, by the opcodes it starts with, for a loop of `turns` turns in two warps."""
    module = parse(PTX)
    executed = {index: 2.0 * (turns if 4 <= index <= 9 else 1) for index in range(12)}
    loops = loops_around(module, module.functions["k"], executed)
    assert [len(around) for around in loops] == [0] * 4 + [1] * 6 + [0] * 2
    assert loops[4][0].entries == 2.0 and loops[4][0].back == {9}
    code = read_listing(UNROLLED)["k"]
    found = block_executions(
        code,
        {index + 1: each for index, each in enumerate(module.instructions)},
        {index + 1: count for index, count in executed.items()},
        {index + 1: around for index, around in enumerate(loops)},
        2.0,
    )
    return dict(enumerate(found))


def test_an_unrolled_loop_takes_whole_turns_and_leaves_the_rest() -> None:
    # Blocks: entry, four turns at once, test, one turn at a time, store, exit's own loop, padding.
    assert _executions(11) == {0: 2.0, 1: 4.0, 2: 2.0, 3: 6.0, 4: 2.0, 5: 0.0, 6: 0.0}
    assert _executions(8) == {0: 2.0, 1: 4.0, 2: 2.0, 3: 0.0, 4: 2.0, 5: 0.0, 6: 0.0}
    assert _executions(3)[1] == 0.0 and _executions(3)[3] == 6.0


@pytest.mark.parametrize("words", ["static", "namespace {"])
def test_a_kernel_that_no_other_file_sees_is_read_like_any(tmp_path: Path, words: str) -> None:
    """Its label in the listing stands for the kernel, not for a function that nobody calls."""
    close = "}" if "{" in words else ""
    path = compile_ptx_text(
        f"{words} __global__ void scale(float *x) {{ x[threadIdx.x] *= 2.f; }} {close}\n"
        "void launch(float *x) { scale<<<1, 32>>>(x); }\n"
    )
    listing = machine_listing(find_toolchain(), path, "sm_90")
    assert listing is not None
    ((name, code),) = read_listing(listing).items()
    assert "scale" in name and {block.function for block in code.blocks} == {""}


def test_slow_paths_are_taken_for_odd_operands_alone() -> None:
    code = read_listing(
        _listing(
            _line(0x00, "MUFU.RCP R2, R3", 1)
            + _line(0x10, "@!P0 BRA `(.L_x_1)", 1)
            + _line(0x20, "CALL.REL.NOINC `($__internal_0_$__cuda_sm3x_div_rn_slowpath)", 1)
            + _line(0x30, "MOV R4, R5", 1)
            + ".L_x_1:\n"
            + _line(0x40, "EXIT", 2)
            + "$__internal_0_$__cuda_sm3x_div_rn_slowpath:\n"
            + _line(0x50, "FADD R1, R1, R1", 1)
            + _line(0x60, "RET.REL.NODEC R2", 1)
        )
    )["k"]
    module = parse(PTX)
    statements = {1: module.instructions[5], 2: module.instructions[11]}
    found = block_executions(code, statements, {1: 8.0, 2: 8.0}, {}, 8.0)
    assert found[0] == 8.0 and found[-1] == 0.0
    assert sum(found) == 16.0  # the entry and the exit
    found = block_executions(code, statements, {1: 8.0, 2: 8.0}, {}, 8.0, slow={1: 5.0})
    assert found == [8.0, 5.0, 5.0, 8.0, pytest.approx(0.29 * 5.0)]


def test_loads_of_one_block_are_waited_for_together() -> None:
    def code(text: str) -> float:
        read = read_listing(_listing(text))["k"]
        return machine_chain_clocks(read, [1.0] * len(read.blocks), 1.0, lambda statement: 500.0)

    together = code(
        _line(0x00, "LDG.E R2, desc[UR4][R4.64]", 1) + _line(0x10, "LDG.E R3, desc[UR4][R6.64]", 2)
        + _line(0x20, "FADD R2, R2, R3", 3) + _line(0x30, "EXIT", 4)
    )  # fmt: skip
    in_turn = code(
        _line(0x00, "LDG.E R2, desc[UR4][R4.64]", 1) + _line(0x10, "FADD R2, R2, R2", 3)
        + _line(0x20, "LDG.E R3, desc[UR4][R2.64]", 2) + _line(0x30, "FADD R2, R2, R3", 3)
        + _line(0x40, "EXIT", 4)
    )  # fmt: skip
    assert 500 < together < 520
    assert 1000 < in_turn < 1030


def test_the_last_of_several_loads_in_flight_is_later_than_one() -> None:
    def code(loads: int) -> float:
        text = "".join(
            _line(0x10 * at, f"LDG.E R{2 * at + 10}, desc[UR4][R4.64]", 1) for at in range(loads)
        ) + "".join(
            _line(0x10 * (loads + at), f"FADD R2, R2, R{2 * at + 10}", 2) for at in range(loads)
        )
        read = read_listing(_listing(text + _line(0x20 * loads, "EXIT", 3)))["k"]
        return machine_chain_clocks(
            read, [1.0] * len(read.blocks), 1.0, lambda statement: 500.0, lambda statement: 100.0
        )

    # One load waits for the mean; the expected largest of four normal values lies 1.03 standard
    # deviations above it (Blom's approximation: 1.05). Each sum adds its own latency to the chain.
    sums = 3 * (4.5 + 1)
    assert code(1) == pytest.approx(500 + 4.5 + 2, abs=3)
    assert code(4) - code(1) == pytest.approx(105 + sums, abs=16)


def test_the_first_turn_of_a_loop_waits_for_what_was_begun_before_it() -> None:
    def code(turns: float) -> float:
        text = (
            _line(0x00, "LDG.E R2, desc[UR4][R4.64]", 1)
            + _line(0x10, "MOV R3, RZ", 1)
            + ".L_x_1:\n"
            + _line(0x20, "FADD R3, R3, R2", 2)
            + _line(0x30, "@P0 BRA `(.L_x_1)", 3)
            + ".L_x_2:\n"
            + _line(0x40, "EXIT", 4)
        )
        read = read_listing(_listing(text))["k"]
        executions = [1.0, turns, 1.0]
        return machine_chain_clocks(read, executions, 1.0, lambda statement: 500.0)

    turn = code(11) - code(10)
    assert 5 < turn < 20
    assert code(10) == pytest.approx(500 + 10 * turn, abs=10)


def _nest(turns: Sequence[float], *, load_in: int = 0) -> float:
    """Return the clocks of a nest of loops that use a load inside the innermost alone.

    Args:
        turns: of each loop, the outermost first, for each entry.
        load_in: around how many of the loops the load does not stand; 0 is before the nest.
    """
    text, at, executions = "", 0, []

    def line(what: str, statement: int) -> str:
        nonlocal at
        at += 0x10
        return _line(at, what, statement)

    load = "LDG.E R2, desc[UR4][R4.64]"
    for depth in range(len(turns)):
        text += line(load, 1) if depth == load_in else ""
        text += line(f"MOV R{10 + depth}, RZ", 2) + f".L_x_{depth}:\n"
        executions.append(float(np.prod(turns[:depth])))
    text += line("FADD R3, R3, R2", 3)
    executions.append(float(np.prod(turns)))
    for depth in reversed(range(len(turns))):
        text += line(f"@P0 BRA `(.L_x_{depth})", 4)
        executions.append(float(np.prod(turns[:depth])))
    text += line("EXIT", 5)
    read = read_listing(_listing(text))["k"]
    return machine_chain_clocks(
        read, executions[: len(read.blocks)], 1.0, lambda statement: 500.0
    )


@pytest.mark.parametrize("turns", [(10, 10), (4, 16, 4), (3, 3, 3, 3), (2, 2, 2, 2, 2)])
def test_what_was_begun_before_a_nest_of_loops_is_waited_for_once(turns: tuple[int, ...]) -> None:
    nothing = _nest(turns, load_in=len(turns))
    assert _nest(turns) - nothing == pytest.approx(500, abs=20)


@pytest.mark.parametrize("inside", [1, 2])
def test_what_a_loop_begins_is_waited_for_in_each_of_its_turns(inside: int) -> None:
    turns = (6, 5, 4)
    came = float(np.prod(turns[:inside]))
    waited = _nest(turns, load_in=inside) - _nest(turns, load_in=len(turns))
    assert waited == pytest.approx(500 * came, rel=0.05)


def test_what_a_loop_begins_for_its_next_turn_is_waited_for_there() -> None:
    """A turn that asks at its end for what the next one begins with waits for it each time."""
    text = (
        _line(0x00, "MOV R2, RZ", 1)
        + ".L_x_1:\n" + _line(0x10, "FADD R3, R3, R2", 2) + _line(0x20, "MOV R5, RZ", 2)
        + ".L_x_2:\n" + _line(0x30, "IADD3 R5, R5, 0x1, RZ", 3)
        + _line(0x40, "@P1 BRA `(.L_x_2)", 3)
        + ".L_x_3:\n" + _line(0x50, "LDG.E R2, desc[UR4][R4.64]", 4)
        + _line(0x60, "@P0 BRA `(.L_x_1)", 5)
        + ".L_x_4:\n" + _line(0x70, "EXIT", 6)
    )  # fmt: skip
    read = read_listing(_listing(text))["k"]
    executions = [1.0, 10.0, 40.0, 10.0, 1.0, 0.0][: len(read.blocks)]
    clocks = machine_chain_clocks(read, executions, 1.0, lambda statement: 500.0)
    assert clocks == pytest.approx(10 * 500, rel=0.15)


def test_pipes_registers_and_tensor_products() -> None:
    def made(opcode: str, arguments: str = "", predicate: str = "") -> MachineInstruction:
        return MachineInstruction(opcode, arguments, predicate, 1)

    assert pipe_of(made("IMAD.WIDE")) == "fma_heavy" and pipe_of(made("UIADD3")) == "uniform"
    assert pipe_of(made("IADD3")) == "alu" and pipe_of(made("BAR.SYNC")) == "barrier"
    written, read = registers_of(made("LDS.128", "R4, [R2+0x10]"))
    assert written == ("R4", "R5", "R6", "R7") and read == ("R2",)
    written, read = registers_of(made("SHFL.BFLY", "PT, R3, R5, 0x1, 0x1f", "!P2"))
    assert written == ("R3",) and read == ("R5", "P2")
    written, read = registers_of(made("STG.E.64", "desc[UR4][R2.64], R8"))
    assert written == () and set(read) == {"UR4", "R2", "R3", "R8", "R9"}
    assert tensor_units(made("HMMA.16816.F32")) == 1.0
    assert tensor_units(made("HMMA.1688.F32")) == 0.5
    assert tensor_units(made("HMMA.1688.F32.TF32")) == 1.0
    assert tensor_units(made("IMMA.16832.S8.S8")) == 1.0


def test_scattered_requests_are_told_from_neighbours() -> None:
    neighbours = [1, 0, 2, 4, 100, 101, 102, 103]
    scattered = [1, 0, 2, 6, 0, 64, 128, 256, 512, 1024]
    store = [1, 0, 3, 2 | 256, 8, 9]
    records = np.array(neighbours + scattered + store, dtype=np.uint32)
    shape = trace_shape(Trace(records, (0,), 1), 4)
    assert shape.sectors.tolist() == [0, 0, 10, 2]
    assert shape.units.tolist() == [0, 0, 8, 1]
    assert shape.places.tolist() == [0, 0, 6, 0]


@pytest.mark.parametrize(
    ("opcode", "arguments", "written", "read"),
    [
        ("ATOMG.E.ADD.STRONG.GPU", "PT, R2, desc[UR8][R2.64], R5", "R2", "UR8 R2 R3 R5"),
        ("ATOM.E.CAS.STRONG.GPU", "P0, R2, desc[UR8][R4.64], R6, R7", "P0 R2", "UR8 R4 R5 R6 R7"),
        ("ATOMS.CAST.SPIN", "P0, [R2], R4, R5", "P0", "R2 R4 R5"),
        ("MATCH.ALL", "P0, R14, R15", "P0 R14", "R15"),
        ("MATCH.ANY", "R14, R15", "R14", "R15"),
        ("LOP3.LUT", "P0, R0, R1, 0x7ff, RZ, 0xc0, !PT", "P0 R0", "R1"),
        ("LOP3.LUT", "R0, R1, R2, RZ, 0xc0, !P1", "R0", "R1 R2 P1"),
        ("VOTE.ALL", "P0, P1", "P0", "P1"),
        ("VOTE.ANY", "R2, PT, P2", "R2", "P2"),
        ("F2I.S64.TRUNC", "R4, R7", "R4 R5", "R7"),
        ("IADD3", "R2, P0, P3, R7, UR6, R9", "P0 P3 R2", "R7 UR6 R9"),
        ("IADD3.X", "R3, R4, R5, RZ, P0, !PT", "R3", "R4 R5 P0"),
        ("UIADD3", "UR8, UP0, UR4, UR5, URZ", "UP0 UR8", "UR4 UR5"),
        ("LEA.HI.X", "R5, R6, R7, R8, 0x2, P0", "R5", "R6 R7 R8 P0"),
        ("IMAD.WIDE.U32", "R8, P1, R5, R6, R18", "P1 R8 R9", "R5 R6 R18 R19"),
        ("IMAD.X", "R3, RZ, RZ, UR7, P0", "R3", "UR7 P0"),
    ],
)  # fmt: skip
def test_what_an_instruction_writes_and_reads(
    opcode: str, arguments: str, written: str, read: str
) -> None:
    wrote, has_read = registers_of(MachineInstruction(opcode, arguments, "", 1))
    assert " ".join(wrote) == written and " ".join(has_read) == read
