"""Finds the host C++ compiler that nvcc drives: one that links the C++ runtime shared."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from ..errors import UserError
from ..process.children import scrubbed_environment
from ..records.record import Record
from ..vetting.symbols import undefined_symbols

_NAMES = ("g++", "c++", "clang++")
_PROBE = 'extern "C" void probe(int value) { throw value; }\n'
_PROBE_SECONDS = 60.0
_BESIDE = ("include", "lib", "lib64", "libexec", "share")
"""Folders beside that of Clang's programs."""


class HostCompiler(Record):
    """A host C++ compiler, and why it was taken."""

    path: str
    why: str
    """For example: first on PATH; those passed over are named with what is wrong with them."""
    folders: tuple[str, ...] = ()
    """Where it says that its programs, headers and libraries lie."""


class _Tried(NamedTuple):
    fault: str
    """Why candidates cannot be compiled with it, or ""."""
    folders: tuple[str, ...] = ()


def find_host_compiler() -> HostCompiler:
    """Return $CXX, else the first of g++, c++ and clang++ on PATH that links as it must.

    Raises:
        UserError: there is none, or what $CXX names will not do.
    """
    chosen = os.environ.get("CXX")
    if chosen:
        path = shutil.which(chosen)
        if path is None:
            raise UserError(f"CXX={chosen}: no such program; unset it or name a C++ compiler")
        tried = _tried(Path(path))
        if tried.fault:
            raise UserError(f"CXX={chosen}: {tried.fault}; unset it or name another C++ compiler")
        return HostCompiler(path=path, why="named by CXX", folders=tried.folders)
    passed_over = []
    for path in _on_path():
        tried = _tried(Path(path))
        if tried.fault:
            passed_over.append(f"{path} {tried.fault}")
            continue
        why = f"passed over: {'; '.join(passed_over)}" if passed_over else "first on PATH"
        return HostCompiler(path=path, why=why, folders=tried.folders)
    found = f" that will do ({'; '.join(passed_over)})" if passed_over else ""
    raise UserError(
        f"no host C++ compiler found{found}, and nvcc needs one: apt-get install g++ (or set CXX)"
    )


def _on_path() -> list[str]:
    """Return the compilers on PATH, each once, by name and then by folder."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    found: dict[Path, str] = {}
    for name in _NAMES:
        for folder in folders:
            if path := shutil.which(name, path=folder or os.curdir):
                found.setdefault(Path(path).resolve(), path)
    return list(found.values())


def _tried(compiler: Path) -> _Tried:
    """Return what came of a trial; it is made once while the compiler stays the same.

    Every step of a run opens its device anew.
    """
    try:
        found = compiler.stat()
    except OSError as error:
        return _Tried(f"does not start: {error}")
    return _try(compiler, (found.st_ino, found.st_size, found.st_mtime_ns))


@functools.lru_cache(maxsize=16)
def _try(compiler: Path, identity: tuple[int, ...]) -> _Tried:
    """Compile a throw: it is the C++ runtime's, and must be asked of a shared library.

    An object that holds the runtime asks for files, locks and memory on its behalf, and nothing
    can be said of what the candidate itself asks for.
    """
    with tempfile.TemporaryDirectory(prefix="host-compiler-") as folder:
        source, library = Path(folder, "probe.cpp"), Path(folder, "probe.so")
        source.write_text(_PROBE)
        command = [str(compiler), "-v", "-shared", "-fPIC", str(source), "-o", str(library)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", check=False,
                timeout=_PROBE_SECONDS, env=scrubbed_environment(Path(folder)), cwd=folder,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return _Tried(f"does not start: {error}")
        if done.returncode or not library.exists():
            said = done.stderr.strip().splitlines()
            first = next((line for line in said if "error" in line), said[-1] if said else "")
            return _Tried(f"does not compile: {first[:200] or f'exit status {done.returncode}'}")
        if "__cxa_throw" not in undefined_symbols(library):
            return _Tried("links the C++ runtime statically, which hides what a candidate calls")
        return _Tried("", _folders(compiler, done.stderr))


def _folders(compiler: Path, said: str) -> tuple[str, ...]:
    """Return the folders that a compiler names under -v, and its own file, which may be a script.

    GCC lists its programs and libraries, Clang its own folder; both list the headers, a line each.
    """
    found = [str(compiler), str(compiler.resolve())]
    for line in said.splitlines():
        name, _, value = line.partition("=")
        if name in ("COMPILER_PATH", "LIBRARY_PATH"):
            found += value.split(os.pathsep)
        elif line.startswith("InstalledDir: "):
            own = Path(line.removeprefix("InstalledDir: "))
            found += [str(own), *(str(own.parent / each) for each in _BESIDE)]
        elif line.startswith(" /") and " " not in line[1:]:
            found.append(line[1:])
    return tuple(dict.fromkeys(folder for folder in found if folder.startswith("/")))
