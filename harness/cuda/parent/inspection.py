"""Puts a candidate under NVIDIA's own tools: Nsight Compute and Compute Sanitizer."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from ...build.toolchain import Toolchain, build_now
from ...host.plan import WORKSPACE, Plan, PlannedLaunch, first_alike
from ...nsight.command import BASIC, TIMED, Collection, affordable
from ...nsight.ncu import profile_program
from ...nsight.profile import NcuResult
from ...nsight.sanitizer import RACES, TOOLS, Lines, sanitize_program
from ...nsight.selection import (
    FEW_LAUNCHES,
    MOST_TIMED,
    Launched,
    counted_places,
    dominant_place,
    put_together,
    require_all,
    spread,
    timed_places,
)
from ...process.children import Turn, both, scrubbed_environment
from ...process.scratch import scratch_folder
from ...records.builds import Build
from ...records.evaluations import StageResult
from ...records.outcomes import Outcome
from ...records.record import Record
from ...records.tasks import Task
from ...records.tensors import TensorSpec
from ...vetting.ptx_tokens import NotPtx, read_ptx
from ...vetting.strong_accesses import strong_lines
from ..gpu_lock import SHARED_PART, gpu_lock, leaves_room
from ..present_gpus import FoundGpu
from .client import replay_library

PROFILE_SECONDS = 120.0
"""Limit of one profiling run: replays of every launch, and starting twice."""
SMALL_SECONDS = 60.0
"""Limit of the sanitizer's tools at small dimensions; nearly all of it goes into starting them."""
_NOTHING = """#include <cuda_runtime.h>
__global__ void nothing() {}
extern "C" void launch(void*, cudaStream_t stream) { nothing<<<1, 32, 0, stream>>>(); }
"""
_NOTHING_PLANNED = Plan(
    (PlannedLaunch("_Z7nothingv", (1, 1, 1), (32, 1, 1), 0, (), ()),), 0, {}, 0.0
)
_READY, _ALONE = "ready", "alone"
_PROGRAM = Path(__file__).resolve().parents[1] / "launching" / "launch_program.py"


class Stage(Record):
    """What a candidate is run on, outside the worker."""

    gpu_uuid: str
    gpu: str
    """Name to put on profiles."""
    memory_bytes: int
    inputs: dict[str, str]
    """Files with the bytes of inputs, parameters and buffers, by name."""


def profile_candidate(
    task: Task, built: Build, plan: Plan, stage: Stage, launches: Sequence[Launched]
) -> NcuResult:
    """Profile one call of launch() with hardware counters, or say why not. Blocks.

    Of many launches all are timed, and those counted that the time goes into (selection.py): the
    two runs get ready side by side, and have the GPU one after the other.

    Args:
        launches: with their times between events, by which it is chosen what is counted.
    """
    tensors = task.full.tensors
    sizes = {spec.name: spec.nbytes for spec in tensors} | {WORKSPACE: plan.workspace_bytes}
    kinds = first_alike(plan.launches, sizes)

    def counted(launches: Sequence[Launched], places: Sequence[int] | None) -> NcuResult:
        chosen = launches if places is None else [launches[place] for place in places]
        together = sum(launch.microseconds or 0.0 for launch in chosen)
        with _program(tensors, built, plan, stage, profiled=places) as (command, directory):
            return _profile(command, directory, stage, affordable(together), places)

    def timed() -> NcuResult:
        # Where all are profiled, ncu needs no ranges.
        places = timed_places(kinds) if len(kinds) > MOST_TIMED else None
        with _program(tensors, built, plan, stage, profiled=places) as (command, directory):
            return require_all(_profile(command, directory, stage, TIMED, places), kinds)

    if len(kinds) <= FEW_LAUNCHES:
        return counted(launches, None)
    places, found = list[int](), None
    if len(launches) == len(kinds):
        places = counted_places(launches, kinds)
        times, found = both(timed, lambda: counted(launches, places))
    else:
        times = timed()
    if times.profile is None:
        return times
    profile = spread(times.profile, kinds)
    if found is None or kinds[dominant_place(profile.launches)] not in places:
        places = counted_places(profile.launches, kinds)
        found = counted(profile.launches, places)
    return put_together(profile, kinds, places, found)


