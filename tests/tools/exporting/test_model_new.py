"""The KernelBench solution: the reference's model, whose forward() calls the kernel."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import exported_winner
import pytest
import torch
import torch.utils.cpp_extension

from kernelblaster.harness.build.toolchain import find_toolchain
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.readings import Reading
from kernelblaster.harness.records.variations import Variation
from kernelblaster.harness.task.interface import Shape
from kernelblaster.tools.exporting.model_new import model_new
from kernelblaster.tools.exporting.winner import Winner


def executed(winner: Winner, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Any]:
    """Execute a solution as KernelBench does, its kernel in PyTorch; what it was built of too."""
    built: dict[str, Any] = {}

    def run(given: list[torch.Tensor]) -> list[torch.Tensor]:
        left, right, more, weight, shift = given
        return [left * 2 + shift, right * weight + more]

    def load_inline(**options: Any) -> Any:
        built.update(options)
        return SimpleNamespace(run=run)

    monkeypatch.setattr(torch.utils.cpp_extension, "load_inline", load_inline)
    context: dict[str, Any] = {}
    exec(f"import os\n{model_new(winner)}", context)  # KernelBench puts lines before it.
    return context, built


def test_the_same_seed_gives_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    context, _ = executed(exported_winner.winner(), monkeypatch)
    models = []
    for kind in ("Model", "ModelNew"):
        torch.manual_seed(42)
        models.append(context[kind](*context["get_init_inputs"]()))
    ours, theirs = models[1](*context["get_inputs"]()), models[0](*context["get_inputs"]())
    assert torch.equal(ours["left"], theirs["left"]) and ours["others"][0] is None
    assert torch.equal(ours["others"][1][0], theirs["others"][1][0])
    assert models[1].shift in dict(models[1].named_buffers()).values()


def test_other_numbers_than_the_kernels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    context, _ = executed(exported_winner.winner(), monkeypatch)
    pair, _, more = context["get_inputs"]()
    with pytest.raises(ValueError, match="scale is 3.0, and the kernel is made for 2.0"):
        context["ModelNew"](8)(pair, 3.0, more)


def drawing(function: str, shape: tuple[int, ...] = (3, 4)) -> Winner:
    """The winner of a task whose forward() draws numbers."""
    own = exported_winner.winner()
    name, full = f"{function}_line9", own.task.full
    drawn = full.of_role("input")[0].model_copy(update={"name": name, "shape": shape})
    full = full.model_copy(update={"tensors": (*full.tensors, drawn)})
    arguments = (*own.interface.arguments, Shape(kind="drawn", name=name))
    return own.model_copy(
        update={
            "task": own.task.model_copy(update={"full": full}),
            "interface": own.interface.model_copy(update={"arguments": arguments}),
        }
    )


def test_what_forward_draws_the_solution_draws() -> None:
    for shape in ((3, 4), (3,), ()):
        text = model_new(drawing("randn_like", shape))
        assert f"torch.randn({shape}, dtype=torch.float32, device='cuda')" in text
        compile(text, "solution.py", "exec")
    with pytest.raises(UserError, match="forward.. draws exponential_line9.*export an operator"):
        model_new(drawing("exponential"))


def test_what_is_drawn_from_a_seed_of_its_own_is_no_solution() -> None:
    own = drawing("randn")
    source = re.sub(r"(def forward.*\n)", r"\1        torch.manual_seed(3)\n", own.task.source)
    task = own.task.model_copy(update={"source": source})
    with pytest.raises(UserError, match="draws randn_line9 from a seed of its own"):
        model_new(own.model_copy(update={"task": task}))


def test_the_kernel_compiles_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    winner = exported_winner.winner()
    marked = "__device__ int two() { auto f = [] __device__ (int i) { return i; }; return f(2); }\n"
    _, built = executed(winner.model_copy(update={"source": winner.source + marked}), monkeypatch)
    (tmp_path / "kernel.cu").write_text(built["cuda_sources"][0])
    toolchain = find_toolchain()
    command = [
        toolchain.nvcc, "-ccbin", toolchain.host_compiler, "-allow-unsupported-compiler",
        *torch.utils.cpp_extension.COMMON_NVCC_FLAGS, *built["extra_cuda_cflags"], "-arch=sm_90",
        "-c", "kernel.cu", "-o", "kernel.o",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    wrapper = built["cpp_sources"][0]
    assert '{"more_0", at::ScalarType::Float, {6, 8}}' in wrapper
    assert not built["name"][0].isdigit() and built["name"].isidentifier()


def test_instructions_of_one_gpu_are_built_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    winner = exported_winner.winner()
    hopper = winner.device.model_copy(update={"arch": "sm_90a"})
    _, built = executed(winner.model_copy(update={"device": hopper}), monkeypatch)
    assert "-gencode=arch=compute_90a,code=sm_90a" in built["extra_cuda_cflags"]


@pytest.mark.parametrize(
    "change, words",
    [
        ({"reading": Reading(mode="eval")}, "run it without --mode"),
        ({"variation": Variation(updated=("shift",))}, "forward\\(\\) changes shift"),
    ],
)
def test_what_kernelbench_would_compute_otherwise_is_refused(
    change: dict[str, Any], words: str
) -> None:
    winner = exported_winner.winner()
    other = winner.model_copy(update={"task": winner.task.model_copy(update=change)})
    with pytest.raises(UserError, match=words):
        model_new(other)


def test_a_statistic_that_no_answer_depends_on_is_told() -> None:
    winner = exported_winner.winner()
    change = {"variation": Variation(updated=("mean",), unread=("mean",))}
    other = winner.model_copy(update={"task": winner.task.model_copy(update=change)})
    assert "# Not updated, and no answer depends on them: mean." in model_new(other)
