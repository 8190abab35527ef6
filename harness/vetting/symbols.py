"""What a built candidate asks of its host process, read from the object, not from its text.

The CUDA runtime is linked shared (`--cudart none`), so each runtime call is an undefined symbol.
What is not on the allow-list is refused by name. Machine code that needs no symbol (an inline
system call) is host_code's business.
"""

from __future__ import annotations

import fnmatch
import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..records.builds import Diagnostic
from .elf import (
    DYNSYM,
    RELA,
    SYMTAB,
    Section,
    read_relocations,
    read_sections,
    read_segments,
    read_symbols,
    require_elf,
)

_RUNTIME = """
__cudaRegisterFatBinary __cudaRegisterFatBinaryEnd __cudaUnregisterFatBinary __cudaRegisterFunction
__cudaRegisterVar __cudaInitModule __cudaGetKernel __cudaLaunchKernel __cudaLaunchKernel_ptsz
__cudaPushCallConfiguration __cudaPopCallConfiguration
cudaLaunchKernel cudaLaunchKernelExC cudaLaunchKernel_ptsz cudaLaunchKernelExC_ptsz
cudaLaunchCooperativeKernel cudaLaunchCooperativeKernel_ptsz
cudaFuncSetAttribute cudaFuncGetAttributes cudaFuncSetCacheConfig
cudaMemsetAsync cudaMemcpyAsync cudaMemset2DAsync cudaMemcpy2DAsync
cudaMemcpyToSymbolAsync cudaGetSymbolAddress cudaGetSymbolSize
cudaGetLastError cudaPeekAtLastError cudaGetErrorString cudaGetErrorName
cudaGetDevice cudaDeviceGetAttribute cudaGetDeviceProperties cudaGetDeviceProperties_v2
cudaOccupancyMaxActiveBlocksPerMultiprocessor
cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
kb_require_kernel
""".split()

# `exit`: nvcc's host stub of every __device__ function calls it. A candidate that does so itself
# leaves no report and counts as crashed.
_LANGUAGE = """
__cxa_atexit __cxa_finalize __cxa_guard_acquire __cxa_guard_release __cxa_guard_abort
__cxa_pure_virtual __stack_chk_fail __assert_fail abort
__gmon_start__ _ITM_registerTMCloneTable _ITM_deregisterTMCloneTable _ZSt9terminatev
exit
memcpy memset memmove memcmp __memcpy_chk __memset_chk __memmove_chk strlen strcmp
abs labs llabs div ldiv lldiv
""".split()

_MATH = """
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1
fabs fdim floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10
log1p log2 logb lrint lround modf nan nearbyint nextafter pow remainder remquo rint round scalbln
scalbn sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn
""".split()

_ALLOWED = frozenset([*_RUNTIME, *_LANGUAGE, *_MATH, *(name + "f" for name in _MATH)])

_LIBRARIES = {
    "cublas": ("cublas*",),
    "cudnn": ("cudnn*",),
    "cufft": ("cufft*",),
    "curand": ("curand*",),
    "cusparse": ("cusparse*",),
    "cusolver": ("cusolver*",),
}

