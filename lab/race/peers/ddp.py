"""DistributedDataParallel over Gloo: two processes, each with half of the batch.

Gradients of micro-batches are added up under no_sync; the backward pass of the
last one sends them bucket by bucket while it computes the rest.
"""

import settings

s = settings.parse(__doc__, bucket_mb=(int, 25, "size of a bucket of gradients"))
if s.batch % (2 * s.micro):
    raise SystemExit(f"--batch {s.batch} is not a multiple of twice --micro {s.micro}")

import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel

import model
import pair
import protocol
from tokens import Tokens

rank = pair.start()
net = DistributedDataParallel(torch.nn.Sequential(*model.layers(s)),
                              bucket_cap_mb=s.bucket_mb, gradient_as_bucket_view=True)
optimizer = settings.optimizer(s, net.parameters())
tokens = Tokens(s)
mine = slice(rank * s.batch // 2, (rank + 1) * s.batch // 2)


def train(steps):
    for _ in range(steps):
        inputs, targets = (t[mine] for t in tokens.batch())
        optimizer.zero_grad(set_to_none=True)
        total, micros = 0.0, list(zip(inputs.split(s.micro), targets.split(s.micro)))
        for i, (x, y) in enumerate(micros):
            with net.no_sync() if i + 1 < len(micros) else contextlib.nullcontext():
                loss = model.loss(net(x), y) / len(micros)
                loss.backward()
            total += loss.item()
        optimizer.step()
    return steps * s.batch, total


pair.serve(rank, protocol.describe("ddp", s, model.elements(net)), train)
