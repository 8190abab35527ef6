"""GELU of a vector of halves."""

import torch
import torch.nn as nn

N = 4194304


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x.float(), approximate='tanh').half()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(N).half()]


def get_init_inputs() -> list[object]:
    return []
