"""The reference against others: NumPy's and the host's arithmetic, and what ptxas folds."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from differential.comparing import run_both
from differential.inputs import values
from differential.programs import WORDS, Program, differences, store_word
from numpy.typing import NDArray
from simt_support import nvcc

from kernelblaster.harness.simt.ptx.parser import parse
from reference_executor.formats import FORMATS, add, decode, divide, encode, multiply, square_root

_COUNT = 600
_DTYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def _same(ours: list[int], theirs: NDArray[np.floating]) -> None:
    mine = np.array(ours, dtype=f"u{theirs.itemsize}").view(theirs.dtype)
    both_nan = np.isnan(mine) & np.isnan(theirs)
    bits = f"u{theirs.itemsize}"
    np.testing.assert_array_equal(
        np.where(both_nan, 0, mine.view(bits)), np.where(both_nan, 0, theirs.view(bits))
    )


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_exact_arithmetic_rounds_as_numpy_does(name: str) -> None:
    form, dtype = FORMATS[name], _DTYPES[name]
    x, y = (values(name, place, _COUNT).astype(f"u{form.bits // 8}") for place in (0, 1))
    a, b = x.view(dtype), y.view(dtype)
    p, q = ([decode(form, int(v)) for v in side] for side in (x, y))
    pairs = list(zip(p, q, strict=True))
    with np.errstate(all="ignore"):
        _same([encode(form, add(m, n, "rn")) for m, n in pairs], a + b)
        _same([encode(form, multiply(m, n)) for m, n in pairs], a * b)
        _same([encode(form, divide(m, n)) for m, n in pairs], a / b)
        _same([encode(form, square_root(m)) for m in p], np.sqrt(a))


@pytest.mark.parametrize("to", ["f16", "f32"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_rounding_to_fewer_bits(to: str, mode: str) -> None:
    bits = values("f64", 0, _COUNT)
    wide = bits.view(np.float64)
    with np.errstate(all="ignore"):
        near = wide.astype(_DTYPES[to])
        below = np.where(near > wide, np.nextafter(near, _DTYPES[to](-np.inf)), near)
        above = np.where(near < wide, np.nextafter(near, _DTYPES[to](np.inf)), near)
    wanted = {"rn": near, "rm": below, "rp": above, "rz": np.where(wide > 0, below, above)}[mode]
    _same([encode(FORMATS[to], decode(FORMATS["f64"], int(v)), mode) for v in bits], wanted)


def test_fused_products_round_as_the_host_does() -> None:
    library = ctypes.CDLL("libm.so.6")
    library.fmaf.restype, library.fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
    form = FORMATS["f32"]
    x, y, z = (values("f32", place, _COUNT).astype(np.uint32) for place in (0, 1, 2))
    rows = zip(*(v.view(np.float32) for v in (x, y, z)), strict=True)
    host = [library.fmaf(*row) for row in rows]
    ours = [
        encode(form, add(multiply(decode(form, int(a)), decode(form, int(b))),
                         decode(form, int(c)), "rn"))
        for a, b, c in zip(x, y, z, strict=True)
    ]  # fmt: skip
    _same(ours, np.array(host, np.float32))


_FLOATS = "mov.f32 %f1, 0f{0:08X}; mov.f32 %f2, 0f{1:08X}; mov.f32 %f3, 0f{2:08X};"


def _single(text: str, *bits: int) -> str:
    padded = (*bits, 0, 0, 0)
    return _FLOATS.format(*padded) + text + " mov.b32 %r20, %f4;"


def _word(text: str, *numbers: int) -> str:
    return "".join(f"mov.b32 %r{10 + i}, {n};" for i, n in enumerate(numbers)) + text


_ZERO, _MINUS_ZERO, _ONE, _TINY = 0, 0x80000000, 0x3F800000, 0x33000001
_FACTS = {
    "the smaller of -0 and +0": _single("min.f32 %f4, %f1, %f2;", _MINUS_ZERO, _ZERO),
    "the smaller of +0 and -0": _single("min.f32 %f4, %f1, %f2;", _ZERO, _MINUS_ZERO),
    "the larger of +0 and -0": _single("max.f32 %f4, %f1, %f2;", _ZERO, _MINUS_ZERO),
    "the larger of -0 and +0": _single("max.f32 %f4, %f1, %f2;", _MINUS_ZERO, _ZERO),
    "subnormal operands flushed": _single("add.ftz.f32 %f4, %f1, %f2;", 0x80000001, 0x80000001),
    "subnormal results flushed": _single("mul.ftz.f32 %f4, %f1, %f2;", 0x00800000, 0x3F000000),
    "__saturatef of a negative sum": _single("add.sat.f32 %f4, %f1, %f1;", _MINUS_ZERO),
    "cvt.sat of NaN": _single("cvt.sat.f32.f32 %f4, %f1;", 0x7FC00000),
    "__float2half_rn of a tie": _single(
        "cvt.rn.f16.f32 %h1, %f1; cvt.u32.u16 %r20, %h1; mov.b32 %f4, %r20;", 0x3F801000),
    "__float2half_rn past a tie": _single(
        "cvt.rn.f16.f32 %h1, %f1; cvt.u32.u16 %r20, %h1; mov.b32 %f4, %r20;", 0x3F801001),
    "__float2half_rn at the end": _single(
        "cvt.rn.f16.f32 %h1, %f1; cvt.u32.u16 %r20, %h1; mov.b32 %f4, %r20;", 0x477FF000),
    "rounding to tf32": _single("cvt.rna.tf32.f32 %r20, %f1; mov.b32 %f4, %r20;", 0x3F801000),
    "__float2int_rn of 2.5": _single("cvt.rni.s32.f32 %r20, %f1; mov.b32 %f4, %r20;", 0x40200000),
    "__float2int_rz of 3e9": _single("cvt.rzi.s32.f32 %r20, %f1; mov.b32 %f4, %r20;", 0x4F32D05E),
    "__float2uint_rz of -1": _single("cvt.rzi.u32.f32 %r20, %f1; mov.b32 %f4, %r20;", 0xBF800000),
    "division by zero": _word("div.u32 %r20, %r10, %r11;", 5, 0),
    "a shift by more than the width": _word("shr.s32 %r20, %r10, 40;", -5),
    "a left shift by the width": _word("shl.b32 %r20, %r10, 32;", -5),
    "a field past the end": _word("bfe.s32 %r20, %r10, 28, 9;", 0x70000000),
    "a field inserted": _word("bfi.b32 %r20, %r10, %r11, 4, 8;", -1, 0x12345678),
    "the highest bit of a negative": _word("bfind.s32 %r20, %r10;", -9),
    "its distance": _word("bfind.shiftamt.u32 %r20, %r10;", 0x00800000),
    "a funnel clamped": _word("shf.r.clamp.b32 %r20, %r10, %r11, 37;", 1, 0x12345678),
    "a funnel wrapped": _word("shf.l.wrap.b32 %r20, %r10, %r11, 37;", 0x80000001, 0x12345678),
    "the upper half of a product": _word("mul.hi.s32 %r20, %r10, %r11;", -5, 1 << 30),
}  # fmt: skip


def _constant(listing: str) -> int | None:
    """Return the constant that a kernel's machine code stores first, or None."""
    store = re.search(r"STG\.E \S+\[\S+\], (R\w+)", listing)
    if store is None:
        return None
    if store[1] == "RZ":
        return 0
    writes = re.findall(rf"^\s*/\*\w+\*/\s+(\S+) {store[1]}, (.*?)\s*;", listing, re.MULTILINE)
    if len(writes) != 1:
        return None
    opcode, operands = writes[0]
    moves = opcode.startswith(("MOV", "IMAD.MOV"))
    if moves and (found := re.fullmatch(r"(?:RZ, RZ, )?(-?0x[0-9a-f]+)", operands)):
        return int(found[1], 16) & 0xFFFFFFFF
    if opcode.startswith("HFMA2") and (
        found := re.fullmatch(r"-RZ, RZ, ([-\d.e]+)\s*, ([-\d.e]+)", operands)
    ):
        low, high = np.array([float(found[2]), float(found[1])], np.float16).view(np.uint16)
        return int(low) | int(high) << 16
    return None


