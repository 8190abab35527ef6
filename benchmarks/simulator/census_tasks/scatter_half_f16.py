"""Pairs of halves added up by the class of each."""

import torch
import torch.nn as nn

N = 8192
CLASSES = 512


class Model(nn.Module):
    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.zeros(CLASSES, 2, dtype=torch.half).index_add(0, c, x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(N, 2).half() * 0.1, torch.randint(0, CLASSES, (N,), dtype=torch.int32)]


def get_init_inputs() -> list[object]:
    return []
