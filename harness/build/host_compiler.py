"""Finds the host C++ compiler that nvcc drives: one that links the C++ runtime shared."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ..errors import UserError
from ..process.children import scrubbed_environment
from ..records import Record
from ..vetting.symbols import undefined_symbols

_NAMES = ("g++", "c++", "clang++")
_PROBE = 'extern "C" void probe(int value) { throw value; }\n'
_PROBE_SECONDS = 60.0


class HostCompiler(Record):
    """A host C++ compiler, and why it was taken."""

    path: str
    why: str
    """For example: first on PATH; those passed over are named with what is wrong with them."""


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
        if fault := _fault_of(Path(path)):
            raise UserError(f"CXX={chosen}: {fault}; unset it or name another C++ compiler")
        return HostCompiler(path=path, why="named by CXX")
    passed_over = []
    for path in _on_path():
        if fault := _fault_of(Path(path)):
            passed_over.append(f"{path} {fault}")
            continue
        why = f"passed over: {'; '.join(passed_over)}" if passed_over else "first on PATH"
        return HostCompiler(path=path, why=why)
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


def _fault_of(compiler: Path) -> str:
    """Return why candidates cannot be compiled with it, or ""; asked once while it stays the same.

    Every step of a run opens its device anew.
    """
    try:
        found = compiler.stat()
    except OSError as error:
        return f"does not start: {error}"
    return _try(compiler, (found.st_ino, found.st_size, found.st_mtime_ns))


@functools.lru_cache(maxsize=16)
def _try(compiler: Path, identity: tuple[int, ...]) -> str:
    """Compile a throw: it is the C++ runtime's, and must be asked of a shared library.

    An object that holds the runtime asks for files, locks and memory on its behalf, and nothing
    can be said of what the candidate itself asks for.
    """
    with tempfile.TemporaryDirectory(prefix="host-compiler-") as folder:
        source, library = Path(folder, "probe.cpp"), Path(folder, "probe.so")
        source.write_text(_PROBE)
        command = [str(compiler), "-shared", "-fPIC", str(source), "-o", str(library)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", check=False,
                timeout=_PROBE_SECONDS, env=scrubbed_environment(Path(folder)), cwd=folder,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"does not start: {error}"
        if done.returncode or not library.exists():
            said = done.stderr.strip().splitlines()
            first = next((line for line in said if "error" in line), said[0] if said else "")
            return f"does not compile: {first[:200] or f'exit status {done.returncode}'}"
        if "__cxa_throw" not in undefined_symbols(library):
            return "links the C++ runtime statically, which hides what a candidate calls"
    return ""