# Reason categories, first match wins; a name without one is still refused.
_CATEGORIES: tuple[tuple[str, str], ...] = (
    ("device memory is not for a candidate to manage: use the workspace",
     "cudaMalloc* cudaFree* cudaMemPool* cudaDeviceGetDefaultMemPool cudaHostAlloc "
     "cudaHostRegister cudaMemAdvise cudaMemPrefetch*"),
    ("it waits for the device: only enqueue work on the given stream",
     "cudaDeviceSynchronize cudaStreamSynchronize cudaEventSynchronize cudaThreadSynchronize "
     "cudaMemcpy cudaMemset cudaMemcpy2D cudaMemset2D cudaMemcpyToSymbol cudaMemcpyFromSymbol"),
    ("streams, events and graphs: all work goes on the given stream",
     "cudaStream* cudaEvent* cudaGraph* cudaLaunchHostFunc cudaLaunchCooperativeKernelMulti*"),
    ("launch() works on the device that it is given (the algorithms of CUB and Thrust for a whole "
     "device call it: cub/block/ and cub/warp/ do not)",
     "cudaGetDeviceCount"),
    ("it changes the device for everyone",
     "cudaDeviceReset cudaDeviceSetLimit cudaDeviceSetCacheConfig cudaSetDevice* cudaCtx* "
     "cudaProfiler* cudaDevice*"),
    ("driver call, past the runtime", "cu[A-Z]* nvml* nvrtc*"),
    ("library call: allowed only with --libraries",
     "cublas* cudnn* cufft* curand* cusparse* cusolver* nccl*"),
    ("file access",
     "open open64 openat* fopen* freopen* fdopen creat read write pread* pwrite* fread "
     "fwrite close fclose fseek* fgets fgetc fscanf __isoc*scanf stat* fstat* lstat* "
     "__xstat* access unlink* remove rename* mkdir* rmdir opendir readdir* tmpfile* "
     "mkstemp* getcwd chdir ioctl fcntl* *basic_?stream* *basic_?fstream* *basic_filebuf* "
     "*filesystem* lseek* truncate ftruncate"),
    ("printing (in a macro that checks for errors fprintf to stderr is let through and dropped)",
     "printf fprintf sprintf snprintf vprintf vfprintf __printf_chk __fprintf_chk __*printf_chk "
     "puts fputs putchar fputc putc perror fflush stdout stderr stdin _ZSt4cout _ZSt4cerr "
     "_ZSt4clog _ZSt3cin *ostream* *ios_base*"),
    ("host memory allocation",
     "malloc calloc realloc free aligned_alloc posix_memalign memalign _Znw* _Zna* _Zdl* _Zda* "
     "strdup"),
    ("mapping or protecting memory", "mmap* munmap mprotect mremap shm_* memfd_create brk sbrk"),
    ("threads", "pthread_* thrd_* sem_* *_ZNSt6thread* clone clone3 _ZSt*async* _ZNSt*future*"),
    ("processes",
     "fork vfork exec* posix_spawn* system popen pclose wait wait4 waitpid kill killpg raise "
     "ptrace prctl setsid _exit _Exit quick_exit atexit on_exit"),
    ("signals and non-local jumps",
     "signal sigaction sig* *setjmp longjmp alarm setitimer timer_*"),
    ("environment", "getenv secure_getenv setenv putenv unsetenv clearenv environ __environ "
     "__libc_start_main getauxval sysconf uname gethostname getpid getppid"),
    ("timers",
     "clock clock_* gettimeofday time times nanosleep usleep sleep getrusage _ZNSt6chrono*"),
    ("network", "socket connect bind listen accept* send* recv* gethostby* getaddrinfo inet_*"),
    ("dynamic loading", "dlopen dlsym dlvsym dladdr* dlclose dl_iterate_phdr dlmopen dlinfo"),
    ("system calls", "syscall __syscall*"),
    ("randomness", "rand random srand* *rand48 getrandom getentropy *random_device*"),
    ("exceptions: report an error through the output, not by throwing",
     "__cxa_throw __cxa_rethrow __cxa_begin_catch __cxa_end_catch __cxa_allocate_exception "
     "__cxa_free_exception __gxx_personality* _Unwind_* _ZSt*throw* _ZTI* _ZTV*"),
)  # fmt: skip

_OPERATORS = {
    "_Znw": "operator new", "_Zna": "operator new[]",
    "_Zdl": "operator delete", "_Zda": "operator delete[]",
}  # fmt: skip
_LENGTH = re.compile(r"L?(\d{1,9})")
UNNAMED = "(anonymous namespace)"
"""How an unnamed namespace is called, as GNU's tools do. The compiler's own name for it hangs on
the text of the whole file: it is another one in each version of a candidate."""
_UNNAMED = re.compile(r"<unnamed>|\b_GLOBAL__N_\w*")
_SHF_EXECINSTR = 4
_STT_OBJECT, _STT_SECTION, _STT_FILE, _STT_GNU_IFUNC = 1, 3, 4, 10
_CALLS, _ADDRESSES = (7, 1026), (1, 6, 257, 1025)
"""Relocation types on x86-64 and arm64: of a call's slot, and of a pointer."""
_IN_THE_GOT = (6, 1025)
# The start-up files ask for these, there: host_code sees who reads them.
_POINTED_TO = frozenset(
    "_ITM_deregisterTMCloneTable _ITM_registerTMCloneTable __gmon_start__ __cxa_finalize".split()
)
_PT_LOAD, _PT_GNU_STACK, _PF_X, _PF_W = 1, 0x6474E551, 1, 2


