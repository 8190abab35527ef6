"""The parts around the simulated GPU's core: native builds, half conversions, PTX parsing."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from places import ROOT
from simt_support import Arena, execute

from kernelblaster.harness.build.native import build_native
from kernelblaster.harness.build.toolchain import find_toolchain
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.simt.ptx.parser import PtxError, parse
from kernelblaster.harness.simt.run import library
from kernelblaster.harness.simt.run.core import Launch, Memory, UnsupportedInstruction, run
from kernelblaster.harness.vetting.symbols import defined_symbols


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELBLASTER_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_native_builds_are_cached_by_content(cache: Path) -> None:
    source = cache / "answer.c"
    source.write_text('#include "answer.h"\nint answer(void) { return ANSWER; }\n')
    first = build_native("answer", [source], headers={"answer.h": "#define ANSWER 41\n"})
    assert ctypes.CDLL(str(first)).answer() == 41
    stamp = first.stat().st_mtime_ns
    assert build_native("answer", [source], headers={"answer.h": "#define ANSWER 41\n"}) == first
    assert first.stat().st_mtime_ns == stamp
    other = build_native("answer", [source], headers={"answer.h": "#define ANSWER 42\n"})
    assert other != first and ctypes.CDLL(str(other)).answer() == 42
    assert {path.name for path in other.parent.iterdir()} == {first.name, other.name}


def test_native_build_faults_are_clear(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = cache / "broken.c"
    source.write_text("int broken(void) { return }\n")
    with pytest.raises(UserError, match="error"):
        build_native("broken", [source])
    assert not list((cache / "cache" / "native").iterdir())
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(UserError, match="no-such-compiler"):
        build_native("broken", [source])
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(cache))
    with pytest.raises(UserError, match="no host C compiler"):
        build_native("broken", [source])


@pytest.mark.parametrize("flags", [(), ("-DSIMT_PORTABLE_HALF",)])
def test_half_conversions_are_exact(cache: Path, flags: tuple[str, ...]) -> None:
    """All halves to float; to half: every neighbourhood of a half and of a midpoint."""
    source = cache / "shim.c"
    source.write_text(
        '#include "numeric.h"\n'
        "void widen(const uint16_t *a, float *b, int n)"
        "{ for (int i = 0; i < n; i++) b[i] = half_to_float(a[i]); }\n"
        "void narrow(const float *a, uint16_t *b, int n)"
        "{ for (int i = 0; i < n; i++) b[i] = float_to_half(a[i]); }\n"
        "void narrow_double(const double *a, uint16_t *b, int n)"
        "{ for (int i = 0; i < n; i++) b[i] = double_to_half(a[i]); }\n"
        "void bfloat(const float *a, uint16_t *b, int n)"
        "{ for (int i = 0; i < n; i++) b[i] = float_to_bfloat(a[i]); }\n"
    )
    core = Path(library.__file__).parent.parent / "core"
    shim = ctypes.CDLL(str(build_native("shim", [source], (f"-I{core}", *flags), libraries=("m",))))

    def call(name: str, values: np.ndarray, dtype: type) -> np.ndarray:
        out = np.zeros(len(values), dtype)
        getattr(shim, name)(
            ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(out.ctypes.data), len(values)
        )
        return out

    halves = np.arange(65536, dtype=np.uint16)
    wide = halves.view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(call("widen", halves, np.float32), wide)
    finite = np.sort(wide[np.isfinite(wide)])
    middle = (finite[1:] + finite[:-1]) / 2
    near = np.concatenate([finite, middle])
    values = np.concatenate(
        [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf)),
         np.float32([65519.9, 65520, 1e9, -1e9, np.inf, -np.inf, 1e-30])]
    )  # fmt: skip
    with np.errstate(over="ignore"):
        want = values.astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(call("narrow", values, np.uint16), want)
    doubles = np.concatenate([near.astype(np.float64), near * (1 + 1e-12), near * (1 - 1e-12)])
    with np.errstate(over="ignore"):
        want = doubles.astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(call("narrow_double", doubles, np.uint16), want)
    assert call("narrow", np.float32([np.nan]), np.uint16)[0] & 0x7FFF > 0x7C00
    exact = (np.arange(65536, dtype=np.uint32)[:0x7F80] << 16).view(np.float32)
    np.testing.assert_array_equal(
        call("bfloat", exact, np.uint16), np.arange(0x7F80, dtype=np.uint16)
    )
    assert list(call("bfloat", np.float32([1.00390625, 1.01171875]), np.uint16)) == [0x3F80, 0x3F82]


PTX = """
.version 8.3
.target sm_90
.address_size 64
.global .align 4 .u32 counter = 5;
.const .align 4 .f32 table[2] = {0f3F800000, 0f40000000};
.global .align 8 .u64 pointers[2] = {counter, generic(table)};
.visible .entry k(.param .u64 .ptr .global .align 4 k_param_0, .param .align 8 .b8 k_param_1[12])
{
  .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<2>;
  .file 1 "a.cu"
  .file 2 "include/b.h"
  .loc 1 10 3
  ld.param.u64 %rd1, [k_param_0];
  .loc 2 99 1, function_name $info, inlined_at 1 11 5
  ld.param.v2.u32 {%r1, %r2}, [k_param_1];
  ld.param.u32 %r3, [k_param_1 + 8];
  .loc 2 50 1, function_name $info, inlined_at 2 99 1
  add.s32 %r1, %r1, %r2; /* a comment
  over lines */
  { .reg .b32 %r1; mov.u32 %r1, 7; add.s32 %r3, %r3, %r1; }
  .loc 2 7 1
  ld.const.f32 %r4, [table + 4];
  st.global.v2.u32 [%rd1], {%r1, %r3};
  st.global.u32 [%rd1 + 8], %r4; // the end
  ret;
}
"""


def test_parsing_and_parameters() -> None:
    module = parse(PTX)
    assert module.variables["counter"].initial == b"\5\0\0\0"
    assert module.variables["pointers"].relocations == ((0, "counter"), (8, "table"))
    assert [p.size for p in module.functions["k"].parameters] == [8, 12]
    lines = {i.text: i.line for i in module.instructions}
    assert lines["ld.param.u64 %rd1, [k_param_0]"] == 10
    assert lines["ld.param.u32 %r3, [k_param_1 + 8]"] == 11
    assert lines["add.s32 %r1, %r1, %r2"] == 11  # inlined twice over: the outermost call
    assert lines["ret"] is None  # only in a header
    structure = np.frombuffer(np.array([3, 4, 5], np.int32).tobytes(), np.dtype("V12"))[0]
    result, (got,) = execute(module, "k", 1, 1, np.zeros(3, np.int32), structure)
    assert list(got[:2]) == [7, 12] and got.view(np.float32)[2] == 2.0
    constant = next(i.index for i in module.instructions if "const" in i.modifiers)
    assert result.counters[constant]["global_requests"] == 0 and result.reports == ()


@pytest.mark.parametrize("text", [".entry k() { add.s32 %r1", "wobble", ".entry k() { [ ; }"])
def test_malformed_text(text: str) -> None:
    with pytest.raises(PtxError):
        parse(text)


@pytest.mark.parametrize(
    "instruction",
    [
        "wgmma.fence.sync.aligned;",
        "mbarrier.frobnicate.shared.b64 [%rd1], 1;",
        "barrier.cluster.arrive;",
        "mapa.shared::cluster.u32 %r1, %r2, %r3;",
        "cp.async.bulk.commit_group;",
        "tex.2d.v4.f32.s32 {%r1, %r2, %r3, %r4}, [%rd1, {%r5, %r6}];",
        "multimem.ld_reduce.global.add.u32 %r1, [%rd1];",
        "call (%r1), unknown_function, (%r2);",
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1}, {%r2}, {%r3}, {%r4};",
        "shfl.down.b32 %r1, %r2, 1, 31;",
        "add.s32 %r1, %r2;",
    ],
)
def test_what_is_not_known_is_refused(instruction: str) -> None:
    text = (
        ".target sm_90\n.visible .entry k() {\n.reg .b32 %r<8>; .reg .b64 %rd<4>;\n"
        f'.file 1 "k.cu"\n.loc 1 33 1\n{instruction}\nret;\n}}'
    )
    with pytest.raises(UnsupportedInstruction) as caught:
        execute(parse(text), "k", 1, 32)
    assert caught.value.line == 33 and caught.value.kernel == "k"
    assert instruction.split()[0].rstrip(";") in caught.value.text


def test_endless_recursion_ends_with_a_report() -> None:
    text = """.target sm_90
