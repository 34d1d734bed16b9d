#!/usr/bin/env python3
"""Write a PyTorch model to one file that millrace reads.

    python3 millrace_export.py SPEC.py:build -o MODEL [--loss cross_entropy|mse|bce]

build() returns (module, inputs). inputs is a tuple of example tensors, all with the batch as their first dimension.
module(*inputs) returns the mean loss, or the loss and numbers to report (a tuple, or a dict with the key "loss"); its
last input is the target. With --loss it returns outputs, and the loss is added: the last input is the target, behind
those of forward; where forward needs them all, a target is made.

The module is traced in training mode, but for what build() sets to evaluation, with torch 1.8 or later alone. In the
file, a zip archive, graph.json has its operators, and weights.safetensors its parameters, buffers and constants by
PyTorch's names. What cannot be exported is said in one line, with exit code 2.
"""
import argparse, ctypes, functools, hashlib, importlib.util, inspect, itertools, json, os, re, struct
import sys, tempfile, traceback, warnings, zipfile

try:
    import torch, torch.utils.checkpoint
except ImportError as missing:
    print("millrace_export: %s; give a Python with torch (Debian: python3-torch)" % missing, file=sys.stderr)
    sys.exit(2)

PIECE = 16 << 20  # bytes of a tensor that are copied at once
TYPES = [of.split() for of in (  # of elements: what TorchScript, torch and safetensors call them
    "Double float64 F64, Float float32 F32, Half float16 F16, BFloat16 bfloat16 BF16, Long int64 I64, Int int32 I32, "
    "Short int16 I16, Char int8 I8, Byte uint8 U8, Bool bool BOOL").split(", ")]
SCALARS, DTYPES = {a: c for a, _, c in TYPES}, {getattr(torch, b): c for _, b, c in TYPES}
KINDS = {type(None): "none", bool: "bool", int: "int", float: "float", str: "string", torch.device: "device"}
RECURRENT = ["aten::" + of for of in ("lstm", "gru", "rnn_tanh", "rnn_relu")]
# A frame of a node's source: of a trace, "path(line): function"; of a script, 'File "path", line 1, in function'.
FRAME = re.compile(r'^(.+)\((\d+)\): |^ *File "(.+)", line (\d+)', re.M)
PYTHON = re.compile("<|%s|%s(?!(site|dist)-packages)" % tuple(  # and PyTorch, whose files nobody edits
    re.escape(os.path.dirname(os.path.abspath(of.__file__)) + os.sep) for of in (torch, os)))

class Refused(Exception):
    """What cannot be exported, and what would be right."""

def place(frames, folder=None):
    """Return file:line of the innermost frame that is the user's, or else a library's; not PyTorch's or Python's."""
    inner = itertools.takewhile(lambda frame: os.path.abspath(frame[0]) != os.path.abspath(__file__), frames)
    found = sorted((f for f in inner if not PYTHON.match(f[0])), key=lambda frame: "-packages" + os.sep in frame[0])
    at = "%s:%s" % found[0] if found else ""
    return at[len(folder) + 1:] if folder and at.startswith(folder + os.sep) else at

def load(spec):
    """Return what the function of SPEC.py:build returns, and the folder of its file."""
    path, _, name = spec.rpartition(":")
    folder, stem = os.path.dirname(os.path.abspath(path)), os.path.splitext(os.path.basename(path))[0]
    found = importlib.util.spec_from_file_location("_" + stem if stem in sys.modules else stem, path)
    if found is None or not os.path.isfile(path):
        raise Refused("%s: there is no such Python file; give a file and a function, as in model.py:build" % spec)
    sys.path.insert(0, folder)
    module = sys.modules[found.name] = importlib.util.module_from_spec(found)
    torch.manual_seed(0)
    # What runs a forward again is the plan's to say; the trace has one of it.
    torch.utils.checkpoint.CheckpointFunction.apply = staticmethod(lambda forward, keep, *inputs: forward(*inputs))
    found.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        raise Refused("%s has no function %s" % (path, name))
    built = getattr(module, name)()
    if not isinstance(built, (tuple, list)) or len(built) != 2 or not isinstance(built[0], torch.nn.Module):
        raise Refused("%s returns a %s; give a pair: a module and a tuple of tensors" % (spec, type(built).__name__))
    model, inputs = built[0], built[1] if isinstance(built[1], (tuple, list)) else (built[1],)
    return getattr(model, "_orig_mod", model), tuple(inputs), folder  # _orig_mod: what torch.compile is of

