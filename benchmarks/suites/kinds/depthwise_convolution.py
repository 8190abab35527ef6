"""A convolution of each channel by itself."""

import torch
import torch.nn as nn

BATCH = 4
CHANNELS = 64
SIDE = 64


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, x):
        return self.convolution(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
