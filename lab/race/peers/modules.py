"""The rivals' models with their losses, for millrace_export.py as modules.py:gpt and modules.py:resnet18.

Their settings are read from workload.json in the folder of this file.
"""

import json
import os
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "workload.json")) as f:
    s = SimpleNamespace(**json.load(f))


class WithLoss(nn.Module):
    def __init__(self, net, loss):
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, input, target):
        return self.loss(self.net(input), target)


def gpt():
    import model

    example = torch.zeros(2, s.context, dtype=torch.long)
    return WithLoss(nn.Sequential(*model.layers(s)), model.loss), (example, example.clone())


def resnet18():
    import resnet

    example = torch.zeros(2, 3, s.size, s.size), torch.zeros(2, dtype=torch.long)
    return WithLoss(resnet.whole(s), functional.cross_entropy), example
