"""Processes that train together over Gloo, each started by somebody else.

Rank 0 is the rival that is asked; the others hear of its requests from it. The
environment says who is who: RIVAL_RANK of RIVAL_SIZE, the file RIVAL_MEETING in
which they meet, and in GLOO_SOCKET_IFNAME the interface that they are reached by.
"""

import datetime
import os


def start():
    """Brings all together; returns the rank of this process and how many there are."""
    import torch.distributed

    rank, size = int(os.environ["RIVAL_RANK"]), int(os.environ["RIVAL_SIZE"])
    torch.distributed.init_process_group(
        "gloo", init_method="file://" + os.environ["RIVAL_MEETING"], rank=rank, world_size=size,
        timeout=datetime.timedelta(days=1))  # between two visits nobody says anything
    return rank, size


def serve(rank, description, train):
    """protocol.serve for all ranks. train(n) returns (rows of all, loss); the loss is that of rank 0's rows. A visit
    is over when all have ended it."""
    import torch

    import protocol

    def asked(steps):
        word = torch.tensor([steps])
        torch.distributed.broadcast(word, 0)
        return int(word)

    def together(steps):
        asked(steps)
        result = train(steps)
        torch.distributed.barrier()
        return result

    if rank == 0:
        protocol.serve(description, together)
        asked(0)
        return
    while steps := asked(0):
        train(steps)
        torch.distributed.barrier()
