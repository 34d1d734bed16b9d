"""Loads what millrace has trained back into the module: load.py WEIGHTS"""
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))
from digits import build
from millrace_weights import read

module, inputs = build()
module.load_state_dict(read(sys.argv[1]))
module.eval()
with torch.no_grad():
    loss = module(*inputs)["loss"]
print("loaded %d tensors; the loss of an empty image is %.4f" % (len(module.state_dict()), loss))
