"""Networks for sequences in various people's styles."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Translator(nn.Module):
    """GRUs with attention: a bidirectional encoder, a decoder whose loop tracing unrolls, batch second, masks."""

    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(20, 8, padding_idx=0), nn.Embedding(20, 8)
        self.encoder = nn.GRU(8, 8, bidirectional=True)
        self.bridge = nn.Linear(16, 12)
        self.cell = nn.GRUCell(8 + 16, 12)
        self.score = nn.Linear(12 + 16, 1, bias=False)
        self.out = nn.Linear(12, 20)

    def forward(self, source, target):
        memory, last = self.encoder(self.source(source.t()))
        state = torch.tanh(self.bridge(torch.cat([last[0], last[1]], dim=1)))
        padding = (source == 0)
        losses = 0
        for i in range(target.shape[1] - 1):
            wide = state.unsqueeze(0).expand(memory.shape[0], -1, -1)
            energy = self.score(torch.cat((wide, memory), dim=2)).squeeze(2).t()
            weights = F.softmax(energy.masked_fill(padding, -1e10), dim=1)
            context = torch.bmm(weights.unsqueeze(1), memory.permute(1, 0, 2)).squeeze(1)
            state = self.cell(torch.cat([self.target(target[:, i]), context], 1), state)
            losses = losses + F.cross_entropy(self.out(state), target[:, i + 1])
        return losses / (target.shape[1] - 1)


def translator(rows=4):
    source = torch.randint(1, 20, (rows, 7))
    source[:, 5:] *= torch.randint(2, (rows, 2))
    return Translator(), (source, torch.randint(20, (rows, 4)))


class Temporal(nn.Module):
    """A temporal convolutional network: dilated 1-d convolutions with weight norm, ends cut by a negative slice."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList()
        for i in range(3):
            a = 4 if i == 0 else 12
            self.convs.append(nn.utils.weight_norm(nn.Conv1d(a, 12, 3, padding=2 * 2 ** i, dilation=2 ** i)))
        self.down = nn.Conv1d(4, 12, 1)
        self.out = nn.Linear(12, 2)

    def forward(self, x):
        skip = self.down(x)
        for i, conv in enumerate(self.convs):
            x = F.relu(conv(x)[:, :, :-2 * 2 ** i])
            x = skip = F.relu(x + skip)
        return self.out(x[:, :, -1])


def temporal(rows=4):
    return Temporal(), (torch.randn(rows, 4, 24), torch.randint(2, (rows,)))


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        x32 = x.float()
        return (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + self.eps)).type_as(x) * self.weight


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


