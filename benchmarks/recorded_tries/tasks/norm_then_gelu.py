"""A layer norm, then GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 2048
COLUMNS = 640


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(F.layer_norm(x, (COLUMNS,)))


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
