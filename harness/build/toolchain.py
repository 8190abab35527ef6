"""NVIDIA's compiler as installed from PyPI or found on PATH, and its builds, cached by content."""

from __future__ import annotations

import functools
import importlib.util
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from ..errors import UserError
from ..process.children import TimedOut, off_loop
from ..records.builds import Build, Diagnostic
from ..records.identity import sha256_of
from ..records.record import Record
from ..vetting.device_rules import device_code, names_its_own_places
from ..vetting.host_code import check_machine_code
from ..vetting.host_object import check_sections, host_assembly
from ..vetting.ptx_tokens import read_ptx
from ..vetting.source_rules import check_source, macro_directive, may_rename_lines
from ..vetting.symbols import undefined_symbols
from .cache import cache_root, new_entry, trim_entries, used_entry
from .compiler_output import compile_errors, kernel_resources, machine_fault
from .compiling import SECONDS, Stopped, denied_files, foreign_files, require_small, run_nvcc
from .host_compiler import find_host_compiler
from .native import build_native

OLDEST_NVCC = (12, 4)
"""Older compilers do not know sm_90a fully and name their runtime symbols differently."""

FLAGS = (
    "-std=c++17", "-lineinfo", "-O3", "-shared", "-Xcompiler", "-fPIC", "--cudart", "none",
    "-Xcompiler", "-fno-jump-tables,-fno-exceptions", "-Xlinker", "-z,relro,-z,now",
    "-Xptxas", "-v", "-allow-unsupported-compiler", "--keep", "--keep-dir", ".", "-I", ".",
    "--threads", "2",
)  # fmt: skip
"""Two threads: what becomes of host and of device code is found side by side."""
_WITHOUT_SPECIAL_FUNCTIONS = "-D_GLIBCXX_BITS_SPECFUN_H"
"""C++17's <cmath> ends with Bessel functions and their like (libstdc++'s bits/specfun.h), a third
of what it takes to compile a candidate: as if it had been included already. With it go names that
it includes and that others leave to it (std::max, std::numeric_limits)."""
_NAMES_STD = re.compile(r"\bstd\b")
_NEEDS_ALL_HEADERS = re.compile(r"\bstd\b|/include/")
"""Of errors. A header that is included after a candidate's macros (max, swap) fails by those, where
the runtime's header would have included it before them."""
_MARKED_LAMBDAS = "--extended-lambda"
"""For lambdas marked __device__. With it the runtime's header includes all of <functional>, which
takes longer to compile than most candidates do."""
_ASKS_FOR_MARKS = "__CUDACC_EXTENDED_LAMBDA__"
"""Defined with that flag; a source that names it may say that it must be."""
_NEEDS_MARKS = re.compile(
    r"^[^\n]*\(\d+\): error: __host__ or __device__ annotation on lambda requires "
    rf"{_MARKED_LAMBDAS} nvcc flag$", re.MULTILINE,
)  # fmt: skip

_KEEP_ASSEMBLY = ("-Xcompiler", "-save-temps")
_BY_FUNCTIONS = ("-Xcompiler", "-mindirect-branch=thunk-extern,-mindirect-branch-register")
"""Calls through pointers go by the functions of pointer_calls.c: GCC's for x86-64."""

RULES = "17"
"""Raised whenever a build's diagnostics may change: a cached build keeps its own."""

_KEPT = frozenset({
    "candidate.cu", "task.cuh", "candidate.so", "candidate.ptx", "candidate.cubin", "nvcc.log",
})  # fmt: skip
"""Files that a build keeps."""

_PARTS = ("bin", "crt", "include", "lib", "lib64", "nvvm", "nvvm-prev", "targets")
"""Folders of a toolkit that its compiler uses."""
_WHEELS = "nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime nvidia-cuda-cccl"