def check_tensor(name, value):
    """Refuse a tensor whose elements cannot be written."""
    if type(value).__name__.startswith("Uninitialized"):
        raise Refused("%s has no shape yet; call the module once in build()" % name)
    if value.layout != torch.strided or value.device.type == "meta" or value.dtype not in DTYPES:
        raise Refused("%s is %s, %s, on %s; give a dense tensor of %s that has its elements"
                      % (name, value.layout, value.dtype, value.device, ", ".join(b for _, b, _ in TYPES)))

def check_inputs(inputs):
    """Refuse inputs that are no batch of tensors."""
    for i, x in enumerate(inputs):
        if not isinstance(x, torch.Tensor):
            raise Refused("input %d is a %s; give tensors alone" % (i, type(x).__name__))
        check_tensor("input %d" % i, x)
        if x.dim() == 0 or len(x) < 2 or x.shape[0] != inputs[0].shape[0]:
            raise Refused("input %d has the shape %s, and the first one %s; the first dimension of each is the batch, "
                          "of 2 rows or more" % (i, list(x.shape), list(inputs[0].shape)))

def names_of(model, count):
    """Return what forward calls its first inputs; None where it does not take so many."""
    if isinstance(model, torch.jit.ScriptModule):
        return [a.name for a in model.forward.schema.arguments[1:count + 1]]
    try:
        bound = inspect.signature(model.forward).bind(*range(count)).arguments
    except TypeError:
        return None
    return [one for n, at in bound.items() for one in ([n] if isinstance(at, int) else ["%s%d" % (n, i) for i in at])]

class Example(torch.nn.Module):
    """A module with its loss, which returns a tuple of numbers; inputs have a target, where that was left out."""
    def __init__(self, module, loss, own, inputs):
        super().__init__()
        self.module, self.loss, self.own = module, loss, own  # own: how many inputs it takes
        with torch.no_grad():
            out = module(*inputs[:own])
            if loss and own == len(inputs):
                made = torch.zeros_like(first_of(out))
                inputs += (made.select(1, 0).long() if loss == "cross_entropy" else made,)
            named = self.named(out, inputs)
        self.inputs, mean = inputs, named[0][1]
        self.picked = [i for i, (_, x) in enumerate(named) if isinstance(x, torch.Tensor) and x.numel() == 1]
        if 0 not in self.picked or not mean.is_floating_point():
            said = "the shape %s" % list(mean.shape) if isinstance(mean, torch.Tensor) else "a " + type(mean).__name__
            raise Refused("the module returns %s, where its mean loss should be; return that, or give --loss" % said)
        self.names = ["loss"] + [named[i][0] for i in self.picked[1:]]
        self.left_out = [name for i, (name, _) in enumerate(named) if i not in self.picked]

    def named(self, out, inputs):
        """Return what a module returned, each with a name, the loss first."""
        if self.loss:
            return [("loss", added(self.loss, first_of(out), inputs[-1]))]
        if isinstance(out, dict) and "loss" in out:
            return [("loss", out["loss"])] + [(str(k), v) for k, v in out.items() if k != "loss"]
        if isinstance(out, (tuple, list)) and out:
            return list(zip(getattr(out, "_fields", ["output%d" % i for i in range(len(out))]), out))
        return [("loss", out)]

    def forward(self, *inputs):
        named = self.named(self.module(*inputs[:self.own]), inputs)
        return tuple(named[i][1].reshape(()) if named[i][1].dim() else named[i][1] for i in self.picked)

def first_of(out):
    """Return the tensor that a loss is of."""
    if isinstance(out, dict) and out:
        out = out.get("logits", next(iter(out.values())))
    while isinstance(out, (tuple, list)) and out:
        out = out[0]
    if not isinstance(out, torch.Tensor) or out.dim() == 0:
        raise Refused("the module returns %s; --loss is of a tensor with the batch in front"
                      % ("one number" if isinstance(out, torch.Tensor) else "a " + type(out).__name__))
    return out

def added(loss, out, target):
    """Return the mean loss of outputs."""
    if loss != "cross_entropy" and out.shape != target.shape:  # PyTorch would spread one over the other
        raise Refused("--loss %s of outputs %s and a target %s; give the same shape to both"
                      % (loss, list(out.shape), list(target.shape)))
    of = torch.nn.functional
    return {"bce": of.binary_cross_entropy_with_logits, "mse": of.mse_loss}.get(loss, of.cross_entropy)(out, target)

