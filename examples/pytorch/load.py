"""Loads what millrace has trained back into the module, and computes what it evaluated: load.py WEIGHTS"""
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

# Every fifth row is kept for testing, and numbers are scaled by the others, as docs/data.md says.
with gzip.open(os.path.join(here, "../../data/digits.csv.gz"), "rt") as f:
    rows = torch.tensor([[float(x) for x in row] for row in csv.reader(f)])
pixels, digits = rows[:, :-1], rows[:, -1].long()
test = torch.arange(len(rows)) % 5 == 4
pixels = (pixels - pixels[~test].mean()) / pixels[~test].std()
module.eval()
with torch.no_grad():
    scores = module(pixels[test].reshape(-1, 1, 8, 8), digits[test])
print("loaded %d tensors; evaluation: loss %.4f, accuracy %.4f" % (
    len(module.state_dict()), scores["loss"], scores["accuracy"]))