class Toolchain(Record):
    """nvcc and the host compiler it drives."""

    nvcc: str
    """Path of the executable."""
    version: str
    """For example 13.0.88."""
    host_compiler: str
    """Path of the C++ compiler given to nvcc with -ccbin."""
    host_version: str
    """First line of its --version."""
    host_choice: str = ""
    """Why that compiler was taken."""
    host_folders: tuple[str, ...] = ()
    """Where it says that its programs, headers and libraries lie."""

    @property
    def identity(self) -> str:
        """What a build depends on, in one line."""
        return f"nvcc {self.version}, {self.host_version}"

    @property
    def described(self) -> str:
        """The same with the host compiler's path, and why it was taken."""
        why = f" ({self.host_choice})" if self.host_choice else ""
        return f"{self.identity}; host compiler {self.host_compiler}{why}"

    def cuda_headers(self) -> Path:
        """Return the folder of CUDA's headers. Raises UserError where there is none."""
        root = Path(self.nvcc).resolve().parent.parent
        for place in (root / "include", *root.glob("targets/*/include")):
            if (place / "cuda_runtime_api.h").is_file():
                return place
        raise UserError(
            f"CUDA headers are missing: no cuda_runtime_api.h below {root}; "
            "pip install nvidia-cuda-runtime nvidia-cuda-crt"
        )

    def programs(self) -> tuple[Path, ...]:
        """Return what a compiler may read and start, beside the system's folders."""
        nvcc = Path(self.nvcc).resolve()
        own = (nvcc.parent.parent / name for name in _PARTS)
        return Path(self.nvcc), nvcc, *own, *map(Path, self.host_folders)

    def tool(self, name: str) -> Path | None:
        """Return the path of another CUDA tool (nvdisasm, cuobjdump), beside nvcc or on PATH."""
        beside = Path(self.nvcc).resolve().parent / name
        if beside.is_file():
            return beside
        found = shutil.which(name)
        return Path(found) if found else None


def find_toolchain() -> Toolchain:
    """Find nvcc (PyPI wheels first, then PATH) and a host C++ compiler.

    Raises UserError, with what to install, where one is missing, too old, or does not start.
    """
    compiler = find_host_compiler()
    host_version = _version_text(Path(compiler.path)).splitlines()[0].strip()
    too_old: list[str] = []
    for nvcc in [*_nvcc_of_wheels(), *_nvcc_of_path()]:
        match = re.search(r"\bV(\d+)\.(\d+)\.(\d+)", _version_text(nvcc))
        if match is None:
            continue
        version = ".".join(match.groups())
        if (int(match.group(1)), int(match.group(2))) < OLDEST_NVCC:
            too_old.append(f"{nvcc} is version {version}")
            continue
        return Toolchain(
            nvcc=str(nvcc), version=version, host_compiler=compiler.path,
            host_version=host_version, host_choice=compiler.why,
            host_folders=compiler.folders,
        )  # fmt: skip
    found = f" ({'; '.join(too_old)}, too old)" if too_old else ""
    raise UserError(
        f"no CUDA compiler {OLDEST_NVCC[0]}.{OLDEST_NVCC[1]} or newer found{found}: "
        f"pip install {_WHEELS}, or put nvcc on PATH"
    )


async def build(toolchain: Toolchain, source: str, header: str, arch: str) -> Build:
    """Compile a candidate without blocking the event loop; see `build_now`."""
    return await off_loop(build_now, toolchain, source, header, arch)


def build_now(toolchain: Toolchain, source: str, header: str, arch: str) -> Build:
    """Compile a candidate against one task.cuh for one architecture, for example sm_90.

    One nvcc run leaves candidate.so (the host half, CUDA runtime undefined), candidate.ptx and
    candidate.cubin in `Build.directory`. A source that does not compile is a Build that did not
    succeed, with the errors on the candidate's own lines; it is cached too. Raises UserError for
    faults of the machine or an unknown architecture. What host or device code may not hold (see
    source_rules, device_rules and host_code) is a diagnostic of a build that did succeed: do not
    run such a build, nor one that `symbols.check_library` refuses.
    """
    if not re.fullmatch(r"sm_\d{2,3}[af]?", arch):
        raise UserError(f"unknown architecture {arch!r}: expected for example sm_90")
    key = sha256_of(source.encode("utf-8", "surrogatepass"), header, arch, *FLAGS, RULES,
                    toolchain.identity)  # fmt: skip
    failed = Build(key=key, succeeded=False, arch=arch, compiler=toolchain.described)
    if refused := check_source(source):
        return failed.model_copy(update={"diagnostics": refused})
    builds = cache_root() / "builds"
    final = builds / key[:2] / key
    if cached := _load(final):
        return cached
    try:
        with new_entry(final) as directory:
            (directory / "candidate.cu").write_text(source, encoding="utf-8", newline="")
            (directory / "task.cuh").write_text(header, encoding="utf-8")
            own = {path.name for path in directory.iterdir()}
            flags: tuple[str, ...] = (_MARKED_LAMBDAS,) if _ASKS_FOR_MARKS in source else ()
            if not _NAMES_STD.search(source):
                flags += (_WITHOUT_SPECIAL_FUNCTIONS,)
            ends = time.monotonic() + SECONDS
            status, log, refused = _compiled(toolchain, arch, directory, flags, ends)
            while status and not refused and (others := _asked_for(flags, log)) != flags:
                flags = others
                _drop_all_but(own, directory)  # The next one finds nothing of the last.
                status, log, refused = _compiled(toolchain, arch, directory, flags, ends)
            if refused:
                result = failed.model_copy(update={"diagnostics": refused})
            elif status == 0:
                result = _collect(directory, key, arch, toolchain, log)
            else:
                errors = compile_errors(log, directory / "candidate.ptx")
                result = failed.model_copy(update={"diagnostics": errors})
            result = result.model_copy(update={"directory": str(final)})
            _drop_all_but(_KEPT, directory)
            (directory / "build.json").write_text(result.model_dump_json(), encoding="utf-8")
    except (TimedOut, Stopped, _Killed) as error:
        slow = Diagnostic(kind="compile_error", message=str(error))
        return failed.model_copy(update={"diagnostics": (slow,)})
    trim_entries(builds, final)
    return result


