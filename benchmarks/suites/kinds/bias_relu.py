"""A bias for each column, then ReLU."""

import torch
import torch.nn as nn

ROWS = 1024
COLUMNS = 2048


class Model(nn.Module):
    def forward(self, x, bias):
        return torch.relu(x + bias)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS)]


def get_init_inputs():
    return []
