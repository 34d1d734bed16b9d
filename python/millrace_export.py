#!/usr/bin/env python3
"""Write a PyTorch model to one file that millrace trains.

    python3 millrace_export.py SPEC.py:build -o MODEL [--loss cross_entropy|mse|bce]

build() returns (module, inputs). inputs is a tuple of example tensors, all with the batch as their first dimension.
module(*inputs) returns the mean loss over the batch, or the loss and numbers to report (a tuple, a named tuple or a
dict with the key "loss"); its last input is the target. With --loss the module returns outputs, and the loss is added:
build() gives the target as the last of its inputs, behind those of the module, or leaves it out, and it is derived from
the outputs.

The file is a zip archive that compresses nothing: graph.json has the operators that the module calls in training mode,
weights.safetensors its parameters, buffers and constants by PyTorch's names. It needs torch 1.8 or later and nothing
else. What cannot be exported is said in one line, with exit code 2.
"""

import argparse
import importlib.util
import inspect
import json
import math
import os
import struct
import sys
import tempfile
import warnings
import zipfile

import torch

VERSION = 1
DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
          torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
          torch.bool: "BOOL"}
LOSSES = ("cross_entropy", "mse", "bce")


class Refused(Exception):
    """What cannot be exported, and what would be right."""


def load(spec):
    """Return what the function of SPEC.py:build returns, and the function's name."""
    path, _, name = spec.rpartition(":")
    if not path or not name.isidentifier():
        raise Refused("%s: give a file and a function of it, as in model.py:build" % spec)
    if not os.path.isfile(path):
        raise Refused("%s: there is no such file" % path)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    found = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    if found is None:
        raise Refused("%s: give a file that ends with .py" % path)
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    build = getattr(module, name, None)
    if not callable(build):
        raise Refused("%s has no function %s" % (path, name))
    built = build()
    if not isinstance(built, tuple) or len(built) != 2 or not isinstance(built[0], torch.nn.Module):
        raise Refused("%s returns %s; give a pair: a torch.nn.Module and a tuple of example tensors"
                      % (spec, type(built).__name__))
    model, inputs = built
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    return model, tuple(inputs)


def check_inputs(inputs):
    """Refuse inputs that are no batch of tensors; return the number of rows."""
    if not inputs:
        raise Refused("there are no inputs; give a tuple of example tensors")
    for i, x in enumerate(inputs):
        if not isinstance(x, torch.Tensor):
            raise Refused("input %d is a %s; give tensors alone" % (i, type(x).__name__))
        if x.dim() == 0 or x.shape[0] != inputs[0].shape[0]:
            raise Refused("input %d has the shape %s, and the first one %d rows; the first dimension of each is the "
                          "batch" % (i, list(x.shape), inputs[0].shape[0] if inputs[0].dim() else 0))
    if inputs[0].shape[0] < 2:
        raise Refused("the example has %d row; give 2 or more, so that the batch can be told from a dimension of 1"
                      % inputs[0].shape[0])
    return int(inputs[0].shape[0])


def takes(model, count):
    """Say whether a module's forward takes so many inputs."""
    try:
        inspect.signature(model.forward).bind(*([None] * count))
    except TypeError:
        return False
    return True


