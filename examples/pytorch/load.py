"""Loads weights that millrace has trained into the module, and repeats millrace's evaluation: load.py WEIGHTS"""
import csv
import gzip
import os
import sys

import torch

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../python"))
from digits import build
from millrace_weights import read

module, inputs = build()
module.load_state_dict(read(sys.argv[1]))

# As in docs/data.md, every fifth row is for testing, and pixels are scaled by mean and deviation of the others.
with gzip.open(os.path.join(here, "../../data/digits.csv.gz"), "rt") as f:
    rows = torch.tensor([[float(x) for x in row] for row in csv.reader(f)])
pixels, digits = rows[:, :-1], rows[:, -1].long()
test = torch.arange(len(rows)) % 5 == 4
pixels = (pixels - pixels[~test].mean()) / pixels[~test].std()
module.eval()
with torch.no_grad():
    scores = module(pixels[test].reshape(-1, 1, 8, 8), digits[test])
parameters = len(list(module.parameters()))
print("loaded parameters in %d tensors and %d buffers; evaluation: loss %.4f, accuracy %.2f %%" % (
    parameters, len(module.state_dict()) - parameters, scores["loss"], 100 * scores["accuracy"]))
