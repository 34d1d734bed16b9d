"""Exports networks and computes in PyTorch what tests expect of them. It is for tests only; millrace does not ship it.

    /usr/bin/python3 -B oracle.py EXPORTER FOLDER < REQUESTS

A request is a line of JSON: {"name": "resnet18", "file": "vision.py", "loss": "mse", "rate": 0.05, "order": [[0, 1]],
"frozen": ["layer"]}; loss, rate, order and frozen may be left out. name is a function in file that takes a number of
rows and returns a module and inputs. The module is exported to FOLDER/NAME.mr. Then FOLDER/NAME.safetensors is written:

    a/INPUT, b/INPUT        two batches; a has the rows that were exported, b two more
    a.loss, b.loss          losses of the untrained module in training mode, and a.NAME, b.NAME: numbers that it reports
    a.grad/P, b.grad/P      the gradient of each parameter that has one, by the first of its names in PyTorch
    a.buffer/B, b.buffer/B  the buffers after that one forward
    a.evaluated, b.evaluated  the loss of the untrained module in evaluation mode, if it has a loss in that mode
    train/INPUT             if there is a rate: the inputs for training, 4 batches of R rows, with R the rows of a
    curve.M                 if there is a rate: losses of 50 steps of SGD with this rate and momentum 0.9, for M = 1
                            and 2; a step has M micro-batches and learns from their mean loss
    final.M/P               all parameters and buffers after these steps, by those names; parameters whose names begin
                            with one of frozen do not learn

Step s trains on rows (s % 4) * R to (s % 4 + 1) * R, or on those that order[s] lists. If two calls with the same inputs
give two losses (dropout), no safetensors file is written. The answer to each request is a line of JSON.
"""
import contextlib, io, json, os, runpy, struct, sys

import torch

MOMENTUM, STEPS, BATCHES = 0.9, 50, 4
DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.int32: "I32", torch.bool: "BOOL",
          torch.uint8: "U8"}


def write(path, tensors):
    """Write a safetensors file."""
    header, data = {}, []
    at = 0
    for name, x in tensors.items():
        raw = x.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": DTYPES[x.dtype], "shape": list(x.shape), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    front = json.dumps(header).encode()
    front += b" " * (-len(front) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(front)) + front + b"".join(data))


def called(module, inputs, loss):
    """Call the module and return the loss, then numbers to report, by their names."""
    if loss:
        out = module(*inputs[:-1])
        while not isinstance(out, torch.Tensor):
            out = out["logits"] if isinstance(out, dict) else out[0]
        of = {"cross_entropy": torch.nn.functional.cross_entropy, "mse": torch.nn.functional.mse_loss,
              "bce": torch.nn.functional.binary_cross_entropy_with_logits}
        return {"loss": of[loss](out, inputs[-1])}
    out = module(*inputs)
    if isinstance(out, tuple):
        out = dict(zip(getattr(out, "_fields", ["loss"] + ["output%d" % i for i in range(1, len(out))]), out))
    elif not isinstance(out, dict):
        out = {"loss": out}
    return {k: x for k, x in out.items() if isinstance(x, torch.Tensor) and x.numel() == 1}


def named(module):
    """Return parameters and buffers, each by the first of its names."""
    return dict(module.named_parameters()), dict(module.named_buffers())


def once(build, inputs, names, loss, prefix, into, seed=1):
    """Write one forward and backward of the untrained module into a dict of tensors; return its loss."""
    module = build()
    torch.manual_seed(seed)
    out = called(module, [x.clone() for x in inputs], loss)
    out["loss"].backward()
    parameters, buffers = named(module)
    into.update({prefix + "/" + n: x for n, x in zip(names, inputs)})
    into.update({prefix + "." + n: x for n, x in out.items()})
    into.update({prefix + ".grad/" + n: p.grad for n, p in parameters.items() if p.grad is not None})
    into.update({prefix + ".buffer/" + n: b for n, b in buffers.items()})
    return out["loss"].item()


def evaluate(build, inputs, loss, prefix, into):
    """Write the loss of the untrained module in evaluation mode into a dict of tensors."""
    # Not under no_grad: there nn.TransformerEncoder cuts off columns that a mask hides in all rows.
    x = called(build().eval(), [x.clone() for x in inputs], loss).get("loss")
    if x is not None:
        into[prefix + ".evaluated"] = x.reshape(())


def train(build, inputs, order, loss, rate, micro, frozen, into):
    module = build()
    parameters, buffers = named(module)
    for n, p in parameters.items():
        if n.startswith(tuple(frozen)):
            p.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in parameters.values() if p.requires_grad], lr=rate, momentum=MOMENTUM)
    curve = []
    for rows in order:
        optimizer.zero_grad()
        total = 0.0
        for part in range(micro):
            of = rows[part * len(rows) // micro:(part + 1) * len(rows) // micro]
            one = called(module, [x[of] for x in inputs], loss)["loss"] / micro
            one.backward()
            total += one.item()
        optimizer.step()
        curve.append(total)
    into["curve.%d" % micro] = torch.tensor(curve, dtype=torch.float64)
    into.update({"final.%d/%s" % (micro, n): x for n, x in list(parameters.items()) + list(buffers.items())})


def answer(exporter, folder, asked):
    name, loss = asked["name"], asked.get("loss")
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), asked["file"])
    spec, path = here + ":" + name, os.path.join(folder, name)
    said, done = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(done):
        code = exporter.main([spec, "-o", path + ".mr"] + (["--loss", loss] if loss else []))
    function = runpy.run_path(here)[name]
    torch.manual_seed(0)
    doc = (type(function()[0]).__doc__ or "").strip().split("\n")[0]
    answer = {"name": name, "doc": doc, "code": code, "said": said.getvalue(), "done": done.getvalue(), "oracle": False}
    if code:
        return answer
    def build():
        return exporter.load(spec)[0]
    a = exporter.load(spec)[1]
    names = exporter.names_of(build(), len(a) - bool(loss)) + ["target"] * bool(loss)
    torch.manual_seed(1)
    b = function(len(a[0]) + 2)[1]
    torch.manual_seed(2)
    rows = len(a[0])
    data = function(BATCHES * rows)[1]
    tensors = {}
    first = once(build, a, names, loss, "a", tensors)
    if first != once(build, a, names, loss, "a", {}, 2):
        return answer
    once(build, b, names, loss, "b", tensors)
    evaluate(build, a, loss, "a", tensors)
    evaluate(build, b, loss, "b", tensors)
    if asked.get("rate"):
        tensors.update({"train/" + n: x for n, x in zip(names, data)})
        order = asked.get("order") or [list(range(s % BATCHES * rows, (s % BATCHES + 1) * rows)) for s in range(STEPS)]
        for micro in (1, 2):
            train(build, data, order, loss, asked["rate"], micro, asked.get("frozen", []), tensors)
    write(path + ".safetensors", tensors)
    return dict(answer, oracle=True)


def main():
    torch.set_num_threads(1)
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[1])))
    import millrace_export
    for line in sys.stdin:
        print(json.dumps(answer(millrace_export, sys.argv[2], json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
