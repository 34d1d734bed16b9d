"""Reads operators and tensors from a trace, and writes the file of both, for millrace_export.py."""
import ctypes, functools, hashlib, itertools, json, os, re, struct, tempfile, zipfile

import torch

PIECE = 16 << 20  # the most bytes of a tensor that are copied at once
TYPES = [of.split() for of in (  # types of elements: the names in TorchScript, torch and safetensors
    "Double float64 F64, Float float32 F32, Half float16 F16, BFloat16 bfloat16 BF16, Long int64 I64, Int int32 I32, "
    "Short int16 I16, Char int8 I8, Byte uint8 U8, Bool bool BOOL").split(", ")]
SCALARS, DTYPES = {a: c for a, _, c in TYPES}, {getattr(torch, b): c for _, b, c in TYPES}
KINDS = {type(None): "none", bool: "bool", int: "int", float: "float", str: "string", torch.device: "device"}
NORMS = "aten::batch_norm", "aten::instance_norm"
RECURRENT = ["aten::" + of for of in ("lstm", "gru", "rnn_tanh", "rnn_relu")]
# A frame of a node's source is "path(line): function" in a trace and 'File "path", line 1, in function' in a script.
FRAME = re.compile(r'^(.+)\((\d+)\): |^ *File "(.+)", line (\d+)', re.M)
PYTHON = re.compile("<|%s|%s(?!(site|dist)-packages)" % tuple(  # files of Python or PyTorch
    re.escape(os.path.dirname(os.path.abspath(of.__file__)) + os.sep) for of in (torch, os)))
OURS = re.compile(re.escape(os.path.dirname(os.path.abspath(__file__)) + os.sep) + "millrace_(export|graph)[.]py")

class Refused(Exception):
    """An error that says what cannot be exported, and what would be right."""

def place(frames, folder=None):
    """Return file:line of the innermost frame of the user's code, else of another library's; "" if there is none."""
    inner = itertools.takewhile(lambda frame: not OURS.match(os.path.abspath(frame[0])), frames)
    found = sorted((f for f in inner if not PYTHON.match(f[0])), key=lambda frame: "-packages" + os.sep in frame[0])
    at = "%s:%s" % found[0] if found else ""
    return at[len(folder) + 1:] if folder and at.startswith(folder + os.sep) else at

def check_tensor(name, value):
    """Refuse a tensor whose elements cannot be written."""
    if type(value).__name__.startswith("Uninitialized"):
        raise Refused("%s has no shape yet; call the module once in build()" % name)
    if value.layout != torch.strided or value.device.type == "meta" or value.dtype not in DTYPES:
        raise Refused("%s is %s, %s, on %s; give a dense tensor of %s that has its elements"
                      % (name, value.layout, value.dtype, value.device, ", ".join(b for _, b, _ in TYPES)))

def walk(module, prefix=""):
    """Yield each parameter and buffer under each of its names: name, value, whether a buffer, whether not saved."""
    for buffer, table in enumerate((module._parameters, module._buffers)):
        for key, value in ((k, v) for k, v in table.items() if v is not None):
            yield prefix + key, value, bool(buffer), key in getattr(module, "_non_persistent_buffers_set", ())
    for key, child in ((k, m) for k, m in module._modules.items() if m is not None):
        yield from walk(child, prefix + key + ".")

def end_of(value):
    """Return the address behind a tensor's last element."""
    return value.data_ptr() + (1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride()))) * value.element_size()

