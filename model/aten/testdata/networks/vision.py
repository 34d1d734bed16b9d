"""torchvision's networks, made small. Each function takes a number of rows and returns a module and a batch."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torchvision.models.resnet import BasicBlock, ResNet


class Classifier(nn.Module):
    """A network of images with its loss and its accuracy."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, image, label):
        logits = self.network(image)
        return F.cross_entropy(logits, label), (logits.argmax(1) == label).float().mean()


def images(rows, side=32):
    return torch.randn(rows, 3, side, side), torch.randint(10, (rows,))


class Narrow(ResNet):
    """resnet18 with an eighth of the channels in its blocks."""

    def _make_layer(self, block, planes, blocks, stride=1, dilate=False):
        return super()._make_layer(block, planes // 8, blocks, stride, dilate)


def resnet18(rows=4):
    network = Narrow(BasicBlock, [2, 2, 2, 2])
    network.fc = nn.Linear(64, 10)
    return Classifier(network), images(rows, 48)


def mobilenet_v2(rows=4):
    settings = [[1, 16, 1, 1], [6, 24, 2, 1], [6, 32, 2, 2], [6, 64, 1, 2]]
    network = torchvision.models.mobilenet_v2(num_classes=10, width_mult=0.25, inverted_residual_setting=settings,
                                              dropout=0.0)
    return Classifier(network), images(rows)


def vit_b_16(rows=4):
    network = torchvision.models.VisionTransformer(image_size=32, patch_size=16, num_layers=2, num_heads=4,
                                                   hidden_dim=32, mlp_dim=64, num_classes=10)
    nn.init.normal_(network.heads.head.weight, std=0.1)  # torchvision starts with zeros, so that nothing has a gradient
    return Classifier(network), images(rows)
