"""Two processes that train together over Gloo.

The process that the caller starts is rank 0. It starts rank 1 from the same script and
passes each request on to it, so that the caller sees one rival. A request is answered
when both have done it.
"""

import os
import subprocess
import sys
import tempfile

RANK, MEETING = "RIVAL_RANK", "RIVAL_MEETING"


def start():
    """Connects the two processes, and starts rank 1 if this is rank 0; returns the rank of this process."""
    import torch.distributed

    rank = int(os.environ.get(RANK, "0"))
    if rank == 0:
        global _second, _folder
        _folder = tempfile.TemporaryDirectory(prefix="rival-")
        os.environ[MEETING] = os.path.join(_folder.name, "meeting")
        _second = subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, RANK: "1"},
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group(
        "gloo", init_method="file://" + os.environ[MEETING], rank=rank, world_size=2)
    return rank


def serve(rank, description, train):
    """Serves requests (protocol.serve) on both ranks. train(n) returns (rows of both ranks, loss); the
    loss answered is the mean of the two ranks' losses, without those that are None."""
    import protocol

    if rank == 1:
        protocol.serve(description, train)
        return
    _answer()

    def both(steps):
        _second.stdin.write(f"step {steps}\n")
        _second.stdin.flush()
        rows, loss = train(steps)
        losses = [x for x in (loss, _answer()["loss"]) if x is not None]
        return rows, sum(losses) / len(losses)

    protocol.serve(description, both)
    _second.stdin.close()
    _second.wait()


def _answer():
    import json

    line = _second.stdout.readline()
    if not line:
        raise SystemExit(f"rank 1 ended with status {_second.wait()}")
    return json.loads(line)
