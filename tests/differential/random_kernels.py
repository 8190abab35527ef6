"""Random well-formed kernels, race-free by construction, as hypothesis strategies that shrink."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

REGISTERS = {"r": 6, "f": 5, "h": 3, "g": 3, "d": 3, "p": 4}
"""Registers of each kind: 32-bit integers, f32, f16, f64, 64-bit integers, predicates.

Bits never move between floating-point registers and others: the payload of a NaN is not defined.
"""
DECLARATIONS = (".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .f32 %f<8>;"
                ".reg .f64 %g<8>; .reg .b64 %d<8>;"
                ".reg .b32 %t<8>, %n<4>, %own, %i; .reg .b64 %a<4>, %in, %out; .reg .pred %q<4>;")
SLOT = 128
"""Bytes of output a thread has: see the epilogue for what lies where."""
COUNTERS = 64
"""Words behind the threads' slots that all threads add to."""

_SIGNED = ("add.s32", "sub.s32", "mul.lo.s32", "mul.hi.s32", "min.s32", "max.s32")
_INTEGER = (*_SIGNED, "mul.hi.u32", "min.u32", "max.u32", "and.b32", "or.b32", "xor.b32",
            "shl.b32", "shr.s32", "shr.u32", "mul.lo.u32")  # fmt: skip
_LONG = ("add.s64", "sub.s64", "mul.lo.s64", "mul.hi.s64", "mul.hi.u64", "min.s64", "max.u64",
         "and.b64", "or.b64", "xor.b64")  # fmt: skip
_ROUNDINGS = ("rn", "rz", "rm", "rp")
_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")


@dataclass
class Kernel:
    """A kernel's text as it grows."""

    threads: int
    lines: list[str] = field(default_factory=list)
    labels: int = 0

    def label(self) -> str:
        """Return a label that nobody has."""
        self.labels += 1
        return f"L{self.labels}"


