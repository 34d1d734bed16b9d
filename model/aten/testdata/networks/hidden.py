"""Networks that compute something that a trace does not show. Each is a function of the number of rows."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Hides(nn.Module):
    """A network of two linear layers; hidden names what it hides between them"""
    def __init__(self, hidden):
        super().__init__()
        self.a, self.b, self.hidden, self.kept = nn.Linear(6, 6), nn.Linear(6, 6), hidden, torch.zeros(6)
        self.register_buffer("m", torch.ones(6))
        self.register_buffer("v", torch.ones(6))
        self.register_buffer("count", torch.tensor(0))
        if hidden == "hook":
            self.a.weight.register_hook(lambda g: 2 * g)
        if hidden == "normed":
            self.b = nn.utils.spectral_norm(self.b)
        if hidden == "parametrized":
            self.b = nn.utils.parametrizations.spectral_norm(self.b)
        self.norm = nn.BatchNorm1d(6) if hidden in ("batch", "statistics") else None
        if hidden == "cumulative":
            self.b = nn.Sequential(self.b, nn.BatchNorm1d(6, momentum=None))

    @torch.no_grad()
    def mask(self, h):
        """Return a mask that is written in place and has no gradient"""
        mask = torch.ones_like(h)
        mask[:, 2] = h[:, 0] > 0
        return mask

    @torch.no_grad()
    def target(self, h):
        """Return the result of a module, changed in place; it is called without gradients"""
        return self.a(h).tanh_()

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
        elif self.hidden == "scaled":
            if self.training:
                self.m.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
                self.count += 1
            h = h * self.m / (self.count + 1)
        elif self.hidden == "counts":
            self.count += 1
            if self.training:
                self.m.add_(h.detach().mean(0), alpha=0.1)
            h = h * self.m.mul_(0.9) / self.count + self.v.clamp_(0.2, 0.9).neg_()
        elif self.hidden == "statistics":
            h = self.norm(h) * self.norm.running_var
        elif self.hidden == "inplace":
            with torch.no_grad():
                h.mul_(2)
        elif self.hidden == "part":
            h = h * 1.5
            with torch.no_grad():
                h[:, 0] = 0
        elif self.hidden == "clipped":
            with torch.no_grad():
                self.a.weight.clamp_(-1, 1)
        elif self.hidden == "view":
            with torch.no_grad():
                turned = self.a.weight.t()[:, :3]
            h = h + torch.cat((h @ turned, self.b(h)[:, 3:]), 1)
        elif self.hidden == "switched":
            h = h * self.mask(h) + self.target(h)
            with torch.no_grad():
                if self.training:
                    self.m.mul_(0.9).add_(h.mean(0), alpha=0.1)
                changed = self.a(h)
                changed[:, 1] = 0
                with torch.enable_grad():
                    h = h + h.tanh()
            h = h + changed.relu_() + h.detach() - self.m
        elif self.hidden == "batch":
            h = F.batch_norm(h, self.m, self.v, training=True) + self.norm(h)
        elif self.hidden == "returns" and not self.training:
            return self.b(h)
        elif self.hidden == "spectral":
            h = h / torch.linalg.matrix_norm(self.a.weight, 2)
        return F.mse_loss(self.b(h.relu()), y)


def of(hidden):
    return lambda rows=4: (Hides(hidden), (torch.randn(rows, 6), torch.randn(rows, 6)))


for name in ("state data number hook inner always auxiliary averages recomputed inplace part clipped view switched "
             "scaled counts statistics batch returns spectral normed parametrized cumulative").split():
    globals()[name] = of(name)
