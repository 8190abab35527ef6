"""A DenseNet of 58 layers: about 420 launches by one plain kernel for each operation."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4
SIZE = 224
GROWTH = 32
CLASSES = 10
BLOCKS = (6, 12, 24, 16)


class Norm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels) * 0.1)
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))

    def forward(self, x):
        return F.batch_norm(x, self.mean, self.var, self.weight, self.bias, False)


class Layer(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm1 = Norm(channels)
        self.conv1 = nn.Conv2d(channels, 4 * GROWTH, 1, bias=False)
        self.norm2 = Norm(4 * GROWTH)
        self.conv2 = nn.Conv2d(4 * GROWTH, GROWTH, 3, padding=1, bias=False)

    def forward(self, x):
        new = self.conv1(F.relu(self.norm1(x)))
        new = self.conv2(F.relu(self.norm2(new)))
        return torch.cat([x, new], 1)


class Transition(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = Norm(channels)
        self.conv = nn.Conv2d(channels, channels // 2, 1, bias=False)

    def forward(self, x):
        return F.avg_pool2d(self.conv(F.relu(self.norm(x))), 2)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        channels = 2 * GROWTH
        self.stem = nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False)
        self.stem_norm = Norm(channels)
        body = []
        for index, layers in enumerate(BLOCKS):
            for _ in range(layers):
                body.append(Layer(channels))
                channels += GROWTH
            if index + 1 < len(BLOCKS):
                body.append(Transition(channels))
                channels //= 2
        self.body = nn.Sequential(*body)
        self.last_norm = Norm(channels)
        self.classifier = nn.Linear(channels, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem_norm(self.stem(x))), 3, 2, 1)
        x = F.relu(self.last_norm(self.body(x)))
        return self.classifier(x.mean((2, 3)))


def get_inputs():
    return [torch.randn(BATCH, 3, SIZE, SIZE)]


def get_init_inputs():
    return []
