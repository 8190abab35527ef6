"""A linear layer with bias, then ReLU."""

import torch
import torch.nn as nn

BATCH = 256
INPUTS = 512
OUTPUTS = 512


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS]
