"""The built-in initial CUDA: what it writes, what it refuses, and that it computes the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from builtin_support import (
    ROWS,
    gelu_task,
    initial,
    node,
    norm_task,
    product_task,
    ref,
    reference,
    softmax_task,
    task,
    transpose_task,
    verified,
)
from places import EXAMPLES

from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.loading import load_task
from kernelblaster.tools.first_kernel.writer import InitialKernel, NotWritten, write_initial_cuda


def refused(made: Task) -> str:
    """The reason why a task is not written."""
    outcome = write_initial_cuda(made)
    assert isinstance(outcome, NotWritten)
    return outcome.reason


# Text


def test_sizes_come_from_the_header_only() -> None:
    for made in (gelu_task(), softmax_task(), norm_task(), product_task(), transpose_task()):
        text = initial(made)
        for size in {size for spec in made.full.tensors for size in spec.shape}:
            assert str(size) not in text.replace("256;", "")


def test_the_same_task_gives_the_same_text() -> None:
    assert initial(norm_task()) == initial(norm_task())


def test_an_elementwise_chain_is_one_kernel() -> None:
    nodes = [
        node("mul", "aten.mul.Tensor", [ref("x"), 0.5], ROWS[0]),
        node("gelu", "aten.gelu.default", [ref("mul")], ROWS[0], approximate="tanh"),
        node("add", "aten.add.Tensor", [ref("gelu"), ref("y")], ROWS[0], alpha=2),
    ]
    text = initial(task("chain", {"x": ROWS, "y": ROWS}, nodes, {"add": ROWS}))
    assert text.count("__global__") == 1
    assert "workspace_bytes" not in text


def test_a_mean_written_out_twice_is_one_loop() -> None:
    mean = ((4096, 1), (33, 1))
    nodes = [
        node("m1", "aten.mean.dim", [ref("x"), [-1], True], mean[0]),
        node("m2", "aten.mean.dim", [ref("x"), [1], True], mean[0]),
        node("sub", "aten.sub.Tensor", [ref("x"), ref("m1")], ROWS[0]),
        node("add", "aten.add.Tensor", [ref("sub"), ref("m2")], ROWS[0]),
    ]
    text = initial(task("twice", {"x": ROWS}, nodes, {"add": ROWS}))
    assert text.count("for (") == 2


def test_a_product_then_a_softmax_are_two_kernels_with_a_workspace() -> None:
    product = ((512, 384), (33, 50))
    nodes = [
        node("mm", "aten.mm.default", [ref("a"), ref("b")], product[0]),
        node("softmax", "aten.softmax.int", [ref("mm"), 1], product[0]),
    ]
    inputs = {"a": ((512, 256), (33, 20)), "b": ((256, 384), (20, 50))}
    text = initial(task("two", inputs, nodes, {"softmax": product}))
    assert text.count("__global__") == 2
    assert "workspace_bytes" in text


def test_a_tensor_named_like_a_loop_variable_keeps_its_name() -> None:
    operation = node("softmax", "aten.softmax.int", [ref("c"), -1], ROWS[0])
    text = initial(task("shadow", {"c": ROWS}, [operation], {"softmax": ROWS}))
    assert "c[row * COLS + c_index]" in text


def test_half_precision_is_computed_in_single() -> None:
    operation = node("exp", "aten.exp.default", [ref("x")], ROWS[0])
    text = initial(task("half", {"x": ROWS}, [operation], {"exp": ROWS}, dtype="float16"))
    assert "__float2half(expf(__half2float(x[i])))" in text


# Refusals


def test_a_task_that_torch_could_not_trace_is_refused() -> None:
    assert "torch.export" in refused(gelu_task().model_copy(update={"program": None}))


def test_an_unknown_operation_is_refused_by_name() -> None:
    operation = node("c", "aten.histc.default", [ref("x"), 1], ROWS[0])
    assert "aten.histc" in refused(task("scan", {"x": ROWS}, [operation], {"c": ROWS}))


def test_integers_are_refused() -> None:
    operation = node("n", "aten.neg.default", [ref("x")], ROWS[0])
    made = task("whole", {"x": ROWS}, [operation], {"n": ROWS})
    full, verify = (
        variant.model_copy(
            update={
                "tensors": tuple(
                    spec.model_copy(update={"dtype": "int32"}) for spec in variant.tensors
                )
            }
        )
        for variant in (made.full, made.verify)
    )
    assert "int32" in refused(made.model_copy(update={"full": full, "verify": verify}))


def test_a_batch_of_products_is_refused() -> None:
    shape = ((8, 16, 16), (2, 4, 4))
    operation = node("mm", "aten.matmul.default", [ref("a"), ref("b")], shape[0])
    assert "single matrix" in refused(
        task("batch", {"a": shape, "b": shape}, [operation], {"mm": shape})
    )


def test_a_shape_that_does_not_follow_is_refused() -> None:
    operation = node("exp", "aten.exp.default", [ref("x")], (7, 7))
    assert "shape" in refused(task("odd", {"x": ROWS}, [operation], {"exp": ROWS}))


def test_an_axis_of_one_in_a_single_variant_is_refused() -> None:
    shape = ((64, 1024), (1, 40))
    operation = node("add", "aten.add.Tensor", [ref("x"), ref("y")], ROWS[0])
    assert "both variants" in refused(
        task("lone", {"x": ROWS, "y": shape}, [operation], {"add": ROWS})
    )


# On the simulated device

ELEMENTWISE = """\
class Model(nn.Module):
    def forward(self, x, v, s):
        a = F.softplus(F.leaky_relu(x, 0.1)) + F.elu(x) - F.silu(x) * torch.sigmoid(v).abs()
        b = torch.clamp(x, -1, 1) / 2 + F.gelu(x) + F.relu(x) - torch.erf(v)
        c = torch.maximum(x * s, v) + torch.minimum(x, 1 - v) + torch.tanh(x) * (x + 1).pow(3)
        d = torch.sqrt(x.abs() + 1) * torch.rsqrt(v * v + 1) / torch.exp(-x.abs()) + torch.log1p(s)
        return a, b, c, -d


