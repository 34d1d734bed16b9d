"""torch.distributed.pipeline.sync.Pipe: two stages on the threads of one process.

The forward passes of the stages overlap. Their backward passes do not: autograd runs
all CPU operators in the thread that called backward. So the backward pass may
be given more intra-op threads than each of the two forward ones.
"""

import settings

s = settings.parse(
    __doc__,
    split=(int, 0, "layers of the first stage, a block being two; 0: half of the blocks"),
    checkpoint=(str, "never", "never, except_last or always"),
    backward_threads=(int, 0, "intra-op threads of the backward pass; 0: as --threads"),
)

import os
import tempfile

import torch
from torch.distributed import rpc
from torch.distributed.pipeline.sync import Pipe

import model
import protocol
from tokens import Tokens

os.environ["GLOO_SOCKET_IFNAME"] = os.environ["TP_SOCKET_IFNAME"] = "lo"
meeting = tempfile.NamedTemporaryFile()
rpc.init_rpc("rival", rank=0, world_size=1, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
    init_method="file://" + meeting.name, _transports=["uv"]))

net = Pipe(torch.nn.Sequential(*model.cut(s, s.split)), chunks=s.batch // s.micro, checkpoint=s.checkpoint)
optimizer = settings.optimizer(s, net.parameters())
tokens = Tokens(s)


def threads(n):
    if s.backward_threads not in (0, s.threads):
        torch.set_num_threads(n)
        settings.blas_threads(n)


def train(steps):
    for _ in range(steps):
        inputs, targets = tokens.batch()
        optimizer.zero_grad(set_to_none=True)
        threads(s.threads)
        logits = net(inputs).local_value()
        threads(s.backward_threads)
        loss = model.loss(logits, targets)
        loss.backward()
        optimizer.step()
    return steps * s.batch, loss.item()


protocol.serve(protocol.describe("pipe", s, model.elements(net)), train)
rpc.shutdown()
