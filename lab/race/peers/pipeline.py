"""1F1B of two stages, one to each of two processes; activations and gradients go over Gloo.

Receives are posted ahead, so that a message travels while the one before it is
worked on; sends are waited for only when their buffer's step ends. Rank 0 runs
--warmup forward passes before its first backward one: 2 is 1F1B's own number for
two stages, 3 hides the way there and back as well.
"""

import torch
from torch import distributed

import settings


class Stage:
    """The stage of this process. shape is what crosses for one row; batches.batch() is inputs and targets."""

    def __init__(self, s, rank, module, shape, loss, batches):
        self.s, self.rank, self.module, self.loss, self.batches = s, rank, module, loss, batches
        self.optimizer = settings.optimizer(s, module.parameters())
        self.micros = s.batch // s.micro
        self.warmup = max(1, min(s.warmup, self.micros))
        # One buffer for each message of a step, kept from step to step.
        self.boundary = [torch.empty(s.micro, *shape) for _ in range(self.micros)]

    def train(self, steps):
        """Returns the rows of so many steps, and on rank 1 the loss of the last one."""
        loss = None
        for _ in range(steps):
            inputs, targets = self.batches.batch()
            self.optimizer.zero_grad(set_to_none=True)
            if self.rank == 0:
                self._first(inputs.split(self.s.micro))
            else:
                loss = self._last(targets.split(self.s.micro))
            self.optimizer.step()
        return steps * self.s.batch, loss

    def _first(self, inputs):
        """Rank 0's step: warm-up, then a forward and a backward pass in turn."""
        arriving = [distributed.irecv(b, 1, tag=self.micros + m) for m, b in enumerate(self.boundary)]
        sent, outputs = [], {}

        def forward(m):
            outputs[m] = self.module(inputs[m])
            sent.append(distributed.isend(outputs[m].detach(), 1, tag=m))

        def backward(m):
            arriving[m].wait()
            outputs[m].backward(self.boundary[m])
            # The message is kept until it is away; the graph behind it is gone by now.
            outputs[m] = outputs[m].detach()

        for m in range(self.warmup):
            forward(m)
        for m in range(self.micros):
            backward(m)
            if m + self.warmup < self.micros:
                forward(m + self.warmup)
        for work in sent:
            work.wait()

    def _last(self, targets):
        """Rank 1's step: each micro-batch forward and at once backward."""
        arriving = [distributed.irecv(b, 0, tag=m) for m, b in enumerate(self.boundary)]
        sent, kept, total = [], [], 0.0
        for m, target in enumerate(targets):
            arriving[m].wait()
            x = self.boundary[m].detach().requires_grad_()
            loss = self.loss(self.module(x), target) / self.micros
            loss.backward()
            kept.append(x.grad)
            sent.append(distributed.isend(x.grad, 0, tag=self.micros + m))
            total += loss.item()
        for work in sent:
            work.wait()
        return total
