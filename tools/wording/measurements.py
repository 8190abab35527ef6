"""A profile in a few lines: where the time goes, each figure beside what the device could do."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from ...harness.gpus import Gpu, known_gpu
from ...harness.records.profiles import LaunchProfile, Profile
from ...harness.records.tasks import Task
from ...harness.records.timings import Provenance, Timing
from ...harness.simt.model.time_model import together
from .bounds import dram_microseconds, products_text
from .contract import compulsory_bytes
from .device import Peaks, peaks_of
from .units import in_bytes, in_microseconds

MOST_LAUNCHES = 3
"""Launches described; the others are told of by kernel."""
MOST_KERNELS = 12
"""Kernels named with their launches and share of the time."""
LEAST = 0.02
"""Share of the time from which a kernel is told of before a further launch of a costlier one."""
BRIEF = 0.05
"""Share of the time below which a launch is told in one line."""
MOST_ADVICE = 5
"""Sentences of advice for a launch."""
LONGEST_ADVICE = 320
"""Characters of one."""
MOST_LEFT = 3.0
"""Speed-up that the bytes moved leave open, above which they bound nothing worth telling."""

_PERCENT = "avg.pct_of_peak_sustained_elapsed"
_UNITS = (
    ("DRAM", (f"gpu__dram_throughput.{_PERCENT}", f"dram__throughput.{_PERCENT}")),
    ("L2", (f"lts__throughput.{_PERCENT}",)),
    ("L1/LSU", (f"l1tex__throughput.{_PERCENT}",)),
    ("SM", (f"sm__throughput.{_PERCENT}",)),
    ("fma pipe", (f"sm__inst_executed_pipe_fma.{_PERCENT}",)),
    ("alu pipe", (f"sm__inst_executed_pipe_alu.{_PERCENT}",)),
    ("xu pipe", (f"sm__inst_executed_pipe_xu.{_PERCENT}",)),
    (
        "tensor pipe",
        (f"sm__inst_executed_pipe_tensor.{_PERCENT}", f"sm__pipe_tensor_cycles_active.{_PERCENT}"),
    ),
    ("issue slots", (f"sm__inst_executed.{_PERCENT}", f"sm__inst_issued.{_PERCENT}")),
)
READ, WRITTEN = ("dram__bytes_read.sum",), ("dram__bytes_write.sum",)
"""Names under which a profile counts the DRAM's bytes."""
_FLOPS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_CYCLES = ("smsp__cycles_elapsed.avg", "gpc__cycles_elapsed.max")
_SECTORS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{}.ratio"
_USED = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.ratio"


def summary_text(task: Task, profile: Profile, timing: Timing) -> str:
    """Return how long the call takes, and how long it must take at least on this device."""
    how = {
        Provenance.SIMULATED: "estimated by a time model of the GPU, not measured",
        Provenance.NCU: "measured",
        Provenance.EVENTS: "measured with CUDA events",
    }[timing.provenance]
    lines = [f"launch() takes {in_microseconds(timing.microseconds)} ({how})."]
    total = compulsory_bytes(task)
    gpu = known_gpu(profile.gpu)
    if gpu:
        floor = dram_microseconds(task, gpu)
        lines.append(
            f"All tensors moved once are {in_bytes(total)}: {in_microseconds(floor)} at the DRAM's "
            f"peak; this kernel takes {timing.microseconds / floor:.3g} times that."
        )
    else:
        lines.append(f"All tensors moved once are {in_bytes(total)}.")
    moved = _moved(task, profile)
    if moved:
        lines.append(moved)
    if gpu and (products := products_text(task, gpu)):
        lines.append(products)
    return " ".join(lines)


def attainable(task: Task, profile: Profile, timing: Timing) -> float | None:
    """Return the speed-up that moving every tensor once at the DRAM's peak would be.

    None where the GPU's peaks are not known.
    """
    gpu = known_gpu(profile.gpu)
    return None if gpu is None else timing.microseconds / dram_microseconds(task, gpu)


def profile_text(profile: Profile) -> str:
    """Return the costliest launches, each with shape, units, traffic, residency, advice.

    Where there are more than those, a table by kernel tells of all: its length does not hang on how
    many launches there are.
    """
    gpu, total = known_gpu(profile.gpu), profile.microseconds or 1.0
    parts = [
        launch_text(launch, launch.microseconds / total, gpu) for launch in costliest(profile)
    ]
    if len(profile.launches) > len(parts):
        parts.append(kernels_text(profile))
    return "\n\n".join(parts)


