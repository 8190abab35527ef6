"""Nsight Compute: profiles a program and says, in our records, what it found or why it could not.

Nothing here raises for what ncu or the machine refuses: the result's outcome is then
`profiler_unavailable`, with the reason and what a person can do about it, and a run goes on with
event timing alone.
"""

from __future__ import annotations

import glob
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path

from ..process.children import TimedOut, Turn, read_log, run_process, scrubbed_environment
from .command import (
    BASIC,
    DEFAULT,
    DETAILED,
    Collection,
    Page,
    Replay,
    import_command,
    profile_command,
)
from .pages import RawLaunch, read_json
from .profile import NcuResult, profile_from_launches, profile_from_pages, unavailable

PAGE_BYTES = 256 << 20
READ_SECONDS = 120.0
_INSTALLATIONS = (
    "/usr/local/cuda/bin/ncu", "/usr/local/cuda-*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu",
)  # fmt: skip
_READER = Path(__file__).resolve().parent / "reader.py"


def find_ncu() -> Path | None:
    """Return the profiler: the one on PATH, else the newest in CUDA's usual places, else None."""
    found = shutil.which("ncu")
    if found:
        return Path(found)
    places = [path for pattern in _INSTALLATIONS for path in glob.glob(pattern)]
    return Path(max(places, key=_version)) if places else None


