"""A matrix times a vector."""

import torch
import torch.nn as nn

M = 4096
K = 2048


class Model(nn.Module):
    def forward(self, a, x):
        return a @ x


def get_inputs():
    return [torch.randn(M, K), torch.randn(K)]


def get_init_inputs():
    return []