class _Object(NamedTuple):
    undefined: tuple[str, ...]
    defined: tuple[str, ...]
    data_in_code: tuple[str, ...]
    """Data that lies in an executable section."""
    resolvers: tuple[str, ...]
    """Indirect functions: their resolvers run when the object is loaded."""
    pointed_to: tuple[str, ...]
    """Functions from elsewhere that are not only called: the object holds their addresses."""
    writable_code: bool
    """Some memory would be writable and executable."""


def undefined_symbols(library: Path) -> tuple[str, ...]:
    """Return the names a shared object leaves to be found elsewhere, sorted, without versions.

    Raises ValueError when the file is no 64-bit little-endian ELF shared object.
    """
    return _read(library).undefined


def defined_symbols(library: Path) -> tuple[str, ...]:
    """Return the names a shared object offers to others, sorted. Raises ValueError as above."""
    return _read(library).defined


def check_symbols(symbols: Iterable[str], libraries: Sequence[str] = ()) -> tuple[Diagnostic, ...]:
    """Return one `forbidden_symbol` for each undefined symbol that no candidate may use.

    `libraries` widens the list, for example to ("cublas",).
    """
    widened = [pattern for library in libraries for pattern in _LIBRARIES.get(library, ())]
    return tuple(
        Diagnostic(kind="forbidden_symbol", message=_refusal(symbol))
        for symbol in sorted(set(symbols))
        if symbol not in _ALLOWED
        and not any(fnmatch.fnmatchcase(symbol, pattern) for pattern in widened)
    )


def check_library(library: Path, libraries: Sequence[str] = ()) -> tuple[Diagnostic, ...]:
    """Return everything about a candidate's shared object that the contract refuses.

    Forbidden undefined symbols, no definition of `launch`, definitions that would stand in for the
    runtime's or the system's, and what would be resolved or made code when the object is loaded.
    """
    content = _read(library)
    found = list(check_symbols(content.undefined, libraries))
    if "launch" not in content.defined:
        found.append(
            Diagnostic(
                kind="missing_launch",
                message='the source does not define `extern "C" void launch(...)` of task.cuh',
            )
        )
    found += [
        Diagnostic(
            kind="forbidden_symbol",
            message=f"{readable(name)}: defined by the candidate, but it belongs to the runtime",
        )
        for name in content.defined
        if name in _ALLOWED or re.match(r"_*cuda|cu[A-Z]", name) or _of_the_system(name)
    ]
    found += [
        Diagnostic(
            kind="forbidden_symbol", message=f"{readable(name)}: data among the machine code"
        )
        for name in content.data_in_code
    ]
    found += [
        Diagnostic(
            kind="forbidden_symbol",
            message=f"{readable(name)}: an indirect function, whose resolver runs at load",
        )
        for name in content.resolvers
    ]
    found += [
        Diagnostic(
            kind="forbidden_symbol",
            message=f"{readable(name)}: its address is taken, from which others could be found",
        )
        for name in content.pointed_to
    ]
    if content.writable_code:
        message = "memory that is writable and executable: code could be made at run time"
        found.append(Diagnostic(kind="forbidden_symbol", message=message))
    return tuple(found)


def readable(symbol: str) -> str:
    """Return a C++ symbol as a person writes it, without argument types; others unchanged.

    A kernel has this name in every version of its file: it may be kept in what outlives one.
    """
    if symbol[:4] in _OPERATORS:
        return _OPERATORS[symbol[:4]]
    match = re.match(r"_Z(?:T[IVS])?(N?)[rVK]*(St)?", symbol)
    if match is None:
        return symbol
    parts = ["std"] if match.group(2) else []
    position = match.end()
    while length := _LENGTH.match(symbol, position):
        start = length.end()
        position = start + int(length.group(1))
        parts.append(symbol[start:position])
        if not match.group(1):
            break
    parts = [with_one_unnamed(part) for part in parts]
    return "::".join(parts) if len(parts) > (1 if match.group(2) else 0) else symbol


