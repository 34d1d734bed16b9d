"""Networks that hide from a trace what they compute. Each is a function of the rows."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Hides(nn.Module):
    """A network of two linear layers and whatever is hidden in between"""
    def __init__(self, hidden):
        super().__init__()
        self.a, self.b, self.hidden, self.kept = nn.Linear(6, 6), nn.Linear(6, 6), hidden, torch.zeros(6)
        self.register_buffer("m", torch.ones(6))
        if hidden == "hook":
            self.a.weight.register_hook(lambda g: 2 * g)

    def forward(self, x, y):
        h = checkpoint(self.a, x) if self.hidden == "recomputed" else self.a(x)
        if self.hidden == "state":
            h, self.kept = h + self.kept, h.detach().mean(0)
        elif self.hidden == "data":
            self.m.data.mul_(0.5)
            h = h * self.m
        elif self.hidden == "number":
            h = h / x.abs().max().item()
        elif self.hidden == "inner" and h.requires_grad:
            h.register_hook(lambda g: 2 * g)
        elif self.hidden == "always":
            h = F.dropout(h, 0.5)
        elif self.hidden == "auxiliary" and self.training:
            return F.mse_loss(self.b(h.relu()), y) + F.mse_loss(h, y)
        elif self.hidden == "averages":
            if self.training:
                self.m.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
            h = h - self.m
        return F.mse_loss(self.b(h.relu()), y)


def of(hidden):
    return lambda rows=4: (Hides(hidden), (torch.randn(rows, 6), torch.randn(rows, 6)))


for name in "state data number hook inner always auxiliary averages recomputed".split():
    globals()[name] = of(name)
