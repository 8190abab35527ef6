"""Nsight Compute: real reports become profiles; whatever goes wrong becomes a typed result."""

from __future__ import annotations

import csv
import io
import json
import math
import stat
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from places import DATA

from kernelblaster.harness.nsight.bottleneck import bottleneck_of, stalls, utilisation
from kernelblaster.harness.nsight.command import (
    BASIC,
    COUNTED,
    DEFAULT,
    DEFAULT_METRICS,
    FULL,
    Collection,
    affordable,
    import_command,
    profile_command,
)
from kernelblaster.harness.nsight.ncu import (
    explain_failure,
    find_ncu,
    profile_program,
    python_modules,
    read_report,
)
from kernelblaster.harness.nsight.pages import base_factor, is_kept, kernel_name, number
from kernelblaster.harness.nsight.profile import NcuResult, profile_from_pages
from kernelblaster.harness.process.children import Turn, scrubbed_environment
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.profiles import LaunchProfile, Profile
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.memory.knowledge.states.dimensions import DIMENSIONS
from kernelblaster.memory.knowledge.states.distances import distance
from kernelblaster.memory.knowledge.states.signature import explain, signature_of

NCU = DATA / "ncu"
ELAPSED = "avg.pct_of_peak_sustained_elapsed"
NAMES = (
    "vadd", "vadd_32_threads", "vadd_strided", "vadd_float4", "gelu", "softmax_thread",
    "softmax_block", "softmax_warp", "reduce_atomic", "reduce_shared", "reduce_shfl4",
    "transpose", "transpose_conflict", "transpose_padded", "mm_uncoalesced", "mm_naive",
    "mm_tiled16", "mm_tiled32", "mm_regtile", "mm_wmma", "divergent", "uniform_loop", "ilp1",
    "ilp4", "layernorm",
)  # fmt: skip
BOTTLENECKS = {
    "vadd": "dram", "vadd_32_threads": "launch", "vadd_strided": "l2", "vadd_float4": "dram",
    "gelu": "dram", "softmax_thread": "lsu", "softmax_block": "compute", "softmax_warp": "dram",
    "reduce_atomic": "atomic", "reduce_shared": "dram", "reduce_shfl4": "dram",
    "transpose": "l2", "transpose_conflict": "shared_memory", "transpose_padded": "latency",
    "mm_uncoalesced": "lsu", "mm_naive": "lsu", "mm_tiled16": "shared_memory",
    "mm_tiled32": "shared_memory", "mm_regtile": "shared_memory", "mm_wmma": "lsu",
    "divergent": "compute", "uniform_loop": "compute", "ilp1": "latency", "ilp4": "latency",
    "layernorm": "shared_memory",
}  # fmt: skip


def page(collection: str, name: str) -> str:
    return (NCU / f"ncu_{collection}_{name}.csv").read_text()


def report(collection: str = "full") -> NcuResult:
    return profile_from_pages(page(collection, "raw"), page(collection, "details"))


def launches(collection: str = "full") -> dict[str, LaunchProfile]:
    profile = report(collection).profile
    assert profile is not None
    return dict(zip(NAMES, profile.launches, strict=True))


def alone(launch: LaunchProfile) -> Profile:
    return Profile(launches=(launch,), gpu="H200", provenance=Provenance.NCU)


# The raw page


