"""Two linear layers with a ReLU between."""

import torch
import torch.nn as nn

BATCH = 128
INPUTS = 256
WIDTH = 512
OUTPUTS = 128


class Model(nn.Module):
    def __init__(self, inputs, width, outputs):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.second = nn.Linear(width, outputs)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def get_inputs():
    return [torch.randn(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, WIDTH, OUTPUTS]
