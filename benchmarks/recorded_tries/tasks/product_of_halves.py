"""A product of halves."""

import torch
import torch.nn as nn

ROWS = 256
INNER = 512
COLUMNS = 256


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(ROWS, INNER).half(), torch.randn(INNER, COLUMNS).half()]


def get_init_inputs():
    return []
