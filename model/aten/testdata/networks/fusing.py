"""Networks with parts that look like operators of millrace: some of them are such operators, and some are not."""
import math

import torch
from torch import nn
from torch.nn import functional as F


class Linears(nn.Module):
    """GELUs and sums, of which one each may be fused; matrices that are transposed, sliced or penalised."""

    def __init__(self):
        super().__init__()
        self.twice, self.plain, self.tanh, self.punished = (nn.Linear(6, 6) for _ in range(4))
        self.scaled, self.residual = nn.Linear(6, 6), nn.Linear(6, 6)
        self.matrix, self.bias, self.conv1d = (nn.Parameter(torch.randn(*s) / 3) for s in ((6, 6), (6,), (6, 6)))
        self.sliced = nn.Parameter(torch.randn(12, 6) / 3)
        self.out = nn.Linear(6, 1)

    def forward(self, x, y):
        h = self.twice(x)
        x = F.gelu(h) + h
        x = F.gelu(self.plain(x))
        x = F.gelu(self.tanh(x), approximate="tanh")
        x = torch.add(x, self.scaled(x), alpha=2)
        x = x + self.residual(x)
        x = self.punished(x)
        x = x @ self.matrix.t() + self.bias
        x = torch.addmm(self.bias, x, self.conv1d)
        x = F.linear(x, self.sliced[6:])
        return F.mse_loss(self.out(x), y) + self.punished.weight.pow(2).sum()


def linears(rows=4):
    return Linears(), (torch.randn(rows, 6), torch.randn(rows, 1))


class Words(nn.Module):
    """Embeddings: with padding, with gradients scaled by frequency, and with a table that the loss reads too."""

    def __init__(self):
        super().__init__()
        self.padded = nn.Embedding(9, 4, padding_idx=2)
        self.scaled = nn.Embedding(9, 4, scale_grad_by_freq=True)
        self.shared = nn.Embedding(9, 4)
        self.norm = nn.LayerNorm(4, elementwise_affine=False)

    def forward(self, words, y):
        x = self.norm(self.padded(words) + self.scaled(words)) * self.shared(words)
        return F.mse_loss(x.sum((1, 2)), y) + self.shared.weight.abs().mean()


def words(rows=4):
    return Words(), (torch.randint(9, (rows, 7)), torch.randn(rows))


class Images(nn.Module):
    """Convolutions of all sorts, and two poolings."""

    def __init__(self):
        super().__init__()
        self.groups = nn.Conv2d(4, 6, 3, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2)
        self.same = nn.Conv2d(6, 6, 3, padding="same", bias=False)
        self.back = nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.line = nn.Conv1d(4, 4, 3)

    def forward(self, x, y):
        x = F.max_pool2d(self.groups(x), 2)
        x = self.back(F.max_pool2d(self.same(x), 3, stride=1, padding=1))
        return F.mse_loss(self.line(x.flatten(2)).mean((1, 2)), y)


def images(rows=4):
    return Images(), (torch.randn(rows, 4, 12, 12), torch.randn(rows))


class Sequences(nn.Module):
    """LSTMs: two directions with the batch as second dimension, initial states that are not zero, a last state read."""

    def __init__(self):
        super().__init__()
        self.both = nn.LSTM(5, 3, 2, bidirectional=True)
        self.given = nn.LSTM(6, 4, batch_first=True)
        self.last = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x, y):
        x = self.both(x.transpose(0, 1))[0].transpose(0, 1)
        h = torch.ones(1, x.size(0), 4)
        x = self.given(x, (h, h))[0]
        return F.mse_loss(self.last(x)[1][0][0].mean(1), y)


def sequences(rows=4):
    return Sequences(), (torch.randn(rows, 7, 5), torch.randn(rows))


