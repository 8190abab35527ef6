"""What a candidate and the harness agree on: generated task.cuh, signature of `launch`."""

from __future__ import annotations

import math

from ..records.tasks import Task, TaskVariant
from ..records.tensors import TensorSpec
from .names import constants_of

C_TYPES: dict[str, str] = {
    "float64": "double",
    "float32": "float",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "int64": "long long",
    "int32": "int",
    "int16": "short",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "bool",
}


def ctype(dtype: str) -> str:
    """Return the C++ type of one element."""
    return C_TYPES[dtype]


def signature(task: Task) -> str:
    """Return the exact prototype of `launch`, without a semicolon.

    Outputs, inputs, parameters, buffers (device pointers, row-major), then the workspace (null when
    the candidate asks for none) and the stream that all work must be put on.
    """
    return _signature(task.full)


def header(variant: TaskVariant) -> str:
    """Return the text of task.cuh for one variant of a task.

    Dimensions, sizes and scalars are constants of the same names in both variants, so that one
    source compiles against either. The prototype of `launch` is declared too: a candidate that
    defines another one is refused by the compiler, with the line.
    """
    dtypes = {tensor.dtype for tensor in variant.tensors}
    lines = [
        f"// Generated: the task at its {variant.name} dimensions.",
        "// Use these names, never literal sizes: the same source is built at other dimensions.",
        "// Inputs, parameters and buffers hold any values within the ranges told of them, others",
        "// in every check and timed run, but for what is called a constant of the task: on its",
        "// values a kernel may rely.",
        "#pragma once",
        "#include <cuda_runtime.h>",
        "#include <cstddef>",
        "#include <cstdint>",
    ]
    if "float16" in dtypes:
        lines.append("#include <cuda_fp16.h>")
    if "bfloat16" in dtypes:
        lines.append("#include <cuda_bf16.h>")
    lines.append("")
    names = constants_of(variant)
    for name, value in variant.dimensions.items():
        lines.append(f"constexpr long long {names.dimensions[name]} = {_integer(value)};")
    for tensor in variant.tensors:
        lines.extend(_tensor_constants(tensor))
    for name, scalar in variant.scalars.items():
        lines.append(_scalar_constant(names.scalars[name], scalar))
    lines += ["", f"{_signature(variant)};", 'extern "C" size_t workspace_bytes();', ""]
    return "\n".join(lines)


def role_of(tensor: TensorSpec) -> str:
    """Return what a tensor is to a kernel, in words."""
    return f"{tensor.role}, a constant of the task," if tensor.constant else tensor.role


def _signature(variant: TaskVariant) -> str:
    arguments = [
        f"{'' if tensor.role == 'output' else 'const '}{ctype(tensor.dtype)}* {tensor.name}"
        for tensor in variant.tensors
    ]
    arguments += ["void* workspace", "cudaStream_t stream"]
    return f'extern "C" void launch({", ".join(arguments)})'


def _tensor_constants(tensor: TensorSpec) -> list[str]:
    name = tensor.name.upper()
    sizes = ", ".join(str(size) for size in tensor.shape) or "one element"
    lines = [
        f"// {role_of(tensor)} {tensor.name}: {tensor.dtype} [{sizes}]",
        f"constexpr long long {name}_NUMEL = {tensor.numel};",
        f"constexpr int {name}_RANK = {len(tensor.shape)};",
    ]
    lines += [
        f"constexpr long long {name}_SIZE_{axis} = {size};"
        for axis, size in enumerate(tensor.shape)
    ]
    return lines


def _scalar_constant(name: str, value: float | int | bool) -> str:
    if isinstance(value, bool):
        return f"constexpr bool {name} = {'true' if value else 'false'};"
    if isinstance(value, int):
        return f"constexpr long long {name} = {_integer(value)};"
    if math.isfinite(value):
        return f"constexpr double {name} = {value!r};"
    builtin = '__builtin_nan("")' if math.isnan(value) else "__builtin_inf()"
    sign = "-" if value == -math.inf else ""
    return f"constexpr double {name} = {sign}{builtin};"


def _integer(value: int) -> str:
    # The most negative number has no literal of its own in C++.
    return f"({value + 1}LL - 1)" if value == -(2**63) else str(value)
