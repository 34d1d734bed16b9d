"""Batches that millrace drew, so that millrace and the rival train on the same rows in the same order."""

import math

import torch


class Recorded:
    """The batches of a file, repeated from the first after the last. Each batch is its inputs and then its targets,
    row by row, in the machine's byte order. parts gives the type and shape of the inputs and of the targets."""

    def __init__(self, path, *parts):
        with open(path, "rb") as f:
            held = bytearray(f.read())
        sizes = [math.prod(shape) * torch.empty((), dtype=dtype).element_size() for dtype, shape in parts]
        if not held or len(held) % sum(sizes):
            raise SystemExit(f"--rows {path}: {len(held)} bytes; a batch has {sum(sizes)}")
        self._next, self._batches = 0, []
        for start in range(0, len(held), sum(sizes)):
            batch = []
            for (dtype, shape), size in zip(parts, sizes):
                one = torch.frombuffer(held, dtype=dtype, count=math.prod(shape), offset=start)
                batch.append(one.view(shape))
                start += size
            self._batches.append(batch)

    def batch(self):
        """Returns the next batch: inputs and targets."""
        found = self._batches[self._next % len(self._batches)]
        self._next += 1
        return found
