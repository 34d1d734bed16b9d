"""Networks for several inputs, for tables, and mixtures, in various people's styles."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Contrastive(nn.Module):
    """Two towers, each row of one compared with each row of the other; a temperature; arange as labels."""

    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 8))
        self.words = nn.EmbeddingBag(30, 8)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, image, text):
        a = F.normalize(self.image(image), dim=-1)
        b = self.words(text)
        b = b / b.norm(dim=1, keepdim=True)
        logits = self.logit_scale.exp() * a @ b.t()
        labels = torch.arange(logits.shape[0], device=logits.device)
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def contrastive(rows=4):
    return Contrastive(), (torch.randn(rows, 12), torch.randint(30, (rows, 5)))


class Counting(Contrastive):
    """The same two towers, with labels that Python makes with len()."""

    def forward(self, image, text):
        logits = self.image(image) @ self.words(text).t()
        return F.cross_entropy(logits, torch.arange(len(logits)))


def counting(rows=4):
    return Counting(), (torch.randn(rows, 12), torch.randint(30, (rows, 5)))


class Halves(nn.Module):
    """Two views of each picture in one batch: chunk along the rows, NT-Xent, an even number of rows."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 16), nn.ReLU(inplace=True), nn.Linear(16, 8))

    def forward(self, x, unused):
        a, b = F.normalize(self.body(x), dim=1).chunk(2)
        scores = a @ b.T / 0.5
        return F.cross_entropy(scores, torch.arange(a.shape[0])) + 0 * unused.sum()


def halves(rows=4):
    return Halves(), (torch.randn(rows, 12), torch.zeros(rows))


class Siamese(nn.Module):
    """One tower called twice: distances, a margin, torch.where."""

    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, left, right, same):
        d = F.pairwise_distance(self.tower(left), self.tower(right))
        return torch.where(same > 0, d ** 2, torch.clamp(1.0 - d, min=0.0) ** 2).mean()


def siamese(rows=4):
    return Siamese(), (torch.randn(rows, 10), torch.randn(rows, 10), torch.randint(2, (rows,)))


class Experts(nn.Module):
    """A mixture of experts with soft routing, a stack of all their outputs, a loss that balances them."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8)) for _ in range(4))
        self.out = nn.Linear(8, 1)

    def forward(self, x, y):
        g = self.gate(x).softmax(-1)
        every = torch.stack([expert(x) for expert in self.experts], dim=1)
        x = x + (g.unsqueeze(-1) * every).sum(1)
        balance = 4 * (g.mean(0) ** 2).sum()
        return F.huber_loss(self.out(x).squeeze(-1), y) + 0.01 * balance


def experts(rows=4):
    return Experts(), (torch.randn(rows, 8), torch.randn(rows))


class TopK(nn.Module):
    """The two best experts of each row: topk, gather, scatter into a mask, index by a tensor."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.w = nn.Parameter(torch.randn(4, 8, 8) * 0.3)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        logits = self.gate(x)
        best, which = logits.topk(2, dim=-1)
        weights = torch.zeros_like(logits).scatter(1, which, best.softmax(-1))
        chosen = self.w[which]
        y = torch.einsum("bkio,bi->bko", chosen, x)
        y = (y * weights.gather(1, which).unsqueeze(-1)).sum(1)
        return self.out(y + x)


def topk(rows=4):
    return TopK(), (torch.randn(rows, 8), torch.randint(3, (rows,)))


class Highway(nn.Module):
    """Highway layers written with addcmul and lerp, functional parameters in a ParameterList, in-place arithmetic."""

    def __init__(self):
        super().__init__()
        self.w = nn.ParameterList(nn.Parameter(torch.randn(8, 8) * 0.3) for _ in range(3))
        self.t = nn.ParameterList(nn.Parameter(torch.randn(8, 8) * 0.3) for _ in range(3))
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        for w, t in zip(self.w, self.t):
            gate = torch.sigmoid(x.mm(t).sub_(1.0))
            x = torch.lerp(x, x.mm(w).relu_(), gate)
        x.mul_(0.5)
        x += 1
        return self.out(x)