class Graph:
    """The operators and tensors of a traced module, as they are written to the file."""
    def __init__(self, example, folder):
        self.example, self.folder, self.aliases, self.nodes, self.outputs = example, folder, [], [], []
        self.values, self.tensors = {}, {}  # by name: the elements, and their description in graph.json
        self.live, self.name_of = {}, {}  # the module's tensor by each name; the first name by the tensor's id
        self.number, self.literal, self.path, self.known, self.written = {}, {}, {}, {}, set()
        self.writers = []  # pairs of target() and written node of each operator that writes a buffer

    def own(self, module, before):
        """Keep a module's parameters as they are, and its buffers as they were before the trace."""
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
        """Keep a tensor that is no parameter or buffer; equal constants are kept once."""
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
        """Read a trace, and another with twice the rows, which shows the sizes that depend on the number of rows."""
        graph, more = traced.inlined_graph, (n for n in needed(wider.inlined_graph) if n.kind() != "prim::Constant")
        given, returned = list(graph.inputs()), list(graph.outputs())
        self.path[given[0].debugName()] = ""
        self.number = {v.debugName(): i for i, v in enumerate(given[1:])}
        for node in needed(graph):
            other = node if node.kind() == "prim::Constant" else next(more, node)  # equal constants are one
            if node.kind() != other.kind():
                raise Refused("%s: forward calls other operators with twice the rows; call the same for any number"
                              % blamed(node, self.folder)[1])
            self.add(node, other)
        returned = self.argument(returned[0]).get("list", [self.argument(v) for v in returned])
        self.outputs, switches = returned[:len(self.example.names)], returned[len(self.example.names):]
        self.nodes = list(self.without_gradient([x["value"] for x in switches]))

    def without_gradient(self, switches):
        """Yield the operators without Example.switches; mark what is computed while gradients are off as detached."""
        on = True
        for node in self.nodes:
            if node["out"] and node["out"][0]["value"] in switches:
                on = node["in"][0] != {"float": 0.0}
                continue
            if not on and re.search(r"[^_]_(\.|$)", node["op"]) and "detached" not in node["out"][0]:
                of, blame = node["in"][0].get("tensor"), node["where"] or node["scope"] or "the module"
                raise Refused("%s: %s changes under no_grad %s" % (blame, node["op"], (
                    "the parameter %s, which the optimizer alone changes; use what is calculated of it" % of if of else
                    "what has a gradient; write x = x + (y - x).detach(), where y is what x becomes")))
            for v in node["out"] if not on else ():
                v["detached"] = True
            yield node

    def keep_modes(self, still):
        """Mark operators that write buffers in evaluation too: norms with the batch's statistics, changes in place."""
        others = [(target(node), node) for node in needed(still) if target(node)]
        for written, node in self.writers:
            if others and others[0][0] == written:
                _, other = others.pop(0)
                if node["op"] not in NORMS or fixed(list(other.inputs())[5]) is True and "none" not in node["in"][3]:
                    node["always"] = True

    def write(self, path, name, inputs, names):
        """Write the file with the module's name and the names of its inputs, of which the last is the target."""
        write(path, json.dumps({
            "version": 2, "torch": torch.__version__, "name": name, "rows": len(inputs[0]), "inputs": [
                {"name": n, "shape": list(x.shape), "dtype": DTYPES[x.dtype], "target": x is inputs[-1]}
                for n, x in zip(names, inputs)], "tensors": list(self.tensors.values()), "aliases": self.aliases,
            "nodes": self.nodes, "outputs": [{"name": n, "of": v} for n, v in zip(self.example.names, self.outputs)],
        }), self.values)

    def add(self, node, other):
        """Add a node; those that it reads were added before. other is this node in the trace with twice the rows."""
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
            if target(node):
                self.writers.append((target(node), self.nodes[-1]))

    def argument(self, v):
        return self.literal.get(v.debugName()) or {"value": self.number[v.debugName()]}

    def value(self, x, where):
        """Return a constant in the form in which graph.json has it."""
        if isinstance(x, torch.Tensor):
            return self.constant(x, where)
        if isinstance(x, (list, tuple)):
            return {"list": [self.value(one, where) for one in x]}
        if type(x) in KINDS:
            x, kind = getattr(x, "type", x), KINDS[type(x)]  # a device is written as its type
            return {kind: True if x is None else str(x) if str(x) in ("inf", "-inf", "nan") else x}
        raise Refused("%s: a constant of the type %s; give numbers, words or tensors" % (where, type(x).__name__))

    def described(self, v, wider):
        """Number a value and describe its type and shape in the trace; wider is the value with twice the rows."""
        t, said = v.type(), {"value": self.number.setdefault(v.debugName(), len(self.number))}
        if t.kind() != "TensorType" or t.sizes() is None or t.scalarType() is None:
            return dict(said, type="Tensor" if t.kind() == "TensorType" else t.str())
        said.update({"double": wider.type().sizes()} if wider.type().sizes() != t.sizes() else ())
        if not v.requires_grad() and "::_" not in v.node().kind():  # aten::_convolution gets its flag only later
            said["detached"] = True
        return dict(said, type="Tensor", shape=t.sizes(), dtype=SCALARS.get(t.scalarType(), t.scalarType()))

def needed(graph, buffers=True):
    """Return the nodes that affect the outputs or, if buffers is true, a buffer, in order."""
    read, kept = {v.debugName() for v in graph.outputs()}, []
    for node in reversed(list(graph.nodes())):
        if not buffers and node.kind() not in NORMS and target(node):
            continue
        if writes(node) or any(v.debugName() in read for v in node.outputs()):
            read.update(v.debugName() for v in node.inputs())
            kept.append(node)
    return kept[::-1]

