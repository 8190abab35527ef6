"""KernelBench solutions as `launch`: rewritten where they are plain, else the line that is not."""

from __future__ import annotations

import exported_winner
import pytest

from kernelblaster.harness.build.toolchain import build_now, find_toolchain
from kernelblaster.harness.judge.findings import judge_build
from kernelblaster.harness.records.tasks import Task, TaskVariant
from kernelblaster.harness.records.tensors import TensorSpec, Tolerance
from kernelblaster.harness.task.contract import header
from kernelblaster.tools.exporting.model_new import model_new
from kernelblaster.tools.solutions.reading import NotRestated, is_solution, read_solution
from kernelblaster.tools.solutions.restating import restate

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#define CHECK_INPUT(x) TORCH_CHECK(x.is_cuda(), #x)

__global__ void means(float* x, float* mean, int columns, float eps) {
    float sum = eps;
    for (int i = 0; i < columns; ++i) sum += x[blockIdx.x * columns + i];
    mean[blockIdx.x] = sum / columns;
}

template <typename scalar_t>
__global__ void scaled(const scalar_t* x, const scalar_t* mean, const scalar_t* weight,
                       scalar_t* out, int columns, int64_t total) {
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < total) out[i] = x[i] * mean[i / columns] * weight[i % columns];
}

torch::Tensor row_means(const torch::Tensor& x, float eps) {
    CHECK_INPUT(x);
    const auto rows = x.size(0);
    auto mean = torch::zeros({rows}, x.options());
    means<<<rows, 1>>>(x.data_ptr<float>(), mean.data_ptr<float>(), x.size(-1), eps);
    return mean;
}

