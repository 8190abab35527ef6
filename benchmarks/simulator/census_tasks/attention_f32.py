"""Attention of several heads, each of 64 features."""

import torch
import torch.nn as nn

HEADS = 16
TOKENS = 1024
FEATURES = 64


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(1, 2) * FEATURES**-0.5, dim=-1) @ v


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(HEADS, TOKENS, FEATURES) for _ in range(3)]


def get_init_inputs() -> list[object]:
    return []
