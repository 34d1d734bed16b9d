"""Small networks that only look like millrace's operators, or are such an operator in disguise; each is a function."""
import math

import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    """A body between a linear layer from 8 to 8 and one from 8 to 1, on sequences of 6 positions."""

    def __init__(self, body, **parts):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 1)
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self.body = body

    def forward(self, x, y):
        return F.mse_loss(self.last(self.body(self, self.first(x))).flatten(1).mean(1), y)


def net(parts=dict):
    """Return a decorator that makes of a body a function of the rows, which builds a Net with these parts."""
    def of(body):
        def build(rows=4):
            return Net(body, **parts()), (torch.randn(rows, 6, 8), torch.randn(rows))
        return build
    return of


def matrix(*shape):
    return nn.Parameter(torch.randn(*shape) / 3)


def causal(t=6, d=1):
    return torch.ones(t, t).triu(d).bool()


def heads(x, n=2):
    return x.view(x.size(0), x.size(1), n, -1).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


def qkv():
    return {"qkv": nn.Linear(8, 24), "mask": causal()}


def split(m, x, n=2):
    return [heads(z, n) for z in m.qkv(x).chunk(3, 2)]


# Linear layers.

@net(lambda: {"w": matrix(8, 8)})
def not_turned(m, x):
    return x @ m.w.transpose(0, -2)


@net(lambda: {"w": matrix(8, 8)})
def used_both_ways(m, x):
    return x @ m.w.t() @ m.w


@net(lambda: {"w": matrix(8, 8)})
def turned_once_read_twice(m, x):
    w = m.w.t()
    return (x @ w) @ w


@net(lambda: {"w": matrix(8, 8), "b": matrix(6, 8)})
def bias_of_places(m, x):
    return F.linear(x, m.w) + m.b


@net(lambda: {"w": matrix(8, 8), "b": matrix(8)})
def bias_read_twice(m, x):
    return (x @ m.w.t() + m.b) * m.b


@net(lambda: {"w": matrix(8, 8), "b": torch.randn(8)})
def bias_of_a_buffer(m, x):
    return x @ m.w.mT + m.b


@net(lambda: {"w": matrix(8, 8), "b": matrix(8)})
def scaled_bias(m, x):
    return torch.addmm(m.b, x.flatten(0, 1), m.w.t(), beta=0.5, alpha=2).view_as(x)


@net(lambda: {"two": nn.Linear(8, 8)})
def layer_called_twice(m, x):
    return m.two(torch.relu(m.two(x)))


@net(lambda: {"two": nn.Linear(8, 8), "three": nn.Linear(8, 8)})
def sum_of_two_layers(m, x):
    return m.two(x) + m.three(x)


@net(lambda: {"two": nn.Linear(8, 8)})
def sum_with_alpha(m, x):
    return torch.add(m.two(x), x, alpha=0.5)


@net(lambda: {"two": nn.Linear(8, 8, bias=False), "b": matrix(8)})
def gelu_behind_late_bias(m, x):
    return F.gelu(m.two(x) + m.b)


@net(lambda: {"two": nn.Linear(8, 8)})
def strided(m, x):
    return m.two(x.transpose(1, 2).flatten(1).view(-1, 8, 6).transpose(1, 2))


def half_frozen_parts():
    parts = {"two": nn.Linear(8, 8), "three": nn.Linear(8, 8), "norm": nn.LayerNorm(8), "conv": nn.Conv2d(1, 2, 3),
             "lstm": nn.LSTM(8, 8, batch_first=True)}
    for p in (parts["two"].weight, parts["three"].bias, parts["norm"].weight, parts["conv"].bias,
              parts["lstm"].weight_ih_l0, parts["lstm"].bias_hh_l0):
        p.requires_grad_(False)
    return parts


