"""A convolution of images, three by three."""

import torch
import torch.nn as nn

BATCH = 2
CHANNELS = 8
FILTERS = 16
SIDE = 64


class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.convolution = nn.Conv2d(channels, filters, 3, padding=1)

    def forward(self, x):
        return self.convolution(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
