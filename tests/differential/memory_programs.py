"""Loads, stores, atomics and copies: all types and widths, spaces, and patterns of addresses."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from .programs import FILL, WORDS, Program, store_word

_TYPES = tuple(f"{k}{n}" for n in (8, 16, 32, 64) for k in "bus") + ("f32", "f64")
_PATTERNS = {
    "linear": "mov.u32 %r5, %r1;",
    "strided": "mul.lo.u32 %r5, %r1, 5; rem.u32 %r5, %r5, 96;",
    "reversed": "sub.u32 %r5, 95, %r1;",
    "broadcast": "shr.u32 %r5, %r1, 4;",
    "same": "mov.u32 %r5, 3;",
    "columns": "shl.b32 %r5, %r1, 5; and.b32 %r6, %r1, 31; add.u32 %r5, %r5, %r6;"
               "rem.u32 %r5, %r5, 128;",
    "scattered": "mul.lo.u32 %r5, %r1, 0x9E3779B1; shr.u32 %r5, %r5, 25;",
}  # fmt: skip
"""Index of an element below 128, from the thread."""
_LETTER = {8: "%h", 16: "%h", 32: "%r", 64: "%d"}


def _registers(bits: int, count: int) -> str:
    names = [f"{_LETTER[bits]}{10 + i}" for i in range(count)]
    return names[0] if count == 1 else "{" + ", ".join(names) + "}"


def _address(target: str, base: str, index: str, size: int) -> str:
    return f"mul.wide.u32 {target}, {index}, {size}; add.u64 {target}, {target}, {base};"


def _accesses() -> Iterator[Program]:
    for t, count in product(_TYPES, (1, 2, 4)):
        bits, vector = int(t[1:]), f".v{count}" if count > 1 else ""
        size = bits // 8 * count
        if size > 16:
            continue
        registers = _registers(bits, count)
        out = f"st.global{vector}.{t} [%d4], {registers};"
        spot = _address("%d4", "%d2", "%r4", size)
        for pattern, text in _PATTERNS.items():
            if pattern not in ("linear", "scattered") and not t.startswith("b"):
                continue
            yield Program(f"ld.global{vector}.{t} {pattern}", text + _address(
                "%d3", "%d1", "%r5", size) + f"ld.global{vector}.{t} {registers}, [%d3];"
                + spot + out)  # fmt: skip
            yield Program(f"ld.shared{vector}.{t} {pattern}", FILL + text +
                f"mov.u32 %r6, tile; mad.lo.u32 %r6, %r5, {size}, %r6;"
                f"ld.shared{vector}.{t} {registers}, [%r6+{4 * size}];" + spot + out)  # fmt: skip
        yield Program(f"st.shared{vector}.{t}", _address("%d3", "%d1", "%r4", size)
            + f"ld.global{vector}.{t} {registers}, [%d3]; mov.u32 %r6, tile;"
            f"mad.lo.u32 %r6, %r1, {size}, %r6; st.shared{vector}.{t} [%r6], {registers};"
            "bar.sync 0;"
            f"xor.b32 %r7, %r1, 1; mov.u32 %r6, tile; mad.lo.u32 %r6, %r7, {size}, %r6;"
            f"ld.shared{vector}.{t} {registers}, [%r6];" + spot + out)  # fmt: skip
        yield Program(f"st.local{vector}.{t}", _address("%d3", "%d1", "%r4", size)
            + f"ld.global{vector}.{t} {registers}, [%d3]; and.b32 %r5, %r1, 1;"
            f"mov.u64 %d6, own; mad.wide.u32 %d6, %r5, 32, %d6;"
            f"st.local{vector}.{t} [%d6], {registers};"
            f"ld.local{vector}.{t} {registers}, [%d6];" + spot + out)  # fmt: skip


def _widths() -> Iterator[Program]:
    """Registers wider than the type: loads extend by its sign, stores cut."""
    for t in ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32"):
        size = int(t[1:]) // 8
        for name, register, wide in (("32", "%r20", 4), ("64", "%d20", 8)):
            if wide <= size:
                continue
            yield Program(f"ld.{t} to {name} bits", _address("%d3", "%d1", "%r4", size)
                + f"ld.global.{t} {register}, [%d3];" + _address("%d4", "%d2", "%r4", wide)
                + f"st.global.b{8 * wide} [%d4], {register};")  # fmt: skip
            yield Program(f"st.{t} from {name} bits", _address("%d3", "%d1", "%r4", wide)
                + f"ld.global.b{8 * wide} {register}, [%d3];" + _address("%d4", "%d2", "%r4", size)
                + f"st.global.{t} [%d4], {register};")  # fmt: skip


def _hints() -> Iterator[Program]:
    loads = ("volatile.global", "relaxed.gpu.global", "acquire.sys.global", "weak.global",
             "global.nc", "global.ca", "global.cg", "global.cs", "global.lu", "global.cv",
             "global.nc.L1::no_allocate.L2::128B", "global.L1::evict_last", "global.L2::256B")
    stores = ("volatile.global", "relaxed.gpu.global", "release.gpu.global", "weak.global",
              "global.wb", "global.wt", "global.cg", "global.cs", "global.L1::evict_first")
    for load in loads:
        yield Program(f"ld.{load}", _address("%d3", "%d1", "%r4", 4)
                      + f"ld.{load}.u32 %r10, [%d3];" + store_word("%r10"))  # fmt: skip
    for store in stores:
        yield Program(f"st.{store}", _address("%d3", "%d2", "%r4", 4)
                      + f"st.{store}.u32 [%d3], %r4;")  # fmt: skip
    yield Program("ldu", _address("%d3", "%d1", "0", 4).replace("0,", "%r2,")
                  + "ldu.global.u32 %r10, [%d3];" + store_word("%r10"))  # fmt: skip
    yield Program("ld.const", "and.b32 %r5, %r1, 3; mov.u64 %d5, table;"
                  "mad.wide.u32 %d5, %r5, 4, %d5; ld.const.u32 %r10, [%d5];"
                  "ld.const.u32 %r11, [table+8]; add.u32 %r10, %r10, %r11;" + store_word("%r10"),
                  module=".const .align 4 .u32 table[4] = {11, 22, 33, 44};")  # fmt: skip
    yield Program("global variables", "mov.u64 %d5, counts; mad.wide.u32 %d5, %r4, 4, %d5;"
                  "st.global.u32 [%d5], %r4; ld.global.u32 %r10, [%d5];"
                  "ld.global.u32 %r11, [start]; add.u32 %r10, %r10, %r11;" + store_word("%r10"),
                  module=".global .align 4 .u32 counts[256]; .global .u32 start = 9;")  # fmt: skip
    generic = (
        "cvta.shared.u64 %d5, %d6;", "cvta.local.u64 %d5, %d7;", "mov.u64 %d5, %d8;"
    )  # fmt: skip
    places = ("mov.u64 %d6, tile; mad.wide.u32 %d6, %r1, 8, %d6; mov.u64 %d7, own;"
              + _address("%d8", "%d2", "%r4", 32))  # fmt: skip
    for name, chosen in zip(("shared", "local", "global"), generic, strict=True):
        yield Program(f"generic {name}", places + chosen + "st.u32 [%d5], %r4;"
                      "st.u32 [%d5+4], 5; ld.v2.u32 {%r10, %r11}, [%d5]; add.u32 %r10, %r10, %r11;"
                      + store_word("%r10", 7))  # fmt: skip
    yield Program("generic mixed", places
                  + "rem.u32 %r5, %r1, 3; setp.eq.u32 %p1, %r5, 0; setp.eq.u32 %p2, %r5, 1;"
                  "mov.u64 %d5, %d8; cvta.shared.u64 %d10, %d6; cvta.local.u64 %d11, %d7;"
                  "selp.b64 %d5, %d10, %d5, %p1; selp.b64 %d5, %d11, %d5, %p2;"
                  "st.u32 [%d5], %r4; ld.u32 %r10, [%d5]; add.u32 %r10, %r10, 3;"
                  + store_word("%r10", 7))  # fmt: skip
    yield Program("ld under a guard", _address("%d3", "%d1", "%r4", 16)
                  + "mov.u32 %r10, 1; and.b32 %r5, %r1, 5; setp.eq.u32 %p1, %r5, 4;"
                  "@%p1 ld.global.u32 %r10, [%d3]; @!%p1 ld.global.u32 %r10, [%d3+4];"
                  + store_word("%r10") + "@%p1 st.global.u32 [%d30+4], %r10;")  # fmt: skip


_ATOMICS: dict[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64", "f32", "f64", "noftz.f16", "noftz.f16x2", "noftz.bf16",
            "noftz.bf16x2"),
    "min": ("u32", "s32", "u64", "s64"), "max": ("u32", "s32", "u64", "s64"),
    "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"),
    "exch": ("b32", "b64"), "cas": ("b16", "b32", "b64"), "inc": ("u32",), "dec": ("u32",),
}  # fmt: skip


def _atomic_data(kind: str) -> np.ndarray:
    """Return finite numbers of the type, so that no payload of a NaN is compared."""
    random = np.random.default_rng(3)
    if kind.startswith(("f16", "bf16")):
        exponent = {"f16": 0x3C00, "bf16": 0x3F80}[kind.removesuffix("x2")]
        halves = random.integers(0, 1 << 7, 2 * WORDS, np.uint16) | exponent
        return (halves ^ (random.integers(0, 2, 2 * WORDS, np.uint16) << 15)).view(np.uint32)
    if kind == "f32":
        return random.standard_normal(WORDS, np.float32).view(np.uint32)
    if kind == "f64":
        return random.standard_normal(WORDS // 2).view(np.uint32)
    return random.integers(0, 1 << 32, WORDS, np.uint32)


def _atomics() -> Iterator[Program]:
    for operation, types in _ATOMICS.items():
        for t in types:
            kind = t.split(".")[-1]
            bits = {"f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32}.get(kind) or int(kind[1:])
            size, v = bits // 8, _LETTER[bits]
            more = f", {v}11" if operation == "cas" else ""
            base = f"{operation}.{t}"
            data = _atomic_data(kind)
            # A third of the threads meet at four places, the others have a place of their own.
            where = ("rem.u32 %r5, %r1, 3; setp.eq.u32 %p1, %r5, 0; and.b32 %r6, %r1, 3;"
                     "add.u32 %r7, %r4, 8; selp.u32 %r5, %r6, %r7, %p1;")  # fmt: skip
            values = _address("%d3", "%d1", "%r4", size) + (
                f"ld.global.b{bits} {v}10, [%d3+64]; ld.global.b{bits} {v}11, [%d3+128];"
                f"ld.global.b{bits} {v}13, [%d3];")  # fmt: skip
            keep = _address("%d4", "%d2", "%r4", size) + f"st.global.b{bits} [%d4+8192], {v}12;"
            if operation == "cas":
                values += f"@%p1 mov.b{bits} {v}10, {v}13;"
            yield Program(f"atom.global.{base}", where + values + _address(
                "%d5", "%d2", "%r5", size) + f"atom.global.{base} {v}12, [%d5], {v}10{more};"
                + keep, data=data)  # fmt: skip
            shared = FILL + where.replace("%r4, 8", "%r1, 8") + values + (
                f"mov.u32 %r8, tile; mad.lo.u32 %r8, %r5, {size}, %r8;")  # fmt: skip
            after = (f"bar.sync 0; mov.u32 %r8, tile; mad.lo.u32 %r8, %r1, {size}, %r8;"
                     f"ld.shared.b{bits} {v}12, [%r8];" + keep)  # fmt: skip
            yield Program(f"atom.shared.{base}", shared
                          + f"atom.shared.{base} {v}12, [%r8], {v}10{more};" + keep,
                          data=data)  # fmt: skip
            if operation in ("exch", "cas"):
                continue
            yield Program(f"red.shared.{base}", shared + f"red.shared.{base} [%r8], {v}10;" + after,
                          data=data)  # fmt: skip
            yield Program(f"red.global.{base}", where + values + _address(
                "%d5", "%d2", "%r5", size) + f"red.relaxed.gpu.global.{base} [%d5], {v}10;",
                data=data)  # fmt: skip
            yield Program(f"red.{base} generic", where + values + _address(
                "%d5", "%d2", "%r5", size) + f"red.{base} [%d5], {v}10;", data=data)  # fmt: skip
    for order in ("acquire.gpu.global", "release.cta.global", "acq_rel.sys.global"):
        yield Program(f"atom.{order}", _address("%d5", "%d2", "%r4", 4)
                      + f"atom.{order}.add.u32 %r10, [%d5], 3;" + store_word("%r10", 2048))
    yield Program("atom to nowhere", _address("%d5", "%d2", "%r4", 4)
                  + "atom.global.add.u32 _, [%d5], 3;")  # fmt: skip


def _copies() -> Iterator[Program]:
    head = "mov.u32 %r8, tile; mad.lo.u32 %r8, %r1, {size}, %r8;"
    tail = ("bar.sync 0; xor.b32 %r7, %r1, 3; mov.u32 %r8, tile; mad.lo.u32 %r8, %r7, {size}, %r8;"
            "ld.shared.u32 %r10, [%r8];")  # fmt: skip
    for size, kind in ((4, "ca"), (8, "ca"), (16, "ca"), (16, "cg")):
        for name, extra, before in (
            ("", "", ""), ("zero-filled", ", %r9", "and.b32 %r9, %r1, 1; mul.lo.u32 %r9, %r9, "
             f"{size};"), ("cut", ", %r9", f"rem.u32 %r9, %r1, {size + 1};"),
            ("ignored", ", %p1", "and.b32 %r9, %r1, 1; setp.eq.u32 %p1, %r9, 1;"),
            ("L2::128B", "", ""),
        ):  # fmt: skip
            hint = ".L2::128B" if name.startswith("L2") else ""
            copy = f"cp.async.{kind}.shared.global{hint} [%r8], [%d3], {size}{extra};"
            for wait in ("cp.async.commit_group; cp.async.wait_group 0;", "cp.async.wait_all;"):
                yield Program(f"cp.async.{kind} {size} {name} {wait[9:20]}", before
                              + head.format(size=size) + _address("%d3", "%d1", "%r4", size) + copy
                              + wait + tail.format(size=size) + store_word("%r10"))  # fmt: skip


def programs() -> Iterator[Program]:
    """Yield every program of this module."""
    yield from _accesses()
    yield from _widths()
    yield from _hints()
    yield from _atomics()
    yield from _copies()
