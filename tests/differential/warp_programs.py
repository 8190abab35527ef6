"""Exchanges between lanes, barriers, branches, calls, hints and the tensor core."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

import numpy as np

from .programs import FILL, WORDS, Program, store_word

_LOAD = ("mul.wide.u32 %d3, %r4, 4; add.u64 %d3, %d3, %d1; ld.global.u32 %r10, [%d3];"
         "ld.global.u32 %r11, [%d3+1024]; mov.u32 %r20, 0; mov.u32 %r21, 0;")  # fmt: skip
_PREDICATE = "and.b32 %r12, %r11, 1; setp.ne.u32 %p1, %r12, 0; and.b32 %r12, %r11, 6;" \
             "setp.ne.u32 %p2, %r12, 0;"  # fmt: skip
_KEEP = "selp.u32 %r22, 1, 0, %p3;" + store_word("%r20") + "st.global.b32 [%d30+4], %r21;" \
        "st.global.b32 [%d30+8], %r22;"  # fmt: skip
_CLEAR = "setp.ne.u32 %p3, 0, 0;"


def _shuffles() -> Iterator[Program]:
    for mode in ("up", "down", "bfly", "idx"):
        for width in (32, 16, 8, 4, 2):
            clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
            for distance in ("1", "3", "%r13", "%r14"):
                yield Program(f"shfl.{mode} width {width} by {distance}", _LOAD + _CLEAR
                    + "and.b32 %r13, %r11, 63; mov.u32 %r14, 16;"
                    f"shfl.sync.{mode}.b32 %r20|%p3, %r10, {distance}, {clamp:#x}, -1;"
                    + _KEEP)  # fmt: skip
        yield Program(f"shfl.{mode} without a predicate", _LOAD + _CLEAR
                      + f"shfl.sync.{mode}.b32 %r20, %r10, 5, 0x{'0' if mode == 'up' else '1f'},"
                      "0xffffffff;" + _KEEP)  # fmt: skip
        yield Program(f"shfl.{mode} in place", _LOAD + _CLEAR
                      + f"shfl.sync.{mode}.b32 %r10, %r10, 2, 0x{'0' if mode == 'up' else '1f'},"
                      "-1; mov.u32 %r20, %r10;" + _KEEP)  # fmt: skip
    yield Program("shfl of half the warp", _LOAD + _CLEAR + "and.b32 %r13, %r1, 31;"
                  "setp.lt.u32 %p1, %r13, 16; @%p1 shfl.sync.bfly.b32 %r20|%p3, %r10, 8, 0x1f,"
                  "0xffff;" + _KEEP)  # fmt: skip


def _votes() -> Iterator[Program]:
    members = "0xffffffff"
    for threads in (96, 75):
        tag = f"{threads} threads"
        mask = "activemask.b32 %r15;"
        for mode, negation, source in product(("any", "all", "uni", "ballot"), ("", "!"),
                                              ("%p1", "%p2")):  # fmt: skip
            target = "%r20" if mode == "ballot" else "%p3"
            kind = "b32" if mode == "ballot" else "pred"
            yield Program(f"vote.{mode} {negation}{source} {tag}", _LOAD + _CLEAR + _PREDICATE
                + mask + f"vote.sync.{mode}.{kind} {target}, {negation}{source}, %r15;" + _KEEP,
                threads=threads)  # fmt: skip
        for mode, t in product(("any", "all"), ("b32", "b64")):
            pair = "|%p3" if mode == "all" else ""
            value = {"b32": ("and.b32 %r16, %r11, 3;", "%r16"),
                     "b64": ("and.b32 %r16, %r11, 1; cvt.u64.u32 %d5, %r16; shl.b64 %d5, %d5, 40;",
                             "%d5")}[t]  # fmt: skip
            yield Program(f"match.{mode}.{t} {tag}", _LOAD + _CLEAR + mask + value[0]
                + f"match.{mode}.sync.{t} %r20{pair}, {value[1]}, %r15;" + _KEEP,
                threads=threads)  # fmt: skip
            yield Program(f"match.{mode}.{t} of equal values {tag}", _LOAD + _CLEAR + mask
                + "mov.u32 %r16, 5; mov.b64 %d5, 5;"
                f"match.{mode}.sync.{t} %r20{pair}, {value[1]}, %r15;" + _KEEP,
                threads=threads)  # fmt: skip
        for operation, t in (*product(("add", "min", "max"), ("u32", "s32")),
                             *product(("and", "or", "xor"), ("b32",))):  # fmt: skip
            yield Program(f"redux.{operation}.{t} {tag}", _LOAD + _CLEAR + mask
                + f"redux.sync.{operation}.{t} %r20, %r10, %r15;" + _KEEP,
                threads=threads)  # fmt: skip
        yield Program(f"activemask {tag}", _LOAD + _CLEAR + _PREDICATE + "@%p1 activemask.b32 %r20;"
                      "@!%p2 bra DONE; activemask.b32 %r21; DONE:" + _KEEP,
                      threads=threads)  # fmt: skip
    yield Program("vote under a guard", _LOAD + _CLEAR + _PREDICATE + "vote.sync.ballot.b32 %r15,"
                  f"%p2, {members}; @%p2 vote.sync.ballot.b32 %r20, %p1, %r15;" + _KEEP)


def _barriers() -> Iterator[Program]:
    for text in ("bar.sync 0", "barrier.sync 0", "barrier.sync.aligned 0", "bar.cta.sync 0",
                 "bar.sync 0, 96"):  # fmt: skip
        yield Program(text, FILL + "xor.b32 %r5, %r1, 33; mov.u32 %r6, tile;"
            "mad.lo.u32 %r7, %r1, 4, %r6; mad.lo.u32 %r8, %r5, 4, %r6; rem.u32 %r9, %r5, 96;"
            f"mad.lo.u32 %r8, %r9, 4, %r6; st.shared.u32 [%r7], %r4; {text};"
            "ld.shared.u32 %r10, [%r8];" + store_word("%r10"), refused="96" in text)  # fmt: skip
    for name, negation in product(("popc", "and", "or"), ("", "!")):
        target = "popc.u32 %r20" if name == "popc" else f"{name}.pred %p3"
        for threads in (96, 75):
            yield Program(f"bar.red.{name} {negation} {threads}", _LOAD + _CLEAR + _PREDICATE
                          + f"bar.red.{target}, 0, {negation}%p2;" + _KEEP,
                          threads=threads)  # fmt: skip
    for text in ("bar.warp.sync 0xffffffff", "membar.cta", "membar.gl", "membar.sys",
                 "fence.acq_rel.gpu", "fence.sc.cta", "nanosleep.u32 20",
                 "prefetch.global.L1 [%d1]", "prefetch.global.L2 [%d1]", "prefetchu.L1 [%d1]",
                 "griddepcontrol.wait", "griddepcontrol.launch_dependents",
                 "applypriority.global.L2::evict_normal [%d1], 128"):  # fmt: skip
        yield Program(text, f"{text};" + store_word("%r4"))
    yield Program("trap behind a false guard", "setp.gt.u32 %p1, %r1, 5000; @%p1 trap;"
                  "@%p1 brkpt;" + store_word("%r4"))  # fmt: skip


_FUNCTIONS = """
.func (.param .b32 result) twice(.param .b32 x) {
.reg .b32 %r<4>; .reg .pred %p; ld.param.u32 %r1, [x]; setp.gt.u32 %p, %r1, 100; @%p bra BIG;
add.u32 %r2, %r1, %r1; st.param.b32 [result], %r2; ret;
BIG: st.param.b32 [result], %r1; ret; }
.func (.param .b64 result) both(.param .b32 x, .param .align 8 .b8 y[8]) {
.reg .b32 %r<6>; .reg .b64 %d<4>;
ld.param.u32 %r1, [x]; ld.param.u32 %r2, [y]; ld.param.u32 %r3, [y+4];
{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call.uni (b), twice, (a);
ld.param.b32 %r2, [b]; }
add.u32 %r2, %r2, %r3; mov.b64 %d1, {%r1, %r2}; st.param.b64 [result], %d1; ret; }
"""


def _control() -> Iterator[Program]:
    loop = ("and.b32 %r12, %r11, 15; mov.u32 %r20, 0; AGAIN: setp.eq.u32 %p1, %r12, 0;"
            "@%p1 bra OUT; mad.lo.u32 %r20, %r20, 5, %r12; sub.u32 %r12, %r12, 1; bra.uni AGAIN;"
            "OUT:")  # fmt: skip
    yield Program("loop of different lengths", _LOAD + _CLEAR + loop + _KEEP, threads=75)
    yield Program("branches within branches", _LOAD + _CLEAR + _PREDICATE + """
        @%p1 bra LEFT; add.u32 %r20, %r10, 1; @%p2 bra INNER; mul.lo.u32 %r20, %r20, 3; bra JOIN;
        INNER: xor.b32 %r20, %r20, 77; bra JOIN;
        LEFT: @!%p2 bra JOIN; sub.u32 %r20, %r10, 9;
        JOIN: add.u32 %r21, %r20, 1;""" + _KEEP, threads=75)  # fmt: skip
    yield Program("leaving early", _LOAD + _CLEAR + _PREDICATE + _KEEP.replace("%r20", "%r10")
                  + "@%p1 ret; @!%p2 exit; add.u32 %r10, %r10, 1; st.global.b32 [%d30+12], %r10;",
                  threads=75)  # fmt: skip
    yield Program("a warp leaves before the barrier", "setp.ge.u32 %p1, %r1, 64; @%p1 exit;"
                  "bar.sync 0;" + store_word("%r4"))  # fmt: skip
    yield Program("jump table", _LOAD + _CLEAR + _PREDICATE + """
        and.b32 %r12, %r11, 3; min.u32 %r12, %r12, 2;
        TABLE: .branchtargets FIRST, SECOND, THIRD;
        @%p2 brx.idx %r12, TABLE; add.u32 %r20, %r20, 7; bra.uni END;
        FIRST: add.u32 %r20, %r10, 1; bra.uni END;
        SECOND: add.u32 %r20, %r20, 20;
        THIRD: add.u32 %r20, %r20, 300;
        END: add.u32 %r21, %r20, 5;""" + _KEEP, threads=75)  # fmt: skip
    yield Program("calls", _LOAD + _CLEAR + _PREDICATE + """
        and.b32 %r10, %r10, 255;
        { .param .b32 a; .param .align 8 .b8 c[8]; .param .b64 b; st.param.b32 [a], %r10;
        st.param.v2.b32 [c], {%r10, %r4}; call.uni (b), both, (a, c); ld.param.b64 %d5, [b]; }
        mov.b64 {%r20, %r21}, %d5; @!%p1 bra OVER;
        { .param .b32 a; .param .b32 b; st.param.b32 [a], %r21; call (b), twice, (a);
        ld.param.b32 %r21, [b]; }
        OVER:""" + _KEEP, module=_FUNCTIONS, threads=75)  # fmt: skip
    names = ("%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ctaid.x", "%nctaid.x",
             "%nctaid.z", "%laneid", "%warpid", "%nwarpid", "%lanemask_eq", "%lanemask_lt",
             "%lanemask_le", "%lanemask_gt", "%lanemask_ge", "%dynamic_smem_size",
             "%total_smem_size")  # fmt: skip
    for name in names:  # shared memory that nothing refers to is not allocated
        yield Program(name, f"mov.u32 %r20, {name}; mov.u32 %r21, 0; st.shared.u32 [tile], 0;"
                      + _CLEAR + _KEEP, threads=32)


def _small(kind: str) -> np.ndarray:
    """Return small whole numbers: their products and sums are exact in every order."""
    numbers = np.random.default_rng(5).integers(-3, 4, 2 * WORDS)
    if kind == "f16":
        return numbers.astype(np.float16).view(np.uint32)
    singles = numbers.astype(np.float32).view(np.uint32)
    if kind == "bf16":
        return (singles >> 16).astype(np.uint16).view(np.uint32)
    return singles[:WORDS].copy()


def _loads(registers: int, first: int, offset: int) -> str:
    return "".join(
        f"ld.global.b32 %r{first + i}, [%d3+{offset + 256 * i}];" for i in range(registers)
    )


def _products() -> Iterator[Program]:
    lane = "mul.wide.u32 %d3, %r4, 4; add.u64 %d3, %d3, %d1;"
    shapes = {("f16", 8): (2, 1), ("f16", 16): (4, 2), ("bf16", 8): (2, 1), ("bf16", 16): (4, 2),
              ("tf32", 4): (2, 1), ("tf32", 8): (4, 2)}  # fmt: skip
    for (kind, inner), (a, b) in shapes.items():
        for d in ("f32", "f16") if kind == "f16" else ("f32",):
            c = 4 if d == "f32" else 2
            names = [", ".join(f"%r{10 * g + i}" for i in range(n))
                     for g, n in ((1, a), (2, b), (3, c), (4, c))]  # fmt: skip
            text = (f"mma.sync.aligned.m16n8k{inner}.row.col.{d}.{kind}.{kind}.{d}"
                    f" {{{names[3]}}}, {{{names[0]}}}, {{{names[1]}}}, {{{names[2]}}};")
            keep = store_word("%r40") + "".join(
                f"st.global.b32 [%d30+{4 * i}], %r{40 + i};" for i in range(1, c)
            )
            # Sums are of the same small numbers; f32 ones come from halves shifted up.
            widen = "".join(f"and.b32 %r{30 + i}, %r{30 + i}, 7; cvt.rn.f32.u32 %f1, %r{30 + i};"
                            f"mov.b32 %r{30 + i}, %f1;" for i in range(c)) if d == "f32" else ""
            load = lane + _loads(a, 10, 0) + _loads(b, 20, 2048) + _loads(c, 30, 4096) + widen
            yield Program(f"{text[:50]} exact", load + text + keep, data=_small(kind))
            if d == "f32":
                noise = np.random.default_rng(9).standard_normal(2 * WORDS).astype(np.float32)
                data = (noise.astype(np.float16).view(np.uint32) if kind == "f16" else
                        (noise.view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)
                        if kind == "bf16" else noise[:WORDS].view(np.uint32))  # fmt: skip
                yield Program(f"{text[:50]} rounded", load + text + keep, data=data,
                              relative=1e-5)  # fmt: skip
    for count, transposed, threads in product((1, 2, 4), ("", ".trans"), (32, 96)):
        names = ", ".join(f"%r{20 + i}" for i in range(count))
        keep = "".join(f"st.global.b32 [%d30+{4 * i}], %r{20 + i};" for i in range(count))
        for pitch in (16, 144, 32):
            yield Program(f"ldmatrix.x{count}{transposed} pitch {pitch} {threads}", FILL
                + f"and.b32 %r6, %r1, 31; mul.lo.u32 %r6, %r6, {pitch}; mov.u32 %r7, tile;"
                f"add.u32 %r6, %r6, %r7; ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16"
                f" {{{names}}}, [%r6];" + store_word("%r20") + keep, threads=threads)  # fmt: skip


def _later() -> Iterator[Program]:
    """What the core refuses by name as long as it has no rule for it."""
    yield Program("elect", _LOAD + _CLEAR + "elect.sync %r20|%p3, -1;" + _KEEP, refused=True)
    yield Program("movmatrix", _LOAD + _CLEAR
                  + "movmatrix.sync.aligned.m8n8.trans.b16 %r20, %r10;" + _KEEP, refused=True)
    for count, transposed in product((1, 2, 4), ("", ".trans")):
        names = ", ".join(f"%r{10 + i}" for i in range(count))
        yield Program(f"stmatrix.x{count}{transposed}", FILL
            + "add.u64 %d3, %d1, 0; mul.wide.u32 %d4, %r1, 16; add.u64 %d3, %d3, %d4;"
            "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%d3]; and.b32 %r6, %r1, 31;"
            "mul.lo.u32 %r6, %r6, 48; mov.u32 %r7, tile; add.u32 %r6, %r6, %r7;"
            f"stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 [%r6], {{{names}}};"
            "bar.sync 0; mul.lo.u32 %r8, %r1, 48; add.u32 %r8, %r8, %r7;"
            "ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r8];" + store_word("%r20")
            + "st.global.v2.u32 [%d30+8], {%r21, %r22}; st.global.u32 [%d30+16], %r23;",
            threads=32, refused=True)  # fmt: skip
    for space, place in (("shared", "tile"), ("local", "own")):
        for asked in ("shared", "local", "global"):
            yield Program(f"isspacep.{asked} {space}", f"mov.u64 %d3, {place}; mov.u32 %r21, 0;"
                f"mov.u32 %r20, 0; cvta.{space}.u64 %d3, %d3; and.b32 %r5, %r1, 1;"
                "setp.eq.u32 %p1, %r5, 0; selp.b64 %d3, %d3, %d1, %p1;"
                f"isspacep.{asked} %p3, %d3;" + _KEEP, refused=True)  # fmt: skip
    for text in ("pmevent 1", "createpolicy.fractional.L2::evict_last.b64 %d9, 1.0"):
        yield Program(text, f"{text};" + store_word("%r4"), refused=True)


def _wmma() -> Iterator[Program]:
    shapes = ("m16n16k16", "m8n32k16", "m32n8k16")
    for shape, kind, d in (
        *product(shapes, ("f16",), ("f32", "f16")), *product(shapes, ("bf16",), ("f32",)),
    ):  # fmt: skip
        rows, columns, inner = (int(v) for v in re.findall(r"\d+", shape))
        half = {"m16n16k16": (4, 4), "m8n32k16": (2, 8), "m32n8k16": (8, 2)}[shape]
        a, b = (8, 8) if kind == "f16" else half
        c = 8 if d == "f32" else 4
        for left, right, out, space in (("row", "col", "row", ".global"), ("col", "row", "col", ""),
                                        ("row", "row", "row", ".shared")):  # fmt: skip
            fragments = [", ".join(f"%r{10 * g + i}" for i in range(n))
                         for g, n in ((1, a), (2, b), (3, c), (4, c))]  # fmt: skip
            kinds = f"{d}.{d}" if kind == "f16" else f"{d}.{kind}.{kind}.{d}"
            base = {"": "%d1", ".global": "%d1", ".shared": "%d9"}[space]
            pitch = {"row": inner, "col": rows}[left] + 8, {"row": columns, "col": inner}[right] + 8
            sums = {"row": columns, "col": rows}[out]
            text = (FILL + "mov.u64 %d9, tile; add.u64 %d8, %d1, 3072; mov.u64 %d7, %d1;"
                f"wmma.load.a.sync.aligned.{left}.{shape}{space}.{kind} {{{fragments[0]}}},"
                f"[{base}], {pitch[0]};"
                f"wmma.load.b.sync.aligned.{right}.{shape}{space}.{kind} {{{fragments[1]}}},"
                f"[{base}+2048], {pitch[1]};"
                f"wmma.load.c.sync.aligned.{out}.{shape}{space}.{d} {{{fragments[2]}}},"
                f"[{base}+4096], {sums};"
                f"wmma.mma.sync.aligned.{left}.{right}.{shape}.{kinds} {{{fragments[3]}}},"
                f"{{{fragments[0]}}}, {{{fragments[1]}}}, {{{fragments[2]}}};"
                "mul.wide.u32 %d10, %r2, 8192; add.u64 %d10, %d10, %d2;"
                f"wmma.store.d.sync.aligned.{out}.{shape}.global.{d} [%d10], {{{fragments[3]}}},"
                f"{sums + 8};")  # fmt: skip
            data = _small(kind)
            if d == "f32":  # the sums are read as f32
                data[1024:] = _small("f32")[1024:]
            yield Program(f"wmma {shape} {kinds} {left} {right} {out} {space}", text, data=data,
                          threads=32)  # fmt: skip


def programs() -> Iterator[Program]:
    """Yield every program of this module."""
    yield from _shuffles()
    yield from _votes()
    yield from _barriers()
    yield from _control()
    yield from _products()
    yield from _later()
    yield from _wmma()
