"""A first kernel without some operators: what is left to be written, and that it fits in."""

from __future__ import annotations

from pathlib import Path

import pytest
from builtin_support import node, ref, reference, task, verified

from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.programs import Program, ProgramNode
from kernelblaster.harness.task.loading import load_task
from kernelblaster.tools.first_kernel.kernels.missing import Sketch
from kernelblaster.tools.first_kernel.writer import NotWritten, write_initial_cuda

BODY = """\
class Model(nn.Module):
    def forward(self, x):
        signs, logs = torch.linalg.slogdet(x[:, :2, 1:3].transpose(1, 2))
        bessel = torch.special.i0(x.transpose(0, 1))
        return logs + signs, bessel.relu(), torch.special.i0(x.relu().transpose(0, 1))


def get_inputs():
    return [torch.randn(N, C, W)]
"""
FUNCTIONS = """\
constexpr size_t launch_linalg_slogdet_scratch = OUT0_NUMEL * sizeof(float);
__global__ void launch_linalg_slogdet_products(const float* x0, float* products) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < OUT0_NUMEL) products[i] = x0[i * 4] * x0[i * 4 + 3] - x0[i * 4 + 1] * x0[i * 4 + 2];
}
__global__ void launch_linalg_slogdet_ends(float* out0, float* out1, const float* products) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= OUT0_NUMEL) return;
    out0[i] = products[i] < 0.0f ? -1.0f : 1.0f;
    out1[i] = logf(fabsf(products[i]));
}
static void launch_linalg_slogdet(
    float* out0, float* out1, const float* x0, void* scratch, cudaStream_t stream) {
    float* products = static_cast<float*>(scratch);
    launch_linalg_slogdet_products<<<(OUT0_NUMEL + 255) / 256, 256, 0, stream>>>(x0, products);
    launch_linalg_slogdet_ends<<<(OUT0_NUMEL + 255) / 256, 256, 0, stream>>>(out0, out1, products);
}
constexpr size_t launch_special_i0_scratch = 0;
__global__ void launch_special_i0_kernel(float* out0, const float* x0) {
    const long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i < OUT1_NUMEL) out0[i] = cyl_bessel_i0f(x0[i]);
}
static void launch_special_i0(float* out0, const float* x0, void* scratch, cudaStream_t stream) {
    launch_special_i0_kernel<<<(OUT1_NUMEL + 255) / 256, 256, 0, stream>>>(out0, x0);
}
"""


def left(nodes: list[ProgramNode], outputs: dict[str, tuple[int, ...]]) -> Sketch:
    """What is written of a program over x [64, 32] and y [48, 32], of float32."""
    shapes = {name: (shape, shape) for name, shape in outputs.items()}
    inputs = {"x": ((64, 32), (64, 32)), "y": ((48, 32), (48, 32))}
    typed = tuple(each.model_copy(update={"dtype": "float32", "line": 7}) for each in nodes)
    made = task("left", inputs, nodes, shapes)
    found = write_initial_cuda(
        made.model_copy(update={"program": Program(nodes=typed, outputs=tuple(outputs))})
    )
    assert isinstance(found, NotWritten) and found.sketch is not None
    assert found.reason == found.sketch.reason
    return found.sketch


async def test_what_is_written_by_others_fits_into_what_is_generated(tmp_path: Path) -> None:
    """Several results, strided views, scratch memory, one function for two launches."""
    made = await load_task(reference(tmp_path, "left", BODY, "N, C, W = 96, 64, 128"))
    found = write_initial_cuda(made)
    assert isinstance(found, NotWritten) and found.sketch is not None
    assert found.reason == (
        "no kernel is known for aten.linalg_slogdet.default (line 10); "
        "aten.special_i0.default (line 11, 12)"
    )
    assert [each.name for each in found.sketch.missing] == [
        "launch_linalg_slogdet", "launch_special_i0",
    ]  # fmt: skip
    device = SimulatedDevice("H100")
    try:
        right = await verified(device, made, found.sketch.completed(FUNCTIONS))
        assert right.outcome is Outcome.PASSED, right.reason
    finally:
        device.close()


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (node("far", "aten.repeat_interleave.self_Tensor", [ref("x"), ref("y")], (64, 32)),
         "by a tensor"),
        (node("far", "aten.mv.default", [ref("x"), None], (64,)), "--mode eval"),
        (node("far", "aten.special_i1.default", [ref("x")], (64, 32)), ""),
        (node("far", "aten.special_zeta.default", [ref("x"), 2.0], (64, 32)), ""),
    ],
)  # fmt: skip
def test_each_form_that_is_not_written_is_left_out_alone(
    operation: ProgramNode, reason: str
) -> None:
    """What was begun for an operator is taken back; the reason names it and its line."""
    sketch = left([operation], {"far": operation.shape or ()})
    (missing,) = sketch.missing
    assert "line 7" in sketch.reason and missing.line == 7
    assert reason in missing.reason and bool(reason) == bool(missing.reason)
    assert "__global__" not in sketch.before
    assert missing.op.startswith(operation.op) and "{'ref'" not in missing.op
    assert f"{missing.name}(out0, x," in sketch.after


def test_calls_with_other_arguments_are_other_functions() -> None:
    nodes = [
        node("one", "aten.polygamma.default", [1, ref("x")], (64, 32)),
        node("two", "aten.polygamma.default", [2, ref("x")], (64, 32)),
        node("again", "aten.polygamma.default", [1, ref("two")], (64, 32)),
    ]
    sketch = left(nodes, {"one": (64, 32), "again": (64, 32)})
    assert [(each.name, each.op) for each in sketch.missing] == [
        ("launch_polygamma", "aten.polygamma.default(1, x0)"),
        ("launch_polygamma_2", "aten.polygamma.default(2, x0)"),
    ]
    assert sketch.after.count("launch_polygamma(") == 2


def test_what_is_random_is_left_to_nobody() -> None:
    """No kernel could be compared with it: nobody is asked for one."""
    nodes = [
        node("i1", "aten.special_i1.default", [ref("x")], (64, 32)),
        node("drop", "aten.dropout.default", [ref("i1"), 0.5, True], (64, 32)),
    ]
    shapes = {"x": ((64, 32), (64, 32))}
    made = task("random", shapes, nodes, {"drop": ((64, 32), (64, 32))})
    typed = tuple(each.model_copy(update={"dtype": "float32"}) for each in nodes)
    program = Program(nodes=typed, outputs=("drop",))
    found = write_initial_cuda(made.model_copy(update={"program": program}))
    assert isinstance(found, NotWritten) and found.sketch is None
