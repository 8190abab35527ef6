"""A winner with all that an export must find: nested arguments, several answers, kept tensors."""

from __future__ import annotations

from kernelblaster.harness.records.evaluations import DeviceIdentity
from kernelblaster.harness.records.identity import sha256_of
from kernelblaster.harness.records.tasks import Task, TaskVariant
from kernelblaster.harness.records.tensors import TensorSpec, Tolerance
from kernelblaster.harness.task.interface import Shape, TaskInterface
from kernelblaster.tools.exporting.winner import Winner

REFERENCE = '''
from __future__ import annotations

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(features, 1)])
        self.shift = torch.arange(float(features))

    def forward(self, pair: dict, scale: float, *more, power: int = 1):
        weight = self.layers[0].weight[0]
        left = pair["left"] * scale + self.shift
        return {"left": left, "others": (None, [pair["right"] * weight + more[0]])}


def get_inputs():
    rows = torch.ones(6, 8)
    return [{"left": rows, "right": rows + 1}, 2.0, rows + 2]


def get_init_inputs():
    return [8]
'''

KERNEL = """#include "task.cuh"

constexpr int COUNT = OUT0_NUMEL;

__global__ void both(float* out0, float* out1, const float* left, const float* right,
                     const float* more, const float* weight, const float* shift) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const int column = i % OUT0_SIZE_1;
    out0[i] = left[i] * SCALE + shift[column];
    out1[i] = right[i] * weight[column] + more[i];
}

extern "C" size_t workspace_bytes() { return 64; }

extern "C" void launch(float* out0, float* out1, const float* pair_left, const float* pair_right,
                       const float* more_0, const float* weight, const float* shift,
                       void* workspace, cudaStream_t stream) {
    cudaMemsetAsync(workspace, 0, 64, stream);
    both<<<(COUNT + 31) / 32, 32, 0, stream>>>(out0, out1, pair_left, pair_right, more_0, weight,
                                               shift);
}
"""


def task(rows: int = 6) -> Task:
    """Return the task at a number of rows."""
    roles = {"out0": "output", "out1": "output", "pair_left": "input", "pair_right": "input",
             "more_0": "input", "weight": "parameter", "shift": "buffer"}  # fmt: skip
    tensors = tuple(
        TensorSpec.model_validate(
            {"name": name, "role": role, "dtype": "float32",
             "shape": {"weight": (1, 8), "shift": (8,)}.get(name, (rows, 8))}
        )
        for name, role in roles.items()
    )  # fmt: skip
    full = TaskVariant(name="full", dimensions={"rows": rows}, tensors=tensors,
                       scalars={"scale": 2.0})  # fmt: skip
    return Task(
        name="2_Pair of rows", path="pair.py", reference_sha256=sha256_of(REFERENCE),
        source=REFERENCE, op_class="mixed", dtype="float32",
        tolerance=Tolerance(absolute=1e-4, relative=1e-4), full=full, verify=full,
    )  # fmt: skip


INTERFACE = TaskInterface(
    forward="Model.forward",
    arguments=(
        Shape(kind="dict", keys=("'left'", "'right'"), items=(
            Shape(kind="tensor", name="pair_left"), Shape(kind="tensor", name="pair_right"),
        )),
        Shape(kind="value", name="2.0"),
        Shape(kind="tensor", name="more_0"),
    ),
    outputs=Shape(kind="dict", keys=("'left'", "'others'"), items=(
        Shape(kind="tensor", name="out0"),
        Shape(kind="tuple", items=(
            Shape(kind="value", name="None"),
            Shape(kind="list", items=(Shape(kind="tensor", name="out1"),)),
        )),
    )),
    qualified={"weight": "layers.0.weight", "bias": "layers.0.bias", "shift": "shift"},
    unregistered=("shift",),
)  # fmt: skip


def winner() -> Winner:
    """Return the winner, verified at six rows and at five."""
    return Winner(
        task=task(), interface=INTERFACE, source=KERNEL, run="pair-1",
        device=DeviceIdentity(kind="simulated", gpu="H100", arch="sm_90", toolchain="nvcc"),
        facts=("It takes 3 us.",), others=(task(5),),
    )  # fmt: skip
