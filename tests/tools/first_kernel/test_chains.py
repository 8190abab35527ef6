"""Random chains of operators: through export, the writer and the simulated device."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builtin_support import reference, verified
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelblaster.harness.devices.simulated import SimulatedDevice
from kernelblaster.harness.records import Outcome
from kernelblaster.harness.task.loading import load_task
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
)
NUMBERS = st.fixed_dictionaries(
    {
        "scale": st.sampled_from((0.5, -1.5)), "axis": st.sampled_from((1, 2)),
        "step": st.sampled_from((1, 2, 3)), "before": st.integers(0, 2),
        "window": st.sampled_from((2, 3)), "half": st.sampled_from((0, 1)),
    }
)  # fmt: skip
CHAIN = st.lists(st.tuples(st.sampled_from(STEPS), NUMBERS), min_size=2, max_size=6)
CHAINS = st.lists(CHAIN, min_size=4, max_size=4)


def written_out(chains: list[list[tuple[str, dict[str, float]]]]) -> str:
    """A model with an output for each chain."""
    lines = ["class Model(nn.Module):", "    def forward(self, x):", "        found = []"]
    for chain in chains:
        lines.append("        v = x")
        lines += [f"        {step.format(**numbers)}" for step, numbers in chain]
        lines.append("        found.append(v)")
    lines += ["        return tuple(found)", "", "", "def get_inputs():"]
    return "\n".join([*lines, "    return [torch.randn(N, C, W)]", ""])


async def outcome_of(body: str) -> str:
    """Empty where the first kernel of a model passes, else what is wrong."""
    with TemporaryDirectory() as folder:
        made = await load_task(reference(Path(folder), "chain", body, "N, C, W = 300, 60, 70"))
        written = write_initial_cuda(made)
        if not isinstance(written, InitialKernel):
            return written.reason
        result = await verified(SimulatedDevice("H100"), made, written.source)
        return "" if result.outcome is Outcome.PASSED else result.reason


@pytest.mark.seldom
@settings(max_examples=10)
@given(CHAINS)
def test_any_chain_computes_what_pytorch_does(
    chains: list[list[tuple[str, dict[str, float]]]],
) -> None:
    assert asyncio.run(outcome_of(written_out(chains))) == ""
