"""Recurrent layers of less usual forms."""

from __future__ import annotations

from pathlib import Path

import pytest
from builtin_support import reference, written_and_verified

from kernelblaster.harness.task.loading import load_task

PROJECTED = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.both = nn.LSTM(W, D, 2, batch_first=True, bidirectional=True, proj_size=P)
        self.plain = nn.LSTM(2 * P, D, proj_size=P, bias=False)
        self.usual = nn.LSTM(2 * P, P, bidirectional=True)
        self.gated = nn.GRU(2 * P, D, bias=False)
        self.simple = nn.RNN(2 * P, D)

    def forward(self, x, hidden, cell):
        steps, (last, held) = self.both(x, (hidden, cell))
        others = [layer(steps) for layer in (self.gated, self.simple)]
        _, (usual, kept) = self.usual(steps)
        return steps, last, held, *self.plain(steps)[1], usual, kept, *others[0], *others[1]


def get_inputs():
    return [torch.randn(N, L, W), torch.randn(4, N, P), torch.randn(4, N, D)]
"""


@pytest.mark.parametrize("sizes", ["W, D, P = 24, 32, 16", "W, D, P = 9, 7, 5"])
async def test_an_lstm_with_a_projection(tmp_path: Path, sizes: str) -> None:
    """Its hidden state is narrower than its cell; without one nothing changes."""
    made = await load_task(reference(tmp_path, "projected", PROJECTED, f"N, L = 4, 11\n{sizes}"))
    await written_and_verified(made)
