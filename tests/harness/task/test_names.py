"""Names in task.cuh: whatever a reference calls its inputs and dimensions, the header compiles."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path

import pytest

from kernelblaster.harness.build.toolchain import build_now, find_toolchain
from kernelblaster.harness.records.tasks import TaskVariant
from kernelblaster.harness.records.tensors import TensorSpec
from kernelblaster.harness.task.contract import header, signature
from kernelblaster.harness.task.loading import load_task
from kernelblaster.harness.task.names import constants_of, is_macro

TASK = """
import torch
import torch.nn as nn

N = 96
n = 40
x_numel = 64


class Model(nn.Module):
    def forward(self, INFINITY, nan, M_PI, NULL, size_t, stdin, dim_n):
        return INFINITY * nan + M_PI * NULL + size_t + stdin * dim_n


def get_inputs():
    return [torch.randn(N, n), torch.randn(n), 2.0, 0.5, torch.randn(n), torch.randn(n), 3]
"""


@pytest.fixture
def variant() -> TaskVariant:
    tensors = tuple(
        TensorSpec.model_validate({"name": n, "shape": (4,), "dtype": "float16", "role": r})
        for n, r in (("out0", "output"), ("x", "input"), ("nan", "input"))
    )
    return TaskVariant(
        name="full", dimensions={"N": 4, "n": 5, "größe": 6}, tensors=tensors,
        scalars={"x_numel": 7, "nan": 1.0, "dim_n": 8, "eps": 1e-5},
    )  # fmt: skip


def test_no_two_constants_have_one_name_and_none_is_a_macro(variant: TaskVariant) -> None:
    names = re.findall(r"^constexpr [\w ]+ (\w+) = ", header(variant), re.MULTILINE)
    assert len(names) == len(set(names)) and not any(map(is_macro, names))
    found = constants_of(variant)
    assert (found.dimensions["N"], found.dimensions["n"]) == ("DIM_N", "DIM_N_")
    assert found.scalars["eps"] == "EPS" and found.scalars["nan"] == "T_NAN"
    assert all(name.isascii() for name in found.dimensions.values())


@pytest.mark.parametrize("name", ["EPS", "ALPHA", "X", "A", "MARGIN", "INPUT", "E", "x", "input"])
def test_ordinary_names_stay(name: str) -> None:
    assert not is_macro(name)


def test_every_macro_of_the_headers_is_known(variant: TaskVariant, tmp_path: Path) -> None:
    source = tmp_path / "task.cu"
    source.write_text(header(variant))
    command = [find_toolchain().nvcc, "-std=c++17", "-E", "-Xcompiler", "-dM", str(source)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    macros = set(re.findall(r"^#define ([A-Za-z]\w*)(?: |$)", text, re.MULTILINE))
    assert {"NAN", "INFINITY", "M_PI"} <= macros
    assert not {name for name in macros if not is_macro(name)}


def test_a_task_with_the_names_of_macros_compiles(tmp_path: Path) -> None:
    path = tmp_path / "names.py"
    path.write_text(TASK)
    task = asyncio.run(load_task(path))
    for variant in (task.full, task.verify):
        text = '#include "task.cuh"\n' + signature(task) + " {}\n"
        built = build_now(find_toolchain(), text, header(variant), "sm_90")
        assert built.succeeded, built.diagnostics
