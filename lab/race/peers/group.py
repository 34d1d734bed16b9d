"""Processes that train together over Gloo; the caller starts each of them.

Rank 0 reads the requests and passes them on to the others. The environment gives
the rank (RIVAL_RANK), the number of processes (RIVAL_SIZE), the file by which they
find one another (RIVAL_MEETING) and the network interface (GLOO_SOCKET_IFNAME).
"""

import datetime
import os


def start():
    """Connects all processes; returns the rank of this one and how many there are."""
    import torch.distributed

    rank, size = int(os.environ["RIVAL_RANK"]), int(os.environ["RIVAL_SIZE"])
    torch.distributed.init_process_group(
        "gloo", init_method="file://" + os.environ["RIVAL_MEETING"], rank=rank, world_size=size,
        timeout=datetime.timedelta(days=1))  # no messages are sent between two requests
    return rank, size


def serve(rank, description, train):
    """Serves requests (protocol.serve) on all ranks. train(n) returns (rows of all ranks, loss); the loss answered is
    that of rank 0's rows. A request is answered when all ranks have done it."""
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
