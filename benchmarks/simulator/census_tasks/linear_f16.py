"""A product with transposed weights in half precision."""

import torch
import torch.nn as nn

M = 1024
N = 1536
K = 2048


class Model(nn.Module):
    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x, w.t())


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(M, K).half(), (0.05 * torch.randn(N, K)).half()]


def get_init_inputs() -> list[object]:
    return []