@net(half_frozen_parts)
def half_frozen(m, x):
    x = m.norm(m.three(F.gelu(m.two(x))) + x)
    x = m.lstm(x)[0]
    return x + m.conv(x.unsqueeze(1)).mean((1, 2, 3)).view(-1, 1, 1)


@net(lambda: {"two": nn.utils.weight_norm(nn.Linear(8, 8))})
def normed_weights(m, x):
    return m.two(x)


@net(lambda: {"w": torch.randn(8, 8) / 3, "b": torch.randn(8)})
def weights_of_buffers(m, x):
    return F.gelu(F.linear(x, m.w, m.b))


# Norms, embeddings, poolings, convolutions.

@net(lambda: {"a": nn.LayerNorm((6, 8)), "b": nn.LayerNorm(8, elementwise_affine=False), "c": nn.LayerNorm(8, eps=0.3)})
def norms(m, x):
    return m.c(m.b(m.a(x)) * 0.1)


@net(lambda: {"w": matrix(8), "b": matrix(8), "at": torch.tensor([0, 2, 2, 1, 5, 4]),
              "table": nn.Embedding(6, 8, padding_idx=-4), "frozen": nn.Embedding.from_pretrained(torch.randn(6, 8))})
def places_of_a_buffer(m, x):
    return x + m.table(m.at) + m.frozen(m.at.int())


@net(lambda: {"table": nn.Embedding(6, 8)})
def embedding_and_head(m, x):
    return F.linear(x, m.table.weight) @ m.table(torch.arange(6))


@net()
def pools(m, x):
    x = torch.relu(x.unsqueeze(1).expand(-1, 2, -1, -1))
    a = F.max_pool2d(x, 2)
    b = F.max_pool2d(x, 2, 2, 1)[:, :, 1:, 1:]
    c = F.max_pool2d(x, (2, 1), (2, 2))
    d, at = F.max_pool2d(x, 2, return_indices=True)
    e = F.max_pool2d(x[:, :, :5], 2, ceil_mode=True)
    f = F.max_pool2d(x, 3, 2, 1, 1)
    return x.mean((1, 2)).unsqueeze(1) + (a + b + c + d + e + f).mean((1, 2, 3)).view(-1, 1, 1) + at.sum() * 0.001


@net(lambda: {"a": nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular"),
              "b": nn.Conv2d(4, 4, 3, padding=2, dilation=2, groups=4), "c": nn.Conv2d(4, 2, 1, bias=False),
              "d": nn.Conv2d(2, 2, (3, 1), padding="same")})
def convolutions(m, x):
    x = m.d(m.c(m.b(m.a(x.unsqueeze(1)))))
    return x.mean(1)


# LSTMs.

@net(lambda: {"a": nn.LSTM(8, 4, proj_size=3), "b": nn.LSTM(3, 4, 2, bidirectional=True, bias=False),
              "c": nn.Linear(8, 8)})
def odd_lstms(m, x):
    return m.c(m.b(m.a(x)[0])[0])


@net(lambda: {"a": nn.LSTM(8, 8, batch_first=True), "h": matrix(1, 1, 8)})
def learned_state(m, x):
    h = m.h.expand(1, x.size(0), 8).contiguous()
    return m.a(x, (h, torch.zeros_like(h)))[0]


@net(lambda: {"a": nn.LSTM(8, 4, 2, bidirectional=True)})
def both_ways_along_the_batch(m, x):
    return m.a(x)[0]


@net(lambda: {"a": nn.LSTM(8, 8, batch_first=True)})
def lstm_called_twice(m, x):
    return m.a(m.a(x)[0])[0]


# Attention.

def attend(m, q, k, v, mask, scale=0.5, fill=-1e9):
    return joined((q @ k.transpose(-2, -1) * scale).masked_fill(mask, fill).softmax(-1) @ v)


@net(qkv)
def scale_of_both(m, x):
    q, k, v = split(m, x)
    return attend(m, q / 2 ** 0.5, k * 0.5 ** 0.5, v, m.mask, 1)


