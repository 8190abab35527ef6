"""Every candidate's PTX, as it was read, must give the machine code that ptxas made of it."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelblaster.harness.build.toolchain import Toolchain, find_toolchain
from kernelblaster.harness.simt.ptx.parser import parse
from kernelblaster.harness.simt.ptx.records import Immediate, Module
from kernelblaster.harness.simt.sass import labelled
from kernelblaster.harness.simt.sass.labelled import misreading
from kernelblaster.harness.simt.sass.machine_image import first_difference, machine_image

PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .global .align 4 .b32 state = 7;
.const .align 4 .b32 numbers[2] = {1, 2};
.visible .entry k(.param .u64 k_param_0)
{
    .reg .pred %p<2>; .reg .f32 %f<4>; .reg .b32 %r<4>; .reg .b64 %rd<4>;
    .shared .align 4 .b8 tile[128];
    ld.param.u64 %rd1, [k_param_0];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.f32 %f2, [%rd2];
    st.shared.f32 [tile], %f2;
    bar.sync 0;
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p1, %r1, 5;
    ld.global.u32 %r2, [state];
    ld.const.u32 %r3, [numbers+4];
    // /*
    @%p1 mov.f32 %f2, 0f00000000;
    // */
    ld.shared.f32 %f3, [tile+4];
    add.f32 %f2, %f2, %f3;
    st.global.f32 [%rd2], %f2;
    st.global.v2.u32 [%rd2+8], {%r2, %r3};
    ret;
}
"""


@pytest.fixture
def toolchain() -> Toolchain:
    found = find_toolchain()
    if found.tool("ptxas") is None:
        pytest.skip("no ptxas")
    return found


def built(folder: Path, toolchain: Toolchain, text: str = PTX) -> Path:
    ptx = folder / "candidate.ptx"
    ptx.write_bytes(text.encode())
    command = [str(toolchain.tool("ptxas")), "-arch=sm_90", "-O3", "-lineinfo", ptx.name, "-o",
               "candidate.cubin"]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return ptx


def test_what_is_read_rightly(tmp_path: Path, toolchain: Toolchain) -> None:
    assert misreading(toolchain, built(tmp_path, toolchain), "sm_90") == ""
    assert misreading(toolchain, tmp_path / "candidate.ptx", "sm_90") == "", "from what was kept"


def _without(index: int) -> Callable[[Module], None]:
    def change(module: Module) -> None:
        del module.instructions[index]
        module.functions["k"].last -= 1

    return change


def _replaced(index: int, **fields: object) -> Callable[[Module], None]:
    def change(module: Module) -> None:
        old = module.instructions[index]
        module.instructions[index] = dataclasses.replace(old, **fields)  # type: ignore[arg-type]

    return change


def _variable(name: str, **fields: object) -> Callable[[Module], None]:
    def change(module: Module) -> None:
        old = module.variables[name]
        module.variables[name] = dataclasses.replace(old, **fields)  # type: ignore[arg-type]

    return change


@pytest.mark.parametrize(
    "change",
    [
        _without(9), _without(4), _without(12), _replaced(9, guard_negated=True),
        _replaced(9, guard=None), _replaced(11, opcode="sub"),
        _replaced(2, modifiers=("volatile", "global", "f32")),
        _variable("state", initial=b"\x08\0\0\0"), _variable("numbers", initial=bytes(8)),
    ],
)  # fmt: skip
def test_what_is_read_otherwise_is_told(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Module], None],
) -> None:  # fmt: skip
    def misread(text: str) -> Module:
        module = parse(text)
        change(module)
        return module

    monkeypatch.setattr(labelled, "parse", misread)
    told = misreading(toolchain, built(tmp_path, toolchain), "sm_90")
    assert told.startswith("the simulated GPU does not read its PTX as ptxas does: ")


def test_an_immediate_that_is_read_otherwise_is_told(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def misread(text: str) -> Module:
        module = parse(text)
        left = module.instructions[6].operands[:2]
        _replaced(6, operands=(*left, Immediate("integer", 6)))(module)
        return module

    monkeypatch.setattr(labelled, "parse", misread)
    assert ".text.k differs" in misreading(toolchain, built(tmp_path, toolchain), "sm_90")


def test_what_ptxas_refuses_is_told(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def misread(text: str) -> Module:
        module = parse(text)
        _replaced(3, opcode="sto")(module)
        return module

    ptx = built(tmp_path, toolchain)
    monkeypatch.setattr(labelled, "parse", misread)
    assert "something that ptxas refuses: ptxas" in misreading(toolchain, ptx, "sm_90")


def test_without_ptxas_or_with_ptx_that_cannot_be_read_nothing_is_said(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    ptx = built(tmp_path, toolchain)
    with monkeypatch.context() as patch:
        patch.setattr(Toolchain, "tool", lambda self, name: None)
        assert misreading(toolchain, ptx, "sm_90") == ""
    ptx.write_text(PTX.replace("ret;", ".byte 1; ret;"))
    assert misreading(toolchain, ptx, "sm_90") == ""


def test_images_of_damaged_files(tmp_path: Path, toolchain: Toolchain) -> None:
    cubin = built(tmp_path, toolchain).with_suffix(".cubin").read_bytes()
    image = machine_image(cubin)
    assert {".text.k", ".nv.constant3", ".nv.global.init"} <= set(image)
    assert first_difference(image, image) == ""
    assert first_difference(image, image | {".text.z": b""}) == ".text.z"
    for damaged in (b"", b"\x7fELF", cubin[:200]):
        with pytest.raises(ValueError):
            machine_image(damaged)
