"""DistributedDataParallel over Gloo: one process on each of several hosts.

The model is read from a file that millrace writes (described.py). Gradients of
micro-batches are added up under no_sync; the backward pass of the last one sends them
bucket by bucket while it computes the rest. If a process has only one micro-batch,
there is nothing to add up, and the all-reduce overlaps with the whole backward pass.

With --alone 1 it first measures the two parts of a step by themselves: steps without an
all-reduce, and all-reduces of as many bytes without a computation. The data are random
rows that stay the same, so that drawing them takes no time.
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
REDUCED, ENOUGH = 3, 5.0  # how many all-reduces are measured; one that takes ENOUGH seconds is the last

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
    """Returns the seconds of a step without an all-reduce, and of an all-reduce of all gradients without a step."""
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
        torch.distributed.broadcast(took, 0)  # so that all ranks agree whether another one follows
        reduce.append(took.item())
    return {"compute_s": statistics.median(compute[WARM:]), "reduce_s": statistics.median(reduce)}


group.serve(rank, {**protocol.describe("ddp_links", s, model.elements(net)), **(alone() if s.alone else {})}, train)