def get_inputs():
    return [torch.randn(R, C), torch.randn(C), torch.rand(R, 1)]
"""
ROW_PROGRAMS = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm([C, D])
        self.weight = nn.Parameter(torch.randn(D))

    def forward(self, x):
        rms = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        centred = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5)
        scaled = x / x.norm(dim=-1, keepdim=True)
        return (x.sum(-1), x.amax(-1, keepdim=True), x.max(dim=2)[0], rms, centred, scaled,
                F.log_softmax(x, dim=2), torch.softmax(x, dim=1), self.norm(x), x.mean(),
                torch.logsumexp(x, -1), x.sum(0))


def get_inputs():
    return [torch.randn(R, C, D)]
"""
PRODUCTS = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(C, D)
        self.second = nn.Linear(D, C, bias=False)

    def forward(self, x, y):
        hidden = F.gelu(self.first(x), approximate="tanh")
        residual = x + 0.5 * torch.tanh(self.second(hidden))
        return (residual, torch.softmax(self.first(x), -1), x.t() @ y, torch.addmm(y, x, x.t() @ y),
                x.t().contiguous(), (x.t() * 2).relu())


def get_inputs():
    return [torch.randn(R, C), torch.randn(R, C)]
"""


@pytest.fixture(scope="module")
def device() -> SimulatedDevice:
    return SimulatedDevice("H100")


@pytest.mark.parametrize(
    ("name", "body", "constants"),
    [
        ("elementwise", ELEMENTWISE, "R, C = 33, 40"),
        ("größe in rows", ROW_PROGRAMS, "R, C, D = 5, 7, 9"),
        ("積", PRODUCTS, "R, C, D = 21, 40, 33"),
    ],
)
async def test_families_compute_what_pytorch_does(
    device: SimulatedDevice, tmp_path: Path, name: str, body: str, constants: str
) -> None:
    made = await load_task(reference(tmp_path, name, body, constants))
    written = write_initial_cuda(made)
    assert isinstance(written, InitialKernel), written
    result = await verified(device, made, written.source)
    assert result.outcome is Outcome.PASSED, result.reason


async def test_every_example_is_written_and_verifies(device: SimulatedDevice) -> None:
    paths = sorted(EXAMPLES.glob("*.py"))
    assert len(paths) >= 8

    async def check(path: Path) -> str:
        made = await load_task(path)
        written = write_initial_cuda(made)
        if isinstance(written, NotWritten):
            return f"{path.stem}: {written.reason}"
        result = await verified(device, made, written.source)
        return "" if result.outcome is Outcome.PASSED else f"{path.stem}: {result.reason}"

    faults = await asyncio.gather(*(check(path) for path in paths))
    assert not [fault for fault in faults if fault]
