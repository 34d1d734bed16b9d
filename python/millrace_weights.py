"""Reads the weights that `millrace checkpoint export` writes, for load_state_dict. It needs only torch.

safetensors.torch.load_file does the same, if that package is installed.
"""
import json

import torch

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
          "I32": torch.int32, "U8": torch.uint8, "BOOL": torch.bool}


def read(path):
    """Return the tensors of a safetensors file by name."""
    with open(path, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(length))
        header.pop("__metadata__", None)
        tensors = {}
        for name, of in header.items():
            first, end = of["data_offsets"]
            f.seek(8 + length + first)
            raw, dtype = bytearray(f.read(end - first)), DTYPES[of["dtype"]]
            one = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
            tensors[name] = one.reshape(of["shape"])
    return tensors