def _asked_for(flags: tuple[str, ...], errors: str) -> tuple[str, ...]:
    """Return the flags with which a compilation that failed with `flags` may succeed."""
    missed = _NEEDS_ALL_HEADERS.search(errors)
    asked = [flag for flag in flags if not missed or flag != _WITHOUT_SPECIAL_FUNCTIONS]
    if _MARKED_LAMBDAS not in flags and _NEEDS_MARKS.search(errors):
        asked.append(_MARKED_LAMBDAS)
    return tuple(asked)


def _compiled(
    toolchain: Toolchain, arch: str, directory: Path, flags: Sequence[str], ends: float
) -> tuple[int, str, tuple[Diagnostic, ...]]:
    """Compile; return nvcc's status, its log, and what of what it read is refused.

    Raises UserError where the machine is at fault, _Killed, TimedOut at the end (monotonic time).
    """
    status, log = _run_nvcc(toolchain, arch, directory, flags, ends - time.monotonic())
    if status:
        _raise_for_machine(toolchain, directory, log)
    return status, log, (*_refused_reading(directory, toolchain, log if status else ""),)


class _Killed(Exception):
    """The compiler was ended from outside. Not cached: it may have been the machine's load."""


def _refused_reading(
    directory: Path, toolchain: Toolchain, errors: str
) -> Iterator[Diagnostic]:
    """Yield what the compilers read, or tried to read, and may not; host assembly of a failure.

    An assembler that cannot read a file fails, and leaves what it was to read.
    """
    yield from denied_files(errors)
    yield from foreign_files(directory, toolchain.programs())
    for name in ("candidate.cpp4.ii", "candidate.cpp1.ii"):
        path = directory / name
        if path.exists() and (found := macro_directive(path.read_bytes())):
            yield found
            return
    if errors:
        yield from _host_assembly(directory)


def _host_assembly(directory: Path) -> tuple[Diagnostic, ...]:
    return tuple(
        found
        for path in sorted(directory.glob("candidate*.s"))
        for found in host_assembly(path.read_text(errors="replace"))
    )


def _collect(directory: Path, key: str, arch: str, toolchain: Toolchain, log: str) -> Build:
    # One target written with -gencode leaves the architecture out of the name.
    named = directory / f"candidate.{arch}.cubin"
    if named.exists():
        named.rename(directory / "candidate.cubin")
    require_small(directory)
    if not any(directory.glob("candidate*.s")):
        raise UserError(f"{toolchain.host_compiler} leaves no assembly to check: use g++ (set CXX)")
    source = (directory / "candidate.cu").read_text(encoding="utf-8")
    device = (directory / "candidate.cudafe1.gpu").read_text(errors="replace")
    ptx = read_ptx(directory / "candidate.ptx")
    return Build(
        key=key,
        succeeded=True,
        arch=arch,
        compiler=toolchain.described,
        kernels=kernel_resources(log),
        undefined_symbols=undefined_symbols(directory / "candidate.so"),
        diagnostics=(
            *_host_assembly(directory),
            *check_sections(directory / "candidate.o"),
            *check_machine_code(directory / "candidate.so", toolchain.tool("objdump")),
            *device_code(ptx, not may_rename_lines(source) and not names_its_own_places(device)),
        ),
    )