def test_launches_come_in_order_with_ncus_numbers_in_base_units() -> None:
    found = launches()
    assert [each.kernel for each in list(found.values())[:3]] == ["vadd_naive"] * 2 + [
        "vadd_strided"
    ]
    assert found["mm_tiled32"].kernel == "mm_tiled<32>"
    first = found["vadd"]
    assert first.microseconds == pytest.approx(58.08)
    assert (first.grid, first.block) == ((65536, 1, 1), (256, 1, 1))
    assert found["mm_tiled32"].block == (32, 32, 1)
    assert first.metrics["gpu__time_duration.sum"] == pytest.approx(58080)  # from ms
    assert first.metrics["dram__bytes_read.sum"] == pytest.approx(134.227e6)  # from Gbyte
    assert first.metrics["dram__bytes_write.sum"] == pytest.approx(54.731264e6)  # from Mbyte
    assert first.metrics["dram__bytes.sum.per_second"] == pytest.approx(3.253421e12)  # Tbyte/s
    assert first.metrics["gpc__cycles_elapsed.avg.per_second"] == pytest.approx(1.964831e9)
    assert first.metrics["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 1048576
    assert first.metrics["launch__grid_size"] == 65536
    assert first.metrics["launch__registers_per_thread"] == 16
    assert first.metrics[f"lts__throughput.{ELAPSED}"] == pytest.approx(81.789098)
    profile = report().profile
    assert profile is not None and profile.gpu == "H200" and profile.provenance == Provenance.NCU
    assert profile.dominant.kernel == "reduce_atomic"


@pytest.mark.parametrize("collection", ["basic", "detailed", "full"])
def test_every_number_is_the_one_in_the_page(collection: str) -> None:
    rows = list(csv.reader(io.StringIO(page(collection, "raw"))))
    factors = {
        "%": 1.0, "": 1.0, "sector": 1.0, "ms": 1e6, "us": 1e3, "Mbyte": 1e6, "Gbyte": 1e9,
        "Kbyte/block": 1e3, "byte/block": 1.0, "Ghz": 1e9, "Tbyte/s": 1e12, "cycle": 1.0,
    }  # fmt: skip
    compared = 0
    for row, launch in zip(rows[2:], launches(collection).values(), strict=True):
        for name, unit, cell in zip(rows[0], rows[1], row, strict=True):
            if name in launch.metrics and unit in factors:
                expected = float(cell.replace(",", "")) * factors[unit]
                assert launch.metrics[name] == pytest.approx(expected), name
                compared += 1
    assert compared > 25 * 25


def test_dynamic_shared_memory_and_cycles_of_the_program() -> None:
    profile = report().profile
    assert profile is not None
    shared = {name: launch.dynamic_shared_bytes for name, launch in launches().items()}
    assert shared == dict.fromkeys(NAMES, 0) | {"softmax_block": 1024}  # from 1.024 Kbyte
    assert profile.elapsed_cycles == pytest.approx(115297087, rel=1e-6)
    without = profile.launches[0].model_copy(update={"metrics": {}})
    assert alone(without).elapsed_cycles is None


@pytest.mark.parametrize(
    ("unit", "factor"),
    [
        ("ns", 1), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("nsecond", 1), ("msecond", 1e6),
        ("byte", 1), ("Kbyte", 1e3), ("Mbyte", 1e6), ("Gbyte", 1e9), ("Tbyte", 1e12),
        ("hz", 1), ("Ghz", 1e9), ("Mhz", 1e6), ("cycle/nsecond", 1e9), ("sector/ns", 1e9),
        ("sector/us", 1e6), ("Gbyte/s", 1e9), ("byte/second", 1), ("Kbyte/block", 1e3),
        ("%/Kbyte", 1e-3), ("%", 1), ("inst", 1), ("SM", 1), ("register/thread", 1), ("", 1),
    ],
)  # fmt: skip
def test_units(unit: str, factor: float) -> None:
    assert base_factor(unit) == pytest.approx(factor)


def test_cells_and_names() -> None:
    assert number("114,565") == 114565 and number(" 0.06 ") == 0.06 and number("1.5e3") == 1500
    assert [number(text) for text in ("n/a", "", "nan", "inf", "no data", "PolicySpread")] == [
        None
    ] * 6
    assert is_kept("gpu__time_duration.sum") and is_kept("gpc__cycles_elapsed.max")
    dropped = (
        "device__attribute_clock_rate", "profiler__replayer_passes", "gpc__cycles_elapsed.min",
        "sm__warps_active.max.per_cycle_active", "SM_A.TriageCompute.x.avg", "Kernel Name",
        "dram__bytes.sum.peak_sustained",
    )  # fmt: skip
    assert not any(map(is_kept, dropped))
    for demangled, name in {
        "vadd(const float *, int)": "vadd",
        "void mm_tiled<32>(const float *, float *)": "mm_tiled<32>",
        "void f<(int)4, (bool)1>(float *)": "f<(int)4, (bool)1>",
        "void ns::(anonymous namespace)::k<int>(int *)": "ns::(anonymous namespace)::k<int>",
        "void <unnamed>::k<(int)2>(int *)": "(anonymous namespace)::k<(int)2>",
        "_GLOBAL__N__181505c0_12_candidate_cu_57f012b4::k(int)": "(anonymous namespace)::k",
        "plain": "plain",
        "void at::native::vectorized_elementwise_kernel<4, at::f<float (float)>>(int)":
            "at::native::vectorized_elementwise_kernel<4, at::f<float (float)>>",
    }.items():  # fmt: skip
        assert kernel_name(demangled) == name


# Bottlenecks and signatures


@pytest.mark.parametrize("name", NAMES)
def test_bottleneck_of_a_kernel_of_known_character(name: str) -> None:
    assert launches()[name].bottleneck == BOTTLENECKS[name]


def test_ties_name_what_is_within_15_percent() -> None:
    found = launches()
    assert found["vadd"].bottleneck_ties == ("l2",)  # one path: the L2 passes DRAM's data on
    assert found["vadd_strided"].bottleneck_ties == ("latency",)  # L2 at 57 %
    assert found["layernorm"].bottleneck_ties == ("compute",)  # 66 % and 58 %
    assert found["reduce_shared"].bottleneck_ties == ("latency", "l2")
    assert found["mm_naive"].bottleneck_ties == () == found["divergent"].bottleneck_ties


def test_the_sets_agree_on_what_each_of_them_sees() -> None:
    full, detailed, basic = launches(), launches("detailed"), launches("basic")
    assert {name: each.bottleneck for name, each in detailed.items()} == BOTTLENECKS
    for name, launch in basic.items():
        # `basic` does not tell shared memory from the rest of the LSU, and counts no atomics.
        same = launch.bottleneck == full[name].bottleneck
        unseen = full[name].bottleneck in ("shared_memory", "atomic")
        assert same or unseen, name
        assert launch.microseconds == pytest.approx(full[name].microseconds, rel=0.05)


def test_few_blocks_are_judged_by_the_sms_that_work() -> None:
    metrics = launches()["softmax_thread"].metrics
    assert metrics["launch__grid_size"] == 64
    assert metrics[f"l1tex__data_pipe_lsu_wavefronts.{ELAPSED}"] < 40
    assert utilisation(metrics)["lsu"] == pytest.approx(38.0 * 132 / 64, rel=0.01)


def test_a_tensor_kernel_and_no_metrics_at_all() -> None:
    busy = {f"sm__pipe_tensor_cycles_active.{ELAPSED}": 85.0, f"sm__inst_executed.{ELAPSED}": 75.0}
    assert bottleneck_of(busy) == ("tensor", ("compute",))
    assert bottleneck_of({}) == ("latency", ())


def test_stalls_from_counters_and_from_samples_agree() -> None:
    for name, launch in launches().items():
        counted = stalls(launch.metrics)
        sampled = stalls(
            {key: value for key, value in launch.metrics.items() if "pcsamp" in key}
        )
        assert sum(counted.values()) == pytest.approx(1.0) == sum(sampled.values())
        longest = max(counted, key=lambda reason: counted[reason])
        assert sampled[longest] > max(sampled.values()) - 0.1, name


def test_signatures_tell_the_kernels_apart_by_their_symptoms() -> None:
    found = {name: signature_of(alone(launch)) for name, launch in launches().items()}
    said = {name: " ".join(explain(signature)) for name, signature in found.items()}
    assert "88% of the sectors are wasted" in said["vadd_strided"]
    assert "94% of the shared wavefronts are conflicts" in said["transpose_conflict"]
    assert "89% of the global traffic is atomics" in said["reduce_atomic"]
    assert "47% of the lanes idle" in said["divergent"]
    assert "the blocks it could hold at once are lacking by 94%" in said["ilp1"]
    assert "block slots limit occupancy" in said["vadd_32_threads"]

    def apart(first: str, second: str) -> float:
        return distance(found[first].values, found[second].values)

    assert apart("transpose_conflict", "transpose_padded") > 3 * apart("mm_tiled16", "mm_tiled32")
    assert apart("vadd", "vadd_strided") > 3 * apart("divergent", "divergent") + 0.2
    assert apart("vadd", "gelu") < apart("vadd", "mm_naive")
    values = [signature.values for signature in found.values()]
    assert len(set(values)) == len(values)


def test_a_signature_is_as_good_from_the_default_collection_as_from_the_full_set() -> None:
    """The default's sections hold at least what `basic` has of them, and the listed metrics."""
    everything, basic = launches(), launches("basic")
    for name, launch in everything.items():
        collected = {
            key: value
            for key, value in launch.metrics.items()
            if key in DEFAULT_METRICS or key in basic[name].metrics or "pcsamp" in key
        }
        assert 50 < len(collected) < len(launch.metrics)
        assert bottleneck_of(collected) == (launch.bottleneck, launch.bottleneck_ties), name
        small = signature_of(alone(launch.model_copy(update={"metrics": collected})))
        whole = signature_of(alone(launch))
        for dimension, one, other in zip(DIMENSIONS, small.values, whole.values, strict=True):
            # Stalls are counted in the one and sampled in the other.
            apart = 0.15 if dimension.name.startswith("stall_") else 0.01
            assert one == pytest.approx(other, abs=apart), (name, dimension.name)


def test_the_default_metrics_exist() -> None:
    known = set(next(csv.reader(io.StringIO(page("full", "raw")))))
    assert set(DEFAULT_METRICS) <= known and len(set(DEFAULT_METRICS)) == len(DEFAULT_METRICS)


# Rules


def test_rules_carry_their_estimates() -> None:
    result = report()
    rules = {(rule.launch, rule.name): rule for rule in result.rules}
    uncoalesced = rules[14, "UncoalescedGlobalAccess"]
    assert uncoalesced.speedup_percent == 58.83 and uncoalesced.scope == "kernel"
    assert uncoalesced.section == "SourceCounters" and uncoalesced.kind == "optimization"
    assert "3222798336 excessive sectors (71% of" in uncoalesced.message
    assert "http" not in uncoalesced.message
    assert rules[0, "HighPipeUtilization"].scope == "unit"
    assert rules[0, "SOLBottleneck"].speedup_percent is None
    assert rules[14, "SOLBottleneck"].kind == "information"
    assert {rule.launch for rule in result.rules} == {0, 8, 12, 14, 20}


def test_advice_begins_with_the_stalls_then_the_largest_gain() -> None:
    advice = launches()["mm_uncoalesced"].advice
    assert advice[0] == "Warps that cannot issue wait for: lg_throttle 85%, long_scoreboard 13%."
    assert advice[1].startswith(
        "MemoryCacheAccessPattern (estimated gain 85.9 % of the kernel's time): On average, only "
        "4.2 of the 32 bytes"
    )
    named = [sentence.split(" ")[0] for sentence in advice]
    assert named.index("UncoalescedGlobalAccess") < named.index("HighPipeUtilization")
    divergent = launches()["divergent"].advice
    told = next(sentence for sentence in divergent if sentence.startswith("ThreadDivergence"))
    assert "groups of 32 threads" not in told and "threads being active per cycle" in told
    assert not any("Compression" in sentence for sentence in advice)
    conflicts = " ".join(launches()["transpose_conflict"].advice)
    assert "bank conflict" in conflicts


# Source lines

SOURCE_PAGE = """\
==PROF== Disconnected
"File Path","/work/candidate.cu"
"Function Name","vadd_naive"
"Line No","Source","Address","Source","# Samples","Instructions Executed","L1 Wavefronts Shared",\
"L2 Theoretical Sectors Global"
"7","int i = blockIdx.x * blockDim.x;","-","-","3","1,048,576","0","0"
"","","0x10","IMAD R0, R0","3","1,048,576","0","0"
"9","c[i] = a[i] + b[i];","-","-","90","2,621,440","0","6,291,456"
"11","}","-","-","0","0","0","0"
"broken
"File Path","/usr/include/helper.h"
"Function Name","vadd_naive"
"Line No","Source","Address","Source","# Samples","Instructions Executed","L1 Wavefronts Shared",\
"L2 Theoretical Sectors Global"
"100","return a;","-","-","1","99","0","0"
"""


def test_hot_lines_of_the_source_page() -> None:
    text = SOURCE_PAGE.replace('"broken\n', "")
    second = text.replace("2,621,440", "5,000,000")
    result = profile_from_pages(
        page("full", "raw"), "", text + second + "rubbish,,\n", source="candidate.cu"
    )
    assert result.profile is not None
    first, again, third = result.profile.launches[:3]
    assert [(line.line, line.instructions, line.sectors) for line in first.lines] == [
        (9, 2621440, 6291456),
        (7, 1048576, 0),
    ]
    assert again.lines[0].instructions == 5000000  # the second launch of the same kernel
    assert third.lines == ()
    anywhere = profile_from_pages(page("full", "raw"), "", text)
    assert anywhere.profile is not None
    assert [line.line for line in anywhere.profile.launches[0].lines] == [9, 7, 100]


def test_lines_of_kernels_in_an_unnamed_namespace_are_each_its_own() -> None:
    raw = page("full", "raw")
    for kernel in ("vadd_naive", "vadd_strided"):
        raw = raw.replace(f'"{kernel}', f'"void (anonymous namespace)::{kernel}')
    text = SOURCE_PAGE.replace('"broken\n', "")
    text = text.replace('"vadd_naive"', '"(anonymous namespace)::vadd_strided"')
    result = profile_from_pages(raw, "", text, source="candidate.cu")
    assert result.profile is not None
    lines = {each.kernel.rpartition("::")[2].split("(")[0]: each.lines
             for each in reversed(result.profile.launches)}  # fmt: skip
    assert [line.line for line in lines["vadd_strided"]] == [9, 7]
    assert lines["vadd_naive"] == ()


def test_an_unreadable_source_page_costs_only_the_lines() -> None:
    for text in (SOURCE_PAGE, "no table", '"Line No"\n"x"\n', "\0\0", '"Line No","Source"\n"1","a'):
        result = profile_from_pages(page("full", "raw"), "", text)
        assert result.profile is not None and len(result.profile.launches) == 25


# Malformed pages


@pytest.mark.parametrize("text", ["", "==PROF== Disconnected\n", "a,b\n1,2\n", "\0", '"ID","x"\n'])
def test_pages_without_launches_are_no_profile(text: str) -> None:
    result = profile_from_pages(text)
    assert result.outcome is Outcome.PROFILER_UNAVAILABLE and result.profile is None
    assert "cannot be read" in result.reason and "\n" not in result.reason + result.remedy
    (diagnostic,) = result.diagnostics
    assert diagnostic.kind == "profiler_unavailable" and result.remedy in diagnostic.message


def test_a_header_without_launches_is_no_profile() -> None:
    header, units = page("full", "raw").splitlines()[:2]
    assert profile_from_pages(f"{header}\n{units}\n").reason.endswith("has no launch")


def test_a_page_that_breaks_off_or_lacks_a_time_is_no_profile() -> None:
    text = page("full", "raw")
    lines = text.splitlines()
    for cut in (text[:-900], text[: len(text) // 2], "\n".join([*lines[:4], lines[4][:300]])):
        result = profile_from_pages(cut)
        assert result.outcome is Outcome.PROFILER_UNAVAILABLE
        assert "breaks off after" in result.reason
    everything_but_the_time = page("full", "raw").replace("gpu__time_duration.sum", "gpu__x.sum")
    result = profile_from_pages(everything_but_the_time)
    assert result.reason == "ncu reports no duration for launch 0 (vadd_naive)"


def test_partial_pages_give_what_they_have() -> None:
    warned = "==WARNING== something\n" + page("full", "raw")
    result = profile_from_pages(warned, page("full", "details")[:4000] + '"0","unfinished')
    assert result.profile is not None and len(result.profile.launches) == 25
    assert 0 < len(result.rules) < 30
    text = page("full", "raw").splitlines()
    row = list(csv.reader([text[2]]))[0]
    row[list(csv.reader([text[0]]))[0].index("dram__bytes_read.sum")] = "n/a"
    out = io.StringIO()
    csv.writer(out).writerow(row)
    skipped = profile_from_pages("\n".join([*text[:2], out.getvalue()]))
    assert skipped.profile is not None
    metrics = skipped.profile.launches[0].metrics
    assert "dram__bytes_read.sum" not in metrics and "dram__bytes_write.sum" in metrics
    assert all(math.isfinite(value) for value in metrics.values())


def test_a_result_is_a_profile_or_a_reason() -> None:
    with pytest.raises(ValueError):
        NcuResult(outcome=Outcome.PASSED)
    with pytest.raises(ValueError):
        NcuResult(outcome=Outcome.PROFILER_UNAVAILABLE, reason="no")
    assert report().diagnostics == ()


# Commands


def test_the_command_is_a_function_of_its_arguments() -> None:
    command = profile_command("ncu", ["./a.out", "-k"], Path("r.ncu-rep"))
    joined = " ".join(command)
    assert command[0] == "ncu" and command[-2:] == ["./a.out", "-k"]
    assert "--clock-control none" in joined and "--export r.ncu-rep --force-overwrite" in joined
    assert all(f"--section {section}" in joined for section in DEFAULT.sections)
    assert command[command.index("--metrics") + 1].split(",") == list(DEFAULT_METRICS)
    assert "--set" not in command and "--kernel-name" not in command
    filtered = profile_command(
        "ncu", ["a"], Path("r"), collection=BASIC, kernels="mm_.*", launch_skip=2, launch_count=3,
        from_start=False, nvtx_include="timed/", cache_control="none", import_source=False,
    )  # fmt: skip
    joined = " ".join(filtered)
    for part in (
        "--set basic", "--kernel-name regex:mm_.*", "--launch-skip 2", "--launch-count 3",
        "--profile-from-start off", "--nvtx --nvtx-include timed/", "--cache-control none",
        "--import-source no",
    ):  # fmt: skip
        assert part in joined
    assert "--metrics" not in joined and "--section" not in joined
    assert import_command("ncu", Path("r"), "raw")[-2:] == ["--print-units", "base"]
    assert "cuda,sass" in import_command("ncu", Path("r"), "source")


# What ncu says when it cannot

PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
    "Performance Counters on the target device 0. For instructions see https://developer..."
)


@pytest.mark.parametrize(
    ("text", "status", "reason", "remedy"),
    [
        (PERMISSION, 1, "ERR_NVGPUCTRPERM", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("Failed to initialize the profiler: LibraryNotLoaded", 1, "profiling library", "runtime"),
        ("==ERROR== failed because a driver resource was unavailable.", 1, "another tool", "dcgm"),
        ("==WARNING== No kernels were profiled.", 0, "no kernel launch", "filters"),
        ("==ERROR== The application returned an error code (3).", 3, "program failed", "without"),
        ("==ERROR== Failed to create lock file /tmp/nsight-compute-lock.", 1, "lock", "TMPDIR"),
        ("==ERROR== Something new", 9, "ended with status 9: Something new", "by hand"),
        ("", -11, "killed by signal 11", "by hand"),
        ("", 0, "wrote no report", "by hand"),
    ],
)
def test_failures_are_named_with_their_remedy(
    text: str, status: int, reason: str, remedy: str
) -> None:
    result = explain_failure(f"==PROF== Connected\n{text}\n", status)
    assert result.outcome is Outcome.PROFILER_UNAVAILABLE
    assert reason in result.reason and remedy in result.remedy
    assert "\n" not in result.reason + result.remedy


# Running: a stand-in for ncu that writes and reads as it does


def stand_in(folder: Path, profiling: str = "") -> Path:
    """Return an `ncu` that profiles with the given Python lines and imports the full set."""
    ncu = folder / "ncu"
    ncu.write_text(
        f"#!{sys.executable}\n"
        + textwrap.dedent(
            """\
            import sys, time, pathlib
            arguments = sys.argv[1:]
            if "--import" in arguments:
                page = arguments[arguments.index("--page") + 1]
                file = pathlib.Path(NCU, f"ncu_full_{page}.csv")
                print(file.read_text() if file.exists() else "no such page")
                sys.exit()
            report = pathlib.Path(arguments[arguments.index("--export") + 1])
            """
        ).replace("NCU", repr(str(NCU)))
        + (profiling or "report.write_text('report')")
        + "\n"
    )
    ncu.chmod(ncu.stat().st_mode | stat.S_IXUSR)
    return ncu


def run(ncu: Path, directory: Path, seconds: float = 30.0) -> NcuResult:
    return profile_program(["program"], directory=directory, seconds=seconds, ncu=ncu)


def test_a_program_is_profiled_and_read_back(tmp_path: Path) -> None:
    result = run(stand_in(tmp_path), tmp_path)
    assert result.outcome is Outcome.PASSED and result.collection == "default"
    assert result.reader == "csv" and result.profile == report().profile


def test_the_gpu_is_held_while_the_program_runs_and_not_while_its_report_is_read(
    tmp_path: Path,
) -> None:
    held = tmp_path / "held"

    @contextmanager
    def alone() -> Iterator[None]:
        held.touch()
        yield
        held.unlink()

    asks = "if '--import' not in sys.argv:\n    pathlib.Path('turn-asked').touch()\n"
    asks += "    while not pathlib.Path('turn-given').exists(): time.sleep(0.001)\n"
    checked = f"assert pathlib.Path({str(held)!r}).exists() is ('--import' not in sys.argv)"
    ncu = stand_in(tmp_path)
    begins = "arguments = sys.argv[1:]\n"
    ncu.write_text(ncu.read_text().replace(begins, f"{begins}{asks}{checked}\n"))
    result = profile_program(
        ["program"], directory=tmp_path, seconds=30.0, ncu=ncu, turns=[Turn(tmp_path, alone)]
    )
    assert result.outcome is Outcome.PASSED and result.profile == report().profile


def test_a_program_that_asks_has_the_gpu_from_then_on_each_time(tmp_path: Path) -> None:
    held, times = tmp_path / "held", list[int]()

    @contextmanager
    def alone() -> Iterator[None]:
        held.touch()
        times.append(1)
        yield
        held.unlink()

    lines = (
        f"held = pathlib.Path({str(held)!r})\n"
        "assert not held.exists()\n"
        "pathlib.Path('turn-asked').touch()\n"
        "while not pathlib.Path('turn-given').exists():\n"
        "    time.sleep(0.001)\n"
        "assert held.exists()\n"
        "pathlib.Path('turn-asked').unlink()\n"
        "while held.exists():\n"
        "    time.sleep(0.001)\n"
        "if '--metrics' in arguments:\n"
        "    print('==ERROR== Failed to find metric sm__x'); sys.exit(1)\n"
        "report.write_text('report')"
    )
    result = profile_program(
        ["program"], directory=tmp_path, seconds=30.0, ncu=stand_in(tmp_path, lines),
        turns=[Turn(tmp_path, alone)],
    )  # fmt: skip
    assert result.outcome is Outcome.PASSED and result.collection == "detailed"
    assert len(times) == 2


def test_an_unknown_metric_falls_back_to_ncus_own_set(tmp_path: Path) -> None:
    lines = (
        "if '--metrics' in arguments:\n"
        "    print('==ERROR== Failed to find metric sm__x'); sys.exit(1)\n"
        "assert arguments[arguments.index('--set') + 1] == 'detailed'\n"
        "report.write_text('report')"
    )
    result = run(stand_in(tmp_path, lines), tmp_path)
    assert result.outcome is Outcome.PASSED and result.collection == "detailed"


@pytest.mark.parametrize(
    ("profiling", "reason"),
    [
        (f"print({PERMISSION!r}); sys.exit(1)", "ERR_NVGPUCTRPERM"),
        ("pass", "wrote no report"),
        ("report.write_text('')", "wrote no report"),
        ("report.write_text('x'); print('==ERROR== bad'); sys.exit(2)", "status 2: bad"),
        ("time.sleep(60)", "ran past its limit of 1 s"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by signal 9"),
    ],
)
def test_a_run_that_fails_is_a_typed_result(tmp_path: Path, profiling: str, reason: str) -> None:
    result = run(stand_in(tmp_path, profiling), tmp_path, seconds=1.0)
    assert result.outcome is Outcome.PROFILER_UNAVAILABLE and reason in result.reason


def test_no_ncu_is_a_typed_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("kernelblaster.harness.nsight.ncu._INSTALLATIONS", (f"{tmp_path}/*/ncu",))
    assert find_ncu() is None
    result = profile_program(["program"], directory=tmp_path, seconds=1.0)
    assert result.outcome is Outcome.PROFILER_UNAVAILABLE and "not on PATH" in result.reason
    for version in ("2024.3.1", "2025.10.0", "2025.3.1"):
        (tmp_path / version).mkdir()
        stand_in(tmp_path / version)
    assert find_ncu() == tmp_path / "2025.10.0" / "ncu"
    missing = profile_program(["a"], directory=tmp_path, seconds=1.0, ncu=tmp_path / "none")
    assert "cannot be started" in missing.reason


# The official reader: a stand-in for NVIDIA's module, with its documented interface

MODULE = '''\
import json, pathlib

class Metric:
    def __init__(self, value, unit, instances=()):
        self._value, self._unit, self._instances = value, unit, instances
    def value(self): return self._value
    def unit(self): return self._unit
    def num_instances(self): return len(self._instances)
    def has_correlation_ids(self): return bool(self._instances)
    def correlation_ids(self): return Ids([pc for pc, _ in self._instances])
    def as_double(self, index): return float(self._instances[index][1])

class Ids(list):
    def as_uint64(self, index): return self[index]

class Info:
    def __init__(self, line): self._line = line
    def file_name(self): return "/work/candidate.cu"
    def line(self): return self._line

class Action:
    NameBase_DEMANGLED = 1
    def __init__(self, data): self._data = data
    def name(self, base=0): return self._data["name"] if base == 1 else "wrong"
    def metric_names(self): return tuple(self._data["metrics"])
    def metric_by_name(self, name): return Metric(*self._data["metrics"][name])
    def source_info(self, pc): return Info(pc // 16) if pc else None
    def rule_results_as_dicts(self): return self._data["rules"]

class Group:
    def __init__(self, data): self._data = data
    def num_actions(self): return len(self._data)
    def action_by_idx(self, index): return Action(self._data[index])

class Context(Group):
    def num_ranges(self): return 1
    def range_by_idx(self, index): return Group(self._data)

def load_report(path):
    return Context(json.loads(pathlib.Path(path).read_text()))
'''


def install_module(root: Path, text: str) -> None:
    folder = root / "extras" / "python"
    folder.mkdir(parents=True)
    (folder / "ncu_report.py").write_text(text)


def as_report() -> str:
    """Return the full set's pages as what the stand-in module reads, in base units."""
    header, units, *rows = list(csv.reader(io.StringIO(page("full", "raw"))))
    details = list(csv.DictReader(io.StringIO(page("full", "details"))))
    actions = []
    for row in rows:
        metrics: dict[str, list[object]] = {}
        for name, unit, cell in list(zip(header, units, row, strict=True))[11:]:
            value = number(cell)
            if value is not None:
                metrics[name] = [value * base_factor(unit), unit.lstrip("KMGTm")]
                if unit == "ms":
                    metrics[name][1] = "ns"
                if name.endswith("per_second"):
                    metrics[name][1] = "hz"
            elif cell:
                metrics[name] = [cell, ""]
        if row[0] == "0":
            metrics["inst_executed"] = [40.0, "inst", [(0, 5.0), (112, 10.0), (116, 10.0),
                                                       (144, 20.0)]]  # fmt: skip
        rules = [
            {
                "rule_identifier": rule["Rule Name"],
                "section_identifier": rule["Section Name"],
                "rule_message": {
                    "title": "t",
                    "type": rule["Rule Type"],
                    "message": rule["Rule Description"].replace(
                        "Source Counters", "@section:SourceCounters:Source Counters@"
                    ),
                },
            }
            | (
                {
                    "speedup_estimation": {
                        "type": rule["Estimated Speedup Type"],
                        "speedup": float(rule["Estimated Speedup"]),
                    }
                }
                if rule["Estimated Speedup"]
                else {}
            )
            for rule in details
            if rule["ID"] == row[0] and rule["Rule Name"]
        ]
        actions.append({"name": row[4], "metrics": metrics, "rules": rules})
    return json.dumps(actions)


def test_the_official_reader_and_the_pages_give_the_same_profile(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    ncu = stand_in(tmp_path / "bin")
    install_module(tmp_path / "nsight-compute-2025.3.1", MODULE)
    assert python_modules(ncu) == [tmp_path / "nsight-compute-2025.3.1" / "extras" / "python"]
    file = tmp_path / "r.ncu-rep"
    file.write_text(as_report())
    by_module = read_report(file, ncu, directory=tmp_path)
    by_pages = read_report(file, ncu, directory=tmp_path, official=False)
    assert (by_module.reader, by_pages.reader) == ("python", "csv")
    assert by_module.rules == by_pages.rules and len(by_module.rules) > 30
    assert by_module.profile is not None and by_pages.profile is not None
    first, *others = by_module.profile.launches
    assert [(line.line, line.instructions) for line in first.lines] == [(7, 20.0), (9, 20.0)]
    for one, other in zip([first, *others], by_pages.profile.launches, strict=True):
        ignored = {"metrics": {}, "lines": ()}
        assert one.model_copy(update=ignored) == other.model_copy(update=ignored)
        metrics = {name: v for name, v in one.metrics.items() if name != "inst_executed"}
        assert metrics == pytest.approx(other.metrics)


@pytest.mark.parametrize(
    "module",
    ["raise ImportError('built for another Python')", "import os; os.abort()",
     "def load_report(path): raise RuntimeError('newer report')",
     "def load_report(path): return None"],
)  # fmt: skip
def test_a_module_that_does_not_work_costs_nothing(tmp_path: Path, module: str) -> None:
    ncu = stand_in(tmp_path)
    install_module(tmp_path, module)
    environment = scrubbed_environment(tmp_path)
    file = tmp_path / "r.ncu-rep"
    file.write_text("x")
    result = read_report(file, ncu, directory=tmp_path, environment=environment)
    assert result.reader == "csv" and result.profile == report().profile


def test_a_report_that_ncu_cannot_read_is_a_typed_result(tmp_path: Path) -> None:
    ncu = stand_in(tmp_path)
    ncu.write_text(f"#!{sys.executable}\nraise SystemExit(1)\n")
    result = read_report(tmp_path / "r.ncu-rep", ncu, directory=tmp_path)
    assert "could not read its own report" in result.reason


def test_collections_have_names_of_their_own() -> None:
    assert len({each.name for each in (DEFAULT, COUNTED, BASIC, FULL)}) == 4


@pytest.mark.parametrize(
    ("microseconds", "collection"),
    [(50.0, DEFAULT), (5e3, DEFAULT), (2e4, COUNTED), (2e5, COUNTED), (1e6, BASIC), (0.0, DEFAULT)],
)
def test_a_slow_launch_is_counted_less(microseconds: float, collection: Collection) -> None:
    assert affordable(microseconds) is collection


def test_lines_are_asked_for_where_they_are_counted() -> None:
    assert DEFAULT.has_lines and FULL.has_lines
    assert not COUNTED.has_lines and not BASIC.has_lines


def test_less_than_the_default_needs_no_instrumented_code() -> None:
    assert "SourceCounters" not in COUNTED.sections
    assert not any(name.startswith(("memory_", "smsp__sass_")) for name in COUNTED.metrics)


def test_an_unknown_metric_of_a_slow_launch_falls_back_to_less(tmp_path: Path) -> None:
    lines = (
        "if '--metrics' in arguments:\n"
        "    print('==ERROR== Failed to find metric sm__x'); sys.exit(1)\n"
        "assert arguments[arguments.index('--set') + 1] == 'basic'\n"
        "report.write_text('report')"
    )
    result = profile_program(
        ["program"], directory=tmp_path, seconds=30.0, ncu=stand_in(tmp_path, lines),
        collection=COUNTED,
    )  # fmt: skip
    assert result.collection == "basic"