def highway(rows=4):
    return Highway(), (torch.randn(rows, 8), torch.randn(rows, 1))


class Wide(nn.Module):
    """Wide and deep: categories of a table in one tensor, embeddings by column, a bilinear cross, binary targets."""

    def __init__(self):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(n, 4) for n in (10, 7, 5)])
        self.bn = nn.BatchNorm1d(6)
        self.cross = nn.Bilinear(4, 4, 3)
        self.deep = nn.Sequential(nn.Linear(18, 16), nn.ReLU(), nn.Dropout(0.0), nn.Linear(16, 8), nn.ReLU())
        self.wide = nn.Linear(6, 1)
        self.out = nn.Linear(11, 1)

    def forward(self, categories, numbers, click):
        e = [table(categories[:, i]) for i, table in enumerate(self.embeddings)]
        numbers = self.bn(numbers)
        x = self.deep(torch.cat(e + [numbers], 1))
        x = self.out(torch.cat([x, self.cross(e[0], e[1])], -1)) + self.wide(numbers)
        return F.binary_cross_entropy_with_logits(x.view(-1), click, pos_weight=torch.tensor(2.0))


def wide(rows=4):
    return Wide(), (torch.randint(5, (rows, 3)), torch.randn(rows, 6), torch.randint(2, (rows,)).float())


class Averages(nn.Module):
    """A codebook with a straight-through estimator, and buffers that follow averages of the batch (VQ-VAE with EMA)."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(8, 4), nn.Linear(4, 8)
        self.register_buffer("codes", torch.randn(6, 4))
        self.register_buffer("count", torch.ones(6))
        self.register_buffer("sums", torch.randn(6, 4))

    def forward(self, x, y):
        z = self.encode(x)
        far = z.pow(2).sum(1, keepdim=True) - 2 * z @ self.codes.t() + self.codes.pow(2).sum(1)
        which = F.one_hot(far.argmin(1), 6).type_as(z)
        near = which @ self.codes
        if self.training:
            with torch.no_grad():
                self.count.mul_(0.9).add_(which.sum(0), alpha=0.1)
                self.sums.mul_(0.9).add_(which.t() @ z, alpha=0.1)
                self.codes.copy_(self.sums / (self.count + 1e-5).unsqueeze(1))
        commitment = F.mse_loss(z, near.detach())
        near = z + (near - z).detach()
        return F.mse_loss(self.decode(near), y) + 0.25 * commitment


def averages(rows=4):
    x = torch.randn(rows, 8)
    return Averages(), (x, x.clone())


class DQN(nn.Module):
    """The loss of a dueling network: two heads on one body, gather of actions, a frozen copy, no_grad, smooth_l1."""

    def __init__(self):
        super().__init__()
        def net():
            return nn.ModuleDict({"body": nn.Sequential(nn.Linear(6, 16), nn.ReLU()), "value": nn.Linear(16, 1),
                                  "advantage": nn.Linear(16, 4)})
        self.online, self.frozen = net(), net()
        self.frozen.load_state_dict(self.online.state_dict())
        self.frozen.requires_grad_(False)

    def q(self, net, state):
        h = net["body"](state)
        a = net["advantage"](h)
        return net["value"](h) + a - a.mean(1, keepdim=True)

    def forward(self, state, action, following, done, reward):
        q = self.q(self.online, state).gather(1, action[:, None]).squeeze(1)
        with torch.no_grad():
            best = self.q(self.frozen, following).max(1)[0]
            target = reward + 0.99 * best * (~done)
        return F.smooth_l1_loss(q, target)


def dqn(rows=4):
    return DQN(), (torch.randn(rows, 6), torch.randint(4, (rows,)), torch.randn(rows, 6), torch.rand(rows) > 0.7,
                   torch.randn(rows))


class Physics(nn.Module):
    """Sines and a first layer of Fourier features; a weight for each sample; a penalty on all parameters."""

    def __init__(self):
        super().__init__()
        self.register_buffer("B", torch.randn(2, 8) * 3)
        self.layers = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])
        self.out = nn.Linear(16, 1)
        self.sigma = nn.Parameter(torch.zeros(1))

    def forward(self, xy, weight, u):
        f = 2 * math.pi * xy @ self.B
        x = torch.cat([torch.sin(f), torch.cos(f)], dim=-1)
        for layer in self.layers:
            x = torch.sin(layer(x))
        error = (weight * (self.out(x)[:, 0] - u).square()).sum() / weight.sum()
        penalty = sum(p.pow(2.0).sum() for p in self.layers.parameters())
        return torch.exp(-self.sigma) * error + self.sigma + 1e-4 * penalty


def physics(rows=4):
    return Physics(), (torch.randn(rows, 2), torch.rand(rows), torch.randn(rows))


class Graph(nn.Module):
    """A graph network with a dense adjacency matrix: bmm, masks of nodes, a pool without the padding, degrees."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 16), nn.Linear(16, 16)
        self.out = nn.Linear(16, 2)

    def forward(self, nodes, adjacency, mask, label):
        a = adjacency + torch.eye(adjacency.size(-1)).to(adjacency)
        a = a / a.sum(-1, keepdim=True).clamp(min=1)
        x = F.relu(torch.bmm(a, self.first(nodes)))
        x = F.relu(torch.bmm(a, self.second(x)))
        x = x.masked_fill(~mask.unsqueeze(-1), 0.0).sum(1) / mask.sum(1, keepdim=True)
        return F.cross_entropy(self.out(x), label)