def names_of(model, count):
    """Return what forward calls its first inputs."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = [p.name for p in inspect.signature(model.forward).parameters.values() if p.kind in kinds]
    return [given[i] if i < len(given) else "input%d" % i for i in range(count)]


class Example(torch.nn.Module):
    """A module with its loss, which returns a tuple of numbers. look comes first."""

    def __init__(self, module, loss, own):
        super().__init__()
        self.module, self.loss, self.own = module, loss, own  # own: how many inputs are the module's
        self.names, self.picked, self.left_out = ["loss"], [], []

    def look(self, inputs):
        """Find out what the module returns; return the inputs with a target, where that was left out."""
        with torch.no_grad():
            out = self.module(*inputs[:self.own])
            if self.loss:
                if self.own == len(inputs):
                    inputs += (derived(self.loss, first_of(out)),)
                try:
                    added(self.loss, first_of(out), inputs[-1])
                except (RuntimeError, ValueError, IndexError) as why:
                    raise Refused("--loss %s of outputs %s and a target %s of %s: %s" % (
                        self.loss, list(first_of(out).shape), list(inputs[-1].shape), inputs[-1].dtype,
                        str(why).split("\n")[0]))
                return inputs
        named = named_of(out)
        loss = named[0][1]
        if not is_number(loss) or not loss.is_floating_point():
            said = list(loss.shape) if isinstance(loss, torch.Tensor) else "a " + type(loss).__name__
            raise Refused("the module returns %s, where its mean loss should be, one number; return that, or give --loss"
                          % said)
        for i, (name, value) in enumerate(named):
            if is_number(value):
                self.picked.append(i)
                self.names[len(self.picked) - 1:] = [name if i else "loss"]
            else:
                self.left_out.append(name)
        return inputs

    def forward(self, *inputs):
        out = self.module(*inputs[:self.own])
        if self.loss:
            return (added(self.loss, first_of(out), inputs[-1]),)
        named = named_of(out)
        return tuple(named[i][1].reshape(()) for i in self.picked)


def named_of(out):
    """Return what a module returns, each with a name, the loss first."""
    if isinstance(out, torch.Tensor):
        return [("loss", out)]
    if isinstance(out, dict):
        if "loss" not in out:
            raise Refused("the module returns a dict without the key \"loss\", but with %s; add it, or give --loss"
                          % ", ".join(sorted(map(str, out))))
        return [("loss", out["loss"])] + [(str(k), v) for k, v in out.items() if k != "loss"]
    if isinstance(out, (tuple, list)) and out:
        return list(zip(getattr(out, "_fields", ["output%d" % i for i in range(len(out))]), out))
    raise Refused("the module returns a %s; give its mean loss, or --loss" % type(out).__name__)


def is_number(x):
    return isinstance(x, torch.Tensor) and x.numel() == 1


def first_of(out):
    """Return the tensor that a loss is of."""
    if isinstance(out, dict):
        out = out.get("logits", next(iter(out.values())))
    while isinstance(out, (tuple, list)) and out:
        out = out[0]
    if not isinstance(out, torch.Tensor):
        raise Refused("the module returns a %s; --loss is of a tensor" % type(out).__name__)
    return out


def added(loss, out, target):
    """Return the mean loss of outputs."""
    if loss == "cross_entropy":
        return torch.nn.functional.cross_entropy(out, target)
    if loss == "mse":
        return torch.nn.functional.mse_loss(out, target)
    return torch.nn.functional.binary_cross_entropy_with_logits(out, target)


def derived(loss, out):
    """Return a target that fits outputs."""
    if loss == "cross_entropy":
        if out.dim() < 2:
            raise Refused("the module returns the shape %s; cross_entropy is of classes in the second dimension"
                          % list(out.shape))
        return torch.zeros(out.shape[:1] + out.shape[2:], dtype=torch.int64)
    return torch.zeros_like(out)


class Graph:
    """The operators of a traced module, as they are written."""

    def __init__(self, example):
        self.example = example
        self.tensors, self.records, self.aliases = {}, {}, {}  # by name: value, description; other names of one
        self.name_of, self.number, self.literal, self.path = {}, {}, {}, {}
        self.nodes, self.outputs, self.constants = [], [], 0

    def own(self, module):
        """Take a module's parameters and buffers as they are."""
        own = [(n, p, False) for n, p in module.named_parameters()] + [(n, b, True) for n, b in module.named_buffers()]
        for name, value, buffer in own:
            self.name_of[id(value)] = name
            self.keep(name, value.detach().clone() if buffer else value.detach(), buffer, value.requires_grad)
        for prefix, child in module.named_modules():
            held = list(child._parameters.items()) + list(child._buffers.items())
            for key, value in held:
                name = prefix + "." + key if prefix else key
                if value is not None and self.name_of.get(id(value), name) != name:
                    self.aliases[name] = self.name_of[id(value)]

    def keep(self, name, value, buffer, trained):
        if value.dtype not in DTYPES:
            raise Refused("%s has the type %s; give one of %s"
                          % (name, value.dtype, ", ".join(sorted(str(d) for d in DTYPES))))
        self.tensors[name] = value
        self.records[name] = {"name": name, "buffer": buffer, "trained": bool(trained)}

    def constant(self, value):
        """Keep a tensor that the trace has made a constant."""
        name = "constant%d" % self.constants
        self.constants += 1
        self.keep(name, value.detach().clone(), True, False)
        self.records[name]["constant"] = True
        return {"tensor": name}

    def read(self, traced, count):
        """Read a trace whose module has so many inputs."""
        graph = traced.inlined_graph
        given = list(graph.inputs())
        self.path[given[0].debugName()] = ""
        for i, v in enumerate(given[1:]):
            self.number[v.debugName()] = i
        if len(given) - 1 != count:
            raise Refused("the trace has %d inputs of %d" % (len(given) - 1, count))
        for node in graph.nodes():
            self.add(node)
        for v in self.results(graph):
            self.outputs.append(self.argument(v))

    def results(self, graph):
        """Return the values that the graph returns."""
        found = list(graph.outputs())
        if len(found) == 1 and found[0].node().kind() == "prim::TupleConstruct":
            return list(found[0].node().inputs())
        return found

    def add(self, node):
        kind = node.kind()
        if list(node.blocks()):
            raise Refused("%s: control flow of a scripted function (%s); trace it away, or write it without one"
                          % (kind, str(node.sourceRange()).strip().split("\n")[0]))
        if kind == "prim::GetAttr":
            base = self.path[node.input().debugName()]
            name = base + "." + node.s("name") if base else node.s("name")
            self.path[node.output().debugName()] = name
            if node.output().type().kind() == "TensorType":
                self.literal[node.output().debugName()] = self.held(name)
            return
        if kind == "prim::Constant":
            self.literal[node.output().debugName()] = self.value(node.output().toIValue())
            return
        if kind == "prim::TupleConstruct" and all(u.user.kind() == "prim::Return" for u in node.output().uses()):
            return
        try:
            op = node.schema().split("(")[0]
        except RuntimeError:
            op = kind
        if op in ("", "(no schema)"):
            op = kind
        arguments = [self.argument(v) for v in node.inputs()]
        results = []
        for v in node.outputs():
            number = self.number[v.debugName()] = len(self.number)
            results.append(dict(self.described(v), value=number))
        self.nodes.append({"op": op, "in": arguments, "out": results, "scope": scope_of(node.scopeName())})

    def held(self, path):
        """Return the tensor at a path of the traced module."""
        at = self.example
        for step in path.split("."):
            at = getattr(at, step)
        name = self.name_of.get(id(at))
        return {"tensor": name} if name is not None else self.constant(at)

    def argument(self, v):
        name = v.debugName()
        if name in self.literal:
            return self.literal[name]
        return {"value": self.number[name]}

    def value(self, x):
        """Return a constant as it is written."""
        if x is None:
            return {"none": True}
        if isinstance(x, bool):
            return {"bool": x}
        if isinstance(x, int):
            return {"int": x}
        if isinstance(x, float):
            return {"float": number(x)}
        if isinstance(x, str):
            return {"string": x}
        if isinstance(x, torch.device):
            return {"device": x.type}
        if isinstance(x, torch.Tensor):
            return self.constant(x)
        if isinstance(x, (list, tuple)):
            return {"list": [self.value(one) for one in x]}
        raise Refused("a constant of the type %s: %r" % (type(x).__name__, x))

    def described(self, v):
        """Describe a value by the type that the trace has seen."""
        t = v.type()
        if t.kind() != "TensorType":
            return {"type": t.str() if hasattr(t, "str") else str(t)}
        sizes, dtype = t.sizes(), t.dtype() if hasattr(t, "dtype") else None
        if sizes is None or dtype is None:
            return {"type": "Tensor"}
        return {"type": "Tensor", "shape": sizes, "dtype": DTYPES.get(dtype, str(dtype))}