torch::Tensor scale(torch::Tensor x, torch::Tensor mean, torch::Tensor weight) {
    auto out = torch::empty_like(x);
    const int threads = 256;
    cudaStream_t queue = at::cuda::getCurrentCUDAStream();
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", ([&] {
        scaled<scalar_t><<<(x.numel() + threads - 1) / threads, threads, 0, queue>>>(
            x.data_ptr<scalar_t>(), mean.data_ptr<scalar_t>(), weight.data_ptr<scalar_t>(),
            out.data_ptr<scalar_t>(), x.size(1), x.numel());
    }));
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) { printf("%s", cudaGetErrorString(error)); }
    return out;
}
"""

SOLUTION = f'''import torch
from torch.utils.cpp_extension import load_inline

text = r"""{CUDA}"""
ext = load_inline(name="ext", cpp_sources="", cuda_sources=text, functions=["row_means", "scale"])


class ModelNew(torch.nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(features))
        self.eps = eps

    def forward(self, x):
        """Scale rows."""
        x = x.contiguous()
        mean = ext.row_means(x, self.eps)
        return ext.scale(x, mean, self.weight)
'''


def rows() -> Task:
    """Return a task that the solution is one of."""
    roles = {"out0": "output", "x": "input", "weight": "parameter"}
    tensors = tuple(
        TensorSpec.model_validate(
            {"name": name, "role": role, "dtype": "float32",
             "shape": (8,) if name == "weight" else (6, 8)}
        )
        for name, role in roles.items()
    )  # fmt: skip
    full = TaskVariant(name="full", dimensions={}, tensors=tensors)
    return Task(
        name="rows", path="rows.py", reference_sha256="0" * 64, source="", op_class="mixed",
        dtype="float32", tolerance=Tolerance(absolute=1e-4, relative=1e-4), full=full, verify=full,
    )  # fmt: skip


def restated(text: str) -> str:
    assert is_solution(text)
    return restate(read_solution(text), rows())


def test_a_plain_solution_becomes_a_candidate() -> None:
    source = restated(SOLUTION)
    assert "means<<<rows, 1, 0, stream>>>(const_cast<float*>(x), " in source
    assert "cudaMemsetAsync(reinterpret_cast<float*>" in source
    assert "scaled<scalar_t><<<((X_NUMEL) + threads - 1) / threads, threads, 0, stream>>>" in source
    assert "const float eps = 1e-05;" in source and "out0, (X_SIZE_1), (X_NUMEL));" in source
    assert "torch" not in source and "TORCH" not in source and "cudaGetLastError" not in source
    built = build_now(find_toolchain(), source, header(rows().full), "sm_90")
    assert judge_build(built, source) is None


def test_what_was_exported_comes_back() -> None:
    winner = exported_winner.winner()
    text = model_new(winner)
    assert restate(read_solution(text), winner.task).split() == winner.source.split()


@pytest.mark.parametrize(
    "old, new, reason, at",
    [
        ("    const int threads", "    out = out.relu();\n    const int threads", "out\\.", None),
        ("torch::empty_like(x)", "torch::full_like(x, 1.0)", "torch:: in torch::full_like", None),
        ("return ext.scale(x, mean, self.weight)", "return torch.relu(x)",
         "relu\\(\\) is no host function", "return torch.relu"),
        ("mean = ext", "mean = x * 2\n        mean = ext", "computes x \\* 2 in PyTorch", "x * 2"),
        ("self.weight)", "self.bias)", "self.bias is no parameter", "self.bias"),
        ("x.size(-1)", "x.size(2)", "asks for axis 2 of a tensor with 2", None),
        ("r\"\"\"", "'' + r\"\"\"", "compiles no CUDA text|put together", None),
        ("(x, self.eps)", "(x)", "row_means\\(\\) takes 2 arguments, not 1", "row_means(x)"),
        ("cuda_sources=text, ", "", "compiles no CUDA text", None),
    ],
)  # fmt: skip
def test_what_stands_in_the_way_is_named_with_its_line(
    old: str, new: str, reason: str, at: str | None
) -> None:
    text = SOLUTION.replace(old, new)
    assert text != SOLUTION
    with pytest.raises(NotRestated, match=reason) as refused:
        restated(text)
    if at is not None:
        assert at in text.splitlines()[(refused.value.line or 0) - 1]


_NUMBERS = "".join(f"int a{n} = a{n - 1} * a{n - 1}; " for n in range(1, 40))


@pytest.mark.parametrize(
    "old, new, reason",
    [
        ("mean = ext", "y = " + "-" * 9**5 + "1\n        mean = ext", "nested too deeply"),
        ("mean = ext", "y = " + "x." * 9**5 + "x\n        mean = ext", "nested too deeply"),
        ("mean = ext", "a, b = x\n        mean = ext", "takes x for 2 tensors"),
        ("torch::empty_like(x)", "x; " + _NUMBERS + "auto b = torch::empty({a39})", "too long"),
        ("torch::empty_like(x)", "x; const char* q = R\"(\\1)\"; auto b = torch::empty({q})",
         "is no constant"),
        ("torch::empty_like(x)", "x; auto (*b)(int) = torch::empty({1})",
         "what launch\\(\\) cannot"),
        ("CHECK_INPUT(x);", "\0", "null bytes|no source file"),
    ],
)  # fmt: skip
def test_a_hostile_solution_is_refused_in_words(old: str, new: str, reason: str) -> None:
    text = SOLUTION.replace(old, new)
    assert text != SOLUTION
    with pytest.raises(NotRestated, match=reason):
        restated(text)


def test_cuda_text_that_no_file_can_hold_is_refused() -> None:
    with pytest.raises(NotRestated, match="no source file"):
        restated(SOLUTION.replace("r\"\"\"", "\"\"\"").replace("CHECK_INPUT(x);", "\\ud800"))


def test_a_line_of_the_cuda_text_is_one_of_the_file() -> None:
    text = SOLUTION.replace("r\"\"\"", "\"\"\"").replace("CHECK_INPUT(x);", "printf(\"a\\\\n\");")
    broken = text.replace("torch::empty_like(x)", "torch::full_like(x, 1.0)")
    with pytest.raises(NotRestated) as refused:
        restated(broken)
    assert "full_like" in broken.splitlines()[(refused.value.line or 0) - 1]


def test_a_cuda_file_is_no_solution() -> None:
    assert not is_solution("// class ModelNew\nvoid launch() {}\n")
