"""A VGG of 16 layers: 38 launches, wide convolutions."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4
SIZE = 224
CLASSES = 1000
WIDTH = 64
MULTIPLES = ((1, 1), (2, 2), (4, 4, 4), (8, 8, 8), (8, 8, 8))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        channels, convs = 3, []
        for multiples in MULTIPLES:
            for multiple in multiples:
                convs.append(nn.Conv2d(channels, multiple * WIDTH, 3, padding=1))
                channels = multiple * WIDTH
        self.convs = nn.ModuleList(convs)
        self.hidden = nn.Linear(channels, 8 * WIDTH)
        self.last = nn.Linear(8 * WIDTH, CLASSES)

    def forward(self, x):
        convs = iter(self.convs)
        for multiples in MULTIPLES:
            for _ in multiples:
                x = F.relu(next(convs)(x))
            x = F.max_pool2d(x, 2, 2)
        return self.last(F.relu(self.hidden(x.mean((2, 3)))))


def get_inputs():
    return [torch.randn(BATCH, 3, SIZE, SIZE)]


def get_init_inputs():
    return []
