"""How often each of 256 values occurs."""

import torch
import torch.nn as nn

N = 4194304
BINS = 256


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(BINS, dtype=torch.int32).index_add(0, x, torch.ones_like(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(0, BINS, (N,), dtype=torch.int32)]


def get_init_inputs() -> list[object]:
    return []