def walk(module, prefix=""):
    """Yield each parameter and buffer by every name that state_dict has for it."""
    for buffer, table in enumerate((module._parameters, module._buffers)):
        for key, value in ((k, v) for k, v in table.items() if v is not None):
            yield prefix + key, value, bool(buffer), key in getattr(module, "_non_persistent_buffers_set", ())
    for key, child in ((k, m) for k, m in module._modules.items() if m is not None):
        yield from walk(child, prefix + key + ".")

def end_of(value):
    """Return the address behind a tensor's last element."""
    return value.data_ptr() + (1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride()))) * value.element_size()

class Graph:
    """The operators of a traced module, as they are written."""
    def __init__(self, example, folder):
        self.example, self.folder, self.aliases, self.nodes, self.outputs = example, folder, [], [], []
        self.values, self.tensors = {}, {}  # by name: the elements, and what is written of them
        self.live, self.name_of = {}, {}  # what the module has by each name; the first name of each
        self.number, self.literal, self.path, self.known, self.written = {}, {}, {}, {}, set()

    def own(self, module, before):
        """Take a module's parameters as they are, and its buffers as they were before."""
        for name, value, buffer, unsaved in walk(module):
            self.live[name], first = value, self.name_of.setdefault(id(value), name)
            if first != name:
                self.aliases.append({"name": name, "of": first})
            else:
                self.keep(name, before.get(id(value), (0, value.detach()))[1], unsaved=unsaved,
                          role="buffer" if buffer else "parameter", trained=value.requires_grad and not buffer)
        spans = sorted((self.live[n].data_ptr(), end_of(self.live[n]), n) for n in self.tensors if self.live[n].numel())
        for (_, end, one), (start, _, other) in zip(spans, spans[1:]):
            if start < end and (self.tensors[one]["trained"] or self.tensors[other]["trained"]):
                raise Refused("%s and %s share memory; make them one parameter, or copy one" % (one, other))

    def keep(self, name, value, **described):
        self.values[name], self.tensors[name] = value, dict(described, name=name)

    def constant(self, value, where):
        """Keep a tensor that is no parameter or buffer, once for all that have its elements."""
        check_tensor("%s: a constant" % where, value)
        for name, p in self.live.items():
            if value.numel() and p.data_ptr() <= value.data_ptr() < end_of(p) and (
                    p.requires_grad or not alike(p, self.values.get(name, p))):
                raise Refused("%s: what is computed of %s does not follow its training; use .detach(), not .data"
                              % (where, name))
        digest = hashlib.sha256(b"".join(pieces(value))).digest()
        name = "constant%d" % len(self.known)
        while name in self.live:
            name += "_"
        first = self.known.setdefault((value.dtype, tuple(value.shape), digest), name)
        if first == name:
            self.keep(name, value.detach(), role="constant", trained=False)
        return {"tensor": first}

    def read(self, traced, wider):
        """Read a trace, and one of twice the rows, whose sizes tell which depend on the rows."""
        graph, more = traced.inlined_graph, (n for n in needed(wider.inlined_graph) if n.kind() != "prim::Constant")
        given, returned = list(graph.inputs()), list(graph.outputs())
        self.path[given[0].debugName()] = ""
        self.number = {v.debugName(): i for i, v in enumerate(given[1:])}
        for node in needed(graph):
            other = node if node.kind() == "prim::Constant" else next(more, node)  # numbers that are alike are one
            if node.kind() != other.kind():
                raise Refused("%s: forward calls other operators with twice the rows; call the same for any number"
                              % blamed(node, self.folder)[1])
            self.add(node, other)
        self.outputs = self.argument(returned[0]).get("list", [self.argument(v) for v in returned])

    def add(self, node, other):
        """Take a node over, which comes behind all that it reads of; other is what it is with twice the rows."""
        kind, outs, ins = node.kind(), [v.debugName() for v in node.outputs()], list(node.inputs())
        (where, blame), first = blamed(node, self.folder), ins[0].debugName() if ins else ""
        for x, y in zip(map(fixed, ins), map(fixed, other.inputs())):
            if not alike(x, y):
                x, y = (list(v.shape) if isinstance(v, torch.Tensor) else v for v in (x, y))
                raise Refused(("%s: %s: its argument %s is %s with twice the rows: Python made it of the rows or of "
                               "what a tensor holds; use x.shape[0], not len(x), int(x.shape[0])" if x != y else
                               "%s: %s: a tensor %s holds other elements in the next forward%.0s: write x = "
                               "x + y, not x += y, and register_buffer what is kept, or give it as an input"
                               ) % (blame, kind, x, y))
        if writes(node):
            self.written.update(self.literal.get(root(v).debugName(), {}).get("tensor") for v in ins)
        if kind == "prim::GetAttr":
            path = self.path[outs[0]] = (self.path[first] + "." + node.s("name")).lstrip(".")
            if path[len("module."):] in self.live:
                self.literal[outs[0]] = {"tensor": self.name_of[id(self.live[path[len("module."):]])]}
            elif node.output().type().kind() != "ClassType":
                self.literal[outs[0]] = self.value(functools.reduce(getattr, path.split("."), self.example), blame)
        elif kind == "prim::Constant":
            self.literal[outs[0]] = self.value(node.output().toIValue(), blame)
        elif kind == "prim::TupleConstruct":
            self.literal[outs[0]] = {"list": list(map(self.argument, ins))}
        elif kind == "prim::TupleUnpack" and "list" in self.literal.get(first, ()):
            self.literal.update(zip(outs, self.literal[first]["list"]))
        elif list(node.blocks()) or kind[:1] == "^" or kind == "prim::PythonOp" or "ClassType" in (
                v.type().kind() for v in ins):
            raise Refused("%s: %s: branches of scripted functions and backwards of autograd.Function are not exported; "
                          "write it as plain Python" % (blame, kind))
        elif kind == "aten::_pack_padded_sequence":
            raise Refused("%s: a packed sequence has other sizes in each batch; give the padded tensor, and take each "
                          "row's last step by gather" % blame)
        else:
            self.nodes.append({"op": node.schema().split("(")[0] or kind, "in": [self.argument(v) for v in ins],
                               "out": [self.described(*v) for v in zip(node.outputs(), other.outputs())],
                               "scope": scope_of(node.scopeName()), "where": where})

    def argument(self, v):
        return self.literal.get(v.debugName()) or {"value": self.number[v.debugName()]}

    def value(self, x, where):
        """Return a constant as it is written."""
        if isinstance(x, torch.Tensor):
            return self.constant(x, where)
        if isinstance(x, (list, tuple)):
            return {"list": [self.value(one, where) for one in x]}
        if type(x) in KINDS:
            x, kind = getattr(x, "type", x), KINDS[type(x)]  # of a device
            return {kind: True if x is None else str(x) if str(x) in ("inf", "-inf", "nan") else x}
        raise Refused("%s: a constant of the type %s; give numbers, words or tensors" % (where, type(x).__name__))

    def described(self, v, wider):
        """Number a value and describe it by the type that the traces have seen."""
        t, said = v.type(), {"value": self.number.setdefault(v.debugName(), len(self.number))}
        if t.kind() != "TensorType" or t.sizes() is None or t.scalarType() is None:
            return dict(said, type="Tensor" if t.kind() == "TensorType" else t.str())
        said.update({"double": wider.type().sizes()} if wider.type().sizes() != t.sizes() else ())
        if not v.requires_grad() and "::_" not in v.node().kind():  # aten::_convolution is seen before it has its own
            said["detached"] = True
        return dict(said, type="Tensor", shape=t.sizes(), dtype=SCALARS.get(t.scalarType(), t.scalarType()))

