"""Batches of bytes: windows of a text at places drawn from a seed, or random bytes."""

import torch


class Tokens:
    def __init__(self, s):
        self._random = torch.Generator().manual_seed(s.seed)
        self._shape = (s.batch, s.context)
        if s.data:
            with open(s.data, "rb") as f:
                self._text = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8)
        else:
            self._text = torch.randint(256, (1 << 20,), dtype=torch.uint8, generator=self._random)
        if len(self._text) <= s.context:
            raise SystemExit(f"--data {s.data}: {len(self._text)} bytes; a window takes {s.context + 1}")
        if int(self._text.max()) >= s.vocabulary:
            if s.data:
                raise SystemExit(f"--data {s.data}: byte {int(self._text.max())} is beyond --vocabulary {s.vocabulary}")
            self._text %= s.vocabulary

    def batch(self):
        """Returns the next batch: inputs and targets, each [rows, context], int64."""
        rows, context = self._shape
        starts = torch.randint(len(self._text) - context, (rows, 1), generator=self._random)
        windows = self._text[starts + torch.arange(context + 1)].long()
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
