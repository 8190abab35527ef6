"""The generated task.cuh and the signature of launch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelblaster.harness.records.tasks import Task, TaskVariant
from kernelblaster.harness.records.tensors import DTYPE_BYTES, TensorSpec, Tolerance
from kernelblaster.harness.task.contract import C_TYPES, ctype, header, signature


def spec(
    name: str, role: str, shape: tuple[int, ...] = (4, 8), dtype: str = "float32"
) -> TensorSpec:
    return TensorSpec.model_validate({"name": name, "shape": shape, "dtype": dtype, "role": role})


def variant(*tensors: TensorSpec, **scalars: float) -> TaskVariant:
    return TaskVariant(
        name="full", dimensions={"rows": 4, "Columns": 8}, tensors=tensors, scalars=scalars
    )


def task(full: TaskVariant) -> Task:
    return Task(
        name="t", path="t.py", reference_sha256="0", source="", op_class="mixed", dtype="float32",
        tolerance=Tolerance(absolute=1e-4, relative=1e-4), full=full, verify=full,
    )  # fmt: skip


def test_signature_lists_outputs_inputs_parameters_buffers() -> None:
    full = variant(
        spec("out0", "output"), spec("x", "input"), spec("weight", "parameter", dtype="float16"),
        spec("count", "buffer", (), "int64"),
    )  # fmt: skip
    assert signature(task(full)) == (
        'extern "C" void launch(float* out0, const float* x, const __half* weight, '
        "const long long* count, void* workspace, cudaStream_t stream)"
    )


def test_header_names_every_size() -> None:
    text = header(variant(spec("out0", "output", (4,)), spec("x", "input"), eps=1e-5))
    for line in (
        "constexpr long long DIM_ROWS = 4;",
        "constexpr long long DIM_COLUMNS = 8;",
        "constexpr long long OUT0_NUMEL = 4;",
        "constexpr int X_RANK = 2;",
        "constexpr long long X_SIZE_1 = 8;",
        "constexpr double EPS = 1e-05;",
    ):
        assert line in text.splitlines()
    assert "cuda_fp16.h" not in text


@pytest.mark.parametrize(
    "dtype, include", [("float16", "cuda_fp16.h"), ("bfloat16", "cuda_bf16.h")]
)
def test_half_types_bring_their_header(dtype: str, include: str) -> None:
    assert f"#include <{include}>" in header(variant(spec("out0", "output", dtype=dtype)))


def test_every_dtype_has_a_c_type() -> None:
    assert set(C_TYPES) == set(DTYPE_BYTES)
    assert ctype("bool") == "bool"


@given(st.integers(-(2**63), 2**63 - 1) | st.floats() | st.booleans())
def test_any_scalar_becomes_one_constant(value: float) -> None:
    lines = [line for line in header(variant(alpha=value)).splitlines() if " ALPHA = " in line]
    assert len(lines) == 1 and lines[0].endswith(";")
    assert (
        "inf;" not in lines[0] and "nan;" not in lines[0] and "9223372036854775808" not in lines[0]
    )
