"""Writes small kernels around instructions that touch memory, other lanes or the flow."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kernelblaster.harness.simt.ptx.parser import parse

from .comparing import Array, run_both

THREADS = 96
BLOCKS = 2
WORDS = 1 << 13
"""Of the input and of the output, 4 bytes each."""

_PROLOGUE = """.version 8.3
.target sm_90
.address_size 64
{module}
.visible .entry k(.param .u64 in, .param .u64 out) {{
.reg .pred %p<8>; .reg .b16 %h<32>; .reg .b32 %r<64>; .reg .f32 %f<32>; .reg .b64 %d<32>;
.shared .align 16 .b8 tile[8192]; .local .align 16 .b8 own[64];
ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;
{body}
ret;
}}
"""

FILL = """
mov.u32 %r60, %r1; mov.u32 %r62, tile;
FILL: mul.wide.u32 %d28, %r60, 16; add.u64 %d29, %d1, %d28; cvt.u32.u64 %r63, %d28;
ld.global.v4.u32 {%r56, %r57, %r58, %r59}, [%d29]; add.u32 %r63, %r62, %r63;
st.shared.v4.u32 [%r63], {%r56, %r57, %r58, %r59};
add.u32 %r60, %r60, %r3; setp.lt.u32 %p7, %r60, 512; @%p7 bra FILL;
bar.sync 0;
"""
"""Copies the first 8192 bytes of the input to shared memory. Uses registers from 28 and 56 on."""


@dataclass(frozen=True)
class Program:
    """%d1 is the input, %d2 the output, %r1 the thread, %r2 the block, %r4 the global index."""

    name: str
    body: str
    module: str = ""
    """Text before the kernel: variables and functions."""
    data: Array | None = None
    """The input, 4 * WORDS bytes; random bits where none is given."""
    threads: int = THREADS
    refused: bool = False
    """The ISA has it, the core may refuse it by name."""
    relative: float = 0.0
    """Outputs are f32 that may differ by this part of the largest (sums in another order)."""
    options: dict[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The whole module."""
        return _PROLOGUE.format(module=self.module, body=self.body)


def store_word(register: str, place: int = 0) -> str:
    """Return text that stores a 32-bit register at `place` of the thread's eight output words."""
    return (f"mul.wide.u32 %d30, %r4, 32; add.u64 %d30, %d30, %d2;"
            f"st.global.b32 [%d30+{4 * place}], {register};")  # fmt: skip


def differences(program: Program) -> list[str]:
    """Return what the core and the reference do not agree on.

    Raises:
        UnsupportedInstruction: the core refuses an instruction.
    """
    data = program.data
    if data is None:
        data = np.random.default_rng(7).integers(0, 1 << 32, WORDS, np.uint32)
    assert data.nbytes == 4 * WORDS
    both = run_both(
        parse(program.text), "k", BLOCKS, program.threads,
        [data, np.zeros(WORDS, np.uint32)], **program.options,  # type: ignore[arg-type]
    )  # fmt: skip
    found = [*both.reports(), *both.differing_counters()]
    for name, ours, theirs in zip(
        ("input", "output"), both.core_arrays, both.reference_arrays, strict=True
    ):
        if program.relative and name == "output":
            x, y = ours.view(np.float32), theirs.view(np.float32)
            far = np.abs(x - y) > program.relative * np.abs(y).max()
        else:
            far = ours.view(np.uint32) != theirs.view(np.uint32)
        at = np.flatnonzero(far)
        if at.size:
            x, y = ours.view(np.uint32)[at[0]], theirs.view(np.uint32)[at[0]]
            found.append(f"{at.size} words of the {name}, first {at[0]}: core {x:#x}, {y:#x}")
    return [f"{program.name}: {line}" for line in found]
