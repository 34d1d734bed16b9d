"""Modules in different people's styles, for export_test.go, which finds the line of an error by the text of a line."""

import collections

import torch
import torch.nn as nn
import torch.nn.functional as F


def tokens(*shape):
    return torch.arange(torch.Size(shape).numel()).reshape(shape) % 7


class Tied(nn.Module):
    """Encoder layer, a head tied to the embedding, a shared module, a buffer that state_dict leaves out."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.again = self.norm
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", torch.full((5, 5), float("-inf")).triu(1), persistent=False)

    def forward(self, ids, labels):
        x = self.again(self.block(self.norm(self.embed(ids)), self.mask))
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


def tied():
    return Tied(), (tokens(3, 5), tokens(3, 5))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 6, num_layers=2, batch_first=True)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        h, (last, cell) = self.lstm(x)
        return {"logits": self.out(h[:, -1]), "hidden": {"last": last, "cell": cell}}


def recurrent():
    return Recurrent(), (torch.randn(2, 7, 4),)


class Normed(nn.Module):
    """Statistics that tracing changes, a frozen layer, a nested path, a parameter that nothing uses."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(inplace=True)))
        self.body[0].weight.requires_grad_(False)
        self.head = nn.Linear(4, 2)
        self.spare = nn.Parameter(torch.zeros(3))

    def forward(self, image, label):
        x = self.body(image).mean((2, 3))
        out = self.head(x)
        right = (out.argmax(1) == label).float().mean()
        return collections.namedtuple("Out", "loss accuracy all")(F.cross_entropy(out, label), right, out)


def normed():
    return Normed(), (torch.randn(4, 1, 6, 6), tokens(4) % 2)


class Loop(nn.Module):
    """A loop that traces away, constants made anew in each turn, several inputs."""

    def __init__(self):
        super().__init__()
        self.step = nn.Linear(3, 3)
        self.scale = torch.tensor([1.0, 2.0, 3.0])

    def forward(self, left, right, target):
        for _ in range(3):
            left = torch.tanh(self.step(left)) * self.scale + right * torch.tensor([1.0, 2.0, 3.0])
        left.sum()
        return (left - target).pow(2).mean()


def loop():
    x = torch.randn(2, 3)
    return Loop(), (x, x, x)


class Kinds(nn.Module):
    """Types of elements, views, and tensors that are not contiguous."""

    def __init__(self):
        super().__init__()
        flat = torch.arange(12.0)
        self.first = nn.Parameter(flat[:6].view(2, 3))
        self.second = nn.Parameter(flat[6:].view(2, 3))
        self.turned = nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
        self.wide = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.register_buffer("brain", torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
        self.register_buffer("yes", torch.tensor([True, False, True]))
        self.register_buffer("count", torch.tensor(7, dtype=torch.int32))
        self.register_buffer("none", torch.zeros(0, 3))

    def forward(self, x, y):
        x = x @ self.turned @ self.first * self.second.sum() * self.wide.float()
        return (x.masked_fill(self.yes, 0.0) * self.brain.float().sum() + self.count - y).abs().mean()


def kinds():
    return Kinds(), (torch.randn(2, 3), torch.randn(2, 3))


@torch.jit.script
def mish(x):
    assert x.dim() == 2
    return x * torch.tanh(F.softplus(x))


class Scripted(nn.Module):
    """A scripted function whose only branch is an assertion, einsum, chunk, gather, a two-tower sum."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 6))

    def forward(self, a, b, label):
        p, q = torch.einsum("bi,io->bo", mish(a), self.w).chunk(2, dim=1)
        return F.binary_cross_entropy_with_logits((p * q).sum(1) + b.gather(1, label.long()[:, None])[:, 0], label)


def scripted():
    return Scripted(), (torch.randn(3, 4), torch.randn(3, 2), torch.tensor([0.0, 1.0, 1.0]))


def sequence():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2)), (torch.randn(2, 2, 2),)


def regression():
    return nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.Linear(3, 1)), [torch.randn(2, 4), torch.randn(2, 1)]


def normalized():
    return nn.utils.weight_norm(nn.Linear(4, 1)), (torch.randn(2, 4), torch.ones(2, 1))


class Optional(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 5, batch_first=True)

    def forward(self, x, mask=None, *rest, **more):
        return self.gru(x if mask is None else x * mask)[0][:, -1]


def optional():
    return Optional(), (torch.randn(2, 3, 4), torch.zeros(2, 5))


class Counted(nn.Module):
    """A counter in a buffer, written in place, and several losses in a dict."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(3))])
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x, y):
        self.seen += 1
        for layer in self.layers:
            x = x + layer(x)
        loss = F.l1_loss(x * self.weights[0], y)
        return {"error": loss.detach().sqrt(), "loss": loss, "step": 3}


def counted():
    return Counted(), (torch.randn(2, 3), torch.randn(2, 3))