def graph(rows=4):
    mask = torch.arange(8) < torch.randint(3, 9, (rows, 1))
    adjacency = (torch.rand(rows, 8, 8) > 0.6).float()
    return Graph(), (torch.randn(rows, 8, 5), adjacency, mask, torch.randint(2, (rows,)))


class Fourier(nn.Module):
    """FNet: mixes positions by Fourier transforms, with complex numbers in between."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(20, 8), nn.Linear(8, 3)

    def forward(self, words):
        x = self.embed(words)
        x = x + torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real
        return self.out(x.mean(1))


def fourier(rows=4):
    return Fourier(), (torch.randint(20, (rows, 6)), torch.randint(3, (rows,)))


class Accumulates(nn.Module):
    """A loss added up with += in a tensor that forward makes from a number."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x, y):
        total = torch.tensor(0.0)
        for layer in self.layers:
            x = torch.tanh(layer(x))
            total += F.mse_loss(x, y)
        return total


def accumulates(rows=4):
    return Accumulates(), (torch.randn(rows, 4), torch.randn(rows, 4))


class Teacher(nn.Module):
    """A student that learns from a teacher: the same weights, under no_grad, so that its output has no gradient."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x, noisy, y):
        with torch.no_grad():
            teacher = self.body(x)
        student = self.body(noisy)
        distilled = F.kl_div(F.log_softmax(student, -1), F.softmax(teacher / 2, -1), reduction="batchmean")
        return F.cross_entropy(student, y) + distilled


def teacher(rows=4):
    x = torch.randn(rows, 6)
    return Teacher(), (x, x + 0.1, torch.randint(4, (rows,)))


class Depends(nn.Module):
    """A Python if on the value of a tensor: only one branch is in the file."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.a(x) if x.mean() > -100 else self.b(x)


def depends(rows=4):
    return Depends(), (torch.randn(rows, 4), torch.randn(rows, 4))


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        s = torch.sigmoid(x)
        return gradient * (s * (1 + x * (1 - s)))


class OwnBackward(nn.Module):
    """A swish with its own backward (torch.autograd.Function)."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.b(Swish.apply(self.a(x)))


def own_backward(rows=4):
    return OwnBackward(), (torch.randn(rows, 4), torch.randn(rows, 4))
