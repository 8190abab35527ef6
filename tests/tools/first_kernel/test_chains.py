"""Random chains of operators: through export, the writer and the simulated device."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builtin_support import reference, verified
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.task.loading import load_task
from kernelblaster.tools.first_kernel.operators import ranks, scatters
from kernelblaster.tools.first_kernel.writer import InitialKernel, write_initial_cuda

STEPS = (
    "v = v.sigmoid() * {scale}",
    "v = v + v.mean(dim=-1, keepdim=True)",
    "v = v.transpose(1, 2)",
    "v = v.flip({axis})",
    "v = v[:, ::{step}]",
    "v = F.pad(v, (1, 1))[:, :, 1:]",
    "v = F.pad(v, ({before}, 2))",
    "v = v.tanh().softmax({axis})",
    "v = v.cumsum({axis})",
    "v = v - v.amax({axis}, keepdim=True)",
    "v = torch.cat([v, v.relu()], {axis})",
    "v = v.contiguous(); v = v + 1; v[:, 0] *= {scale}",
    "v = v.tanh() @ v.transpose(1, 2).tanh()",
    "v = v.reshape(v.shape[0], v.shape[2], -1) + v.mean()",
    "v = F.avg_pool1d(F.pad(v, (0, 4)), {window}, {step}, {half})",
    "v = F.max_pool1d(F.pad(v, (4, 0)), {window}, {step})",
    "v = torch.where(v > 0, v, v * {scale})",
    "v = v.unsqueeze(1).expand(-1, 2, -1, -1).sum(1)",
    "v = v.half().to({dtype}).to(torch.float32)",
    "v = v * v.new_tensor([0.5, {scale}])[(v > {scale}).long()]",
    "v = v.clamp(-3, 3).logcumsumexp({axis}).tanh()",
    "v = v.index_add(1, ROWS % v.shape[1], v[:, :5].contiguous(), alpha={scale})",
    "v = v.scatter_reduce(2, PLACES % v.shape[2], v[:, :5], '{reduce}', include_self={flag})",
    # PyTorch does not say which of several values for one place is kept.
    "v = v.clone(); v[:, ROWS[:3] % 3] = v[:, :3].tanh()",
    "v = v.index_put((ROWS % v.shape[0],), v[:5] * 0.1, accumulate=True)",
    "v = v + torch.searchsorted(v[0, 0].sort().values, v.contiguous(), right={flag})",
    "v = v.kthvalue({step}, {axis}, keepdim=True).values - v",
    "v = v.median({axis}, keepdim=True).values + v * {scale}",
    "v = F.interpolate(v, scale_factor={step}, mode='{linear}')",
    "v = v.narrow({axis}, 1, v.shape[{axis}] - 2).movedim(1, 2)",
    "v = torch.vmap(lambda a: a @ a.t() * 0.1)(v.tanh())",
    "v = F.layer_norm(v, v.shape[-1:]) if {flag} else F.rms_norm(v, v.shape[-1:])",
    "v = v.std({axis}, keepdim=True) * v.sign()",
    "v = v.masked_scatter(v > 0, v.flip(1))",
    "v = v.double().add(1000).sub(1000).to(v.dtype)",
    "v = v.bool().to(v.dtype) * v",
    "v = torch.diag_embed(v[:, 0], {half}, 2, 1)[:, :9]",
    "v = torch.copysign(v, v.roll(1, 1)) + torch.heaviside(v, v.new_ones(()))",
    "v = torch.cat([-v[..., v.shape[-1] // 2:], v[..., : v.shape[-1] // 2]], -1) * {scale} + v",
    "v = v.topk({step}, {axis}).values + v.mean({axis}, keepdim=True)",
    "v = v.gather({axis}, v.argsort({axis}, stable=True))",
    "v = v.cummax({axis}).values - v",
    "v = v.unfold({axis}, 3, {step}).mean(-1)",
    "v = F.gelu(v, approximate='tanh') * F.softplus(v) + F.selu(v)",
    "v = F.scaled_dot_product_attention(v.tanh(), v.tanh(), v, is_causal={flag})",
    "v = F.pairwise_distance(v, v.roll({step}, 1), keepdim=True) * v",
)
WHOLE_STEPS = (
    "v = (v * 3 + {step}) % 17",
    "v = v // {window} - v.remainder(5)",
    "v = (v & 6) | (v >> 1) ^ {step}",
    "v = v.flip({axis}).cumsum({axis}) % 101",
    "v = v.where(v > {step}, -v)",
    "v = v.amax({axis}, keepdim=True) - v",
    "v = v.sort({axis}, stable=True).values",
    "v = F.one_hot(v.abs() % 5, 5).sum(2)[:, :, :5]",
    "v = v.to(torch.int32).to(v.dtype) * {window}",
    "v = v.transpose(1, 2)",
    "v = v[:, ::{step}]",
    "v = v.div(3, rounding_mode='trunc') + v.div({step}, rounding_mode='floor')",
    "v = v.abs().pow({step}) + v.neg()",
    "v = v.clamp(-100000001, 2000000001).cummax({axis}).values",
    "v = F.pad(v, (1, 2), value=3)",
    "v = v + v.flip({axis}).mul(2).sub(v, alpha=3)",
    "v = torch.cat([v, v.bitwise_not() % 7], {axis})",
    "v = v.argmax({axis}, keepdim=True) + v",
    "v = (v.float() * 0.5).floor().to(v.dtype)",
    "v = v.scatter_add(2, PLACES % v.shape[2], v[:, :5])",
    "v = v.scatter_reduce(1, PLACES % v.shape[1], v[:, :, :5].flip(1)[:, :5], 'amin')",
)
FLOATING, HALF = ("float32", "float64"), ("float16", "bfloat16")
WHOLE = ("int64", "int32", "int16", "uint8")
NUMBERS = st.fixed_dictionaries(
    {
        "scale": st.sampled_from((0.5, -1.5)), "axis": st.sampled_from((1, 2)),
        "step": st.sampled_from((1, 2, 3)), "before": st.integers(0, 2),
        "window": st.sampled_from((2, 3)), "half": st.sampled_from((0, 1)),
        "flag": st.booleans(), "linear": st.sampled_from(("nearest", "linear")),
        "reduce": st.sampled_from(("sum", "amax", "mean")),
        "dtype": st.sampled_from(("torch.bfloat16", "torch.float64")),
    }
)  # fmt: skip


def chains_of(steps: tuple[str, ...]) -> st.SearchStrategy[list[list[str]]]:
    """Lists of lines, each a chain of operators on v."""
    step = st.builds(lambda text, numbers: text.format(**numbers), st.sampled_from(steps), NUMBERS)
    return st.lists(st.lists(step, min_size=2, max_size=6), min_size=4, max_size=4)


ROUNDED = tuple(step for step in STEPS if not any(
    jump in step for jump in ("searchsorted", "sign", "bool()", "argsort", "heaviside")
))  # fmt: skip
"""Half types round each step in PyTorch: what jumps at a value jumps elsewhere."""
MANY = tuple(
    step for step in (*STEPS, *WHOLE_STEPS)
    if any(name in step for name in ("index_add", "scatter", "ROWS", "kthvalue", "median"))
)
"""Steps that have another kernel where an index, or a row, is long."""
OTHERS = ("v = v.transpose(1, 2)", "v = v.flip({axis})", "v = v[:, ::{step}]", "v = v * {step}")
SHAPES = st.one_of(
    st.sampled_from(((300, 60, 70), (7, 33, 129), (64, 5, 512))),
    st.tuples(st.integers(2, 80), st.integers(5, 70), st.integers(5, 200)),
)
MODELS = st.one_of(
    st.tuples(st.sampled_from(FLOATING), SHAPES, chains_of(STEPS)),
    st.tuples(st.sampled_from(HALF), SHAPES, chains_of(ROUNDED)),
    st.tuples(st.sampled_from(WHOLE), SHAPES, chains_of(WHOLE_STEPS)),
)

FEW_ROWS = st.tuples(st.integers(2, 20), st.integers(5, 30), st.integers(5, 60))
OF_MANY = st.one_of(
    st.tuples(st.sampled_from((*FLOATING, *HALF)), FEW_ROWS, chains_of((
        *(step for step in MANY if step in STEPS), *OTHERS))),
    st.tuples(st.sampled_from(WHOLE), FEW_ROWS, chains_of((
        *(step for step in MANY if step in WHOLE_STEPS), *OTHERS))),
)  # fmt: skip


def written_out(dtype: str, chains: list[list[str]]) -> str:
    """A model with an output for each chain."""
    lines = [
        "class Model(nn.Module):", "    def __init__(self):", "        super().__init__()",
        "        self.register_buffer('rows', torch.tensor([4, 0, 2, 4, 1]))", "",
        "    def forward(self, x):", "        found, rows = [], self.rows",
    ]  # fmt: skip
    for chain in chains:
        lines.append("        v = x")
        for step in chain:
            places = "rows.expand(v.shape[0], min(5, v.shape[1]), 5)"
            lines.append(f"        {step.replace('ROWS', 'rows').replace('PLACES', places)}")
        lines.append("        found.append(v)")
    drawn = f"torch.randn(N, C, W).to(torch.{dtype})"
    if dtype in WHOLE:
        drawn = f"torch.randint(0, 50, (N, C, W)).to(torch.{dtype})"
    lines += ["        return tuple(found)", "", "", "def get_inputs():", f"    return [{drawn}]"]
    return "\n".join(lines)


async def outcome_of(body: str, shape: tuple[int, int, int]) -> str:
    """Empty where the first kernel of a model passes, else what is wrong."""
    with TemporaryDirectory() as folder:
        constants = "N, C, W = {}, {}, {}".format(*shape)
        try:
            made = await load_task(reference(Path(folder), "chain", body, constants))
        except UserError:  # These steps do not follow each other.
            return ""
        written = write_initial_cuda(made)
        if not isinstance(written, InitialKernel):
            return written.reason
        result = await verified(SimulatedDevice("H100"), made, written.source)
        return "" if result.outcome is Outcome.PASSED else result.reason


@pytest.mark.seldom
@settings(max_examples=10)
@given(MODELS)
def test_any_chain_computes_what_pytorch_does(
    model: tuple[str, tuple[int, int, int], list[list[str]]],
) -> None:
    dtype, shape, chains = model
    assert asyncio.run(outcome_of(written_out(dtype, chains), shape)) == ""


@pytest.mark.seldom
@settings(max_examples=5)
@given(OF_MANY)
def test_any_chain_is_right_in_the_kernels_for_many_indices_and_long_rows(
    model: tuple[str, tuple[int, int, int], list[list[str]]],
) -> None:
    dtype, shape, chains = model
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scatters, "MOST_SEARCHED", 1)
        patched.setattr(ranks, "MOST_COMPARED", 1)
        assert asyncio.run(outcome_of(written_out(dtype, chains), shape)) == ""
