"""A matrix transpose: either the reads or the writes are scattered, unless a tile is staged."""

import torch
import torch.nn as nn

ROWS = 4096
COLUMNS = 8192


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(0, 1).contiguous()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs() -> list[object]:
    return []
