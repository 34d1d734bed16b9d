"""Networks for images in various people's styles. The first line under each class says what is particular in it."""

import collections

import torch
import torch.nn as nn
import torch.nn.functional as F


def pictures(rows, side=16, channels=3):
    return torch.randn(rows, channels, side, side)


class DoubleConv(nn.Sequential):
    def __init__(self, a, b):
        super().__init__(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
                         nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))


class UNet(nn.Module):
    """A U-Net: transposed convolutions, paddings computed from sizes, skips across all deeper levels."""

    def __init__(self):
        super().__init__()
        widths = [8, 12, 16, 20]
        self.inc = DoubleConv(3, widths[0])
        self.downs = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), DoubleConv(a, b)) for a, b in zip(widths, widths[1:]))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(widths, widths[1:]))
        self.convs = nn.ModuleList(DoubleConv(2 * a, a) for a in widths[:-1])
        self.out = nn.Conv2d(widths[0], 2, 1)

    def forward(self, image, mask):
        kept = [self.inc(image)]
        for down in self.downs:
            kept.append(down(kept[-1]))
        x = kept.pop()
        for up, conv in zip(reversed(self.ups), reversed(self.convs)):
            skip, x = kept.pop(), up(x)
            dy, dx = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
            x = F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
            x = conv(torch.cat([skip, x], dim=1))
        return F.cross_entropy(self.out(x), mask)


def unet(rows=4):
    return UNet(), (pictures(rows, 20), torch.randint(2, (rows, 20, 20)))


class SqueezeExcite(nn.Module):
    """Squeeze and excite, depthwise convolutions, swish written by hand, a residual where shapes allow."""

    class Block(nn.Module):
        def __init__(self, a, b, stride):
            super().__init__()
            self.expand = nn.Conv2d(a, 4 * a, 1)
            self.depth = nn.Conv2d(4 * a, 4 * a, 3, stride, 1, groups=4 * a)
            self.norm = nn.GroupNorm(4, 4 * a)
            self.fc1, self.fc2 = nn.Conv2d(4 * a, a, 1), nn.Conv2d(a, 4 * a, 1)
            self.project = nn.Conv2d(4 * a, b, 1)
            self.same = stride == 1 and a == b

        def forward(self, x):
            y = self.norm(self.depth(self.expand(x)))
            y = y * y.sigmoid()
            w = y.mean([2, 3], keepdim=True)
            y = y * torch.sigmoid(self.fc2(F.relu(self.fc1(w))))
            y = self.project(y)
            return x + y if self.same else y

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.blocks = nn.Sequential(self.Block(8, 8, 1), self.Block(8, 12, 2), self.Block(12, 12, 1))
        self.head = nn.Linear(12, 10)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        x = F.adaptive_avg_pool2d(x, 1)
        return self.head(x.view(x.size(0), -1))


def squeeze_excite(rows=4):
    return SqueezeExcite(), (pictures(rows), torch.randint(10, (rows,)))


class Autoencoder(nn.Module):
    """An autoencoder whose decoder uses the encoder's weights, transposed; the target is the input itself."""

    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Parameter(torch.randn(32, 64) * 0.1), nn.Parameter(torch.randn(8, 32) * 0.1)
        self.b1, self.b2 = nn.Parameter(torch.zeros(32)), nn.Parameter(torch.zeros(8))
        self.c1, self.c2 = nn.Parameter(torch.zeros(32)), nn.Parameter(torch.zeros(64))

    def forward(self, x, target):
        h = F.elu(F.linear(x.flatten(1), self.w1, self.b1))
        z = F.linear(h, self.w2, self.b2)
        h = F.elu(F.linear(z, self.w2.t(), self.c1))
        y = F.linear(h, self.w1.t(), self.c2)
        return F.mse_loss(y.view_as(x), target)


def autoencoder(rows=4):
    x = pictures(rows, 8, 1)
    return Autoencoder(), (x, x.clone())


class VAE(nn.Module):
    """A variational autoencoder, which draws its noise in forward."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(16, 8), nn.Linear(4, 16)

    def forward(self, x, target):
        mu, logvar = self.encode(x).chunk(2, dim=1)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        kld = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
        return F.mse_loss(self.decode(z), target) + kld


def vae(rows=4):
    x = torch.randn(rows, 16)
    return VAE(), (x, x.clone())


class VAEWithNoise(VAE):
    """The same with the noise as an input; its losses are reported."""

    def forward(self, x, noise, target):
        mu, logvar = self.encode(x).chunk(2, dim=1)
        z = mu + noise * torch.exp(0.5 * logvar)
        kld = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
        error = F.mse_loss(self.decode(z), target)
        return {"loss": error + kld, "error": error.detach(), "kld": kld.detach()}


def vae_with_noise(rows=4):
    x = torch.randn(rows, 16)
    return VAEWithNoise(), (x, torch.randn(rows, 4), x.clone())


class SuperResolution(nn.Module):
    """Upsampling by pixel_shuffle, added to an interpolated image; PReLU; instance norm without statistics."""

    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(3, 16, 5, padding=2)
        self.act, self.norm = nn.PReLU(16), nn.InstanceNorm2d(16, affine=True)
        self.tail = nn.Sequential(nn.Conv2d(16, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, low, high):
        x = self.tail(self.norm(self.act(self.head(low))))
        x = x + F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False)
        return F.l1_loss(x.clamp(-2, 2), high)


def super_resolution(rows=4):
    return SuperResolution(), (pictures(rows, 8), pictures(rows, 16))


class DenseNet(nn.Module):
    """Dense blocks: each layer reads the outputs of all earlier ones; ordered dicts, average pools, log_softmax, nll."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(collections.OrderedDict([("conv0", nn.Conv2d(3, 8, 3, padding=1)),
                                                               ("norm0", nn.BatchNorm2d(8))]))
        self.dense = nn.ModuleDict({"layer%d" % i: nn.Sequential(
            nn.BatchNorm2d(8 + 4 * i), nn.ReLU(), nn.Conv2d(8 + 4 * i, 4, 3, padding=1)) for i in range(3)})
        self.head = nn.Linear(20, 10)

    def forward(self, x, y):
        features = [self.features(x)]
        for name, layer in self.dense.items():
            features.append(layer(torch.cat(features, 1)))
        x = F.avg_pool2d(F.relu_(torch.cat(features, 1)), 4)
        x = F.log_softmax(self.head(x.mean((-2, -1))), dim=-1)
        return F.nll_loss(x, y)