class Writer:
    """Draws one statement after the other."""

    def __init__(self, draw: st.DrawFn, kernel: Kernel) -> None:
        self.draw, self.kernel = draw, kernel

    def one(self, choices: tuple[T, ...]) -> T:
        """Draw one of several."""
        return self.draw(st.sampled_from(choices))

    def register(self, kind: str) -> str:
        """Draw a register of a kind."""
        return f"%{kind}{self.draw(st.integers(0, REGISTERS[kind] - 1))}"

    def integer(self) -> str:
        """Draw a 32-bit integer operand."""
        if self.draw(st.integers(0, 3)):
            return self.register("r")
        return str(self.one((0, 1, -1, 2, 7, 31, 255, -2147483648, 2147483647)))

    def emit(self, text: str) -> None:
        """Append text, a predicate before it now and then."""
        guard = ""
        if self.draw(st.integers(0, 4)) == 4:
            guard = f"@{self.one(('', '!'))}{self.register('p')} "
        self.kernel.lines.append(guard + text)

    # -- arithmetic

    def integers(self) -> None:
        """Arithmetic of 32-bit integers."""
        r, x, y, z = self.register("r"), self.register("r"), self.integer(), self.integer()
        shape = self.draw(st.integers(0, 9))
        operation = self.one(_INTEGER)
        self.emit({
            0: f"mad.lo.s32 {r}, {x}, {y}, {z};", 1: f"lop3.b32 {r}, {x}, {y}, {z}, 0x6a;",
            2: f"prmt.b32 {r}, {x}, {y}, {z};", 3: f"shf.l.wrap.b32 {r}, {x}, {y}, {z};",
            4: f"bfe.s32 {r}, {x}, 3, 11;", 5: f"bfi.b32 {r}, {x}, {y}, 4, 9;",
            6: f"popc.b32 {r}, {x};", 7: f"dp4a.s32.u32 {r}, {x}, {y}, {z};",
        }.get(shape, f"{operation} {r}, {x}, {y};"))  # fmt: skip

    def longs(self) -> None:
        """Arithmetic of 64-bit integers, and between both widths."""
        d, x, y = self.register("d"), self.register("d"), self.register("d")
        shape = self.draw(st.integers(0, 5))
        operation = self.one(_LONG)
        self.emit({
            0: f"mul.wide.s32 {d}, {self.register('r')}, {self.integer()};",
            1: f"mad.wide.u32 {d}, {self.register('r')}, {self.register('r')}, {x};",
            2: f"cvt.u32.u64 {self.register('r')}, {x};", 3: f"cvt.s64.s32 {d}, "
            f"{self.register('r')};", 4: f"shr.s64 {d}, {x}, {self.register('r')};",
        }.get(shape, f"{operation} {d}, {x}, {y};"))  # fmt: skip

    def singles(self) -> None:
        """Arithmetic of f32."""
        f, x, y, z = (self.register("f") for _ in range(4))
        mode, ftz, sat = self.one(_ROUNDINGS), self.one(("", ".ftz")), self.one(("", "", ".sat"))
        operation = self.one(("add", "sub", "mul"))
        self.emit({
            0: f"fma.{mode}{ftz}{sat}.f32 {f}, {x}, {y}, {z};",
            1: f"div.rn{ftz}.f32 {f}, {x}, {y};", 2: f"sqrt.rn{ftz}.f32 {f}, {x};",
            3: f"{self.one(('min', 'max'))}{ftz}.f32 {f}, {x}, {y};",
            4: f"{self.one(('neg', 'abs'))}{ftz}.f32 {f}, {x};",
            5: f"selp.f32 {f}, {x}, {y}, {self.register('p')};",
        }.get(self.draw(st.integers(0, 9)), f"{operation}.{mode}{ftz}{sat}.f32 {f}, {x}, {y};"))

    def halves_and_doubles(self) -> None:
        """Arithmetic of f16 and f64."""
        kind, name = self.one((("h", "f16"), ("g", "f64")))
        d, x, y, z = (self.register(kind) for _ in range(4))
        operation = self.one(("add", "sub", "mul", "min", "max"))
        self.emit({
            0: f"fma.rn.{name} {d}, {x}, {y}, {z};", 1: f"neg.{name} {d}, {x};",
        }.get(self.draw(st.integers(0, 4)), f"{operation}.{name} {d}, {x}, {y};"))  # fmt: skip

    def conversions(self) -> None:
        """Conversions between the kinds."""
        r, f, h, g, d = (self.register(kind) for kind in "rfhgd")
        mode, whole = self.one(_ROUNDINGS), self.one(("rni", "rzi", "rmi", "rpi"))
        kind = self.one(("s32", "u32"))
        self.emit(self.one((
            f"cvt.{mode}.f32.{kind} {f}, {r};", f"cvt.{whole}.{kind}.f32 {r}, {f};",
            f"cvt.{mode}.f16.f32 {h}, {f};", f"cvt.f32.f16 {f}, {h};",
            f"cvt.{mode}.f32.f64 {f}, {g};", f"cvt.f64.f32 {g}, {f};",
            f"cvt.{whole}.s64.f64 {d}, {g};", f"cvt.{mode}.f64.s64 {g}, {d};",
            f"cvt.{whole}.f32.f32 {f}, {f};", f"cvt.sat.f32.f32 {f}, {f};",
            f"cvt.sat.s8.s32 {r}, {r};", f"cvt.{mode}.f16.{kind} {h}, {r};",
        )))  # fmt: skip

    def predicates(self) -> None:
        """Comparisons and logic of predicates."""
        p, q, c = (self.register("p") for _ in range(3))
        name = self.one(_COMPARE)
        other = q if q != p else "%q3"
        self.emit(self.one((
            f"setp.{name}.s32 {p}, {self.register('r')}, {self.integer()};",
            f"setp.{name}.and.s32 {p}|{other}, {self.register('r')}, {self.integer()}, !{c};",
            f"setp.{name}u.f32 {p}, {self.register('f')}, {self.register('f')};",
            f"setp.{name}.ftz.f32 {p}, {self.register('f')}, {self.register('f')};",
            f"setp.{name}.f64 {p}, {self.register('g')}, {self.register('g')};",
            f"setp.{name}.u64 {p}, {self.register('d')}, {self.register('d')};",
            f"{self.one(('and', 'or', 'xor'))}.pred {p}, {q}, {c};", f"not.pred {p}, {q};",
            f"selp.b32 {self.register('r')}, {self.integer()}, {self.integer()}, {c};",
        )))  # fmt: skip

    # -- memory that only one thread sees, or that nobody writes

    def private(self) -> None:
        """Local memory, loads of the input, and counters that commute."""
        r, x = self.register("r"), self.register("r")
        own = f"and.b32 %t0, {x}, 7; mov.u64 %a0, own; mad.wide.u32 %a0, %t0, 4, %a0;"
        spot = f"and.b32 %t0, {x}, 255; mad.wide.u32 %a0, %t0, 4, %in;"
        narrow = f"and.b32 %t0, {x}, 1023; cvt.u64.u32 %a0, %t0; add.u64 %a0, %a0, %in;"
        wide = f"and.b32 %t0, {x}, 63; mad.wide.u32 %a0, %t0, 16, %in;"
        count = f"and.b32 %t0, {x}, 31; mad.wide.u32 %a0, %t0, 4, %out;"
        before, text = self.one((
            (own, f"st.local.u32 [%a0], {r};"), (own, f"ld.local.u32 {r}, [%a0];"),
            (own, f"st.local.u16 [%a0], {r};"),
            (spot, f"ld.global.u32 {r}, [%a0];"), (spot, f"ld.global.nc.u16 {r}, [%a0+2];"),
            (narrow, f"ld.global.s8 {r}, [%a0];"),
            (wide, "ld.global.v4.u32 {%r0, _, %r2, %r4}, [%a0];"),
            (wide, "ld.global.v2.u64 {%d0, %d1}, [%a0];"),
            (count, f"red.global.add.u32 [%a0], {r};"),
            (count, f"red.global.max.s32 [%a0+128], {r};"),
        ))  # fmt: skip
        self.kernel.lines.append(before)
        self.emit(text)

    # -- lanes together

    def votes(self) -> None:
        """Votes, matches and reductions among the lanes that are here."""
        r, p, x = self.register("r"), self.register("p"), self.register("r")
        self.kernel.lines.append("activemask.b32 %t1;" + self.one((
            f"vote.sync.ballot.b32 {r}, {p}, %t1;", f"vote.sync.any.pred {p}, {p}, %t1;",
            f"vote.sync.all.pred {p}, !{p}, %t1;", f"match.any.sync.b32 {r}, {x}, %t1;",
            f"match.all.sync.b32 {r}|{p}, {x}, %t1;", f"redux.sync.add.s32 {r}, {x}, %t1;",
            f"redux.sync.min.u32 {r}, {x}, %t1;", f"redux.sync.xor.b32 {r}, {x}, %t1;",
        )))  # fmt: skip

    def shuffles(self) -> None:
        """Shuffles of whole warps."""
        mode, kind = self.one(("up", "down", "bfly", "idx")), self.one(("r", "f"))
        width, amount = self.one((32, 16, 8)), self.one(("1", "2", "5", self.register("r")))
        clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
        self.kernel.lines.append(
            f"shfl.sync.{mode}.b32 {self.register(kind)}|{self.register('p')},"
            f"{self.register(kind)}, {amount}, {clamp}, -1;"
        )

    def exchanges(self) -> None:
        """Hand a value to another thread through shared memory, a barrier on either side."""
        kind, size = self.one((("r", 4), ("f", 4), ("d", 8), ("g", 8), ("h", 2)))
        step, spread = self.draw(st.integers(0, 95)), self.one((1, 1, 2, 5))
        bits, threads = 8 * size, self.kernel.threads
        self.kernel.lines.append(
            f"mov.u32 %t2, tile; mad.lo.u32 %t3, %own, {size * spread}, %t2;"
            f"st.shared.b{bits} [%t3], {self.register(kind)}; bar.sync 0;"
            f"add.u32 %t4, %own, {step}; rem.u32 %t4, %t4, {threads};"
            f"mad.lo.u32 %t3, %t4, {size * spread}, %t2;"
            f"ld.shared.b{bits} {self.register(kind)}, [%t3]; bar.sync 0;"
        )

    def reductions(self) -> None:
        """Count through the barrier, or by shared atomics between barriers."""
        r, p, x = self.register("r"), self.register("p"), self.register("r")
        shared = (f"setp.lt.u32 %q0, %own, 8; mov.u32 %t2, tile; mad.lo.u32 %t3, %own, 4, %t2;"
                  f"@%q0 st.shared.u32 [%t3], %own; bar.sync 0; and.b32 %t4, {x}, 7;"
                  f"mad.lo.u32 %t4, %t4, 4, %t2; red.shared.add.u32 [%t4], {x}; bar.sync 0;"
                  f"and.b32 %t4, %own, 7; mad.lo.u32 %t4, %t4, 4, %t2;"
                  f"ld.shared.u32 {r}, [%t4]; bar.sync 0;")  # fmt: skip
        self.kernel.lines.append(self.one((
            f"bar.red.popc.u32 {r}, 0, {p};", f"bar.red.or.pred {p}, 0, !{p};",
            f"bar.red.and.pred {p}, 0, {p};", shared,
        )))  # fmt: skip

    # -- control

    def branch(self, depth: int) -> None:
        """Let some lanes take one way and some the other."""
        other, end = self.kernel.label(), self.kernel.label()
        guard = f"@{self.one(('', '!'))}{self.register('p')}"
        self.kernel.lines.append(f"{guard} bra {other};")
        self.block(depth + 1, 4)
        if self.draw(st.booleans()):
            self.kernel.lines.append(f"bra.uni {end}; {other}:")
            self.block(depth + 1, 4)
            self.kernel.lines.append(f"{end}:")
        else:
            self.kernel.lines.append(f"{other}:")

    def loop(self, depth: int) -> None:
        """Go round a number of times that differs from lane to lane, at most seven."""
        start, counter = self.kernel.label(), f"%n{depth}"
        self.kernel.lines.append(f"and.b32 {counter}, {self.register('r')}, 7; {start}:")
        self.block(depth + 1, 4)
        self.kernel.lines.append(
            f"sub.s32 {counter}, {counter}, 1; setp.gt.s32 %q{depth}, {counter}, 0;"
            f"@%q{depth} bra {start};"
        )

    def block(self, depth: int, longest: int) -> None:
        """Write a few statements; those that need every thread only at the outermost level."""
        alone = (self.integers, self.longs, self.singles, self.halves_and_doubles,
                 self.conversions, self.predicates, self.private, self.votes)  # fmt: skip
        together = (self.exchanges, self.exchanges, self.reductions)
        if self.kernel.threads % 32 == 0:
            together = (*together, self.shuffles, self.shuffles)
        for _ in range(self.draw(st.integers(1, longest))):
            kind = self.draw(st.integers(0, 13))
            if kind <= 8:
                self.one(alone)()
            elif kind <= 10 and depth < 3:
                self.branch(depth)
            elif kind == 11 and depth < 2:
                self.loop(depth)
            elif depth == 0:
                self.one(together)()
            else:
                self.integers()


