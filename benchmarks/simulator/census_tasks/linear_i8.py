"""A product of 8-bit integers with 32-bit sums."""

import torch
import torch.nn as nn

M = 1024
N = 1536
K = 2048


class Model(nn.Module):
    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x.int(), w.int().t())


def get_inputs() -> list[torch.Tensor]:
    sizes = ((M, K), (N, K))
    return [torch.randint(-128, 128, size, dtype=torch.int8) for size in sizes]


def get_init_inputs() -> list[object]:
    return []
