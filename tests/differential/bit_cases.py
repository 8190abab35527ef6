"""Every form of the logic, shift, bit-field, comparison, selection and move instructions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from .lanewise import Case

_ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
_FLOATS = ("f16", "bf16", "f32", "f64")


def _logic() -> Iterator[Case]:
    for t in ("b16", "b32", "b64"):
        for op in ("and", "or", "xor"):
            yield Case(f"{op}.{t} {{d}}, {{a}}, {{b}}", (t, t), t)
            yield Case(f"{op}.{t} {{d}}, {{a}}, 0x5a", (t,), t)
        yield Case(f"not.{t} {{d}}, {{a}}", (t,), t)
        yield Case(f"cnot.{t} {{d}}, {{a}}", (t,), t, refused=True)
        yield Case(f"shl.{t} {{d}}, {{a}}, {{b}}", (t, "u32/count"), t)
        yield Case(f"shl.{t} {{d}}, {{a}}, 3", (t,), t)
        for kind in "bus":
            yield Case(f"shr.{kind}{t[1:]} {{d}}, {{a}}, {{b}}", (t, "u32/count"), t)
    for op in ("and", "or", "xor"):
        yield Case(f"{op}.pred {{d}}, {{a}}, {{b}}", ("pred", "pred"), "pred")
    yield Case("not.pred {d}, {a}", ("pred",), "pred")
    for table in (0x00, 0x01, 0x1B, 0x80, 0x96, 0xCA, 0xE8, 0xFE, 0xFF):
        yield Case(f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table:#x}", ("b32",) * 3, "b32")
    for side, mode in product("lr", ("wrap", "clamp")):
        yield Case(f"shf.{side}.{mode}.b32 {{d}}, {{a}}, {{b}}, {{c}}",
                   ("b32", "b32", "u32/count"), "b32")  # fmt: skip


def _fields() -> Iterator[Case]:
    for t in ("b32", "b64"):
        for op in ("popc", "clz"):
            yield Case(f"{op}.{t} {{d}}, {{a}}", (t,), "u32")
        yield Case(f"brev.{t} {{d}}, {{a}}", (t,), t)
        yield Case(f"bfi.{t} {{d}}, {{a}}, {{b}}, {{c}}, 9", (t, t, "u32/count"), t)
        yield Case(f"bfi.{t} {{d}}, {{a}}, {{b}}, 5, {{c}}", (t, t, "u32/count"), t)
    for t in ("u32", "s32", "u64", "s64"):
        yield Case(f"bfe.{t} {{d}}, {{a}}, {{b}}, {{c}}", (t, "u32/count", "u32/count"), t)
        for more in ("", ".shiftamt"):
            yield Case(f"bfind{more}.{t} {{d}}, {{a}}", (t,), "u32")
    yield Case("prmt.b32 {d}, {a}, {b}, {c}", ("b32",) * 3, "b32")
    yield Case("prmt.b32 {d}, {a}, {b}, 0x7531", ("b32",) * 2, "b32")
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        yield Case(f"prmt.b32.{mode} {{d}}, {{a}}, {{b}}, {{c}}", ("b32",) * 3, "b32",
                   refused=True)  # fmt: skip
    yield Case("fns.b32 {d}, {a}, {b}, {c}", ("b32", "u32/lane", "s32/few"), "u32", refused=True)
    for mode in ("wrap", "clamp"):
        for t in ("u32", "s32"):
            yield Case(f"szext.{mode}.{t} {{d}}, {{a}}, {{b}}", (t, "u32/count"), t, refused=True)
        yield Case(f"bmsk.{mode}.b32 {{d}}, {{a}}, {{b}}", ("u32/count",) * 2, "b32", refused=True)


def _comparisons() -> Iterator[Case]:
    integers: list[tuple[str, tuple[str, ...]]] = [
        *((f"b{n}", ("eq", "ne")) for n in (16, 32, 64)),
        *((f"u{n}", (*_ORDERED, "lo", "ls", "hi", "hs")) for n in (16, 32, 64)),
        *((f"s{n}", _ORDERED) for n in (16, 32, 64)),
    ]
    floats = (*_ORDERED, *(f"{name}u" for name in _ORDERED), "num", "nan")
    for t, names in [*integers, *((f, floats) for f in _FLOATS)]:
        results = "{d}" if t in ("f16", "bf16") else "{d}|{q}"
        for name in names:
            for ftz in ("", ".ftz") if t in ("f32", "f16") else ("",):
                yield Case(f"setp.{name}{ftz}.{t} {results}, {{a}}, {{b}}", (t, t), "pred")
        for combine, negation in product(("and", "or", "xor"), ("", "!")):
            yield Case(f"setp.{names[1]}.{combine}.{t} {results}, {{a}}, {{b}}, {negation}{{c}}",
                       (t, t, "pred"), "pred")  # fmt: skip
        for result in ("u32", "s32", *(("f32",) if t not in ("f16", "bf16") else ())):
            for name in names[:4]:
                yield Case(f"set.{name}.{result}.{t} {{d}}, {{a}}, {{b}}", (t, t), result)
            yield Case(f"set.{names[1]}.xor.{result}.{t} {{d}}, {{a}}, {{b}}, !{{c}}",
                       (t, t, "pred"), result)  # fmt: skip
        yield Case(f"setp.{names[0]}.{t} {{d}}, {{a}}, {{b}}; mov.pred {{q}}, {{d}}", (t, t),
                   "pred")  # fmt: skip
    for name in floats:
        yield Case(f"set.{name}.ftz.u32.f32 {{d}}, {{a}}, {{b}}", ("f32", "f32"), "u32")
        for half in ("f16", "bf16"):
            for result in (half, "u16", "s16"):
                yield Case(f"set.{name}.{result}.{half} {{d}}, {{a}}, {{b}}", (half, half), result)
            pair = f"{half}x2"
            for result in (pair, "u32", "s32"):
                yield Case(f"set.{name}.{result}.{pair} {{d}}, {{a}}, {{b}}", (pair, pair),
                           pair if result == pair else "b32")  # fmt: skip
                yield Case(f"set.{name}.and.{result}.{pair} {{d}}, {{a}}, {{b}}, {{c}}",
                           (pair, pair, "pred"), pair if result == pair else "b32")  # fmt: skip
            yield Case(f"setp.{name}.{pair} {{d}}|{{q}}, {{a}}, {{b}}", (pair, pair), "pred",
                       refused=True)  # fmt: skip


def _selections() -> Iterator[Case]:
    for t in (*(f"{k}{n}" for k in "bus" for n in (16, 32, 64)), "f32", "f64"):
        yield Case(f"selp.{t} {{d}}, {{a}}, {{b}}, {{c}}", (t, t, "pred"), t)
        for choice in ("s32", "f32", "ftz.f32"):
            text = f"slct.{t}.s32" if choice == "s32" else f"slct.{t}.f32"
            if choice == "ftz.f32":
                text = f"slct.ftz.{t}.f32"
            yield Case(f"{text} {{d}}, {{a}}, {{b}}, {{c}}", (t, t, choice[-3:]), t, refused=True)
        if t not in ("u8", "s8"):
            yield Case(f"mov.{t} {{d}}, {{a}}", (t,), t)
    yield Case("selp.u32 {d}, 7, 9, {a}", ("pred",), "u32")
    yield Case("mov.pred {d}, {a}", ("pred",), "pred")


def _packing() -> Iterator[Case]:
    yield Case("mov.b32 {d}, {{{a}, {b}}}", ("b16", "b16"), "b32")
    yield Case("mov.b64 {d}, {{{a}, {b}}}", ("b32", "b32"), "b64")
    yield Case("mov.b64 {d}, {{{a}, {b}, {c}, {a}}}", ("b16", "b16", "b16"), "b64")
    yield Case("mov.b64 {{{d}, {e}}}, {a}", ("b64",), "b32")
    yield Case("mov.b64 {{_, {d}}}, {a}", ("b64",), "b32")
    yield Case("{{ .reg .b16 x, y; mov.b32 {{x, y}}, {a}; mov.b32 {d}, {{y, x}}; }}", ("b32",),
               "b32")  # fmt: skip
    yield Case("{{ .reg .b16 x, y, z, w; mov.b64 {{x, y, z, w}}, {a};"
               "mov.b64 {d}, {{w, x, z, y}}; }}", ("b64",), "b64")  # fmt: skip
    yield Case("cvta.global.u64 {d}, {a}; cvta.to.global.u64 {d}, {d}", ("u64",), "u64")
    for space in ("shared", "local", "const", "param"):
        yield Case(f"cvta.{space}.u64 {{d}}, {{a}}; cvta.to.{space}.u64 {{d}}, {{d}}", ("u64",),
                   "u64")  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield every case of this module."""
    yield from _logic()
    yield from _fields()
    yield from _comparisons()
    yield from _selections()
    yield from _packing()