class Transposed(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(2, 4, 2, stride=2)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x):
        return F.silu(self.norm(self.up(x))).view(x.size(0), -1)


def transposed():
    return Transposed(), (torch.randn(2, 2, 3, 3),)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.tensor([2.0, 3.0])

    def forward(self, x):
        return x * self.scale + self.scale


def compiled():
    layers = nn.Linear(4, 4), nn.Dropout(0.1), nn.Linear(4, 2), Scaled(), Scaled()
    return torch.jit.script(nn.Sequential(*layers)), (torch.randn(3, 4),)


class Beside(nn.Linear):
    """Numbers to report in a dict behind the loss, and what is none."""

    def forward(self, x, y):
        out = super().forward(x)
        right, wide = (out.argmax(1) == y).float().mean(), out.std()
        more = {"all": out, "step": 3, "inner": {"right": right}, "loss": right, "none": None}
        return F.cross_entropy(out, y), {"accuracy": right, "spread": wide}, more


def beside():
    return Beside(3, 2), (torch.randn(4, 3), tokens(4) % 2)


# What is refused.

def unused(self, x, y):
    return x


def one(forward, *inputs):
    """Return a module of one parameter with this forward, and inputs."""
    class One(nn.Linear):
        pass
    One.forward = forward
    return One(3, 3), inputs or (torch.randn(2, 3), torch.randn(2, 3))


def raises():
    raise ValueError("no data\nhere")


def forward_raises():
    return one(lambda self, x, y: x @ y.unknown)


def exits():
    raise SystemExit(0)


def no_pair():
    return nn.Linear(3, 3)


def inputs_are_a_number():
    return nn.Linear(3, 3), 5


def inputs_are_a_dict():
    return nn.Linear(3, 3), {"x": torch.randn(2, 3)}


def nested_inputs():
    return one(unused, {"x": torch.randn(2, 3)}, torch.randn(2, 3))


def other_rows():
    return one(unused, torch.randn(2, 3), torch.randn(3, 3))


def one_row():
    return one(unused, torch.randn(1, 3), torch.randn(1, 3))


def too_many():
    return nn.Linear(3, 3), (torch.randn(2, 3),) * 3


def no_number():
    return one(lambda self, x, y: self.weight.sum() * x)


def text():
    return one(lambda self, x, y: "done")


def no_loss():
    return one(lambda self, x, y: {"logits": x})


def no_gradient():
    return one(lambda self, x, y: (x - y).mean())


def replaced_buffer():
    module, inputs = one(replaces)
    module.register_buffer("mean", torch.zeros(3))
    return module, inputs


def replaces(self, x, y):
    self.mean = self.mean * 0.9 + x.mean(0)
    return (F.linear(x, self.weight) - self.mean).mean()


def counted_rows():
    return one(lambda self, x, y: (F.linear(x, self.weight).sum(1) * torch.arange(len(x)) - y[:, 0]).mean())


def other_operators():
    return one(lambda self, x, y: sum(F.linear(x[i], self.weight).mean() for i in range(len(x))) / 2)


def written_rows():
    return one(lambda self, x, y: (F.linear(x, self.weight).view(2, 3) - y).mean())


def fails_in_traces():
    return one(lambda self, x, y: (F.linear(x, self.weight) - y).mean() if not torch.jit.is_tracing() else x.untraced)


def outputs_alone():
    return nn.Linear(3, 3), (torch.randn(2, 3),) * 2


def packed():
    return one(packs, torch.randn(3, 4, 3), torch.tensor([4, 2, 3]))


def packs(self, x, lengths):
    packed = nn.utils.rnn.pack_padded_sequence(F.linear(x, self.weight), lengths, True, False)
    return packed.data.mean()


def behind_autograd():
    return one(lambda self, x, y: (F.linear(x, self.weight) * self.weight.data.sum()).mean())


def shared_memory():
    module, inputs = one(lambda self, x, y: (F.linear(x, self.weight) + F.linear(x, self.other)).mean())
    module.other = nn.Parameter(module.weight.data)
    return module, inputs


@torch.jit.script
def turns(x):
    if bool(x.sum() > 0):
        x = x * 2
    return x


def data_dependent():
    return one(lambda self, x, y: turns(F.linear(x, self.weight)).mean())


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def own_backward():
    return one(lambda self, x, y: Square.apply(F.linear(x, self.weight)).mean())


def cyclic():
    module, inputs = one(unused)
    module.up = module
    return module, inputs


def lazy():
    return nn.LazyLinear(3), (torch.randn(2, 3),)


def single():
    return one(lambda self, x: self.weight.sum() * x.mean(), torch.randn(2, 3))


def sparse():
    module, inputs = one(lambda self, x, y: self.weight.sum() * x.mean())
    module.register_buffer("table", torch.eye(3).to_sparse())
    return module, inputs
