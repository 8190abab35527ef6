"""Mamba's short convolution: depthwise, causal, of width 4 with bias; SiLU, times a gate."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4
CHANNELS = 2048
STEPS = 2048
WIDTH = 4


class Model(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.conv = nn.Conv1d(channels, channels, width, groups=channels, padding=width - 1)

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)[..., : x.shape[-1]]
        return F.silu(y) * gate


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, STEPS), torch.randn(BATCH, CHANNELS, STEPS)]


def get_init_inputs() -> list[object]:
    return [CHANNELS, WIDTH]