class Attention(nn.Module):
    """Causal attention and forms that only resemble it."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 1)
        ones = torch.ones(6, 6)
        self.register_buffer("mask", torch.triu(ones, 0 if how == "strict" else 2 if how == "ahead" else 1).bool())
        if how == "strict":
            self.mask[0, 0] = False

    def forward(self, x, y):
        rows, t, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, 2)
        if self.how == "swapped":
            q, v = v, q
        if self.how == "interleaved":
            q, k, v = self.qkv(x).view(rows, t, 2, 3, 4).permute(3, 0, 2, 1, 4).unbind(0)
        else:
            q, k, v = (z.view(rows, t, 2, 4).transpose(1, 2) for z in (q, k, v))
        s = q @ k.transpose(-2, -1) / (3.0 if self.how == "scale" else 2.0)
        if self.how == "where":
            s = torch.where(self.mask, torch.full([], -3e38), s)
        elif self.how == "mild":
            s = s + self.mask * -3.0
        elif self.how == "added":
            s = s + torch.zeros(6, 6).masked_fill(self.mask, float("-inf"))
        elif self.how == "turned":
            s = s.masked_fill(self.mask.t(), float("-inf"))
        else:
            s = s.masked_fill(self.mask, -1e9)
        p = s.softmax(2 if self.how == "dim" else 3)
        x = (p @ v).transpose(1, 2).reshape(rows, t, 8)
        if self.how == "weights":
            x = x + p.mean()
        return F.mse_loss(self.out(x)[:, :, 0], y)


class Dropped(nn.Module):
    """Dropout inside of causal attention and between the layers of an LSTM; takes the inputs of the other networks."""

    def __init__(self):
        super().__init__()
        self.attention = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3)
        self.lstm = nn.LSTM(8, 4, 2, dropout=0.3)
        self.out = nn.Linear(4, 1)

    def forward(self, x, y):
        mask = torch.triu(torch.ones(6, 6) * float("-inf"), diagonal=1)
        x = self.lstm(self.attention(x.transpose(0, 1), mask))[0].transpose(0, 1)
        return F.mse_loss(self.out(x)[:, :, 0], y)


def dropped(rows=4):
    return Dropped(), (torch.randn(rows, 6, 8), torch.randn(rows, 6))


def attention(how):
    return lambda rows=4: (Attention(how), (torch.randn(rows, 6, 8), torch.randn(rows, 6)))


causal, swapped, where, added = attention("causal"), attention("swapped"), attention("where"), attention("added")
interleaved, scale, mild, turned = (attention(h) for h in ("interleaved", "scale", "mild", "turned"))
dim, weights, strict, ahead = (attention(h) for h in ("dim", "weights", "strict", "ahead"))


class Called(nn.Module):
    """PyTorch 2's scaled_dot_product_attention, written out, to compare with graphs that call the operator."""

    def __init__(self, how):
        super().__init__()
        self.how, self.widths = how, {"grouped": [8, 4, 4], "wide": [8, 8, 16]}.get(how, [8, 8, 8])
        self.qkv, self.out = nn.Linear(8, sum(self.widths)), nn.Linear(16 if how == "wide" else 8, 1)
        seen = torch.ones(6, 6).tril().bool()
        if how == "banded":
            seen = seen.triu(-2)
        if how == "blind":
            seen[3] = False  # position 3 sees no position at all
        if how in ("bools", "banded", "blind"):
            self.register_buffer("mask", seen)
        elif how == "floats":
            self.register_buffer("mask", torch.zeros(6, 6).masked_fill(~seen, float("-inf")))

    def forward(self, x, y):
        rows = x.size(0)
        q, k, v = (z.view(rows, 6, -1, 8 if z.size(2) == 16 else 4).transpose(1, 2)
                   for z in self.qkv(x).split(self.widths, 2))
        if self.how == "grouped":
            k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        if self.how == "short":
            q = q[:, :, :4]
        s = q @ k.transpose(2, 3) * (0.3 if self.how == "otherwise" else 0.5)
        if self.how == "floats":
            s = s + self.mask
        elif hasattr(self, "mask"):
            s = s.masked_fill(~self.mask, -3e38)
        elif self.how != "all":
            s = s.masked_fill(torch.ones(q.size(2), 6).triu(1).bool(), -3e38)
        p = s.softmax(3)
        if self.how == "blind":
            p = p.masked_fill(~self.mask, 0)
        x = (p @ v).transpose(1, 2).flatten(2)
        return F.mse_loss(self.out(x)[:, :, 0].mean(1), y)


def called(how):
    return lambda rows=4: (Called(how), (torch.randn(rows, 6, 8), torch.randn(rows)))


by_flag, scaled, otherwise, all, bools, floats, banded, blind, grouped, wide, short = (called(h) for h in (
    "by_flag scaled otherwise all bools floats banded blind grouped wide short").split())
