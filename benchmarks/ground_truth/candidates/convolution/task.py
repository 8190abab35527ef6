"""A convolution of 3 x 3 in single precision: the task of the candidates beside this file."""

import torch
import torch.nn as nn

IMAGES = 8
CHANNELS = 32
FILTERS = 64
SIDE = 64


class Model(nn.Module):
    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv2d(x, w, padding=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(IMAGES, CHANNELS, SIDE, SIDE), torch.randn(FILTERS, CHANNELS, 3, 3)]


def get_init_inputs() -> list[object]:
    return []