def needed(graph, buffers=True):
    """Return the nodes of which something comes, in order; with or without those that only write the module's own."""
    read, kept = {v.debugName() for v in graph.outputs()}, []
    for node in reversed(list(graph.nodes())):
        own = not buffers and "!" in node.schema() and root(node.output())
        if own and own.node().kind() == "prim::GetAttr":
            continue  # evaluation, which leaves it out, reads what was there
        if writes(node) or any(v.debugName() in read for v in node.outputs()):
            read.update(v.debugName() for v in node.inputs())
            kept.append(node)
    return kept[::-1]

def root(v):
    """Return what has the elements of a value that is a view, or written in place."""
    while "(a" in v.node().schema() or v.node().kind() == "prim::TupleUnpack":
        first = next(v.node().inputs())
        tuples = v.node().kind() == first.node().kind().replace("Construct", "Unpack") != first.node().kind()
        v = list(first.node().inputs())[v.offset()] if tuples else first
    return v

def fixed(v):
    """Return what Python has made of a value; None for one that is calculated."""
    return v.node().output().toIValue() if v.node().kind() == "prim::Constant" else None

def alike(x, y):
    """Say whether two constants are the same."""
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return str(x) == str(y)
    return x.shape == y.shape and x.dtype == y.dtype and all(a == b for a, b in zip(pieces(x), pieces(y)))

