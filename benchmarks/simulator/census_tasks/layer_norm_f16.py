"""Layer normalisation of rows in half precision."""

import torch
import torch.nn as nn

ROWS = 4096
COLUMNS = 2048


class Model(nn.Module):
    def forward(self, x: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x, (COLUMNS,), g, b, 1e-5)


def get_inputs() -> list[torch.Tensor]:
    row = torch.rand(COLUMNS).half()
    return [torch.randn(ROWS, COLUMNS).half(), row + 0.5, torch.randn(COLUMNS).half()]


def get_init_inputs() -> list[object]:
    return []