def with_one_unnamed(kernel: str) -> str:
    """Return a kernel's name with each unnamed namespace called `UNNAMED`, whoever writes it."""
    return _UNNAMED.sub(UNNAMED, kernel)


def bare_name(kernel: str) -> str:
    """Return a function's name without return type, name spaces, template and call arguments.

    Args:
        kernel: its name as a person, a profiler or the compiler writes it.
    """
    spaces = with_one_unnamed(kernel).replace(f"{UNNAMED}::", "")
    named = re.split(r"[<(]", spaces, maxsplit=1)[0].split()
    return named[-1].rpartition("::")[2] if named else kernel


def _of_the_system(name: str) -> bool:
    """Say whether a definition could be taken for one of the system's: malloc, dlopen, new."""
    if name.startswith("_Z"):
        return name[:4] in _OPERATORS
    # A short pattern would take a candidate's own `statistics` for `stat`.
    return any(
        name == pattern or (len(pattern) > 6 and fnmatch.fnmatchcase(name, pattern))
        for _, patterns in _CATEGORIES
        for pattern in patterns.split()
    )


def _refusal(symbol: str) -> str:
    for reason, patterns in _CATEGORIES:
        if any(fnmatch.fnmatchcase(symbol, pattern) for pattern in patterns.split()):
            return f"{readable(symbol)}: {reason}"
    return f"{readable(symbol)}: not on the allow-list of host calls"


def _read(library: Path) -> _Object:
    data = library.read_bytes()
    try:
        return _parse(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"{library.name} is a damaged ELF file") from error


def _parse(data: bytes) -> _Object:
    """Read the dynamic symbols and the dynamic section."""
    require_elf(data)
    sections = read_sections(data)
    undefined: set[str] = set()
    defined: set[str] = set()
    data_in_code: set[str] = set()
    resolvers: set[str] = set()
    for table in sections:
        if table.kind in (DYNSYM, SYMTAB):
            for symbol in read_symbols(data, sections, table):
                within = sections[symbol.section] if symbol.section < len(sections) else None
                if symbol.kind == _STT_OBJECT and within and within.flags & _SHF_EXECINSTR:
                    data_in_code.add(symbol.name)
                if symbol.kind == _STT_GNU_IFUNC and symbol.section:
                    resolvers.add(symbol.name)
                if table.kind == SYMTAB:
                    continue
                if symbol.name and symbol.kind not in (_STT_SECTION, _STT_FILE):
                    (defined if symbol.section else undefined).add(symbol.name)
    return _Object(tuple(sorted(undefined)), tuple(sorted(defined)),
                   tuple(sorted(data_in_code)), tuple(sorted(resolvers)),
                   _pointed_to(data, sections), _writable_code(data))  # fmt: skip


def _pointed_to(data: bytes, sections: Sequence[Section]) -> tuple[str, ...]:
    """Return the undefined symbols whose addresses the object is given, other than to call them.

    Nothing can be told of an object without any call's slot: its compiler calls through pointers.
    """
    found: set[str] = set()
    calls = False
    for table in sections:
        if table.kind != RELA or sections[table.link].kind != DYNSYM:
            continue
        for _, kind, symbol, _ in read_relocations(data, sections, table):
            calls = calls or kind in _CALLS
            if symbol is None or kind not in _ADDRESSES:
                continue
            startup = symbol.name in _POINTED_TO and kind in _IN_THE_GOT
            if symbol.section == 0 and not startup:
                found.add(symbol.name)
    return tuple(sorted(found)) if calls else ()


def _writable_code(data: bytes) -> bool:
    """Say whether a segment, or the stack, is to be writable and executable at once."""
    both = _PF_X | _PF_W
    return any(
        segment.flags & both == both
        for segment in read_segments(data)
        if segment.kind in (_PT_LOAD, _PT_GNU_STACK)
    )