def _program(name: str) -> Program:
    return Program(name, _FACTS[name] + store_word("%r20"), threads=32)


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int | None]:
    """Return what ptxas makes of each fact: the constant that it stores in place of it."""
    work, tools = tmp_path_factory.mktemp("facts"), Path(nvcc()).parent
    texts = [_program(name).text for name in _FACTS]
    header, _, _ = texts[0].partition(".visible")
    kernels = [
        text.removeprefix(header).replace(".entry k(", f".entry k{i}(")
        for i, text in enumerate(texts)
    ]
    ptx, cubin = work / "facts.ptx", work / "facts.cubin"
    ptx.write_text(header + "".join(kernels))
    subprocess.run([tools / "ptxas", "-arch=sm_90", "-O3", ptx, "-o", cubin], check=True,
                   capture_output=True)  # fmt: skip
    listing = subprocess.run([tools / "nvdisasm", "-c", cubin], check=True, capture_output=True,
                             text=True).stdout  # fmt: skip
    parts = {
        part.partition(":")[0]: part for part in re.split(r"^\.text\.", listing, flags=re.MULTILINE)
    }
    return {name: _constant(parts[f"k{i}"]) for i, name in enumerate(_FACTS)}


@pytest.mark.parametrize("name", _FACTS)
def test_what_ptxas_folds(name: str, folded: dict[str, int | None]) -> None:
    """Three opinions on one computation with constants: the core, the reference and ptxas."""
    program = _program(name)
    assert differences(program) == []
    both = run_both(parse(program.text), "k", 1, 32,
                    [np.zeros(WORDS, np.uint32), np.zeros(WORDS, np.uint32)])  # fmt: skip
    constant = folded[name]
    if constant is None:
        pytest.skip("this ptxas leaves it to the machine")
    assert f"{constant:#x}" == f"{int(both.reference_arrays[1][0]):#x}"
