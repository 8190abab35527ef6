"""Products of pairs of matrices."""

import torch
import torch.nn as nn

BATCH = 16
M = 128
K = 128
N = 128


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(BATCH, M, K), torch.randn(BATCH, K, N)]


def get_init_inputs():
    return []