def strays(graph, still, folder):
    """Return where evaluation computes something else than training does, but for dropout and batch norms."""
    nodes, more = ([n for n in needed(of, False) if n.kind()[:6] == "aten::"] for of in (graph, still))
    for node in nodes:
        kind, other, ins = node.kind(), more[0] if more else node, list(node.inputs())
        if "dropout" in kind and (not more or kind != other.kind()):
            continue  # which attention leaves out where it does not train
        flag = 2 if "dropout" in kind else 5 if re.search("(batch|instance)_norm", kind) else -1
        same = [alike(*map(fixed, of)) or kind in RECURRENT
                for i, of in enumerate(zip(ins, other.inputs())) if i != flag]
        always = flag > 0 and fixed(list(other.inputs())[flag]) is True and (
            fixed(ins[1]) != 0 if flag == 2 else ins[3].type().kind() != "NoneType")
        if not more or kind != other.kind() or not all(same) or always:
            return blamed(node, folder)[1]
        more.pop(0)
    return more and blamed(more[0], folder)[1]

def blamed(node, folder):
    """Return where a node was called, and the same or its module, for messages."""
    where = place([(a or c, b or d) for a, b, c, d in FRAME.findall(node.sourceRange())], folder)[-200:]
    return where, where or scope_of(node.scopeName()) or "the module"

def writes(node):
    """Say whether a node changes what it reads, itself or in its blocks."""
    return "!" in node.schema() or "batch_norm" in node.kind() or "instance_norm" in node.kind() or any(
        writes(inner) for block in node.blocks() for inner in block.nodes())

def scope_of(name):
    """Return the path of the module in which an operator was called."""
    return re.sub(r"^(__module\.)?module(\.|$)|^__module(\.|$)", "", name.split("/")[-1].split("::")[-1])

def pieces(value):
    """Yield a tensor's bytes, little-endian, few at a time."""
    if value.numel() * value.element_size() > PIECE:
        for part in value.chunk(2, [d for d in range(value.dim()) if value.shape[d] > 1][0]):
            yield from pieces(part)
    elif value.numel():
        value = value.cpu().contiguous()
        yield ctypes.string_at(value.data_ptr(), value.numel() * value.element_size())

def write(path, text, values):
    """Write the file whole or not at all."""
    header, at = {}, 0
    for name, x in values.items():
        end = at + x.numel() * x.element_size()
        header[name], at = {"dtype": DTYPES[x.dtype], "shape": list(x.shape), "data_offsets": [at, end]}, end
    front = json.dumps(header).encode()
    front += b" " * (-len(front) % 8)  # so that the data is aligned
    weights = itertools.chain((struct.pack("<Q", len(front)), front), *map(pieces, values.values()))
    handle, draft = tempfile.mkstemp(prefix=".millrace-", dir=os.path.dirname(os.path.abspath(path)))
    try:
        with os.fdopen(handle, "wb") as f:
            with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as z:
                for name, parts in (("graph.json", (text.encode(),)), ("weights.safetensors", weights)):
                    info = zipfile.ZipInfo(name)  # of 1980
                    info.create_system, info.external_attr = 3, 0o644 << 16
                    with z.open(info, "w", force_zip64=True) as out:
                        out.writelines(parts)
            os.fsync(f.fileno())
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise

def hooked(*_):
    raise Refused("a hook changes gradients (register_hook), and is not exported; leave it out")

