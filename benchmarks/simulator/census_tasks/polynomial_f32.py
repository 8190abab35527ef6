"""One of four functions of each element, by its place."""

import torch
import torch.nn as nn

N = 1048576


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        i = torch.arange(x.numel()) % 4
        both = torch.where(i == 0, x * x, torch.where(i == 1, x + 1, x * 0.5))
        return torch.where(i == 3, -x, both)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(N)]


def get_init_inputs() -> list[object]:
    return []
