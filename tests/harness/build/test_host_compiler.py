"""Which host compiler is taken: among fakes on PATH that link otherwise, fail or are not there."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelblaster.harness import doctor
from kernelblaster.harness.build.host_compiler import find_host_compiler
from kernelblaster.harness.build.toolchain import build, find_toolchain
from kernelblaster.harness.errors import UserError

REAL = shutil.which("g++") or shutil.which("c++") or ""
SHARED = 'exec {real} "$@"'
STATIC = 'exec {real} -static-libstdc++ "$@"'
WHOLE = 'exec {real} -static-libstdc++ -static-libgcc "$@"'
FAILING = 'echo "cc1plus: fatal error: it is broken" >&2; exit 1'
SOURCE = """#include "task.cuh"
extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {}
"""
HEADER = "#pragma once\n#include <cuda_runtime.h>\n"

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a fake compiler into a folder of its own, behind those before it on PATH."""
    if not REAL:
        pytest.skip("no host C++ compiler")
    monkeypatch.delenv("CXX", raising=False)
    folders: list[str] = []

    def put(body: str, name: str = "g++") -> Path:
        folder = tmp_path / f"place{len(folders)}"
        folder.mkdir()
        fake = folder / name
        fake.write_text("#!/bin/sh\nPATH=/usr/bin:/bin\n" + body.format(real=REAL) + "\n")
        fake.chmod(0o755)
        folders.append(str(folder))
        monkeypatch.setenv("PATH", ":".join(folders))
        return fake

    monkeypatch.setenv("PATH", str(tmp_path))
    return put


def test_the_first_that_links_shared_is_taken(install: Install) -> None:
    good = install(SHARED)
    install(SHARED)
    found = find_host_compiler()
    assert (found.path, found.why) == (str(good), "first on PATH")


@pytest.mark.parametrize("body", [STATIC, WHOLE])
def test_one_that_hides_what_candidates_call_is_passed_over(install: Install, body: str) -> None:
    static, good = install(body), install(SHARED)
    found = find_host_compiler()
    assert found.path == str(good)
    assert found.why.startswith(f"passed over: {static} links the C++ runtime statically")


def test_a_failing_one_is_passed_over_and_another_name_will_do(install: Install) -> None:
    failing, good = install(FAILING), install(SHARED, "clang++")
    found = find_host_compiler()
    assert found.path == str(good)
    assert found.why == (
        f"passed over: {failing} does not compile: cc1plus: fatal error: it is broken"
    )


def test_none_that_will_do_is_one_line_with_the_reasons(install: Install) -> None:
    with pytest.raises(UserError, match=r"no host C\+\+ compiler found, and nvcc needs one"):
        find_host_compiler()
    static, failing = install(STATIC), install(FAILING)
    with pytest.raises(UserError) as caught:
        find_host_compiler()
    told = str(caught.value)
    assert f"{static} links" in told and f"{failing} does not" in told and "apt-get" in told


def test_what_cxx_names_is_taken_or_refused(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    static, good = install(STATIC), install(SHARED)
    monkeypatch.setenv("CXX", str(good))
    assert find_host_compiler().why == "named by CXX"
    monkeypatch.setenv("CXX", str(static))
    with pytest.raises(UserError, match="statically.*unset it or name another"):
        find_host_compiler()


def test_builds_and_doctor_say_which_was_taken(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvcc = Path(find_real_toolchain(monkeypatch)).parent
    static, good = install(STATIC), install(SHARED)
    monkeypatch.setenv("PATH", f"{static.parent}:{good.parent}:{nvcc}:/usr/bin:/bin")
    monkeypatch.setenv("KERNELBLASTER_CACHE", str(tmp_path / "cache"))
    taken = f"host compiler {good} (passed over: {static} links the C++ runtime statically"
    built = asyncio.run(build(find_toolchain(), SOURCE, HEADER, "sm_90"))
    assert built.succeeded and taken in built.compiler
    check = next(each for each in asyncio.run(doctor.examine("H200")) if each.name == "compiler")
    assert check.passed and taken in check.finding


def find_real_toolchain(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return nvcc as it is found without fakes."""
    with monkeypatch.context() as plain:
        plain.setenv("PATH", f"/usr/local/bin:{Path(REAL).parent}:/usr/bin:/bin")
        return find_toolchain().nvcc
