"""Attention without a mask in single precision: the task of the candidates beside this file."""

import torch
import torch.nn as nn

HEADS = 16
LENGTH = 512
WIDTH = 64


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = torch.matmul(q, k.transpose(1, 2)) / 8.0
        return torch.matmul(torch.softmax(scores, dim=2), v)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(HEADS, LENGTH, WIDTH) for _ in range(3)]


def get_init_inputs() -> list[object]:
    return []