@net(qkv)
def scale_of_values(m, x):
    q, k, v = split(m, x)
    return attend(m, q, k, v * 0.5, m.mask)


@net(qkv)
def turned_sign(m, x):
    q, k, v = split(m, x)
    return joined((-(-(q @ k.transpose(-2, -1)).masked_fill(m.mask, 1e9) * 0.5)).softmax(-1) @ v)


@net(qkv)
def weak_fill(m, x):
    return attend(m, *split(m, x), m.mask, fill=-5.0)


@net(lambda: {"qkv": nn.Linear(8, 24), "mask": torch.ones(6, 6).tril().triu(-2) == 0})
def banded(m, x):
    return attend(m, *split(m, x), m.mask)


@net(lambda: {"qkv": nn.Linear(8, 72), "mask": causal().unsqueeze(1), "out": nn.Linear(24, 8)})
def mask_of_heads(m, x):  # as many heads as positions: each head sees the positions up to its own number
    return m.out(attend(m, *split(m, x, 6), m.mask))


@net(lambda: {"q": nn.Linear(8, 8), "k": nn.Linear(8, 8), "v": nn.Linear(8, 8), "mask": causal()})
def one_head(m, x):
    q, k, v = m.q(x), m.k(x), m.v(x)
    return ((q @ k.transpose(1, 2) / math.sqrt(8)).masked_fill(m.mask, -1e9)).softmax(2) @ v


@net(lambda: {"qkv": nn.Linear(8, 45), "mask": causal(), "out": nn.Linear(15, 8)})
def odd_heads(m, x):
    return m.out(attend(m, *split(m, x, 3), m.mask, 5 ** -0.5, float("-inf")))


@net(qkv)
def scores_read_too(m, x):
    q, k, v = split(m, x)
    s = (q @ k.transpose(-2, -1) * 0.5).masked_fill(m.mask, -1e9)
    return joined(s.softmax(-1) @ v) + s.clamp(-1, 1).mean()


@net(qkv)
def outputs_by_heads(m, x):
    q, k, v = split(m, x)
    y = (q @ k.transpose(-2, -1) * 0.5).masked_fill(m.mask, -1e9).softmax(-1) @ v
    return y[:, :1].transpose(1, 2).flatten(2).repeat(1, 1, 2) * y.mean(1).repeat(1, 1, 2)


@net(qkv)
def heads_not_joined(m, x):
    q, k, v = split(m, x)
    return (q @ k.transpose(-2, -1) * 0.5).masked_fill(m.mask, -1e9).softmax(-1).matmul(v).reshape(x.size(0), 6, 8)


@net(qkv)
def softmax_in_double(m, x):
    q, k, v = split(m, x)
    s = (q @ k.transpose(-2, -1) * 0.5).masked_fill(m.mask, -1e9)
    return joined(s.softmax(-1, dtype=torch.float64).float() @ v)


@net(qkv)
def keys_are_values(m, x):
    q, k, _ = split(m, x)
    return attend(m, q, k, k, m.mask)


@net(qkv)
def keys_of_the_past(m, x):
    q, k, v = split(m, x)
    return attend(m, q, torch.cat([k[:, :, :1], k[:, :, :-1]], 2), v, m.mask)


@net(qkv)
def by_bmm(m, x):
    q, k, v = (z.reshape(-1, 6, 4) for z in split(m, x))
    s = torch.baddbmm(torch.zeros(6, 6).masked_fill(m.mask, float("-inf")), q, k.transpose(1, 2), alpha=0.5)
    return joined(s.softmax(-1).bmm(v).view(x.size(0), 2, 6, 4))


@net(qkv)
def mask_added_first(m, x):
    q, k, v = split(m, x)
    return joined((m.mask * -1e9 + q @ k.transpose(-2, -1) * 0.5).softmax(-1) @ v)