class Llama(nn.Module):
    """Llama's layers: RMSNorm, rotary positions from a cached buffer, grouped queries by expand, SwiGLU."""

    class Layer(nn.Module):
        def __init__(self, width, heads, groups):
            super().__init__()
            self.heads, self.groups, self.size = heads, groups, width // heads
            self.q_proj = nn.Linear(width, width, bias=False)
            self.k_proj = nn.Linear(width, groups * self.size, bias=False)
            self.v_proj = nn.Linear(width, groups * self.size, bias=False)
            self.o_proj = nn.Linear(width, width, bias=False)
            self.gate_proj, self.up_proj = nn.Linear(width, 48, bias=False), nn.Linear(width, 48, bias=False)
            self.down_proj = nn.Linear(48, width, bias=False)
            self.input_layernorm, self.post_attention_layernorm = RMSNorm(width), RMSNorm(width)

        def repeat(self, x):
            b, g, t, s = x.shape
            n = self.heads // self.groups
            return x[:, :, None, :, :].expand(b, g, n, t, s).reshape(b, g * n, t, s)

        def forward(self, x, cos, sin, mask):
            b, t, c = x.shape
            h = self.input_layernorm(x)
            q = self.q_proj(h).view(b, t, self.heads, self.size).transpose(1, 2)
            k = self.k_proj(h).view(b, t, self.groups, self.size).transpose(1, 2)
            v = self.v_proj(h).view(b, t, self.groups, self.size).transpose(1, 2)
            q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
            k, v = self.repeat(k), self.repeat(v)
            w = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.size) + mask
            w = F.softmax(w, dim=-1, dtype=torch.float32).to(q.dtype)
            x = x + self.o_proj(torch.matmul(w, v).transpose(1, 2).reshape(b, t, c))
            h = self.post_attention_layernorm(x)
            return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))

    def __init__(self, words=32, width=32, heads=4, groups=2, places=16):
        super().__init__()
        self.embed_tokens = nn.Embedding(words, width)
        self.layers = nn.ModuleList([self.Layer(width, heads, groups) for _ in range(2)])
        self.norm, self.lm_head = RMSNorm(width), nn.Linear(width, words, bias=False)
        size = width // heads
        inv_freq = 1.0 / (10000 ** (torch.arange(0, size, 2).float() / size))
        freqs = torch.outer(torch.arange(places).float(), inv_freq)
        emb = torch.cat((freqs, freqs), dim=-1)
        self.register_buffer("cos_cached", emb.cos()[None, None], persistent=False)
        self.register_buffer("sin_cached", emb.sin()[None, None], persistent=False)

    def forward(self, input_ids, labels):
        t = input_ids.shape[1]
        mask = torch.full((t, t), torch.finfo(torch.float32).min, device=input_ids.device).triu(1)
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x, self.cos_cached[:, :, :t], self.sin_cached[:, :, :t], mask)
        logits = self.lm_head(self.norm(x)).float()
        shifted, labels = logits[..., :-1, :].contiguous(), labels[..., 1:].contiguous()
        return F.cross_entropy(shifted.view(-1, 32), labels.view(-1))


def llama(rows=4):
    ids = torch.randint(32, (rows, 9))
    return Llama(), (ids, ids.clone())


