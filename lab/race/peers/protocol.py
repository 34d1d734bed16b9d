"""The line protocol of a rival, the program that millrace is compared with.

When it is ready, a rival writes one line of JSON that describes it. Then, for each
line "step N" on standard input, it trains N steps and writes one line
{"samples": rows trained, "seconds": time it took, "loss": loss of the last step}.
It ends at the end of its input. It writes nothing else to standard output.
"""

import json
import sys
import time


def serve(description, train):
    """Answers the requests on standard input; train(n) trains n steps and returns (rows, loss)."""
    _say(description)
    for line in sys.stdin:
        words = line.split()
        if len(words) != 2 or words[0] != "step" or not words[1].isdigit() or int(words[1]) < 1:
            raise SystemExit(f'{line.strip()!r} is no request; "step N" is, with N of 1 or more')
        began = time.perf_counter()
        rows, loss = train(int(words[1]))
        _say({"samples": rows, "seconds": time.perf_counter() - began, "loss": loss})


def describe(name, s, parameters):
    """Returns a rival's first line; millrace-lab prints it beside the rival's results."""
    import torch

    import settings

    return {
        "name": name, "torch": torch.__version__, "parameters": parameters, "threads": s.threads,
        "batch": s.batch, "micro": s.micro, "context": getattr(s, "context", 0), "optimizer": s.optimizer,
        "malloc": s.malloc, "blas_core": settings.blas_core(),
    }


def _say(answer):
    print(json.dumps(answer), flush=True)