def sanitize_candidate(
    task: Task, built: Build, plan: Plan, stage: Stage, *, seconds: float, where: str
) -> StageResult:
    """Look for accesses out of bounds and for races in one call of launch(). Blocks.

    What others may have caused, who took the memory, is looked at again with nobody else there, as
    far as time is left.

    Args:
        seconds: limit of all tools together, without what is waited for others who have the GPU.
        where: at which dimensions, in words.
    """
    # Races are looked for in shared memory alone: without any there are none to be found.
    tools = TOOLS if _uses_shared_memory(built, plan) else tuple(t for t in TOOLS if t != RACES)
    strong = _strong_lines(built) if RACES in tools else frozenset[tuple[str, int]]()
    where = where if RACES in tools else f"{where} (no shared memory for {RACES})"

    def looked_at(seconds: float, *, shared: bool) -> tuple[StageResult, float]:
        """Return what is found, and the seconds left to ask again; 0 where no others were there."""
        with (
            _program(task.full.tensors, built, plan, stage, asks=False) as (command, directory),
            gpu_lock(stage.gpu_uuid, shared=shared) as hold,
        ):
            began = time.monotonic()
            found = sanitize_program(
                command,
                directory=directory,
                environment=_environment(stage, directory),
                seconds=seconds,
                where=where,
                tools=tools,
                strong=strong,
            )
            failed = found.outcome is Outcome.CRASHED or "sanitizer_missing" in found.facts
            left = seconds - (time.monotonic() - began)
            return found, left if failed and hold.had_company() else 0.0

    shared = leaves_room(task.full.tensors, stage.memory_bytes, SHARED_PART)
    found, left = looked_at(seconds, shared=shared)
    if left > 0:
        found, _ = looked_at(left, shared=False)
    return found


def _strong_lines(built: Build) -> Lines:
    """Return the lines between which the sanitizer sees races where none are."""
    try:
        return strong_lines(read_ptx(Path(built.directory, "candidate.ptx")))
    except (OSError, NotPtx):
        return frozenset()


def _uses_shared_memory(built: Build, plan: Plan) -> bool:
    return any(kernel.static_shared_bytes for kernel in built.kernels) or any(
        launch.shared_bytes for launch in plan.launches
    )


def try_counters(toolchain: Toolchain, gpu: FoundGpu) -> NcuResult:
    """Profile a kernel that does nothing: are the counters of this GPU to be had? Blocks."""
    built = build_now(toolchain, _NOTHING, "#pragma once\n", gpu.arch)
    stage = Stage(gpu_uuid=gpu.uuid, gpu=gpu.name, memory_bytes=gpu.memory_bytes, inputs={})
    with _program((), built, _NOTHING_PLANNED, stage) as (command, directory):
        return _profile(command, directory, stage, BASIC)


def _profile(
    command: list[str],
    directory: Path,
    stage: Stage,
    collection: Collection,
    profiled: Sequence[int] | None = None,
) -> NcuResult:
    return profile_program(
        command,
        directory=directory,
        seconds=PROFILE_SECONDS,
        environment=_environment(stage, directory),
        turns=[
            Turn(directory, lambda: gpu_lock(stage.gpu_uuid, shared=True), _READY),
            Turn(directory, lambda: gpu_lock(stage.gpu_uuid), _ALONE),
        ],
        collection=collection,
        from_start=profiled is None,
        gpu=stage.gpu,
        source="candidate.cu",
    )


@contextmanager
def _program(
    tensors: Sequence[TensorSpec],
    built: Build,
    plan: Plan,
    stage: Stage,
    *,
    profiled: Sequence[int] | None = None,
    asks: bool = True,
) -> Iterator[tuple[list[str], Path]]:
    """Yield the command that calls launch() once, and a folder for it.

    Args:
        profiled: places of the launches round which it starts and stops the profiler.
        asks: whether it waits for its turns: to get ready beside others, then to run alone.
    """
    with scratch_folder("inspect") as directory:
        manifest = directory / "manifest.json"
        asked = _manifest(tensors, built, plan, stage) | {
            "profiled": list(profiled or ()),
            "turns": {
                name: list(map(str, Turn.files(directory, name))) if asks else ()
                for name in (_READY, _ALONE)
            },
        }
        manifest.write_text(json.dumps(asked))
        yield [sys.executable, "-I", str(_PROGRAM), str(manifest)], directory


def _environment(stage: Stage, directory: Path) -> dict[str, str]:
    """Return an environment without secrets, with one GPU."""
    return scrubbed_environment(directory) | {
        "CUDA_VISIBLE_DEVICES": stage.gpu_uuid,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def _manifest(
    tensors: Sequence[TensorSpec], built: Build, plan: Plan, stage: Stage
) -> dict[str, object]:
    return {
        "driver": str(_PROGRAM.with_name("driver.py")),
        "replay": str(replay_library()),
        "image": str(Path(built.directory, "candidate.cubin")),
        "plan": asdict(plan),
        "tensors": [
            {
                "name": spec.name,
                "bytes": spec.nbytes,
                "file": None if spec.role == "output" else stage.inputs[spec.name],
            }
            for spec in tensors
        ],
    }
