"""Running sums of integers."""

import torch
import torch.nn as nn

N = 4194304


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, 0, dtype=torch.int32)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(-50, 50, (N,), dtype=torch.int32)]


def get_init_inputs() -> list[object]:
    return []
