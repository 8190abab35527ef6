"""The installable operator: what it is for, what it refuses, and what it gives the driver."""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import exported_winner
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelblaster.harness.build.toolchain import find_toolchain
from kernelblaster.tools.exporting.operator_package import operator_package

SHAPES = {"pair_left": (6, 8), "pair_right": (6, 8), "more_0": (6, 8), "weight": (1, 8),
          "shift": (8,)}  # fmt: skip


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("operator")
    for name, data in operator_package(exported_winner.winner(), find_toolchain()).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("task_2_pair_of_rows_op")
    sys.path.remove(str(folder))


def given(device: str = "meta", rows: int = 6, **changes: Any) -> list[torch.Tensor]:
    shapes = {name: (rows, 8) if shape == (6, 8) else shape for name, shape in SHAPES.items()}
    return [
        torch.empty(changes.get(name, shape), device=device) for name, shape in shapes.items()
    ]


def operator(package: Any) -> Any:
    return package.task_2_pair_of_rows


def test_it_is_an_operator_for_every_shape_that_was_verified(package: Any) -> None:
    for rows in (6, 5):
        assert [each.shape for each in operator(package)(*given(rows=rows))] == [(rows, 8)] * 2
    with FakeTensorMode():
        left, _ = operator(package)(*given("cuda"))
    assert left.device.type == "cuda" and left.dtype == torch.float32
    checks = torch.library.opcheck(
        operator(package)._opoverload, tuple(given()), test_utils=("test_schema", "test_faketensor")
    )
    assert set(checks.values()) == {"SUCCESS"}


def test_it_is_compiled_into_one_graph(package: Any) -> None:
    def doubled(*tensors: torch.Tensor) -> torch.Tensor:
        left, right = operator(package)(*tensors)
        return left + right

    whole = torch.compile(doubled, fullgraph=True, backend="eager")
    assert whole(*given()).shape == (6, 8)


@pytest.mark.parametrize(
    "tensors, words",
    [
        (given(rows=7), "was not verified for pair_left \\[7, 8\\].* or pair_left \\[5, 8\\]"),
        (given(weight=(8,)), "was not verified for .* weight \\[8\\]"),
        ([each.half() for each in given()], "pair_left is torch.float16"),
        (given("cpu"), "is on cpu, and the kernel runs on CUDA devices"),
    ],
)
def test_what_was_not_verified_is_refused_in_a_sentence(
    package: Any, tensors: list[torch.Tensor], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        operator(package)(*tensors)


def test_another_gpu_is_refused(package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = sys.modules[f"{package.__name__}.runtime"]
    assert runtime.is_called("NVIDIA H100 80GB HBM3", "H100")
    assert runtime.is_called("NVIDIA GeForce RTX 4090", "RTX4090")
    assert not runtime.is_called("NVIDIA GH200 480GB", "H200")
    other = type("Found", (), {"name": "NVIDIA A100-SXM4-80GB", "major": 8, "minor": 0})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: other)
    with pytest.raises(ValueError, match="verified on H100, and this GPU is NVIDIA A100"):
        package._operator._run_of(0, 0)


def test_the_driver_is_given_what_was_verified(
    package: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = sys.modules[f"{package.__name__}.runtime"]
    calls: list[tuple[str, Any]] = []

    def call(name: str, *arguments: Any) -> None:
        if name == "cuLaunchKernelEx":
            own, pointers = arguments[0]._obj, arguments[2]
            words = [ctypes.cast(each, ctypes.POINTER(ctypes.c_uint64))[0] for each in pointers]
            calls.append((name, (tuple(own.grid), tuple(own.block), own.stream, words)))
        else:
            values = (each.value for each in arguments if hasattr(each, "value"))
            calls.append((name, list(values)))

    monkeypatch.setattr(runtime, "_call", call)
    run = runtime._load(package._operator.variants[1])
    names = ["out0", "out1", *SHAPES, "workspace"]
    base = {name: 4096 * (place + 1) for place, name in enumerate(names)}
    calls.clear()
    run(base, 7)
    (filled, values), (launched, told) = calls
    assert filled == "cuMemsetD8Async" and values == [base["workspace"], 0, 64, 7]
    # Five rows of eight are forty elements: two blocks of 32.
    assert launched == "cuLaunchKernelEx"
    assert told == ((2, 1, 1), (32, 1, 1), 7, [base[name] for name in names[:-1]])


def test_pip_finds_all_that_it_needs(package: Any) -> None:
    folder = Path(package.__file__).parent
    project = (folder.parent / "pyproject.toml").read_text()
    kinds = {f"*{path.suffix}" for path in folder.iterdir() if path.suffix not in (".py", ".txt")}
    assert all(kind in project for kind in kinds - {"*"})
    assert "pair_left [5, 8]" in (folder.parent / "README.md").read_text()