def _run_nvcc(
    toolchain: Toolchain, arch: str, directory: Path, more: Sequence[str], seconds: float
) -> tuple[int, str]:
    own = {"silenced.o": _silenced()}
    flags = [*FLAGS, *_KEEP_ASSEMBLY, *more]
    if platform.machine() == "x86_64" and "clang" not in toolchain.host_version:
        own["pointer_calls.o"] = _pointer_calls()
        flags += _BY_FUNCTIONS
    for name, made in own.items():
        shutil.copyfile(made, directory / name)
    command = [
        toolchain.nvcc, _target(arch), "-ccbin", toolchain.host_compiler, *flags,
        "candidate.cu", *own, "-o", "candidate.so",
    ]  # fmt: skip
    return run_nvcc(command, directory, toolchain.programs(), seconds)


def _silenced() -> Path:
    """Return the object that stands in for printing, built at first use."""
    here = Path(__file__).resolve().parent
    flags = ["-ffreestanding", "-fno-stack-protector"]
    return build_native("silenced", [here / "silenced.c"], flags, tune=False, kind="object")


def _pointer_calls() -> Path:
    """Return the object through which a candidate calls pointers to kernels, built at first use."""
    here = Path(__file__).resolve().parent
    return build_native(
        "pointer_calls", [here / "pointer_calls.c"], tune=False, kind="object"
    )


def _target(arch: str) -> str:
    """Return nvcc's option for an architecture.

    `-arch=sm_90a` also makes a pass for plain sm_90, which refuses what only sm_90a has (wgmma).
    """
    if arch[-1].isdigit():
        return f"-arch={arch}"
    return f"-gencode=arch=compute_{arch.removeprefix('sm_')},code={arch}"


def _raise_for_machine(toolchain: Toolchain, directory: Path, log: str) -> None:
    """Raise where a failed run is no fault of the source alone: it must not be cached."""
    if shutil.disk_usage(directory).free < 16 << 20:
        raise UserError(f"no space left for compiling in {directory.parent}: free some and retry")
    if fault := machine_fault(log):
        raise UserError(f"{toolchain.nvcc} cannot work here: {fault[:300]}")
    if re.search(r"^nvcc error.*signal 9|^\S+: fatal error: Killed", log, re.MULTILINE):
        raise _Killed("the compiler was killed, most likely for using too much memory")


def _load(directory: Path) -> Build | None:
    """Return a cached build that is whole; drop one whose files were damaged since."""
    try:
        result = Build.model_validate_json((directory / "build.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not directory.exists():
            return None
    except (OSError, ValueError):
        pass
    else:
        files = ("candidate.so", "candidate.ptx", "candidate.cubin") if result.succeeded else ()
        if all((directory / name).is_file() for name in files):
            used_entry(directory)
            # The cache folder may have been moved as a whole.
            return result.model_copy(update={"directory": str(directory)})
    shutil.rmtree(directory, ignore_errors=True)
    return None


def _drop_all_but(kept: Collection[str], directory: Path) -> None:
    for path in directory.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _nvcc_of_wheels() -> list[Path]:
    """Return nvcc of NVIDIA's wheels (nvidia/cu13/...), newest first, where the parts are whole."""
    spec = importlib.util.find_spec("nvidia")
    places = list(spec.submodule_search_locations or []) if spec else []
    roots = [root for place in places for root in Path(place).glob("cu[0-9]*")]
    needed = ("bin/nvcc", "bin/ptxas", "nvvm/bin/cicc", "include/cuda_runtime.h",
              "include/cccl/nv/target")  # fmt: skip
    whole = [root for root in roots if all((root / name).exists() for name in needed)]
    whole.sort(key=lambda root: int(re.sub(r"\D", "", root.name)), reverse=True)
    return [root / "bin" / "nvcc" for root in whole]


def _nvcc_of_path() -> list[Path]:
    found = shutil.which("nvcc")
    return [Path(found).resolve()] if found else []


def _version_text(program: Path) -> str:
    """Return what a program says of its version; asked once in a process while it stays the same.

    Every step of a run opens its device anew.
    """
    try:
        found = program.stat()
    except OSError as error:
        raise UserError(f"{program} does not start: {error}") from error
    return _ask_version(program, (found.st_ino, found.st_size, found.st_mtime_ns))


@functools.lru_cache(maxsize=16)
def _ask_version(program: Path, identity: tuple[int, ...]) -> str:
    try:
        result = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{program} does not start: {error}") from error
    return result.stdout or "unknown version"
