"""The gpt that millrace builds, in torch.nn: pre-layer-norm blocks, exact GELU,
learned positions, a layer norm before an untied head without bias.

A block is two layers, attention and mlp, so that a pipeline can be cut at the
same places as millrace's. The model is a flat list of layers: embed, then
attention and mlp for each block, then head; 2 layers + 2 in all.
"""

import math

import torch
from torch import nn
from torch.nn import functional


class Embed(nn.Module):
    def __init__(self, vocabulary, context, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width).normal_(std=0.02))
        self.position = nn.Parameter(torch.empty(context, width).normal_(std=0.02))

    def forward(self, tokens):
        return functional.embedding(tokens, self.weight) + self.position


class Attention(nn.Module):
    """x + attention(norm(x)), causal.

    q, k and v are made contiguous by one copy, and the mask is added by the same call
    that computes the scores. README.md compares this with the alternatives in torch 1.13.
    """

    def __init__(self, width, heads, context, depth):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = linear(width, 3 * width, 0.02)
        self.out = linear(width, width, 0.02 / math.sqrt(2 * depth))
        self.register_buffer("future", torch.full((context, context), -math.inf).triu(1), persistent=False)

    def forward(self, x):
        b, t, c = x.shape
        d = c // self.heads
        qkv = self.qkv(self.norm(x)).view(b, t, 3, self.heads, d).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.reshape(3, b * self.heads, t, d).unbind(0)
        scores = torch.baddbmm(self.future, q, k.transpose(1, 2), alpha=1 / math.sqrt(d))
        y = torch.bmm(functional.softmax(scores, -1), v)
        y = y.view(b, self.heads, t, d).transpose(1, 2).reshape(b, t, c)
        return x + self.out(y)


class Mlp(nn.Module):
    """x + down(gelu(up(norm(x))))."""

    def __init__(self, width, depth):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = linear(width, 4 * width, 0.02)
        self.down = linear(4 * width, width, 0.02 / math.sqrt(2 * depth))

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Head(nn.Module):
    def __init__(self, width, vocabulary):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.weight = nn.Parameter(torch.empty(vocabulary, width).normal_(std=0.02))

    def forward(self, x):
        return functional.linear(self.norm(x), self.weight)


def linear(inputs, outputs, std):
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=std)
    nn.init.zeros_(layer.bias)
    return layer


def layers(s):
    """Returns the layers in order, initialised from s.seed."""
    torch.manual_seed(s.seed)
    found = [Embed(s.vocabulary, s.context, s.width)]
    for _ in range(s.layers):
        found += [Attention(s.width, s.heads, s.context, s.layers), Mlp(s.width, s.layers)]
    return found + [Head(s.width, s.vocabulary)]


def cut(s, split):
    """Returns the two stages of a pipeline. The first has split layers; 0: the embedding and half of the blocks."""
    found = layers(s)
    split = split or 1 + 2 * (s.layers // 2)
    if not 0 < split < len(found):
        raise SystemExit(f"--split {split}: the first stage has 1 to {len(found) - 1} of the {len(found)} layers")
    return nn.Sequential(*found[:split]), nn.Sequential(*found[split:])


def loss(logits, targets):
    """Returns the mean cross-entropy over all tokens of logits [rows, context, vocabulary]."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def elements(module):
    return sum(p.numel() for p in module.parameters())