def _version(path: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", path))


def profile_program(
    target: Sequence[str],
    *,
    directory: Path,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    ncu: Path | None = None,
    collection: Collection = DEFAULT,
    kernels: str | None = None,
    launch_skip: int = 0,
    launch_count: int | None = None,
    from_start: bool = True,
    nvtx_include: str | None = None,
    replay: Replay = "kernel",
    gpu: str = "",
    source: str = "",
    turns: Sequence[Turn] = (),
) -> NcuResult:
    """Run a program under Nsight Compute and return its profile. Blocks; see `off_loop`.

    Where the GPU does not know one of the collection's metrics, it is profiled once more with
    ncu's own `detailed` set, or its `basic` one where less than the default was asked for.

    Args:
        target: program and arguments. It should end with status 0.
        directory: an existing folder of its own, for the report and the logs.
        seconds: limit of the whole profiling run.
        environment: of the profiler and the program (CUDA_VISIBLE_DEVICES, LD_LIBRARY_PATH);
            without it, one without secrets. Two profilers of one GPU wait for each other only
            when they share TMPDIR, where ncu keeps its lock file.
        ncu: the profiler; searched for when not given.
        collection, kernels, launch_skip, launch_count, from_start, nvtx_include, replay: see
            `profile_command`.
        gpu: name to put on the profile; the report's own when not given.
        source: base name of the file whose lines are wanted; any file when not given.
        turns: what the program asks for, such as the GPU, for a part of the time that it runs: ncu
            takes seconds to start, and a report is read without the GPU.

    Raises:
        Cancelled: the caller of `off_loop` was cancelled.
    """
    ncu = ncu or find_ncu()
    if ncu is None:
        return unavailable(
            "Nsight Compute (ncu) is not on PATH and not in CUDA's usual places",
            "install nsight-compute from NVIDIA's CUDA repository, or put its folder on PATH",
        )
    report = directory / "profile.ncu-rep"
    log = directory / "ncu.log"
    for chosen in (collection, DETAILED if collection is DEFAULT else BASIC):
        report.unlink(missing_ok=True)
        command = profile_command(
            ncu, target, report, collection=chosen, kernels=kernels, launch_skip=launch_skip,
            launch_count=launch_count, from_start=from_start, nvtx_include=nvtx_include,
            replay=replay,
        )  # fmt: skip
        try:
            status = run_process(
                command, directory=directory, log=log, seconds=seconds,
                environment=_environment(environment, directory), turns=turns,
            )  # fmt: skip
        except TimedOut:
            return unavailable(
                f"ncu ran past its limit of {seconds:g} s",
                "profile fewer launches or a smaller collection, or raise the limit",
            )
        except OSError as error:
            return unavailable(
                f"{ncu} cannot be started: {error.strerror or error}",
                "reinstall nsight-compute, or put a working ncu first on PATH",
            )
        text = read_log(log)
        if not (chosen.metrics and _UNKNOWN_METRIC.search(text)):
            break
    if status != 0 or not report.is_file() or not report.stat().st_size:
        return explain_failure(text, status)
    result = read_report(report, ncu, directory=directory, environment=environment, gpu=gpu,
                         source=source, with_lines=chosen.has_lines)  # fmt: skip
    return result.model_copy(update={"collection": chosen.name if result.profile else ""})


# What ncu says when it cannot -------------------------------------------------------------------

_UNKNOWN_METRIC = re.compile(r"Failed to find metric|Unknown metric|Invalid metric", re.IGNORECASE)
_TROUBLES: tuple[tuple[str, str, str], ...] = (
    (
        r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance Counters",
        "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM)",
        "run as root (in a container: --cap-add=SYS_ADMIN), or load the nvidia kernel module with "
        "NVreg_RestrictProfilingToAdminUsers=0",
    ),
    (
        r"LibraryNotLoaded|Failed to initialize the profiler",
        "ncu could not load the driver's profiling library",
        "use a machine or container runtime that passes the whole driver through; a sandboxed "
        "runtime such as gVisor does not",
    ),
    (
        r"driver resource was unavailable|DCGM|concurrently collecting",
        "another tool holds the GPU's performance counters",
        "stop it first (for DCGM: dcgmi profile --pause)",
    ),
    (
        r"lock file|InterprocessLock",
        "ncu could not take its lock file",
        "give the user write access to TMPDIR and remove TMPDIR/nsight-compute-lock",
    ),
    (
        r"not supported on (?:this )?device|Unsupported GPU|Profiling is not supported",
        "this ncu does not support this GPU or driver",
        "install the Nsight Compute release that belongs to the driver",
    ),
    (
        r"No kernels were profiled|No metrics to collect found",
        "ncu saw no kernel launch to profile",
        "check that the program launches a kernel that the filters let through",
    ),
    (
        r"application returned an error code|returned an error code \(",
        "the program failed while it was profiled",
        "run it without the profiler first; replays need it to behave the same each time",
    ),
)


def explain_failure(text: str, status: int) -> NcuResult:
    """Return the result for a run of ncu that left no report, from what it printed.

    Args:
        text: ncu's and the program's output.
        status: exit status; negative for a signal.
    """
    for pattern, reason, remedy in _TROUBLES:
        if re.search(pattern, text, re.IGNORECASE):
            return unavailable(reason, remedy)
    ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    errors = re.findall(r"^==ERROR==\s*(.+)$", text, re.MULTILINE)
    said = f": {errors[-1].strip()[:200]}" if errors else ""
    if status == 0:
        ended = "wrote no report"
    return unavailable(f"ncu {ended}{said}", "run ncu by hand on any CUDA program to see more")


def _environment(given: Mapping[str, str] | None, directory: Path) -> dict[str, str]:
    environment = dict(scrubbed_environment(directory) if given is None else given)
    # Else ncu copies all its section files into a fresh HOME each time.
    environment.setdefault("NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT", "1")
    return environment


# Reading a report -------------------------------------------------------------------------------


def read_report(
    report: Path,
    ncu: Path,
    *,
    directory: Path,
    environment: Mapping[str, str] | None = None,
    gpu: str = "",
    source: str = "",
    with_lines: bool = True,
    official: bool = True,
) -> NcuResult:
    """Return the profile in a report: by ncu's Python module where it works, else by CSV pages.

    Args:
        report: a `.ncu-rep` file.
        ncu: the profiler that wrote it, or a newer one.
        directory: an existing folder for intermediate files.
        environment, gpu, source: see `profile_program`.
        with_lines: whether it has counters of source lines.
        official: False reads the CSV pages even where the module works.
    """
    environment = _environment(environment, directory)
    if official:
        for module in python_modules(ncu):
            launches = _by_module(module, report, directory, environment)
            if launches is not None:
                return profile_from_launches(launches, gpu, source, "python")
    wanted: tuple[Page, ...] = ("raw", "details", "source") if with_lines else ("raw", "details")
    with ThreadPoolExecutor(len(wanted)) as pool:  # Each takes most of a second to start.
        reading = {
            page: pool.submit(copy_context().run, _page, ncu, report, page, directory, environment)
            for page in wanted
        }
    pages = {page: each.result() for page, each in reading.items()}
    if not pages["raw"]:
        return unavailable(
            f"ncu could not read its own report {report.name}",
            "check that the disk is not full and that one ncu wrote and reads the report",
        )
    return profile_from_pages(
        pages["raw"], pages["details"], pages.get("source", ""), gpu, source
    )  # fmt: skip


def _page(
    ncu: Path, report: Path, page: Page, directory: Path, environment: Mapping[str, str]
) -> str:
    """Return a page of a report as CSV; empty where ncu does not print it."""
    log = directory / f"ncu_{page}.csv"
    try:
        status = run_process(
            import_command(ncu, report, page), directory=directory, environment=environment,
            log=log, seconds=READ_SECONDS,
        )  # fmt: skip
    except (TimedOut, OSError):
        return ""
    return read_log(log, PAGE_BYTES) if status == 0 else ""


def python_modules(ncu: Path) -> list[Path]:
    """Return the folders of ncu's installation that hold its Python module, nearest first."""
    found: list[Path] = []
    for start in (ncu.resolve(), ncu.absolute()):
        # In CUDA's bin folder ncu is a script that starts ../nsight-compute-VERSION/ncu.
        for parent in list(start.parents)[:4]:
            beside = sorted(parent.glob("nsight-compute-*"), key=lambda p: _version(p.name))
            for root in (parent, *reversed(beside)):
                folder = root / "extras" / "python"
                if (folder / "ncu_report.py").is_file() and folder not in found:
                    found.append(folder)
    return found


def _by_module(
    module: Path, report: Path, directory: Path, environment: Mapping[str, str]
) -> list[RawLaunch] | None:
    """Return the launches by ncu's Python module, or None where it does not work here."""
    out = directory / "ncu_report.json"
    out.unlink(missing_ok=True)
    # -P keeps our own modules, which stand beside the script, out of its search path.
    command = [sys.executable, "-P", str(_READER), str(module), str(report), str(out)]
    try:
        status = run_process(command, directory=directory, environment=environment,
                             log=directory / "reader.log", seconds=READ_SECONDS)  # fmt: skip
        if status != 0:
            return None
        return read_json(json.loads(out.read_text(encoding="utf-8")))
    except (TimedOut, OSError, ValueError, KeyError, TypeError):
        return None
