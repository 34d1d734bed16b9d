"""1F1B by hand: two processes with one stage of torchvision's resnet18 each, over Gloo; see pipeline.py."""

import settings

s = settings.parse(
    __doc__, gpt=False,
    split=(int, 5, "layers of the first stage: of the stem, 8 blocks and the head"),
    warmup=(int, 2, "forward passes of the first stage before its first backward pass"),
    classes=(int, 10, "classes that it tells apart"),
    size=(int, 32, "height and width of an image"),
    rows=(str, "", "a file of batches that millrace drew"),
)

import torch
from torch.nn import functional

import model
import pair
import pipeline
import protocol
import resnet
from recorded import Recorded

rank = pair.start()
stages = resnet.cut(s)
with torch.no_grad():  # in evaluation mode, so that batch norms keep their statistics
    crosses = stages[0].eval()(torch.zeros(1, 3, s.size, s.size)).shape[1:]
stages[0].train()
batches = Recorded(s.rows, (torch.float32, (s.batch, 3, s.size, s.size)), (torch.int64, (s.batch,)))
stage = pipeline.Stage(s, rank, stages[rank], crosses, functional.cross_entropy, batches)
pair.serve(rank, protocol.describe("onef1b_resnet", s, sum(model.elements(m) for m in stages)), stage.train)
