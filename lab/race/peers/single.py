"""One process: gradients of micro-batches are added up, then one optimizer step."""

import settings

s = settings.parse(__doc__)

import torch

import model
import protocol
from tokens import Tokens

net = torch.nn.Sequential(*model.layers(s))
optimizer = settings.optimizer(s, net.parameters())
tokens = Tokens(s)


def train(steps):
    for _ in range(steps):
        inputs, targets = tokens.batch()
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for x, y in zip(inputs.split(s.micro), targets.split(s.micro)):
            loss = model.loss(net(x), y) * (s.micro / s.batch)
            loss.backward()
            total += loss.item()
        optimizer.step()
    return steps * s.batch, total


protocol.serve(protocol.describe("single", s, model.elements(net)), train)
