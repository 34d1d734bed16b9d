"""1F1B by hand: two processes, a stage each, activations and gradients over Gloo.

Receives are posted ahead, so that a message travels while the one before it is
worked on; sends are waited for only when their buffer's step ends. Rank 0 runs
--warmup forward passes before its first backward one: 2 is 1F1B's own number for
two stages, 3 hides the way there and back as well.
"""

import settings

s = settings.parse(
    __doc__,
    split=(int, 0, "layers of the first stage, a block being two; 0: half of the blocks"),
    warmup=(int, 2, "forward passes of the first stage before its first backward pass"),
)

import torch
from torch import distributed

import model
import pair
import protocol
from tokens import Tokens

rank = pair.start()
stages = model.cut(s, s.split)
stage = stages[rank]
optimizer = settings.optimizer(s, stage.parameters())
tokens = Tokens(s)
micros = s.batch // s.micro
warmup = max(1, min(s.warmup, micros))
# One buffer for each message of a step, kept from step to step.
boundary = [torch.empty(s.micro, s.context, s.width) for _ in range(micros)]


def first(inputs):
    """Rank 0's step: warm-up, then a forward and a backward pass in turn."""
    arriving = [distributed.irecv(b, 1, tag=micros + m) for m, b in enumerate(boundary)]
    inputs, sent, outputs = inputs.split(s.micro), [], {}

    def forward(m):
        outputs[m] = stage(inputs[m])
        sent.append(distributed.isend(outputs[m].detach(), 1, tag=m))

    def backward(m):
        arriving[m].wait()
        outputs[m].backward(boundary[m])
        # The message is kept until it is away; the graph behind it is gone by now.
        outputs[m] = outputs[m].detach()

    for m in range(warmup):
        forward(m)
    for m in range(micros):
        backward(m)
        if m + warmup < micros:
            forward(m + warmup)
    for work in sent:
        work.wait()


def last(targets):
    """Rank 1's step: each micro-batch forward and at once backward."""
    arriving = [distributed.irecv(b, 0, tag=m) for m, b in enumerate(boundary)]
    sent, kept, total = [], [], 0.0
    for m, target in enumerate(targets.split(s.micro)):
        arriving[m].wait()
        x = boundary[m].detach().requires_grad_()
        loss = model.loss(stage(x), target) / micros
        loss.backward()
        kept.append(x.grad)
        sent.append(distributed.isend(x.grad, 0, tag=micros + m))
        total += loss.item()
    for work in sent:
        work.wait()
    return total


def train(steps):
    loss = None
    for _ in range(steps):
        inputs, targets = tokens.batch()
        optimizer.zero_grad(set_to_none=True)
        if rank == 0:
            first(inputs)
        else:
            loss = last(targets)
        optimizer.step()
    return steps * s.batch, loss


pair.serve(rank, protocol.describe("onef1b", s, sum(model.elements(m) for m in stages)), train)