def costliest(profile: Profile, most: int = MOST_LAUNCHES) -> list[LaunchProfile]:
    """Return the launches to tell of: the longest of each of the costliest kernels, then others.

    A launch like an earlier one says nothing more.
    """
    total = profile.microseconds
    matter = [share.longest for share in profile.by_kernel if share.microseconds >= LEAST * total]
    own = [launch for launch in profile.launches if launch.like is None]
    own.sort(key=lambda launch: -launch.microseconds)
    chosen = {id(launch): launch for launch in [*matter[:most], *own]}
    return sorted(list(chosen.values())[:most], key=lambda launch: -launch.microseconds)


def kernels_text(profile: Profile) -> str:
    """Return a line for each of the costliest kernels: how many launches, what they take."""
    shares, total = profile.by_kernel, profile.microseconds or 1.0
    lines = [f"All {len(profile.launches)} launches by kernel, with their share of the time:"]
    for share in shares[:MOST_KERNELS]:
        times = [launch.microseconds for launch in share.launches]
        least, most = in_microseconds(min(times)), in_microseconds(max(times))
        each = least if least == most else f"{least} to {most}"
        count = f"{len(times)} launches of {each}" if len(times) > 1 else "1 launch"
        lines.append(
            f"- {share.kernel}: {share.microseconds / total:.0%}, "
            f"{in_microseconds(share.microseconds)}, {count}"
        )
    if rest := shares[MOST_KERNELS:]:
        taken = sum(share.microseconds for share in rest)
        launches = sum(len(share.launches) for share in rest)
        lines.append(f"- {len(rest)} others: {taken / total:.0%}, {launches} launches")
    return "\n".join(lines)


def launch_text(launch: LaunchProfile, share: float, gpu: Gpu | None) -> str:
    """Return one launch in some ten lines; one that takes hardly any time in one."""
    peaks = peaks_of(gpu) if gpu else None
    limit = " and ".join((launch.bottleneck, *launch.bottleneck_ties)).replace("_", " ")
    shared = f", {launch.dynamic_shared_bytes}" if launch.dynamic_shared_bytes else ""
    lines = [
        f"{launch.kernel}<<<{_three(launch.grid)}, {_three(launch.block)}{shared}>>>: "
        f"{in_microseconds(launch.microseconds)}"
        + ("" if share > 0.995 else f" ({share:.0%} of the call)")
        + f", limited by {limit}"
    ]
    if share < BRIEF:
        return lines[0]
    for line in (
        _units(launch.metrics),
        _terms(launch.terms),
        _left(launch, gpu),
        _traffic(launch, peaks),
        _accesses(launch.metrics),
        _arithmetic(launch, peaks),
        _residency(launch, gpu),
    ):
        if line:
            lines.append(f"- {line}")
    lines += [f"- advice: {_short(text)}" for text in launch.advice[:MOST_ADVICE]]
    return "\n".join(lines)


