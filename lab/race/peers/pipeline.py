"""1F1B with two stages in two processes, which exchange activations and gradients over Gloo.

All receives of a step are posted at its start, so that a message travels while the one
before it is computed on; sends are waited for at the end of the step. Rank 0 runs
--warmup forward passes before its first backward one: 1F1B has 2 of them for two stages;
with 3, the time that messages take to rank 1 and back can be hidden too.
"""

import torch
from torch import distributed

import settings


class Stage:
    """The stage of this process. shape is one row of the activation between the stages. batches.batch() returns the
    inputs and targets of a step."""

    def __init__(self, s, rank, module, shape, loss, batches):
        self.s, self.rank, self.module, self.loss, self.batches = s, rank, module, loss, batches
        self.optimizer = settings.optimizer(s, module.parameters())
        self.micros = s.batch // s.micro
        self.warmup = max(1, min(s.warmup, self.micros))
        # One buffer for each message that this rank receives in a step; the buffers are reused in every step.
        self.boundary = [torch.empty(s.micro, *shape) for _ in range(self.micros)]

    def train(self, steps):
        """Trains so many steps; returns their rows and the loss of the last step, which is None on rank 0."""
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
        """Runs rank 0's step: the warm-up's forward passes, then backward and forward passes in turn."""
        arriving = [distributed.irecv(b, 1, tag=self.micros + m) for m, b in enumerate(self.boundary)]
        sent, outputs = [], {}

        def forward(m):
            outputs[m] = self.module(inputs[m])
            sent.append(distributed.isend(outputs[m].detach(), 1, tag=m))

        def backward(m):
            arriving[m].wait()
            outputs[m].backward(self.boundary[m])
            # The activation is kept until it has been sent; its graph is no longer needed.
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
        """Runs rank 1's step: each micro-batch's forward pass and then at once its backward pass."""
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
