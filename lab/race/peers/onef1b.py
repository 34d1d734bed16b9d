"""1F1B by hand: two processes with one stage of the gpt each, which communicate over Gloo; see pipeline.py."""

import settings

s = settings.parse(
    __doc__,
    split=(int, 0, "layers of the first stage, a block being two; 0: half of the blocks"),
    warmup=(int, 2, "forward passes of the first stage before its first backward pass"),
    rows=(str, "", "a file of batches that millrace drew, in place of windows of --data"),
)

import torch

import model
import pair
import pipeline
import protocol
from recorded import Recorded
from tokens import Tokens

rank = pair.start()
stages = model.cut(s, s.split)
row = (torch.int64, (s.batch, s.context))
batches = Recorded(s.rows, row, row) if s.rows else Tokens(s)
stage = pipeline.Stage(s, rank, stages[rank], (s.context, s.width), model.loss, batches)
pair.serve(rank, protocol.describe("onef1b", s, sum(model.elements(m) for m in stages)), stage.train)