def units_of(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return how busy each unit was, in per cent of its peak; those that were counted."""
    return {
        name: metrics[key]
        for name, keys in _UNITS
        if (key := next((key for key in keys if key in metrics), None))
    }


def _units(metrics: Mapping[str, float]) -> str:
    found = units_of(metrics)
    if not found:
        return ""
    shown = [f"{name} {value:.0f} %" for name, value in found.items() if value >= 1]
    return f"of peak: {', '.join(shown) or 'no unit reaches 1 %'}"


def _terms(terms: Mapping[str, float]) -> str:
    """Return what each resource alone would need; the time model's view, absent from real runs."""
    largest = max(terms.values(), default=0.0)
    shown = sorted(((value, name) for name, value in terms.items()), reverse=True)
    words = [
        f"{name.replace('_', ' ')} {in_microseconds(value)}"
        for value, name in shown
        if value > 0.03 * largest
    ]
    return f"each alone would need: {', '.join(words)}" if words else ""


def _left(launch: LaunchProfile, gpu: Gpu | None) -> str:
    """Return what can still be gained: at most, and by doing without one resource altogether.

    By the rule of the time model where it gives terms; for measured launches from the bytes that
    crossed the DRAM's pins, which need their time at its peak.
    """
    if gpu is None:
        return ""
    if launch.terms:
        return _left_by_terms(launch, gpu)
    read, written = _first(launch.metrics, READ), _first(launch.metrics, WRITTEN)
    if not read and not written:
        return ""
    floor = ((read or 0.0) + (written or 0.0)) / peaks_of(gpu).dram_bytes * 1e6
    left = launch.microseconds / floor
    if not 1.0 <= left <= MOST_LEFT:
        return ""
    return (
        f"moving the bytes it moves now at the DRAM's peak would be {left:.2f}x faster: more only "
        "if fewer move"
    )


def _left_by_terms(launch: LaunchProfile, gpu: Gpu) -> str:
    terms = launch.terms
    first = max(terms, key=lambda name: terms[name])
    if terms[first] <= 0.0:
        return ""
    least = together(gpu, {first: terms[first]})
    whole = together(gpu, terms)
    saved = {
        name: whole - together(gpu, {other: terms[other] for other in terms if other != name})
        for name in terms
        if name != first
    }
    shown = [
        f"{name.replace('_', ' ')} {in_microseconds(value)}"
        for name, value in sorted(saved.items(), key=lambda item: (-item[1], item[0]))
        if value >= 0.005 * whole
    ]
    unless = "fewer bytes move" if first == "dram" else f"{first.replace('_', ' ')} gets less to do"
    text = f"at most {max(launch.microseconds / least, 1.0):.2f}x is left unless {unless}"
    if not shown:
        return f"{text}; the other parts are hidden behind it"
    return f"{text}; the parts overlap, doing away with one would save: {', '.join(shown)}"


def _moved(task: Task, profile: Profile) -> str:
    """Return the DRAM traffic of the call over the tensors' own bytes; empty where not counted."""
    read, written = summed(profile, READ), summed(profile, WRITTEN)
    outputs = sum(each.nbytes for each in task.full.tensors if each.role == "output")
    inputs = compulsory_bytes(task) - outputs
    if read is None or written is None or not inputs or not outputs:
        return ""
    text = (
        f"DRAM reads are {read / inputs:.2f} times the inputs' own bytes, writes "
        f"{written / outputs:.2f} times the output's."
    )
    if profile.provenance is Provenance.NCU and len(profile.launches) > 1:
        text += (
            " Each launch was profiled with cold caches: in the call it may find in L2 what the "
            "one before it wrote."
        )
    return text


def summed(profile: Profile, names: tuple[str, ...]) -> float | None:
    """Return a metric over all launches of a call; None where one of them lacks it."""
    counts = [_first(launch.metrics, names) for launch in profile.launches]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _traffic(launch: LaunchProfile, peaks: Peaks | None) -> str:
    metrics = launch.metrics
    read, written = _first(metrics, READ), _first(metrics, WRITTEN)
    if read is None or written is None:
        return ""
    rate = (read + written) / (launch.microseconds * 1e-6)
    text = f"DRAM: {in_bytes(read)} read, {in_bytes(written)} written, {rate / 1e9:.0f} GB/s"
    if peaks:
        text += f" of {peaks.dram_bytes / 1e9:.0f} ({rate / peaks.dram_bytes:.0%})"
    rates = [
        f"{name} hits {metrics[key]:.0f} %"
        for name, key in (
            ("L1", "l1tex__t_sector_hit_rate.pct"),
            ("L2", "lts__t_sector_hit_rate.pct"),
        )
        if key in metrics
    ]
    return "; ".join([text, *rates])


def _accesses(metrics: Mapping[str, float]) -> str:
    words = []
    for name, short in (("loads", "ld"), ("stores", "st")):
        sectors, used = metrics.get(_SECTORS.format(short)), metrics.get(_USED.format(short))
        if sectors:
            text = f"global {name} {sectors:.1f} sectors a request"
            words.append(text + (f" ({_used(used)})" if used else ""))
    actual = metrics.get("memory_l1_wavefronts_shared", 0.0)
    ideal = metrics.get("memory_l1_wavefronts_shared_ideal", 0.0)
    if actual:
        words.append(
            f"shared memory {actual / ideal:.1f} times the wavefronts needed"
            if ideal
            else f"{actual:.3g} shared-memory wavefronts"
        )
    spilled = metrics.get("l1tex__t_sectors_pipe_lsu_mem_local.sum", 0.0) or metrics.get(
        "ptxas__spill_load_bytes", 0.0
    )
    if spilled:
        words.append("local memory in use (registers spill, or an array is indexed at run time)")
    return ", ".join(words)


def _used(bytes_a_sector: float) -> str:
    """Return what threads asked for of each 32 bytes moved; more where lanes share addresses."""
    if bytes_a_sector > 32.5:
        return "lanes share addresses"
    return f"{bytes_a_sector / 32:.0%} of the bytes used"


def _arithmetic(launch: LaunchProfile, peaks: Peaks | None) -> str:
    metrics = launch.metrics
    operations = fp32_operations(metrics)
    words = []
    if operations:
        rate = operations / (launch.microseconds * 1e-6)
        text = f"FP32 {operations / 1e9:.3g} GFLOP at {rate / 1e12:.3g} TFLOPS"
        words.append(text + (f" ({rate / peaks.fp32:.1%} of peak)" if peaks else ""))
    executed = metrics.get("smsp__inst_executed.sum")
    if executed:
        words.append(f"{executed:.3g} warp instructions")
    active = metrics.get("smsp__thread_inst_executed_per_inst_executed.ratio")
    if active and active < 31:
        words.append(f"{active:.1f} of 32 lanes active")
    return ", ".join(words)


def fp32_operations(metrics: Mapping[str, float]) -> float:
    """Return the FP32 operations of a launch, a multiply-add as two; 0 where not counted.

    Those of tensor cores are not among them.
    """
    counts = {name: _operations(metrics, name) for name in ("ffma", "fadd", "fmul")}
    return 2 * counts["ffma"] + counts["fadd"] + counts["fmul"]


def _operations(metrics: Mapping[str, float], name: str) -> float:
    """Return how many operations threads executed: counted, or a rate times the cycles."""
    key = _FLOPS.format(name)
    if key in metrics:
        return metrics[key]
    return metrics.get(f"{key}.per_cycle_elapsed", 0.0) * (_first(metrics, _CYCLES) or 0.0)


def _residency(launch: LaunchProfile, gpu: Gpu | None) -> str:
    metrics = launch.metrics
    words = []
    possible = metrics.get("sm__maximum_warps_per_active_cycle_pct")
    reached = metrics.get("sm__warps_active.avg.pct_of_peak_sustained_active")
    if possible is not None:
        limits = _limiters(metrics) if possible < 99.5 else ""
        words.append(f"occupancy limit {possible:.0f} %{limits}")
    if reached is not None:
        words.append(f"reached {reached:.0f} %")
    registers = metrics.get("launch__registers_per_thread")
    if registers:
        words.append(f"{registers:.0f} registers a thread")
    static = metrics.get("launch__shared_mem_per_block_static", 0.0)
    if static:
        words.append(f"{static:.0f} bytes static shared")
    waves = metrics.get("launch__waves_per_multiprocessor")
    if waves is not None:
        each = f" ({math.prod(launch.grid) / gpu.sms:.1f} blocks an SM)" if gpu else ""
        words.append(f"{waves:.2f} waves{each}" if waves < 1 else f"{waves:.2f} waves")
    return ", ".join(words)


def _limiters(metrics: Mapping[str, float]) -> str:
    names = ("registers", "shared_mem", "warps", "blocks")
    limits = {name: metrics.get(f"launch__occupancy_limit_{name}") for name in names}
    known = {name: value for name, value in limits.items() if value is not None}
    if not known:
        return ""
    least = min(known.values())
    which = [name.replace("_", " ") for name, value in known.items() if value == least]
    return f" by {' and '.join(which)} ({least:.0f} blocks an SM)"


def _first(metrics: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    return next((metrics[name] for name in names if name in metrics), None)


def _three(sizes: tuple[int, int, int]) -> str:
    shown = sizes
    while len(shown) > 1 and shown[-1] == 1:
        shown = shown[:-1]  # type: ignore[assignment]
    return str(shown[0]) if len(shown) == 1 else f"({', '.join(map(str, shown))})"


def _short(text: str) -> str:
    """Return a sentence of advice, cut at a word, ncu's estimate in fewer words."""
    text = re.sub(r"\(estimated gain (\S+) % of the kernel's time\)", r"(up to \1 %)", text)
    if len(text) <= LONGEST_ADVICE:
        return text
    return text[:LONGEST_ADVICE].rsplit(" ", 1)[0] + " ..."
