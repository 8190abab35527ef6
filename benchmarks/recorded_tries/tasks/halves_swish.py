"""Halves through a sigmoid gate of their own."""

import torch
import torch.nn as nn

ROWS = 2048
COLUMNS = 4096


class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x) * 0.5


def get_inputs():
    return [torch.randn(ROWS, COLUMNS).half()]


def get_init_inputs():
    return []
