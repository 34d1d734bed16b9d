"""Networks whose traced graphs are the JSON files of this folder. To make them anew, run here:

for M in resnet gpt lstm encoder; do
    /usr/bin/python3 ../../../../python/millrace_export.py models.py:$M -o /tmp/$M.zip
    unzip -p /tmp/$M.zip graph.json | /usr/bin/python3 models.py /tmp/$M.zip > $M.json; done
"""

import json
import struct
import sys
import zipfile

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.conv2, self.bn2 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x
        return self.relu(y)


class Resnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(3, 4, 3), nn.Sequential(Block(4), Block(4))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(4, 10)

    def forward(self, x, target):
        x = self.pool(self.blocks(self.stem(x / 255.0)))
        return F.cross_entropy(self.fc(torch.flatten(x, 1)), target)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.drop = heads, nn.Dropout(0.1)

    def forward(self, x):
        b, t, w = x.size()
        parts = self.qkv(self.norm(x)).chunk(3, 2)
        q, k, v = (y.view(b, t, self.heads, w // self.heads).transpose(1, 2) for y in parts)
        scores = (q @ k.transpose(-2, -1)) / (q.size(-1) ** 0.5)
        mask = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
        p = self.drop(scores.masked_fill(mask, float("-inf")).softmax(-1))
        return x + self.out((p @ v).transpose(1, 2).contiguous().view(b, t, w))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(20, 8), nn.Embedding(6, 8)
        self.blocks, self.head = nn.Sequential(Attention(8, 2), Attention(8, 2)), nn.Linear(8, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens, target):
        x = self.embed(tokens) + self.place(torch.arange(tokens.size(1)))
        y = self.head(self.blocks(x))
        return F.cross_entropy(y.view(-1, y.size(-1)), target.view(-1))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(20, 4), nn.LSTM(4, 5, 2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(5, 20)

    def forward(self, tokens, target):
        y, _ = self.lstm(self.embed(tokens))
        return F.cross_entropy(self.head(y[:, -1]), target)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(8, 3)

    def forward(self, x, target):
        return F.cross_entropy(self.head(self.encoder(x).mean(1)), target)


def resnet():
    return Resnet(), (torch.rand(4, 3, 9, 9), torch.tensor([1, 2, 3, 4]))


def gpt():
    return Gpt(), (torch.arange(24).view(4, 6) % 20, torch.arange(24).view(4, 6) % 20)


def lstm():
    return Lstm(), (torch.arange(20).view(4, 5), torch.tensor([1, 2, 3, 4]))


def encoder():
    return Encoder(), (torch.rand(4, 5, 8), torch.tensor([0, 1, 2, 0]))


def main():
    """Write the graph.json read from standard input on one line, with the shapes and types of the weights added."""
    graph = json.load(sys.stdin)
    with zipfile.ZipFile(sys.argv[1]).open("weights.safetensors") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    for t in graph["tensors"]:
        t["shape"], t["dtype"] = header[t["name"]]["shape"], header[t["name"]]["dtype"]
    nodes = graph.pop("nodes")
    front = json.dumps(graph, separators=(",", ":"))[:-1]
    print(front + ',"nodes":[\n' + ",\n".join(json.dumps(n, separators=(",", ":")) for n in nodes) + "]}")


if __name__ == "__main__":
    main()
