"""A GPT in minGPT's style, a BERT of PyTorch's modules, an LSTM, an encoder, and a network with branches."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class SelfAttention(nn.Module):
    def __init__(self, width, heads, block):
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.attn_drop = nn.Dropout(0.0)
        self.register_buffer("bias", torch.tril(torch.ones(block, block)).view(1, 1, block, block))
        self.heads, self.width = heads, width

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.width, dim=2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = self.attn_drop(F.softmax(att, dim=-1))
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class Block(nn.Module):
    def __init__(self, width, heads, block):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = SelfAttention(width, heads, block)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict(dict(c_fc=nn.Linear(width, 4 * width), c_proj=nn.Linear(4 * width, width),
                                      act=nn.GELU()))
        m = self.mlp
        self.mlpf = lambda x: m.c_proj(m.act(m.c_fc(x)))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlpf(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, words=50, block=16, width=32, heads=4, layers=2):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(words, width), wpe=nn.Embedding(block, width), drop=nn.Dropout(0.0),
            h=nn.ModuleList([Block(width, heads, block) for _ in range(layers)]), ln_f=nn.LayerNorm(width)))
        self.lm_head = nn.Linear(width, words, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets):
        b, t = idx.size()
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device).unsqueeze(0)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


def gpt(rows=4):
    words = torch.randint(50, (rows, 13))
    return GPT(), (words[:, :-1].clone(), words[:, 1:].clone())


class BERT(nn.Module):
    """Masked words and the next sentence; the decoder's matrix is the embedding's."""

    def __init__(self, words=40, width=32, layers=2, places=16):
        super().__init__()
        self.word = nn.Embedding(words, width, padding_idx=0)
        self.place = nn.Embedding(places, width)
        self.kind = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.pooler = nn.Linear(width, width)
        self.next = nn.Linear(width, 2)
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=1e-12))
        self.decoder = nn.Linear(width, words)
        self.decoder.weight = self.word.weight
        self.register_buffer("position_ids", torch.arange(places).expand((1, -1)))

    def forward(self, input_ids, token_type_ids, attention_mask, labels, next_sentence_label):
        places = self.position_ids[:, :input_ids.shape[1]]
        x = self.norm(self.word(input_ids) + self.kind(token_type_ids) + self.place(places))
        x = self.encoder(x, src_key_padding_mask=attention_mask == 0)
        following = self.next(torch.tanh(self.pooler(x[:, 0])))
        words = self.decoder(self.transform(x))
        masked = F.cross_entropy(words.view(-1, words.size(-1)), labels.view(-1))
        return masked + F.cross_entropy(following, next_sentence_label)


def bert(rows=4):
    ids = torch.randint(1, 40, (rows, 12))
    mask = (torch.arange(12) < torch.randint(6, 13, (rows, 1))).long()
    labels = torch.where(torch.rand(rows, 12) < 0.3, ids, torch.full_like(ids, -100))
    labels[:, 0] = ids[:, 0]
    return BERT(), (ids * mask, (torch.arange(12) > 5).long().repeat(rows, 1), mask, labels, torch.randint(2, (rows,)))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 12)
        self.lstm = nn.LSTM(12, 16, num_layers=2, batch_first=True, dropout=0.0)
        self.out = nn.Linear(16, 7)

    def forward(self, words):
        return self.out(self.lstm(self.embed(words))[0]).transpose(1, 2)


def lstm(rows=4):
    words = torch.randint(30, (rows, 10))
    return Tagger(), (words, words.roll(1, 1) % 7)


class Encoder(nn.Module):
    """PyTorch's tutorial: an encoder whose batch is the second dimension, with sines as places and a mask."""

    def __init__(self, words=30, width=16, places=20):
        super().__init__()
        at = torch.arange(places).unsqueeze(1)
        turn = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        pe = torch.zeros(places, 1, width)
        pe[:, 0, 0::2] = torch.sin(at * turn)
        pe[:, 0, 1::2] = torch.cos(at * turn)
        self.register_buffer("pe", pe)
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.decoder = nn.Linear(width, words)
        self.width = width

    def forward(self, src, target):
        src = src.t()
        mask = torch.triu(torch.ones(src.size(0), src.size(0)) * float("-inf"), diagonal=1)
        x = self.embed(src) * math.sqrt(self.width)
        x = x + self.pe[:x.size(0)]
        x = self.decoder(self.encoder(x, mask))
        return F.cross_entropy(x.view(-1, x.size(-1)), target.t().reshape(-1))


def encoder(rows=4):
    words = torch.randint(30, (rows, 11))
    return Encoder(), (words[:, :-1], words[:, 1:])


class Branches(nn.Module):
    """Three inputs, a module that two of them share, and skips over all of what lies between."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(6, 8)
        self.down = nn.Sequential(nn.Linear(16, 12), nn.ReLU(inplace=True))
        self.middle = nn.ModuleList([nn.Linear(12, 12) for _ in range(3)])
        self.up = nn.Linear(12, 16)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16 + 8, 1)

    def forward(self, left, right, extra, price):
        a, b = torch.tanh(self.shared(left)), torch.tanh(self.shared(right))
        start = torch.cat((a, b), dim=1)
        x = self.down(start)
        for layer in self.middle:
            x = x + F.relu(layer(x))
        x = self.norm(self.up(x) + start)
        out = self.head(torch.cat((x, a * torch.sigmoid(self.shared(extra))), 1)).squeeze(1)
        return F.mse_loss(out, price), (out - price).abs().mean()


def branches(rows=4):
    return Branches(), (torch.randn(rows, 6), torch.randn(rows, 6), torch.randn(rows, 6), torch.randn(rows))