.func f() { call f; ret; }
.visible .entry k() { call f; ret; }"""
    result, _ = execute(parse(text), "k", 1, 32)
    assert "call stack" in result.reports[0].detail


def test_wrong_use_is_refused() -> None:
    module = parse(PTX)
    arena = Arena()
    arena.place(np.zeros(4, np.int32))
    launch = Launch(module, "k", (1, 1, 1), (1, 1, 1), 0, [b"\0" * 8], {"table": 1, "counter": 1})
    with pytest.raises(ValueError, match="takes 2 arguments"):
        run(launch, arena.memory())
    with pytest.raises(ValueError, match="block indices"):
        run(launch, arena.memory(), [1])
    with pytest.raises(ValueError, match="arena"):
        Memory(base=4096, size=128, starts=[], ends=[])


def test_marking_bytes_of_the_arena() -> None:
    arena = Arena(1024)
    memory = arena.memory()
    memory.size = 1024
    expected = np.zeros(1024, bool)
    random = np.random.default_rng(0)
    for _ in range(200):
        start, count, written = (
            random.integers(0, 900),
            random.integers(0, 40),
            random.random() < 0.6,
        )
        mark = memory.mark_initialised if written else memory.mark_uninitialised
        mark(memory.base + int(start), int(count))
        expected[start : start + count] = written
    bits = (arena.initialised[:256, None] >> np.arange(4)) & 1
    np.testing.assert_array_equal(bits.ravel().astype(bool), expected)


@pytest.mark.parametrize("more", [(), ("census_program.c",)], ids=["programs", "census"])
def test_the_runtime_of_whole_programs_builds(cache: Path, more: tuple[str, ...]) -> None:
    """The benchmarks add to the stand-in runtime: no name may be in two of its files."""
    folder, runtime = ROOT / "benchmarks" / "simulator", ROOT / "harness" / "host" / "runtime"
    path = build_native(
        "program-runtime",
        [*runtime.glob("*.c"), *(folder / part for part in ("program_runtime.c", *more))],
        ["-std=gnu11", f"-I{find_toolchain().cuda_headers()}"],
    )
    assert {"cudaLaunchKernel", "cudaMemset", "cudaEventRecord"} <= set(defined_symbols(path))