_LOAD = (
    "mad.wide.u32 %a0, %i, 32, %in; ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%a0+1024];"
    "ld.global.v2.u32 {%r4, %r5}, [%a0+1040]; ld.global.v2.u64 {%d0, %d1}, [%a0+2048];"
    "mov.b64 %d2, -7; mad.wide.u32 %a1, %i, 4, %in; mov.f32 %f3, 0f3F800000;"
    "ld.global.f32 %f0, [%a1+16384]; ld.global.f32 %f1, [%a1+17408]; "
    "ld.global.f32 %f2, [%a1+18432];"
    "mov.f32 %f4, 0f00000001; cvt.rn.f16.f32 %h0, %f0; cvt.rz.f16.f32 %h1, %f1;"
    "cvt.rn.f16.s32 %h2, %r1; cvt.f64.f32 %g0, %f1; cvt.rn.f64.s64 %g1, %d0;"
    "mov.f64 %g2, 0d3FF8000000000000; setp.lt.s32 %p0, %r0, 0; setp.gt.u32 %p1, %r1, %r2;"
    "and.b32 %t0, %own, 1; setp.eq.u32 %p2, %t0, 0; setp.lt.u32 %p3, %own, 20;"
)
_CLEAR = "".join(f"st.local.u32 [own+{4 * i}], %r{i % 4};" for i in range(8))
_KEEP = (
    f"mad.wide.u32 %a0, %i, {SLOT}, %out; add.u64 %a0, %a0, {4 * COUNTERS};"
    + "".join(f"st.global.b32 [%a0+{4 * i}], %r{i};" for i in range(6))
    + "".join(f"selp.u32 %t0, 1, 0, %p{i}; st.global.u8 [%a0+{24 + i}], %t0;" for i in range(4))
    + "".join(f"st.global.f32 [%a0+{32 + 4 * i}], %f{i};" for i in range(5))
    + "".join(f"st.global.b16 [%a0+{52 + 2 * i}], %h{i};" for i in range(3))
    + "".join(f"st.global.f64 [%a0+{64 + 8 * i}], %g{i};" for i in range(3))
    + "".join(f"st.global.b64 [%a0+{88 + 8 * i}], %d{i};" for i in range(3))
)


@st.composite
def kernels(draw: st.DrawFn) -> tuple[str, int]:
    """Draw a module's text and the threads of a block for which it was written."""
    kernel = Kernel(draw(st.sampled_from((32, 64, 96, 20, 75))))
    Writer(draw, kernel).block(0, 14)
    body = "\n".join(kernel.lines)
    text = (
        ".version 8.3\n.target sm_90\n.address_size 64\n"
        ".visible .entry k(.param .u64 p0, .param .u64 p1) {\n"
        f"{DECLARATIONS}\n.shared .align 16 .b8 tile[4096]; .local .align 16 .b8 own[32];\n"
        "ld.param.u64 %in, [p0]; ld.param.u64 %out, [p1]; mov.u32 %own, %tid.x;\n"
        f"mov.u32 %i, %ctaid.x; mad.lo.u32 %i, %i, {kernel.threads}, %own;\n{_LOAD}\n{_CLEAR}\n"
        f"{body}\n{_KEEP}\nret;\n}}\n"
    )
    return text, kernel.threads
