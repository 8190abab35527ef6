"""Asks a host half for its plan: called again, here and elsewhere, it must do the same work."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..judge.findings import judge
from ..judge.reports import CaseReport, Fault
from ..records.builds import Build
from ..records.evaluations import StageResult
from ..records.outcomes import Outcome
from ..records.tensors import TensorSpec
from ..vetting.ptx_tokens import read_ptx
from .calls import Call, DynamicShared, Launch, Transfer
from .checks import HOST_COPY_BYTES, MOST_CALLS, STREAM, Checks
from .entries import read_entries
from .plan import WORKSPACE, Content, Place, Plan, PlannedLaunch, PlannedTransfer, Step, variable
from .process import HostFailed, HostProcess, host_process
from .properties import DEVICE_HIGH, DEVICE_LOW, GpuProperties

ALIGNMENT = 512
"""Of a tensor: what PyTorch's allocator promises."""
WIDEST_GAP = 1 << 34
VARIABLE_STRIDE = 1 << 36
"""As in runtime/runtime.h."""
MOST_FAULTS = 8
HOST_MICROSECONDS, MICROSECONDS_A_CALL = 5000.0, 20.0
"""Processor time that launch() may take, and so much more for each call that it makes. What is
computed there is in no measured time, so there must be next to nothing of it."""


@dataclass(frozen=True)
class Asked:
    """What a plan is wanted for."""

    built: Build
    tensors: Sequence[TensorSpec]
    gpu: GpuProperties
    workspace_limit: int


def plan_launch(program: Path, asked: Asked) -> Plan | StageResult:
    """Return what launch() does, or how its host half fails.

    The host half runs in a process of its own, where none of the device's memory is: it is told
    addresses drawn at random, and what it makes of them is told apart from other numbers by calling
    it again at others. So the plan holds for tensors anywhere, and is all that is ever run of it.

    Raises UserError where the program does not start on this machine.
    """
    built = asked.built
    try:
        with host_process(program, Path(built.directory, "candidate.so")) as process:
            return _plan(process, asked)
    except HostFailed as failed:
        return _failure([(str(failed.outcome), failed.reason)], asked, failed.outcome)
    except _Refused as refused:
        return _failure(refused.faults, asked)


class _Refused(Exception):
    def __init__(self, *faults: Fault) -> None:
        super().__init__(*faults)
        self.faults = faults


@dataclass(frozen=True)
class _Layout:
    """Where buffers are said to lie."""

    starts: Mapping[str, int]
    sizes: Mapping[str, int]
    variables: int
    """Of the first variable."""

    def place(self, address: int) -> Place | None:
        """Return what lies at an address, one past a buffer's end included."""
        for name, start in self.starts.items():
            if start <= address <= start + self.sizes[name]:
                return Place(name, address - start)
        return None


def _plan(process: HostProcess, asked: Asked) -> Plan:
    entries = read_entries(read_ptx(Path(asked.built.directory, "candidate.ptx")))
    process.load(asked.gpu, asked.built.kernels, entries, HOST_COPY_BYTES)
    workspace = process.workspace_bytes()
    if workspace > asked.workspace_limit:
        words = (
            f"workspace_bytes() asks for {workspace} bytes; at these dimensions "
            f"{asked.workspace_limit} are allowed"
        )
        raise _Refused(("invalid_launch", words))
    variables = process.variables()
    here, there = (_layout(asked.tensors, workspace, variables) for _ in range(2))
    recordings, seconds, states = [], [], []
    checks = Checks(asked.gpu, entries, {kernel.kernel: kernel for kernel in asked.built.kernels})
    for layout in (here, there, here, here):
        calls, spent = process.call(_pointers(asked.tensors, workspace, layout), layout.variables)
        seconds.append(spent)
        faults = [fault for call in calls for fault in checks.faults(call)]
        if len(calls) > MOST_CALLS:
            words = f"launch() makes {len(calls)} calls; {MOST_CALLS} are allowed"
            faults.append(("timed_out", words))
        if faults:
            raise _Refused(*faults[:MOST_FAULTS])
        recordings.append([call for call in calls if not isinstance(call, DynamicShared)])
        states.append(process.state())
    if not recordings[0] == recordings[2] == recordings[3]:
        words = "launch() asks for other work when it is called again with the same arguments"
        raise _Refused(("forbidden", words))
    # What it has set up once stays; where nothing changes any more, nothing ever will.
    if states[2] != states[3]:
        words = "launch() changes what it remembers with every call: a later one may do other work"
        raise _Refused(("forbidden", words))
    if process.workspace_bytes() != workspace:
        raise _Refused(("forbidden", "workspace_bytes() differs from call to call"))
    outputs = {spec.name for spec in asked.tensors if spec.role == "output"}
    steps = tuple(_steps(recordings[0], recordings[1], here, there, outputs))
    host = 1e6 * min(seconds)
    if host > HOST_MICROSECONDS + MICROSECONDS_A_CALL * len(steps):
        words = (
            f"launch() works {host:.0f} microseconds on the host: it is to launch kernels, and "
            "what it computes there itself no time would show"
        )
        raise _Refused(("timed_out", words))
    return Plan(steps, workspace, dict(checks.dynamic_shared), host, process.missing)


