"""Runs a whole CUDA program on the stand-in runtime and profiles each of its launches."""

from __future__ import annotations

import ctypes
import os
import pickle
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from program_host import ProgramHost, build_runtime

from kernelblaster.harness.build.compiler_output import compile_errors, kernel_resources
from kernelblaster.harness.build.toolchain import Toolchain
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.gpus import Gpu
from kernelblaster.harness.host.calls import Launch
from kernelblaster.harness.host.entries import read_entries
from kernelblaster.harness.host.plan import is_cooperative
from kernelblaster.harness.occupancy import Occupancy, occupancy
from kernelblaster.harness.records.builds import KernelResources
from kernelblaster.harness.records.profiles import LaunchProfile
from kernelblaster.harness.simt.counters import LaunchCounters
from kernelblaster.harness.simt.model.profile import describe_launch
from kernelblaster.harness.simt.ptx.parser import PtxError, parse
from kernelblaster.harness.simt.ptx.records import Module
from kernelblaster.harness.simt.run import core
from kernelblaster.harness.simt.run.arena import Arena
from kernelblaster.harness.simt.run.block_runs import LaunchFailed
from kernelblaster.harness.simt.run.candidate import HARMLESS, KernelLaunch, memory_of
from kernelblaster.harness.simt.sample.sampling import sample_launch
from kernelblaster.harness.simt.sass.labelled import machine_listing
from kernelblaster.harness.simt.sass.listing import MachineCode, read_listing
from kernelblaster.harness.vetting.symbols import readable

MOST_INSTRUCTIONS = 2_000_000_000
"""Warp instructions that one sample of blocks may execute: beyond, the launch is refused."""


@dataclass
class Launched:
    """One launch of the program: its profile, or why there is none."""

    kernel: str
    """Demangled."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    profile: LaunchProfile | None = None
    counters: LaunchCounters | None = None
    resources: KernelResources | None = None
    refusal: str = ""


@dataclass
class ProgramRun:
    """What a program launched."""

    groups: list[list[Launched]] = field(default_factory=list)
    """Launches between two synchronisations of the device, in order."""

    @property
    def launches(self) -> list[Launched]:
        """All launches in order."""
        return [launch for group in self.groups for launch in group]


@dataclass(frozen=True)
class Program:
    """A compiled program: host half, PTX, and what ptxas says of its kernels."""

    folder: Path
    resources: dict[str, KernelResources]
    machine: dict[str, MachineCode]
    module: Module


def compile_program(toolchain: Toolchain, source: Path, gpu: Gpu, folder: Path) -> Program:
    """Compile a program with main() into a shared library and PTX in `folder`.

    Raises:
        UserError: it does not compile, or its PTX cannot be read.
    """
    try:
        text = source.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {source}: {error}") from error
    (folder / "candidate.cu").write_text(text)
    command = [
        toolchain.nvcc, f"-arch={gpu.arch}", "-ccbin", toolchain.host_compiler, "-std=c++17", "-O3",
        "-lineinfo", "-shared", "-Xcompiler", "-fPIC", "--cudart", "none", "-Xptxas", "-v",
        "-allow-unsupported-compiler", "--keep", "--keep-dir", ".", "-I", str(source.parent),
        "candidate.cu", "-o", "candidate.so",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    log = done.stdout + done.stderr
    if done.returncode:
        errors = compile_errors(log, folder / "candidate.ptx")
        first = errors[0] if errors else None
        where = f" line {first.line}" if first and first.line else ""
        raise UserError(f"{source}{where} does not compile: "
                        f"{first.message if first else log.strip()[-200:]}")  # fmt: skip
    try:
        module = parse((folder / "candidate.ptx").read_text())
    except PtxError as error:
        raise UserError(f"{source}: its PTX cannot be read: {error}") from error
    listing = machine_listing(toolchain, folder / "candidate.ptx", gpu.arch)
    return Program(
        folder, {kernel.kernel: kernel for kernel in kernel_resources(log)},
        read_listing(listing) if listing else {}, module,
    )  # fmt: skip


def run_program(
    toolchain: Toolchain, source: Path, gpu: Gpu, *, whole: bool = False
) -> ProgramRun:
    """Run a program's main() with PROF=1 in the environment and profile what it launches.

    With `whole`, all blocks of each launch run and nothing is profiled: its results are whole.

    Raises:
        UserError: it does not compile, needs a runtime function that is not there, or fails.
    """
    with tempfile.TemporaryDirectory(prefix="program-run-") as scratch:
        program = compile_program(toolchain, source, gpu, Path(scratch))
        return _in_child(
            lambda: _run(toolchain, program, gpu, source, whole), Path(scratch, "run"), source
        )


def _in_child(work: Callable[[], ProgramRun], path: Path, source: Path) -> ProgramRun:
    """Do the work in a child process: a program may end its process, or crash it."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            found: ProgramRun | UserError = work()
            path.write_bytes(pickle.dumps(found))
            status = 0
        except UserError as error:
            path.write_bytes(pickle.dumps(UserError(str(error))))
            status = 0
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    if not path.exists():
        code = os.waitstatus_to_exitcode(ended)
        how = f"was ended by signal {-code}" if code < 0 else f"ended itself with status {code}"
        raise UserError(f"the program {source} {how} before its main() returned")
    result = pickle.loads(path.read_bytes())
    if isinstance(result, UserError):
        raise result
    assert isinstance(result, ProgramRun)
    return result


