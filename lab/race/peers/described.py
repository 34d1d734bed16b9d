"""Builds in torch.nn a model that millrace describes in JSON.

Each layer has a kind and settings and must read the layer before it; the last
layer must be the loss. Models that are not such a chain, and layers of other kinds
or settings than those below, are refused.
"""

import json
import math

import torch
from torch import nn
from torch.nn import functional

import model

ACTIVATIONS = {"relu": lambda: nn.ReLU(inplace=True), "gelu": nn.GELU, "tanh": nn.Tanh}


class Embed(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width).normal_(std=0.02))

    def forward(self, tokens):
        return functional.embedding(tokens, self.weight)


class Lstm(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.lstm = nn.LSTM(inputs, width, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


class Decoder(nn.Module):
    """Computes logits without a norm before it; the weight may be an embedding's."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return functional.linear(x, self.weight)


def read(path):
    """Returns the modules described in the file at path, in order, its two inputs and the shape of its logits."""
    with open(path) as f:
        m = json.load(f)
    inputs = {x["name"]: x for x in m["inputs"]}
    *layers, loss = m["layers"]
    if loss["kind"] != "cross_entropy":
        raise SystemExit(f"{path}: the last layer is {loss['kind']}; it must be cross_entropy")
    shape, last, found, table = inputs["input"]["shape"], "input", [], {}
    for layer in layers:
        if layer["from"] != [last]:
            raise SystemExit(f"{path}: {layer['name']} reads {layer['from']}; each layer must read the one before it")
        found += _modules(path, layer, shape, table)
        shape, last = layer["outputs"][0]["shape"], layer["name"]
    return found, inputs["input"], inputs["target"], shape


def _modules(path, layer, shape, table):
    kind, a = layer["kind"], layer["attr"] or {}
    if kind == "conv2d" and not a["batch_norm"]:
        conv = nn.Conv2d(shape[0], a["channels"], a["kernel"], a["stride"], a["padding"], bias=a["bias"])
        return [conv] + _activation(a)
    if kind == "max_pool":
        return [nn.MaxPool2d(a["size"])]
    if kind == "flatten":
        return [nn.Flatten()]
    if kind == "dense":
        return [nn.Linear(shape[-1], a["width"], bias=a["bias"])] + _activation(a)
    if kind == "dropout":
        return [nn.Dropout(a["p"])]
    if kind == "embedding" and a["dropout"] == 0:
        e = model.Embed(a["vocabulary"], shape[0], a["width"]) if a["positions"] else Embed(a["vocabulary"], a["width"])
        table[layer["name"] + ".weight"] = e.weight
        return [e]
    if kind == "lstm" and not a["bidirectional"] and a["dropout"] == 0:
        return [Lstm(shape[-1], a["width"])]
    if kind == "attention" and a["dropout"] == 0:
        return [model.Attention(shape[-1], a["heads"], shape[0], a["depth"])]
    if kind == "mlp" and a["expand"] == 4 and a["dropout"] == 0:
        return [model.Mlp(shape[-1], a["depth"])]
    if kind == "head" and a["norm"] and not a["tied"]:
        return [model.Head(shape[-1], a["vocabulary"])]
    if kind == "head" and not a["norm"]:
        own = nn.Parameter(torch.empty(a["vocabulary"], shape[-1]).normal_(std=0.02))
        return [Decoder(table[a["tied"]] if a["tied"] else own)]
    raise SystemExit(f"{path}: {layer['name']} is {kind} with {a}, which is not written here")


def _activation(a):
    return [] if a["activation"] == "none" else [ACTIVATIONS[a["activation"]]()]


def rows(x, classes, count, generator):
    """Returns count random rows of the input x: whole numbers below classes, or floats in [-1, 1)."""
    if x["dtype"] == "int":
        return torch.randint(classes, (count, *x["shape"]), generator=generator)
    return torch.rand((count, *x["shape"]), generator=generator) * 2 - 1


def loss(logits, targets):
    return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def finite(x):
    if not math.isfinite(x):
        raise SystemExit(f"the loss is {x}")
    return x