def densenet(rows=4):
    return DenseNet(), (pictures(rows), torch.randint(10, (rows,)))


class Supervised(nn.Module):
    """Deep supervision: a second head in the middle, whose loss and accuracy count too."""

    def __init__(self):
        super().__init__()
        self.low = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())
        self.aux = nn.Linear(8, 10)
        self.high = nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 1), nn.ReLU())
        self.head = nn.Linear(16, 10)

    def forward(self, x, y):
        x = self.low(x)
        aux = self.aux(x.mean((2, 3)))
        aux_loss, aux_right = F.cross_entropy(aux, y), (aux.argmax(1) == y).float().mean()
        out = self.head(self.high(x).amax((2, 3)))
        loss = F.cross_entropy(out, y, label_smoothing=0.1) + 0.3 * aux_loss
        return loss, aux_right, (out.argmax(1) == y).float().mean()


def supervised(rows=4):
    return Supervised(), (pictures(rows), torch.randint(10, (rows,)))


class Frozen(nn.Module):
    """A pretrained backbone: a batch norm stays in evaluation mode, the first layer is frozen."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 10)
        for p in self.conv1.parameters():
            p.requires_grad = False
        self.bn1.running_mean.fill_(0.3)
        self.bn1.eval()

    def forward(self, x):
        x = (x - self.mean) / 0.25
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = F.relu(self.bn2(self.conv2(x)), inplace=True)
        return self.fc(x.flatten(2).mean(-1))


def frozen(rows=4):
    return Frozen(), (pictures(rows, 8), torch.randint(10, (rows,)))


class Patches(nn.Module):
    """An MLP-Mixer: unfold, einsum, moveaxis, a matrix over positions."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(3 * 4 * 4, 24)
        self.places = nn.Parameter(torch.randn(16, 16) * 0.1)
        self.norm1, self.norm2 = nn.LayerNorm(24), nn.LayerNorm(24)
        self.mlp = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24))
        self.head = nn.Linear(24, 10)

    def forward(self, image):
        b = image.shape[0]
        x = image.unfold(2, 4, 4).unfold(3, 4, 4)
        x = x.permute(0, 2, 3, 1, 4, 5).reshape(b, 16, -1)
        x = self.embed(x)
        x = x + torch.einsum("bpc,pq->bqc", self.norm1(x), self.places)
        x = x + self.mlp(self.norm2(x))
        return self.head(torch.moveaxis(x, 1, 2).mean(2))


def patches(rows=4):
    return Patches(), (pictures(rows), torch.randint(10, (rows,)))


class Standardised(nn.Module):
    """Convolutions whose weights are standardised in forward; weight norm."""

    class WSConv(nn.Conv2d):
        def forward(self, x):
            w = self.weight
            mean = w.mean(dim=(1, 2, 3), keepdim=True)
            std = w.view(w.size(0), -1).std(dim=1).view(-1, 1, 1, 1) + 1e-5
            return F.conv2d(x, (w - mean) / std.expand_as(w), self.bias, self.stride, self.padding)

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = self.WSConv(3, 8, 3), self.WSConv(8, 8, 3)
        self.fc = nn.utils.weight_norm(nn.Linear(8, 10))

    def forward(self, x):
        x = F.max_pool2d(F.leaky_relu(self.conv1(x), 0.1), 2)
        x = F.hardswish(self.conv2(x))
        return self.fc(x.mean(3).mean(2))


def standardised(rows=4):
    return Standardised(), (pictures(rows), torch.randint(10, (rows,)))


class Capsules(nn.Module):
    """Capsules with routing by agreement: three iterations, which tracing unrolls, a margin loss, one_hot."""

    def __init__(self):
        super().__init__()
        self.primary = nn.Conv2d(3, 16, 5, stride=3)
        self.weights = nn.Parameter(torch.randn(1, 64, 10, 6, 4) * 0.1)

    @staticmethod
    def squash(x):
        n = (x ** 2).sum(-1, keepdim=True)
        return n / (1.0 + n) * x / (n.sqrt() + 1e-8)

    def forward(self, x, label):
        u = self.primary(x)
        u = self.squash(u.view(x.size(0), -1, 4))
        votes = (self.weights @ u[:, :, None, :, None]).squeeze(-1)
        b = torch.zeros(x.size(0), 64, 10, 1, device=x.device)
        for turn in range(3):
            c = F.softmax(b, dim=2)
            v = self.squash((c * votes).sum(dim=1, keepdim=True))
            if turn < 2:
                b = b + (votes * v).sum(-1, keepdim=True)
        length = v.squeeze(1).norm(dim=-1)
        t = F.one_hot(label, 10).float()
        return (t * F.relu(0.9 - length) ** 2 + 0.5 * (1 - t) * F.relu(length - 0.1) ** 2).sum(1).mean()


def capsules(rows=4):
    return Capsules(), (pictures(rows), torch.randint(10, (rows,)))
