"""Compiles the package's own C sources at first use, into a cache keyed by what was compiled."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from ..errors import UserError
from .cache import cache_root

# What newer compilers take for errors of C is an error with every one.
_STRICT = ("implicit-function-declaration", "incompatible-pointer-types", "int-conversion")
_BASE_FLAGS = ("-O2", "-fPIC", *(f"-Werror={kind}" for kind in _STRICT))


def build_native(
    name: str,
    sources: Sequence[Path],
    flags: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    *,
    language: Literal["c", "c++"] = "c",
    libraries: Sequence[str] = (),
    tune: bool = True,
    program: bool = False,
) -> Path:
    """Compile the sources into one shared library and return its path, from the cache when there.

    Args:
        name: Stem of the library's file name.
        sources: Files to compile; headers beside them are found and are part of the key.
        flags: Further compiler flags.
        headers: Generated headers, file name to text, found before any other.
        language: Which host compiler: `c` ($CC, cc, gcc, clang) or `c++` ($CXX, c++, g++, clang++).
        libraries: Names for -l.
        tune: Use this processor's instruction set where the compiler can.
        program: Make a program instead, whose symbols what it loads can use.

    Raises:
        UserError: there is no host compiler, or it refuses the sources.
    """
    compiler = host_compiler(language)
    digest = hashlib.sha256()
    for path in _inputs(sources):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    for part in (*compiler, *flags, *libraries, *sorted((headers or {}).items())):
        digest.update(repr(part).encode() + b"\0")
    kind = ("-pie", "-rdynamic") if program else ("-shared",)
    digest.update(f"{kind}{tune}{platform.machine()}{_processor() if tune else ''}".encode())
    folder = cache_root() / "native"
    library = folder / f"{name}-{digest.hexdigest()[:20]}{'' if program else '.so'}"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=folder) as work:
        for header, text in (headers or {}).items():
            Path(work, header).write_text(text)
        output = Path(work, library.name)
        command = [*compiler, *_BASE_FLAGS, *kind, *flags, f"-I{work}", *map(str, sources),
                   "-o", str(output), *(f"-l{item}" for item in libraries)]  # fmt: skip
        # A library tuned for this processor is optional: not every compiler knows every processor.
        attempts = [[*command, "-march=native"], command] if tune else [command]
        for attempt in attempts:
            done = subprocess.run(attempt, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                # Replacing is atomic: two processes that build at once both end with a whole file.
                os.replace(output, library)
                return library
    first_error = next((x for x in done.stderr.splitlines() if "error" in x), done.stderr[-300:])
    raise UserError(
        f"the host compiler {shlex.join(compiler)} cannot build {name}: {first_error}; "
        "set CC and CXX to a working C and C++ compiler"
    )


def host_compiler(language: Literal["c", "c++"] = "c") -> list[str]:
    """Return the command of the host's compiler.

    Raises:
        UserError: none is found.
    """
    variable = "CC" if language == "c" else "CXX"
    asked = os.environ.get(variable)
    if asked:
        words = shlex.split(asked)
        if words and shutil.which(words[0]):
            return words
        raise UserError(f"${variable} is {asked!r}, which is no program on this machine")
    for command in ("cc", "gcc", "clang") if language == "c" else ("c++", "g++", "clang++"):
        if shutil.which(command):
            return [command]
    raise UserError(
        f"no host {language.upper()} compiler found; install one (for example gcc and g++) "
        f"or set ${variable}"
    )


def _inputs(sources: Sequence[Path]) -> list[Path]:
    """Return the sources and every header beside them, in a fixed order."""
    found = {Path(source) for source in sources}
    for source in sources:
        found.update(Path(source).parent.glob("*.h"))
    return sorted(found)


def _processor() -> str:
    """Return the processor's feature list: a tuned library must not meet a lesser processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x for x in lines if x.startswith(("flags", "Features"))), platform.processor())