def number(x):
    """Return a float as JSON has it."""
    return x if math.isfinite(x) else ("nan" if math.isnan(x) else "inf" if x > 0 else "-inf")


def scope_of(name):
    """Return the path of the module in which an operator was called."""
    last = name.split("/")[-1] if name else ""
    last = last.split("::")[-1] if "::" in last else last
    for prefix in ("__module.module.", "__module.module", "module.", "__module."):
        if last.startswith(prefix):
            return last[len(prefix):]
    return "" if last in ("module", "__module") else last


def is_torch(path):
    """Say whether a file is PyTorch's own, which knows what it does."""
    return os.path.abspath(path).startswith(os.path.dirname(os.path.abspath(torch.__file__)) + os.sep)


def raw(value):
    """Return a tensor's bytes, little-endian."""
    value = value.contiguous().cpu()
    if value.dtype == torch.bfloat16:
        value = value.view(torch.int16)
    return value.numpy().tobytes()


def write(path, graph, text):
    """Write the file whole or not at all."""
    header, at = {}, 0
    for name, value in graph.tensors.items():
        size = value.numel() * value.element_size()
        header[name] = {"dtype": DTYPES[value.dtype], "shape": list(value.shape), "data_offsets": [at, at + size]}
        at += size
    front = json.dumps(header).encode()
    front += b" " * (-len(front) % 8)
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise Refused("-o %s: there is no folder %s" % (path, folder))
    handle, draft = tempfile.mkstemp(prefix=".millrace-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as f, zipfile.ZipFile(f, "w", zipfile.ZIP_STORED, allowZip64=True) as z:
            z.writestr("graph.json", text)
            with z.open(zipfile.ZipInfo("weights.safetensors"), "w", force_zip64=True) as out:
                out.write(struct.pack("<Q", len(front)))
                out.write(front)
                for value in graph.tensors.values():
                    out.write(raw(value))
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
    return os.path.getsize(path)


def export(model, inputs, loss, path, name):
    """Trace a module in training mode and write it; return what is to be said."""
    model.train()
    own = len(inputs)
    if loss and not takes(model, own):
        own -= 1
    if own == 0 or not takes(model, own):
        raise Refused("forward of %s does not take %d inputs" % (type(model).__name__, len(inputs)))
    rows = check_inputs(inputs)
    names = names_of(model, own)
    graph = Graph(Example(model, loss, own))
    graph.own(model)  # in front of the trace, which changes buffers
    inputs = graph.example.look(inputs)
    if len(inputs) > own:
        names.append("target")
    if len(inputs) < 2:
        raise Refused("there is one input; the last one is the target: give it, or --loss")
    check_inputs(inputs)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        traced = torch.jit.trace(graph.example, inputs, check_trace=False)
    graph.read(traced, len(inputs))
    described = [{"name": n, "shape": list(x.shape), "dtype": DTYPES.get(x.dtype, str(x.dtype)),
                  "role": "target" if i == len(inputs) - 1 else "input"}
                 for i, (n, x) in enumerate(zip(names, inputs))]
    outputs = [dict(name=n, **v) for n, v in zip(graph.example.names, graph.outputs)]
    text = json.dumps({
        "version": VERSION, "torch": torch.__version__, "name": name, "rows": rows, "inputs": described,
        "tensors": list(graph.records.values()), "aliases": graph.aliases, "nodes": graph.nodes, "outputs": outputs,
    }, allow_nan=False, indent=1)
    size = write(path, graph, text)
    notes = sorted({"%s:%d: Python reads a value here: what follows from it is fixed in the file" % (w.filename, w.lineno)
                    for w in warned if "Tracer" in w.category.__name__ and not is_torch(w.filename)})
    notes += ["%s is not one number, and is left out" % n for n in graph.example.left_out]
    trained = [graph.tensors[n].numel() for n, r in graph.records.items() if r["trained"]]
    return notes, "%s: %d operators, %d parameters in %d tensors, %d bytes in %s" % (
        name, len(graph.nodes), sum(trained), len(trained), size, path)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("spec", metavar="SPEC.py:build", help="a file, and a function of it that returns (module, inputs)")
    p.add_argument("-o", "--output", required=True, metavar="MODEL", help="the file to write")
    p.add_argument("--loss", choices=LOSSES,
                   help="the mean loss to add to a module that returns outputs; bce takes logits")
    p.add_argument("--name", help="what the model is called; default: the module's class")
    a = p.parse_args()
    try:
        model, inputs = load(a.spec)
        notes, done = export(model, inputs, a.loss, a.output, a.name or type(model).__name__)
    except Refused as why:
        print("millrace_export: %s" % why, file=sys.stderr)
        return 2
    for note in notes:
        print("note: %s" % note, file=sys.stderr)
    print(done)
    return 0


if __name__ == "__main__":
    sys.exit(main())
