"""A matrix product."""

import torch
import torch.nn as nn

M = 512
K = 512
N = 512


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
