"""An LSTM of three layers: two launches a layer and step, so 3,000 of them at 512 steps."""

import torch
import torch.nn as nn

BATCH = 10
STEPS = 512
INPUT = 128
HIDDEN = 256
CLASSES = 10
LAYERS = 3


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(INPUT, HIDDEN, LAYERS, batch_first=True)
        self.last = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x):
        states, _ = self.lstm(x)
        return self.last(states[:, -1])


def get_inputs():
    return [torch.randn(BATCH, STEPS, INPUT)]


def get_init_inputs():
    return []
