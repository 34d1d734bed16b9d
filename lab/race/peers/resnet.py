"""torchvision's resnet18 as a flat list of layers: the stem, its 8 blocks, the head."""

import torch
import torchvision
from torch import nn


def whole(s):
    """Returns the network, initialised from s.seed."""
    torch.manual_seed(s.seed)
    return torchvision.models.resnet18(num_classes=s.classes)


def cut(s):
    """Returns the two stages of a pipeline; the first has s.split layers."""
    net = whole(s)
    found = [nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool),
             *net.layer1, *net.layer2, *net.layer3, *net.layer4,
             nn.Sequential(net.avgpool, nn.Flatten(), net.fc)]
    if not 0 < s.split < len(found):
        raise SystemExit(f"--split {s.split}: the first stage has 1 to {len(found) - 1} of the {len(found)} layers")
    return nn.Sequential(*found[:s.split]), nn.Sequential(*found[s.split:])
