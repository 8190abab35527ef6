"""A module that was read and written again is read as the same module."""

from __future__ import annotations

import dataclasses

from kernelblaster.harness.simt.ptx.parser import parse
from kernelblaster.harness.simt.ptx.printing import print_module
from kernelblaster.harness.simt.ptx.records import Module

EVERYTHING = """
.version 8.0
.target sm_90
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.visible .global .align 8 .u64 table[3] = {generic(other), 7, helper};
.const .align 4 .f32 other[2] = {0f3F800000, 0f40000000};
.extern .shared .align 16 .b8 dynamic[];
.func (.param .b32 result) helper(.param .b32 given);
.visible .entry k(.param .u64 .ptr .global .align 16 k_param_0, .param .align 8 .b8 pair[16])
.maxntid 256, 1, 1
.minnctapersm 2
{
    .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;
    .shared .align 4 .b8 tile[1024];
    ld.param.u64 %rd1, [k_param_0];
    ld.global.nc.L1::no_allocate.v4.f32 {%f1, %f2, _, %f3}, [%rd1+-16];
    mov.u32 %r1, %tid.x;
    .pragma "nounroll";
TOP:
    @!%p1 bra OUT;
    { .reg .b32 %r<4>; .reg .f32 t; bra OUT; mov.b32 t, %r1; mov.f32 %f1, t; OUT: }
    setp.lt.and.s32 %p2|%p3, %r1, -5, !%p1;
    mov.f32 %f2, 0f3F800000; mov.f32 %f2, -1.5;
    st.shared.f32 [tile+4], %f2;
    ld.shared.f32 %f2, [dynamic];
    brx.idx %r1, TABLE;
TABLE: .branchtargets TOP, OUT;
    { .param .b32 given; .param .b32 back;
      st.param.b32 [given+0], %r1;
      call.uni (back), helper, (given);
      mov.u64 %rd2, table; ld.u64 %rd3, [%rd2];
      prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _);
      call (back), %rd3, (given), prototype_0;
      ld.param.b32 %r2, [back+0]; }
    shfl.sync.idx.b32 %r2|%p1, %r1, 0, 31, -1;
    bar.sync 0;
OUT:
    ret;
}
.func (.param .b32 result) helper(.param .b32 given) .noreturn { trap; }
"""


def plain(module: Module) -> list[object]:
    """What a module says, without lines and texts, and names told apart but not spelled."""
    names: dict[str, int] = {}

    def told(value: object) -> object:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            ignored = ("line", "inner_line", "ptx_line", "text")
            return [type(value).__name__,
                    *(told(fields[name]) for name in fields if name not in ignored)]  # fmt: skip
        if isinstance(value, dict):
            return [(told(key), told(inner)) for key, inner in value.items()]
        if isinstance(value, list | tuple):
            return [told(inner) for inner in value]
        if isinstance(value, str) and ("|" in value or "." in value or "$" in value):
            return names.setdefault(value, len(names))
        return value

    functions = [(each.entry, each.linkage, each.limits, each.first, each.last, each.pragmas,
                  sorted(each.labels.values()), len(each.branch_tables))
                 for each in module.functions.values()]  # fmt: skip
    variables = [(each.space, each.size, each.align, each.element_bytes, each.initial,
                  each.relocations, each.generic, each.external, each.linkage)
                 for each in module.variables.values()]  # fmt: skip
    return [functions, variables, told(module.instructions)]


def test_nothing_is_lost() -> None:
    module = parse(EVERYTHING)
    again = parse(print_module(module))
    assert plain(again) == plain(module)
    assert [each.line for each in again.instructions] == list(
        range(1, len(module.instructions) + 1)
    )


def test_what_changes_the_program_changes_the_text() -> None:
    written = {print_module(parse(EVERYTHING))}
    for old, new in (
        ("nounroll", "unroll"), ("256, 1, 1", "128, 1, 1"), ("[tile+4]", "[tile+8]"), ("-5", "-6"),
        ("@!%p1", "@%p1"), ("TOP, OUT", "OUT, TOP"), (".nc.L1", ".L1"), ("-1.5", "1.5"),
        ("helper, (given)", "vprintf, (given)"), ("bra OUT; mov", "bra TOP; mov"),
        ("{%f1, %f2, _, %f3}", "{%f2, %f1, _, %f3}"), ("7, helper", "8, helper"),
        ("generic(other)", "other"), (".align 16 k_", ".align 8 k_"), ("%p2|%p3", "%p3|%p2"),
        (".noreturn", ""), ("tile[1024]", "tile[512]"), ("mov.b32 t, %r1", "mov.b32 t, %r2"),
    ):  # fmt: skip
        assert old in EVERYTHING
        written.add(print_module(parse(EVERYTHING.replace(old, new))))
    assert len(written) == 19
