"""A product with transposed weights in double precision."""

import torch
import torch.nn as nn

M = 1024
N = 1536
K = 2048


class Model(nn.Module):
    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x, w.t())


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(M, K).double(), torch.randn(N, K).double()]


def get_init_inputs() -> list[object]:
    return []