class T5(nn.Module):
    """T5's encoder: a relative position bias that all layers share, buckets, linears without bias, padding."""

    class Layer(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
            self.wi, self.wo = nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, width, bias=False)
            self.norm1, self.norm2, self.heads = RMSNorm(width), RMSNorm(width), heads

        def forward(self, x, bias):
            def shape(y):
                return y.view(y.shape[0], -1, self.heads, y.shape[-1] // self.heads).transpose(1, 2)
            h = self.norm1(x)
            scores = torch.matmul(shape(self.q(h)), shape(self.k(h)).transpose(3, 2))
            scores += bias
            weights = F.softmax(scores.float(), dim=-1).type_as(scores)
            y = torch.matmul(weights, shape(self.v(h))).transpose(1, 2).contiguous()
            x = x + self.o(y.view(x.shape[0], -1, x.shape[-1]))
            return x + self.wo(F.relu(self.wi(self.norm2(x))))

    def __init__(self, words=20, width=16, heads=4):
        super().__init__()
        self.shared = nn.Embedding(words, width)
        self.relative_attention_bias = nn.Embedding(8, heads)
        self.layers = nn.ModuleList([self.Layer(width, heads) for _ in range(3)])
        self.final = RMSNorm(width)
        self.out = nn.Linear(width, 2)

    def forward(self, input_ids, attention_mask, label):
        t = input_ids.size(1)
        places = torch.arange(t)
        distance = places[None, :] - places[:, None]
        bucket = (distance > 0).long() * 4 + torch.min(distance.abs(), torch.full_like(distance, 3))
        bias = self.relative_attention_bias(bucket).permute([2, 0, 1]).unsqueeze(0)
        bias = bias + (1.0 - attention_mask[:, None, None, :].to(bias.dtype)) * -1e9
        x = self.shared(input_ids)
        for layer in self.layers:
            x = layer(x, bias)
        x = self.final(x)
        mask = attention_mask.unsqueeze(-1)
        pooled = (x * mask).sum(1) / mask.sum(1)
        return F.cross_entropy(self.out(pooled), label)


def t5(rows=4):
    mask = (torch.arange(8) < torch.randint(3, 9, (rows, 1))).long()
    return T5(), (torch.randint(20, (rows, 8)), mask, torch.randint(2, (rows,)))


class Dropped(nn.Module):
    """Attention by hand with dropout inside and functional dropout after it; a boolean padding mask as an input."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.attention = nn.MultiheadAttention(16, 4, dropout=0.1, batch_first=True)
        self.qkv = nn.Linear(16, 48)
        self.p = 0.2
        self.out = nn.Linear(16, 5)

    def forward(self, tokens, padding, label):
        x = self.embed(tokens)
        y, _ = self.attention(x, x, x, key_padding_mask=padding, need_weights=False)
        x = x + F.dropout(y, self.p, self.training)
        q, k, v = self.qkv(x).tensor_split(3, dim=-1)
        w = torch.baddbmm(torch.zeros(1), q, k.transpose(1, 2), alpha=0.25)
        w = F.dropout(w.masked_fill(padding[:, None], float("-inf")).softmax(-1), 0.1, training=self.training)
        x = x + w.bmm(v)
        return F.cross_entropy(self.out(x.max(dim=1).values), label)


def dropped(rows=4):
    padding = torch.arange(6) >= torch.randint(2, 7, (rows, 1))
    return Dropped(), (torch.randint(20, (rows, 6)), padding, torch.randint(5, (rows,)))


class Pair(nn.Module):
    """nn.Transformer: encoder and decoder, causal and padding masks, smoothed labels without the padding."""

    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(20, 16), nn.Embedding(20, 16)
        self.places = nn.Parameter(torch.randn(1, 10, 16) * 0.1)
        self.transformer = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
        self.out = nn.Linear(16, 20)

    def forward(self, source, target):
        given, wanted = target[:, :-1], target[:, 1:]
        causal = nn.Transformer.generate_square_subsequent_mask(given.size(1))
        x = self.transformer(self.source(source) + self.places[:, :source.size(1)],
                             self.target(given) + self.places[:, :given.size(1)], tgt_mask=causal,
                             src_key_padding_mask=source == 0, memory_key_padding_mask=source == 0)
        out = self.out(x)
        return F.cross_entropy(out.transpose(1, 2), wanted, ignore_index=0, label_smoothing=0.1)


def pair(rows=4):
    source = torch.randint(1, 20, (rows, 7))
    source[:, 6:] = 0
    return Pair(), (source, torch.randint(1, 20, (rows, 6)))


class Chunks(nn.Module):
    """Lists of tensors that are used whole: cat of chunk, stack of unbind, sum of split, reversed."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x, y):
        x = self.a(x)
        x = torch.cat(x.chunk(2, -1), dim=1)
        x = torch.stack(x.unbind(1), 2).transpose(1, 2)
        x = torch.cat(list(reversed(x.split(3, dim=1))), 1)
        x = sum(x.split([4, 4], dim=-1))
        return F.mse_loss(x.repeat(1, 1, 2), y)


def chunks(rows=4):
    return Chunks(), (torch.randn(rows, 3, 8), torch.randn(rows, 6, 8))


class Speech(nn.Module):
    """A speech recogniser with CTC: log_softmax, batch second, lengths as an input."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 12, 3, stride=2, padding=1)
        self.lstm = nn.LSTM(12, 8, bidirectional=True)
        self.out = nn.Linear(16, 6)

    def forward(self, sound, lengths, words):
        x = F.hardtanh(self.conv(sound), 0, 20).permute(2, 0, 1)
        x, _ = self.lstm(x)
        x = F.log_softmax(self.out(x), dim=2)
        frames = torch.full((x.size(1),), x.size(0), dtype=torch.long)
        return F.ctc_loss(x, words, frames, lengths, blank=0, zero_infinity=True)


def speech(rows=4):
    return Speech(), (torch.randn(rows, 8, 24), torch.randint(1, 4, (rows,)), torch.randint(1, 6, (rows, 3)))


class Packed(nn.Module):
    """An LSTM on packed sequences."""

    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x, lengths, label):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        _, (last, _) = self.lstm(packed)
        return F.cross_entropy(self.out(last[-1]), label)


def packed(rows=4):
    return Packed(), (torch.randn(rows, 6, 4), torch.arange(rows) % 5 + 2, torch.randint(2, (rows,)))