def root(v):
    """Return the value that owns the elements of a view or of a result written in place."""
    while "(a" in v.node().schema() or v.node().kind() == "prim::TupleUnpack":
        first = next(v.node().inputs())
        tuples = v.node().kind() == first.node().kind().replace("Construct", "Unpack") != first.node().kind()
        v = list(first.node().inputs())[v.offset()] if tuples else first
    return v

def target(node):
    """Return a key of an operator that writes a buffer: its kind, its module and the buffer; None if it writes none."""
    if node.kind() in NORMS:
        return node.kind(), node.scopeName()
    of = root(node.output()).node() if "!" in node.schema() else node
    return (node.kind(), node.scopeName(), of.s("name")) if of is not node and of.kind() == "prim::GetAttr" else None

def fixed(v):
    """Return the Python value of a constant; None for a value that is calculated."""
    return v.node().output().toIValue() if v.node().kind() == "prim::Constant" else None

def alike(x, y):
    """Say whether two constants are the same."""
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return str(x) == str(y)
    return x.shape == y.shape and x.dtype == y.dtype and all(a == b for a, b in zip(pieces(x), pieces(y)))

def strays(graph, still, folder):
    """Return where evaluation first differs from training, apart from dropout and batch norms; false if nowhere."""
    nodes, more = ([n for n in needed(of, False) if n.kind()[:6] == "aten::" and n.kind() != "aten::scalar_tensor"]
                   for of in (graph, still))
    for node in nodes:
        kind, other, ins = node.kind(), more[0] if more else node, list(node.inputs())
        if "dropout" in kind and (not more or kind != other.kind()):
            continue  # PyTorch's attention leaves its dropout out in evaluation
        flag = 2 if "dropout" in kind else 5 if kind in NORMS else -1
        same = [alike(*map(fixed, of)) or kind in RECURRENT
                for i, of in enumerate(zip(ins, other.inputs())) if i != flag]
        always = flag == 2 and fixed(list(other.inputs())[2]) is True and fixed(ins[1]) != 0
        if not more or kind != other.kind() or not all(same) or always:
            return blamed(node, folder)[1]
        more.pop(0)
    return more and blamed(more[0], folder)[1]

def blamed(node, folder):
    """Return file:line where a node was called, and for messages the same or else the name of its module."""
    where = place([(a or c, b or d) for a, b, c, d in FRAME.findall(node.sourceRange())], folder)[-200:]
    return where, where or scope_of(node.scopeName()) or "the module"

def writes(node):
    """Return whether a node, or one in its blocks, writes to its inputs."""
    return "!" in node.schema() or node.kind() in NORMS or any(
        writes(inner) for block in node.blocks() for inner in block.nodes())

def scope_of(name):
    """Return the path of the module in which an operator was called."""
    return re.sub(r"^(__module\.)?module(\.|$)|^__module(\.|$)", "", name.split("/")[-1].split("::")[-1])

def pieces(value):
    """Yield a tensor's bytes, little-endian, at most about PIECE at a time."""
    if value.numel() * value.element_size() > PIECE:
        for part in value.chunk(2, [d for d in range(value.dim()) if value.shape[d] > 1][0]):
            yield from pieces(part)
    elif value.numel():
        value = value.cpu().contiguous()
        yield ctypes.string_at(value.data_ptr(), value.numel() * value.element_size())

def write(path, text, values):
    """Write the file completely or not at all; make its folder if it does not exist."""
    header, at = {}, 0
    for name, x in values.items():
        end = at + x.numel() * x.element_size()
        header[name], at = {"dtype": DTYPES[x.dtype], "shape": list(x.shape), "data_offsets": [at, end]}, end
    front = json.dumps(header).encode()
    front += b" " * (-len(front) % 8)  # so that the data is aligned
    weights = itertools.chain((struct.pack("<Q", len(front)), front), *map(pieces, values.values()))
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    handle, draft = tempfile.mkstemp(prefix=".millrace-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as f:
            with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as z:
                for name, parts in (("graph.json", (text.encode(),)), ("weights.safetensors", weights)):
                    info = zipfile.ZipInfo(name)  # with the date 1980, so that equal models give equal files
                    info.create_system, info.external_attr = 3, 0o644 << 16
                    with z.open(info, "w", force_zip64=True) as out:
                        out.writelines(parts)
            os.fsync(f.fileno())
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