def export(model, inputs, folder, loss, path, name):
    """Trace a module in training mode and write it; return what is to be said."""
    still = [(n, m) for n, m in model.named_modules() if model.training and not m.training]
    model.train()
    for _, m in still:
        m.training = False
    given = len(inputs)
    names = loss and names_of(model, given - 1) or names_of(model, given)
    if not names:
        raise Refused("forward of %s does not take %d inputs" % (type(model).__name__, given))
    check_inputs(inputs)
    for key, value, _, _ in walk(model):
        check_tensor(key, value)
        if value._backward_hooks:
            hooked()
    at = {id(x): x.data_ptr() for _, x, _, _ in walk(model)}
    before = {id(x): (x, x.detach().clone()) for _, x, buffer, _ in walk(model) if buffer}
    example = Example(model, loss, len(names), inputs)
    inputs = tuple(x.detach().clone() for x in example.inputs)  # each its own, for the trace goes by identity
    names += ["target"] * (len(inputs) - len(names))
    if len(inputs) < 2:
        raise Refused("there is one input; the last one is the target: give it, or --loss")
    graph = Graph(example, folder)
    graph.own(model, before)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        given_hook, torch.Tensor.register_hook = torch.Tensor.register_hook, hooked
        try:
            wider, traced = (torch.jit.trace(example, of, check_trace=False) for of in (tuple(
                torch.cat((x, x)) * 0.75 if x.is_floating_point() else torch.cat((x, x)) for x in inputs), inputs))
        finally:
            torch.Tensor.register_hook = given_hook
    graph.read(traced, wider)
    for key, value, buffer, _ in walk(model):
        if (value is not graph.live.get(key) or value.data_ptr() != at[id(value)]
                or buffer and graph.name_of[id(value)] not in graph.written and not alike(*before[id(value)])
                ) and not key.endswith("num_batches_tracked"):  # torch 1.8 replaces that one
            raise Refused("forward replaces %s; write into it, as in self.%s.copy_(...)" % (key, key.split(".")[-1]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            otherwise = strays(traced.inlined_graph, torch.jit.trace(
                example.eval(), inputs, check_trace=False).inlined_graph, folder)
    except Exception as why:  # what it returns in evaluation is no loss
        otherwise = "%s: %.200s" % (type(model).__name__, " ".join(str(why).split()))
    write(path, json.dumps({
        "version": 2, "torch": torch.__version__, "name": name, "rows": len(inputs[0]), "inputs": [
            {"name": n, "shape": list(x.shape), "dtype": DTYPES[x.dtype], "target": x is inputs[-1]}
            for n, x in zip(names, inputs)], "tensors": list(graph.tensors.values()), "aliases": graph.aliases,
        "nodes": graph.nodes, "outputs": [{"name": n, "of": v} for n, v in zip(example.names, graph.outputs)],
    }), graph.values)
    decided = {place([(w.filename, w.lineno)], folder) for w in warned if re.search(
        "Python|NumPy|Using len", str(w.message)) and issubclass(w.category, torch.jit.TracerWarning)} - {""}
    notes = ["%s: Python decides by a tensor: the file has the example's way alone" % at for at in sorted(decided)]
    notes += ["%s stays in evaluation mode, as it is given" % n for n, _ in still]
    notes += ["%s is not one number, and is left out" % n for n in example.left_out]
    notes += ["%s: in evaluation forward computes something else; evaluations compute what training does, without "
              "dropout and by the statistics of batch norms" % otherwise] * bool(otherwise)
    notes += ["the target is made to fit the outputs: %s of %s" % (list(x.shape), x.dtype) for x in inputs[given:]]
    trained = [graph.values[n].numel() for n, t in graph.tensors.items() if t["trained"]]
    return notes, "%s: %d operators, %d parameters in %d tensors, in %s" % (
        name, len(graph.nodes), sum(trained), len(trained), path)

def main(arguments=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("spec", metavar="SPEC.py:build", help="a file, and a function of it that returns (module, inputs)")
    p.add_argument("-o", "--output", required=True, metavar="MODEL", help="the file to write")
    p.add_argument("--loss", choices=("cross_entropy", "mse", "bce"), help="the mean loss of outputs; bce takes logits")
    p.add_argument("--name", help="what the model is called; default: the module's class")
    a = p.parse_args(arguments)
    try:
        if os.path.realpath(a.output) == os.path.realpath(a.spec.rpartition(":")[0]):
            raise Refused("-o %s: it would replace the file that it is made of" % a.output)
        model, inputs, folder = load(a.spec)
        notes, done = export(model, inputs, folder, a.loss, a.output, a.name or type(model).__name__)
    except (Exception, SystemExit) as why:  # what the user's code raises, too
        frames = [(f.filename, f.lineno) for f in reversed(traceback.extract_tb(why.__traceback__))]
        frames[:0] = [(why.filename, why.lineno)] if isinstance(why, SyntaxError) and why.filename else []
        text = str(why) if place(frames) else getattr(why, "strerror", str(why))
        said = place(frames) or "-o " + a.output, type(why).__name__, " ".join(str(text).split())[:400]
        print("millrace_export: %s" % (why if isinstance(why, Refused) else "%s: %s: %s" % said), file=sys.stderr)
        return 2
    sys.stderr.write("".join("note: %s\n" % note for note in notes))
    print(done)
    return 0

if __name__ == "__main__":
    sys.exit(main())
