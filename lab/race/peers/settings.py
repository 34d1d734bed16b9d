"""The command line of a rival, and how many threads it may use.

Import this before torch: OpenBLAS and OpenMP read their thread counts when they
are loaded.
"""

import argparse
import ctypes
import os


def parse(doc, gpt=True, **extra):
    """Returns the settings of a rival, with those of the gpt if gpt is true, and limits its threads. extra adds
    options: name=(type, default, help)."""
    p = argparse.ArgumentParser(description=doc)
    if gpt:
        p.add_argument("--layers", type=int, default=8, help="transformer blocks")
        p.add_argument("--width", type=int, default=256)
        p.add_argument("--heads", type=int, default=8)
        p.add_argument("--context", type=int, default=128, help="positions")
        p.add_argument("--vocabulary", type=int, default=256)
        p.add_argument("--data", default="", help="a text to train on, byte by byte; without it, random bytes")
    p.add_argument("--batch", type=int, default=32, help="rows of an optimizer step, over all processes")
    p.add_argument("--micro", type=int, default=4, help="rows of a micro-batch")
    p.add_argument("--threads", type=int, default=1, help="intra-op threads of each process")
    p.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--momentum", type=float, default=0.0, help="of sgd")
    p.add_argument("--weight-decay", type=float, default=0.0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--malloc", choices=["keep", "default"], default="keep",
                   help="keep: glibc holds on to freed memory instead of returning it page by page")
    for name, (kind, default, text) in extra.items():
        p.add_argument("--" + name.replace("_", "-"), type=kind, default=default, help=text)
    s = p.parse_args()
    for name in ("layers", "width", "heads", "context", "vocabulary", "batch", "micro", "threads"):
        if getattr(s, name, 1) < 1:
            p.error(f"--{name} is {getattr(s, name)}; it must be 1 at least")
    if s.batch % s.micro:
        p.error(f"--batch {s.batch} is not a multiple of --micro {s.micro}")
    if gpt and s.width % s.heads:
        p.error(f"--heads {s.heads} does not divide --width {s.width}")
    _limit_threads(s.threads)
    if s.malloc == "keep":
        _keep_memory()
    return s


def _limit_threads(threads):
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    # OpenMP threads that spin between two loops would take the cores from OpenBLAS, which has threads
    # of its own.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    torch.set_num_threads(threads)


def _keep_memory():
    """Makes glibc keep the memory of freed tensors up to 32 MiB. Otherwise it maps and unmaps
    each tensor anew, and the kernel zeroes its pages every time."""
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    libc = ctypes.CDLL(None)
    libc.mallopt(mmap_threshold, 32 << 20)  # the largest value that glibc accepts
    libc.mallopt(trim_threshold, 2**31 - 1)


def blas_core():
    """Returns the name of the kernels that OpenBLAS chose, or "" if OpenBLAS is not there."""
    try:
        blas = ctypes.CDLL("libopenblas.so.0")
        blas.openblas_get_corename.restype = ctypes.c_char_p
        return blas.openblas_get_corename().decode()
    except (OSError, AttributeError):
        return ""


def blas_threads(threads):
    """Sets the number of OpenBLAS's threads at run time; torch.set_num_threads does not change it."""
    try:
        ctypes.CDLL("libopenblas.so.0").openblas_set_num_threads(threads)
    except (OSError, AttributeError):
        pass


def optimizer(s, parameters):
    import torch

    parameters = list(parameters)
    if s.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=s.lr, weight_decay=s.weight_decay, foreach=True)
    return torch.optim.SGD(parameters, lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay, foreach=True)
