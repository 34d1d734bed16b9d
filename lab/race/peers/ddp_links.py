"""DistributedDataParallel over Gloo: a process on each of several hosts.

The model is one that millrace describes. Gradients of micro-batches are added up
under no_sync; the last backward sends them bucket by bucket while it computes the
rest. With one micro-batch, which is the whole of a process's rows, there is nothing
to add up, and all of the backward pass goes on beside the all-reduce.

With --alone it measures before the first visit what its two halves take alone: steps
without an all-reduce, and all-reduces of as many bytes without a computation. Its data
are random rows that stay the same, so that they cost nothing.
"""

import settings

s = settings.parse(__doc__, gpt=False, model=(str, "", "millrace's description of the model, JSON"),
                   bucket_mb=(int, 25, "size of a bucket of gradients"),
                   alone=(int, 0, "1: measure what compute and all-reduce take alone"))

import contextlib
import statistics
import time

import torch
from torch.nn.parallel import DistributedDataParallel

import described
import group
import model
import protocol

WARM, COUNTED = 2, 5
REDUCED, ENOUGH = 3, 5.0  # all-reduces, and seconds after which one is enough

rank, size = group.start()
if s.batch % (size * s.micro):
    raise SystemExit(f"--batch {s.batch} is not a multiple of {size} times --micro {s.micro}")
torch.manual_seed(s.seed)
layers, given, wanted, logits = described.read(s.model)
net = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=s.bucket_mb, gradient_as_bucket_view=True)
optimizer = settings.optimizer(s, net.parameters())
mine = s.batch // size
random = torch.Generator().manual_seed(s.seed + rank)
inputs = described.rows(given, logits[-1], mine, random)
targets = described.rows(wanted, logits[-1], mine, random)
micros = list(zip(inputs.split(s.micro), targets.split(s.micro)))


def step(together=True):
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    for i, (x, y) in enumerate(micros):
        with contextlib.nullcontext() if together and i + 1 == len(micros) else net.no_sync():
            loss = described.loss(net(x), y) / len(micros)
            loss.backward()
        total += loss.item()
    optimizer.step()
    return total


def train(steps):
    for _ in range(steps):
        loss = step()
    return steps * s.batch, described.finite(loss)


def alone():
    """What a step without an all-reduce takes, and an all-reduce of all gradients without a step."""
    bytes_of = [torch.zeros_like(b) for b in torch.zeros(model.elements(net)).split(s.bucket_mb << 18)]
    compute, reduce = [], []
    for i in range(WARM + COUNTED):
        torch.distributed.barrier()
        began = time.perf_counter()
        step(together=False)
        compute.append(time.perf_counter() - began)
    while len(reduce) < REDUCED and max(reduce, default=0) < ENOUGH:
        torch.distributed.barrier()
        began = time.perf_counter()
        for work in [torch.distributed.all_reduce(b, async_op=True) for b in bytes_of]:
            work.wait()
        took = torch.tensor(time.perf_counter() - began)
        torch.distributed.broadcast(took, 0)  # so that all agree whether another one follows
        reduce.append(took.item())
    return {"compute_s": statistics.median(compute[WARM:]), "reduce_s": statistics.median(reduce)}


group.serve(rank, {**protocol.describe("ddp_links", s, model.elements(net)), **(alone() if s.alone else {})}, train)