def _layout(
    tensors: Sequence[TensorSpec], workspace: int, variables: Sequence[tuple[str, int]]
) -> _Layout:
    chance = random.SystemRandom()
    sizes = {spec.name: spec.nbytes for spec in tensors} | {WORKSPACE: workspace}
    starts, cursor = {}, DEVICE_LOW
    for name, size in sizes.items():
        cursor += ALIGNMENT * chance.randrange(1, WIDEST_GAP // ALIGNMENT)
        starts[name] = cursor
        cursor += -(-size // ALIGNMENT) * ALIGNMENT
    base = cursor + ALIGNMENT * chance.randrange(1, WIDEST_GAP // ALIGNMENT)
    for number, (name, size) in enumerate(variables):
        starts[variable(name)] = base + number * VARIABLE_STRIDE
        sizes[variable(name)] = size
    if base + len(variables) * VARIABLE_STRIDE > DEVICE_HIGH:
        raise _Refused(("invalid_launch", "more tensors and variables than there are addresses"))
    return _Layout(starts, sizes, base)


def _pointers(tensors: Sequence[TensorSpec], workspace: int, layout: _Layout) -> list[int]:
    found = [layout.starts[spec.name] if spec.nbytes else 0 for spec in tensors]
    return [*found, layout.starts[WORKSPACE] if workspace else 0, STREAM]


def _steps(
    first: Sequence[Call], second: Sequence[Call], here: _Layout, there: _Layout, outputs: set[str]
) -> Iterator[Step]:
    elsewhere = (
        "forbidden",
        "launch() asks for other work where its tensors lie elsewhere: what it does may not hang "
        "on addresses",
    )
    if len(first) != len(second):
        raise _Refused(elsewhere)
    from_host = 0
    for one, other in zip(first, second, strict=True):
        if isinstance(one, Launch) and isinstance(other, Launch):
            if _shape(one) != _shape(other):
                raise _Refused(elsewhere)
            yield _launch(one, other, here, there)
        elif isinstance(one, Transfer) and isinstance(other, Transfer):
            if _extent(one) != _extent(other):
                raise _Refused(elsewhere)
            if not (one.width and one.height):
                continue
            step = _transfer(one, other, here, there)
            if step.copy and step.source is None:
                from_host += one.width * one.height
                _require_table(step, from_host, outputs)
            yield step
        else:
            raise _Refused(elsewhere)


def _shape(call: Launch) -> tuple[object, ...]:
    sizes = tuple(map(len, call.arguments))
    return call.kernel, call.grid, call.block, call.shared_bytes, call.attributes, sizes


def _extent(call: Transfer) -> tuple[object, ...]:
    return (
        call.copy, call.value, call.width, call.height, call.target_pitch, call.source_pitch,
        len(call.content),
    )  # fmt: skip


def _launch(one: Launch, other: Launch, here: _Layout, there: _Layout) -> PlannedLaunch:
    arguments = tuple(
        _content(mine, its, here, there, f"an argument of {one.kernel}")
        for mine, its in zip(one.arguments, other.arguments, strict=True)
    )
    return PlannedLaunch(
        one.kernel, one.grid, one.block, one.shared_bytes, one.attributes, arguments
    )


def _transfer(one: Transfer, other: Transfer, here: _Layout, there: _Layout) -> PlannedTransfer:
    what = "cudaMemcpyAsync" if one.copy else "cudaMemsetAsync"
    target = here.place(one.target)
    if target is None and one.copy and not DEVICE_LOW <= one.target < DEVICE_HIGH:
        raise _Refused(("forbidden", "cudaMemcpyAsync copies device memory to the host"))
    source = None
    if one.copy and DEVICE_LOW <= one.source < DEVICE_HIGH:
        source = here.place(one.source)
        if source is None or not _fits(one, source, one.source_pitch, here):
            raise _Refused(_outside(what, one))
    if target is None or not _fits(one, target, one.target_pitch, here):
        raise _Refused(_outside(what, one))
    if there.place(other.target) != target or (source and there.place(other.source) != source):
        words = f"{what} goes elsewhere when tensors lie elsewhere"
        raise _Refused(("forbidden", words))
    content = _content(one.content, other.content, here, there, "what is copied from the host")
    return PlannedTransfer(
        one.copy, one.value, target, one.target_pitch, source, one.source_pitch, one.width,
        one.height, content,
    )  # fmt: skip


def _fits(call: Transfer, place: Place, pitch: int, layout: _Layout) -> bool:
    if call.height > 1 and pitch < call.width:
        return False
    end = place.offset + pitch * (call.height - 1) + call.width
    return end <= layout.sizes[place.buffer]


def _outside(what: str, call: Transfer) -> Fault:
    return "out_of_bounds", f"{what} of {call.width} bytes goes outside an allocation"


def _require_table(step: PlannedTransfer, total: int, outputs: set[str]) -> None:
    """Refuse what a copy from the host may not be: an output, or more than small tables."""
    if step.target.buffer in outputs:
        words = (
            f"cudaMemcpyAsync copies host memory into {step.target.buffer}: an output is computed "
            "on the GPU"
        )
        raise _Refused(("forbidden", words))
    if total > HOST_COPY_BYTES or not step.content.hexadecimal:
        words = (
            f"launch() copies {total} bytes from the host; {HOST_COPY_BYTES} are allowed: tables "
            "belong into __constant__ or __device__ variables, or are computed on the GPU"
        )
        raise _Refused(("forbidden", words))


def _content(mine: bytes, its: bytes, here: _Layout, there: _Layout, what: str) -> Content:
    """Return bytes with the addresses among them, found by how they differ between two places."""
    if mine == its:
        return Content(mine.hex())
    found, plain = [], bytearray(mine)
    for start in range(0, len(mine), 8):
        one, other = mine[start : start + 8], its[start : start + 8]
        if one == other:
            continue
        place = _pointed(int.from_bytes(one, "little"), int.from_bytes(other, "little"),
                         here, there) if len(one) == 8 else None  # fmt: skip
        if place is None:
            words = f"{what} hangs on addresses, but is none of a tensor: it cannot be told apart"
            raise _Refused(("forbidden", words))
        found.append((start, place))
        plain[start : start + 8] = bytes(8)
    return Content(plain.hex(), tuple(found))


def _pointed(one: int, other: int, here: _Layout, there: _Layout) -> Place | None:
    for name, start in here.starts.items():
        if one - start == other - there.starts[name]:
            return Place(name, one - start)
    return None


def _failure(faults: Sequence[Fault], asked: Asked, outcome: Outcome | None = None) -> StageResult:
    source = Path(asked.built.directory, "candidate.cu").read_text(encoding="utf-8")
    found = judge(CaseReport(faults=list(faults)), source)
    assert found is not None
    update: dict[str, object] = {"build": asked.built}
    if outcome is not None:
        update |= {"outcome": outcome, "reason": faults[0][1]}
    return found.model_copy(update=update)