@net(lambda: {"qkv": nn.Linear(8, 24), "at": torch.arange(6.0)})
def mask_of_comparisons(m, x):
    mask = torch.arange(1, 7)[None, :] > torch.arange(1, 7)[:, None]
    return attend(m, *split(m, x), mask)


@net(lambda: {"qkv": nn.Linear(8, 24)})
def mask_of_halves(m, x):
    return attend(m, *split(m, x), (torch.ones(6, 6).triu(1) * 0.5).to(torch.int64).bool())


@net(lambda: {"qkv": nn.Linear(8, 24)})
def mask_of_bits(m, x):
    ones = torch.ones(6, 6).long()
    return attend(m, *split(m, x), (ones.triu(1) & (ones * 2)).bool())


@net(lambda: {"qkv": nn.Linear(8, 24)})
def mask_of_counts(m, x):
    return attend(m, *split(m, x), torch.arange(3, 15, 2)[None, :] > torch.arange(2, 8).view(6, 1) * 2)


@net(lambda: {"qkv": nn.Linear(8, 24), "seen": torch.zeros(6, 6)})
def mask_that_is_written(m, x):
    m.seen.add_(torch.ones(6, 6).triu(1))
    return attend(m, *split(m, x), m.seen > 0.5)


@net(lambda: {"attention": nn.MultiheadAttention(8, 2, batch_first=True), "mask": causal()})
def weights_returned(m, x):
    y, weights = m.attention(x, x, x, attn_mask=m.mask)
    return y + weights.amax()


@net(lambda: {"attention": nn.MultiheadAttention(8, 4, kdim=8, vdim=8), "mask": causal(4)})
def along_the_batch(m, x):
    x = x[:, :4].transpose(0, 1)
    y = m.attention(x, x, x, attn_mask=m.mask, need_weights=False)[0].transpose(0, 1)
    return y


@net(qkv)
def never_drops(m, x):
    q, k, v = split(m, x)
    p = (q @ k.transpose(-2, -1) * 0.5).masked_fill(m.mask, -1e9).softmax(-1)
    return joined(F.dropout(p, 0.5, training=False) @ F.dropout(v, 0.0))


# Gradients that are expanded or transposed.

def everything():
    return {"a": nn.Linear(8, 8), "b": nn.Linear(8, 8), "c": nn.Linear(8, 8), "norm": nn.LayerNorm(8),
            "table": nn.Embedding(6, 8), "conv": nn.Conv2d(1, 8, 3, padding=1), "lstm": nn.LSTM(8, 8, batch_first=True),
            "qkv": nn.Linear(8, 24), "mask": causal()}


def each(m, x, gelu=True):
    yield m.a(x)
    if gelu:  # PyTorch 1.13 calculates a zero gradient for a gelu whose incoming gradient is transposed
        yield F.gelu(m.b(x))
    yield x + m.c(x)
    yield m.norm(x)
    yield m.table(x.argsort(1)[:, :, 0])
    yield m.conv(x.unsqueeze(1)).mean(1)
    yield F.max_pool2d(x.unsqueeze(1), 2).repeat_interleave(2, 2).repeat_interleave(2, 3).squeeze(1)
    yield m.lstm(x)[0]
    yield attend(m, *split(m, x), m.mask)


@net(everything)
def expanded_gradients(m, x):
    return x + sum(y.mean((1, 2), keepdim=True) for y in each(m, x))


@net(everything)
def turned_gradients(m, x):
    return x + sum(y.transpose(1, 2).reshape(-1, 6, 8) for y in each(m, x, False))


@net(everything)
def turned_inputs(m, x):
    return sum(each(m, x.reshape(-1, 8, 6).transpose(1, 2)))


@net(everything)
def every_other(m, x):
    return sum(y[:, ::2].repeat(1, 2, 1) for y in each(m, x.repeat_interleave(2, 2)[:, :, ::2]))
