"""The sum of everything, and its mean."""

import torch
import torch.nn as nn

ROWS = 4096
COLUMNS = 4096


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x.sum(), x.mean()])


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs() -> list[object]:
    return []
