"""A product with its second factor transposed."""

import torch
import torch.nn as nn

ROWS = 256
INNER = 384
COLUMNS = 320


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b.transpose(0, 1)


def get_inputs():
    return [torch.randn(ROWS, INNER), torch.randn(COLUMNS, INNER)]


def get_init_inputs():
    return []