def _run(
    toolchain: Toolchain, program: Program, gpu: Gpu, source: Path, whole: bool
) -> ProgramRun:
    library = build_runtime(
        toolchain.cuda_headers(), [Path(__file__).resolve().parent / "program_runtime.c"]
    )
    run = ProgramRun([[]])
    generator = random.Random(0)

    def launched(call: Launch) -> None:
        found = Launched(readable(call.kernel), call.grid, call.block)
        run.groups[-1].append(found)
        try:
            asked = _asked(gpu, program, runtime.arena, addresses, found, call)
            if whole:
                _execute(asked)
            else:
                _profile(gpu, program, generator, found, call.kernel, asked)
        except LaunchFailed as error:
            kinds = ", ".join(dict.fromkeys(str(report.kind) for report in error.reports))
            found.refusal = kinds or "its sampled blocks run too long"
        except core.UnsupportedInstruction as error:
            found.refusal = str(error)
        except Exception as error:  # one launch that cannot be modelled must not end the program
            found.refusal = f"{type(error).__name__}: {error}"

    runtime = ProgramHost(library, gpu, launched)

    def synchronized() -> None:
        if run.groups[-1]:
            run.groups.append([])

    told = ctypes.CFUNCTYPE(None)(synchronized)
    runtime.library.kb_set_synchronized(told)
    entries = read_entries((program.folder / "candidate.ptx").read_text())
    try:
        path = program.folder / "candidate.so"
        addresses = runtime.load(path, program.module, program.resources, entries)
        host = ctypes.CDLL(str(path))
    except OSError as error:
        name = re.search(r"undefined symbol: (\w+)", str(error))
        raise UserError(
            f"{source} calls {name[1]}, which the simulated runtime lacks" if name else str(error)
        ) from error
    os.environ["PROF"] = "1"
    try:
        main = host.main
    except AttributeError:
        raise UserError(f"{source} has no main()") from None
    arguments = (ctypes.c_char_p * 2)(str(source).encode(), None)
    sys.stdout.flush()
    with _stdout_to_stderr():
        status = main(1, arguments)
    if run.groups and not run.groups[-1]:
        run.groups.pop()
    if runtime.error is not None:
        raise runtime.error
    if status:
        raise UserError(f"the program {source} ended with status {status}")
    return run


class _stdout_to_stderr:  # noqa: N801 - a context, used as one
    """What the program itself prints is not the comparison."""

    def __enter__(self) -> None:
        self.saved = os.dup(1)
        os.dup2(2, 1)

    def __exit__(self, *_: object) -> None:
        ctypes.CDLL(None).fflush(None)
        os.dup2(self.saved, 1)
        os.close(self.saved)


def _asked(
    gpu: Gpu,
    program: Program,
    arena: Arena,
    addresses: dict[str, int],
    found: Launched,
    call: Launch,
) -> KernelLaunch:
    found.resources = program.resources.get(call.kernel)
    if found.resources is None or call.kernel not in program.module.functions:
        raise UserError(f"nothing is known of kernel {call.kernel}")
    workspace = 0
    if is_cooperative(call.attributes):
        allocation = arena.allocate("grid workspace", core.GRID_WORKSPACE_BYTES)
        arena.view(allocation)[:] = 0  # the grid's barrier, at rest
        workspace = allocation.address
    held = _held(gpu, found.resources, found.block, call.shared_bytes)
    return KernelLaunch(
        core.Launch(
            program.module, call.kernel, found.grid, found.block, call.shared_bytes,
            call.arguments, addresses, resident_blocks=gpu.sms * max(1, held.blocks),
            grid_workspace=workspace,
        ),
        memory_of(arena),
    )  # fmt: skip


def _held(
    gpu: Gpu, facts: KernelResources, block: tuple[int, int, int], dynamic_bytes: int
) -> Occupancy:
    bytes_ = facts.static_shared_bytes + dynamic_bytes
    return occupancy(gpu.limits, int(np.prod(block)), facts.registers, bytes_)


def _execute(asked: KernelLaunch) -> None:
    result = core.run(
        asked.launch, asked.memory, checks=False, max_instructions=MOST_INSTRUCTIONS
    )  # fmt: skip
    reports = [report for report in result.reports if report.kind not in HARMLESS]
    if reports or result.timed_out:
        raise LaunchFailed(asked.launch.kernel, reports)


def _profile(
    gpu: Gpu,
    program: Program,
    generator: random.Random,
    found: Launched,
    kernel: str,
    asked: KernelLaunch,
) -> None:
    facts = found.resources
    assert facts is not None
    bytes_ = facts.static_shared_bytes + asked.launch.dynamic_shared_bytes
    held = _held(gpu, facts, found.block, asked.launch.dynamic_shared_bytes)
    found.counters = sample_launch(
        gpu, asked, held, bytes_, MOST_INSTRUCTIONS, program.machine.get(kernel), generator, {}
    )
    # Programs of this kind flush the L2 with a fill before they time a launch.
    found.profile = describe_launch(gpu, facts, found.counters, l2_left_dirty=True)[0]
