#!/usr/bin/env python3
"""Write a PyTorch model to one file that millrace reads.

    python3 millrace_export.py SPEC.py:build -o MODEL [--loss cross_entropy|mse|bce]

build() returns (module, inputs). inputs is a tuple of example tensors whose first dimension is the batch.

Without --loss, the last input is the target, and module(*inputs) returns one of these: the mean loss; a tuple of the
loss and of numbers to report, or of dicts with such numbers by name; a dict with the key "loss".

With --loss, the module returns outputs, and the loss is added here. forward takes all inputs but the last, which is the
target. If forward needs all of them, a target that fits the outputs is made.

The module is traced in training mode, except for parts that build() sets to evaluation. That needs torch 1.8 or later,
and millrace_graph.py beside this file. MODEL is a zip archive: graph.json has the operators, and weights.safetensors
the parameters, buffers and constants by PyTorch's names. If something cannot be exported, one line says what and why,
and the exit code is 2.
"""
import argparse, contextlib, importlib.util, inspect, os, re, signal, sys, traceback, warnings

try:
    import torch, torch.utils.checkpoint
    from millrace_graph import Graph, Refused, alike, check_tensor, place, strays, walk
except ImportError as missing:
    debians = "/usr/bin/python3"
    other = ", as %s" % debians if os.path.exists(debians) and sys.executable != debians else ""
    print("millrace_export: %s; this is %s: give a Python with torch (Debian's%s, once make setup-pytorch has "
          "installed it), and keep millrace_graph.py beside this file" % (
              missing, sys.executable or "some Python", other), file=sys.stderr)
    sys.exit(2)

LOSSES = "cross_entropy", "mse", "bce"

def meant(path, module):
    """Return a hint for a name that is missing or wrong: functions of the file that take no arguments."""
    found = []
    for name, of in vars(module).items():
        if callable(of) and not isinstance(of, type) and hasattr(of, "__name__") and of.__module__ == module.__name__:
            needs = (p for p in inspect.signature(of).parameters.values() if p.default is p.empty)
            if all(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in needs):
                found.append("%s:%s" % (path, name))
    some = found[:5] + ["another of its %d" % len(found)] * (len(found) > 5)
    return "did you mean %s?" % " or ".join([", ".join(some[:-1])] * (len(some) > 1) + some[-1:]) if found else (
        "write one that takes no arguments: def build(), which returns a module and a tuple of example tensors")

def load(spec):
    """Return what the function of SPEC.py:build returns, and the folder of its file."""
    path, _, name = (spec, "", "") if os.path.isfile(spec) else spec.rpartition(":")
    folder, stem = os.path.dirname(os.path.abspath(path)), os.path.splitext(os.path.basename(path))[0]
    found = importlib.util.spec_from_file_location("_" + stem if stem in sys.modules else stem, path)
    if found is None or not os.path.isfile(path):
        raise Refused("%s: there is no such Python file; give a file and a function, as in model.py:build" % spec)
    sys.path.insert(0, folder)
    module = sys.modules[found.name] = importlib.util.module_from_spec(found)
    torch.manual_seed(0)
    # millrace's plan decides what is recomputed in a backward, so the trace must have each forward once only.
    torch.utils.checkpoint.CheckpointFunction.apply = staticmethod(lambda forward, keep, *inputs: forward(*inputs))
    found.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        said = "%s has no function %s" % (path, name) if name else "%s: no function of it is named" % path
        raise Refused("%s; %s" % (said, meant(path, module)))
    built = getattr(module, name)()
    if not isinstance(built, (tuple, list)) or len(built) != 2 or not isinstance(built[0], torch.nn.Module):
        raise Refused("%s returns a %s; give a pair: a module and a tuple of tensors" % (spec, type(built).__name__))
    model, inputs = built[0], built[1] if isinstance(built[1], (tuple, list)) else (built[1],)
    return getattr(model, "_orig_mod", model), tuple(inputs), folder  # _orig_mod: the module that torch.compile wraps

def check_inputs(inputs):
    """Refuse inputs that are not tensors with the same number of rows, at least 2."""
    for i, x in enumerate(inputs):
        if not isinstance(x, torch.Tensor):
            raise Refused("input %d is a %s; give tensors alone" % (i, type(x).__name__))
        check_tensor("input %d" % i, x)
        if x.dim() == 0 or len(x) < 2 or x.shape[0] != inputs[0].shape[0]:
            raise Refused("input %d has the shape %s, and the first one %s; the first dimension of each is the batch, "
                          "of 2 rows or more" % (i, list(x.shape), list(inputs[0].shape)))

def names_of(model, count):
    """Return the names of forward's first count inputs; None if it cannot be called with so many."""
    if isinstance(model, torch.jit.ScriptModule):
        return [a.name for a in model.forward.schema.arguments[1:count + 1]]
    try:
        bound = inspect.signature(model.forward).bind(*range(count)).arguments
    except TypeError:
        return None
    return [one for n, at in bound.items() for one in ([n] if isinstance(at, int) else ["%s%d" % (n, i) for i in at])]

class Example(torch.nn.Module):
    """A module with its loss, which returns a tuple of numbers; inputs has a target, made if there was none."""
    def __init__(self, module, loss, own, inputs):
        super().__init__()
        self.module, self.loss, self.own = module, loss, own  # own: how many inputs module takes
        self.switches = []  # a tensor for each switching of gradients on or off, added by watched()
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
            raise Refused("the module returns %s, where its mean loss should be; return that, or give --loss %s"
                          % (said, "|".join(LOSSES)))
        self.left_out = [left(*one) for i, one in enumerate(named) if i not in self.picked]
        self.names = []
        for i in self.picked[:]:
            if named[i][0] in self.names:
                self.picked.remove(i)
                self.left_out.append("another number is called %s too, and is left out; give each a name of its own"
                                     % named[i][0])
            else:
                self.names.append(named[i][0])

    def named(self, out, inputs):
        """Return the module's results as pairs of name and value, the loss first."""
        if self.loss:
            return [("loss", added(self.loss, first_of(out), inputs[-1]))]
        if isinstance(out, dict) and "loss" in out:
            return [("loss", out["loss"])] + [(str(k), v) for k, v in out.items() if k != "loss"]
        if isinstance(out, (tuple, list)) and out:
            each = zip(getattr(out, "_fields", ["output%d" % i for i in range(len(out))]), out)
            next(each)
            return [("loss", out[0])] + [(str(k), v) for name, x in each for k, v in (
                x.items() if isinstance(x, dict) else [(name, x)])]
        return [("loss", out)]

    def forward(self, *inputs):
        self.switches = []
        named = self.named(self.module(*inputs[:self.own]), inputs)
        numbers = [named[i][1].reshape(()) if named[i][1].dim() else named[i][1] for i in self.picked]
        return tuple(numbers + self.switches)

def left(name, x):
    """Return a note that a result is left out: what it is, and which result could be reported instead."""
    if isinstance(x, torch.Tensor):
        return "%s is a tensor of shape %s, and is left out; to report it return one number of it, as its mean()" % (
            name, list(x.shape))
    if isinstance(x, (dict, list, tuple)):
        return "%s is a %s, and is left out; to report what it has return (loss, {\"name\": number, ...})" % (
            name, type(x).__name__)
    if isinstance(x, (bool, int, float)):
        return "%s is %s, a number of Python, and is left out; to report it return a tensor, not its item()" % (name, x)
    return "%s is %s, and is left out" % (name, x if x is None else "a " + type(x).__name__)

def first_of(out):
    """Return the tensor among a module's outputs from which --loss computes the loss."""
    if isinstance(out, dict) and out:
        out = out.get("logits", next(iter(out.values())))
    while isinstance(out, (tuple, list)) and out:
        out = out[0]
    if not isinstance(out, torch.Tensor) or out.dim() == 0:
        raise Refused("the module returns %s; --loss is of a tensor with the batch in front"
                      % ("one number" if isinstance(out, torch.Tensor) else "a " + type(out).__name__))
    return out

def added(loss, out, target):
    """Return the mean loss of outputs that --loss asks for."""
    if loss != "cross_entropy" and out.shape != target.shape:  # PyTorch would broadcast one to the other
        raise Refused("--loss %s of outputs %s and a target %s; give the same shape to both"
                      % (loss, list(out.shape), list(target.shape)))
    of = torch.nn.functional
    return {"bce": of.binary_cross_entropy_with_logits, "mse": of.mse_loss}.get(loss, of.cross_entropy)(out, target)

def hooked(*_):
    raise Refused("a hook changes gradients (register_hook), and is not exported; leave it out")

@contextlib.contextmanager
def watched(example):
    """Make traces show where gradients are switched on and off, which torch leaves out; refuse gradient hooks."""
    hook, switch = torch.Tensor.register_hook, torch._C._set_grad_enabled

    def switched(on):
        switch(on)
        example.switches.append(torch.scalar_tensor(float(on)))
    torch.Tensor.register_hook, torch._C._set_grad_enabled = hooked, switched
    try:
        yield
    finally:
        torch.Tensor.register_hook, torch._C._set_grad_enabled = hook, switch

def check_modules(model):
    """Refuse PyTorch's modules that cannot be exported, and say what to use instead."""
    for name, m in model.named_modules():
        hooks = (type(hook).__name__ for hook in m._forward_pre_hooks.values())
        if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.training and m.momentum is None and (
                m.track_running_stats):
            raise Refused("%s has momentum=None: Python counts the batches, for the share of each in the statistics; "
                          "give it a momentum, as momentum=0.1, or call its eval()" % (name or "the module"))
        if "SpectralNorm" in hooks or type(m).__name__ == "_SpectralNorm" and m.training:
            raise Refused("%s has spectral_norm, whose power iteration writes its buffers by out=; leave it out, and "
                          "divide by torch.linalg.matrix_norm(weight, 2) in forward" % (name or "the module"))

def traced_wider(example, inputs, folder):
    """Trace a module with twice the rows. If only that fails, and not the given rows, the code assumes their number."""
    rows, wider = len(inputs[0]), (torch.cat((x, x)) for x in inputs)
    try:
        return torch.jit.trace(example, tuple(x * 0.75 if x.is_floating_point() else x for x in wider),
                               check_trace=False)
    except Refused:
        raise
    except Exception as why:
        torch.jit.trace(example, inputs, check_trace=False)  # raises errors that have nothing to do with the rows
        raise Refused("%s: with twice the rows (%d instead of %d): %s: %.400s; a size of the batch is written as a "
                      "number there, or before it: use x.shape[0]" % (place(frames_of(why), folder) or type(
                          example.module).__name__, 2 * rows, rows, type(why).__name__, " ".join(str(why).split())))

def frames_of(why):
    """Return file and line of each call in which an exception was raised, the innermost call first."""
    return [(f.filename, f.lineno) for f in reversed(traceback.extract_tb(why.__traceback__))]

def export(model, inputs, folder, loss, path, name):
    """Trace a module in training mode and write it; return notes for the user and a summary."""
    still = [(n, m) for n, m in model.named_modules() if model.training and not m.training]
    model.train()
    for _, m in still:
        m.training = False
    given = len(inputs)
    names = loss and names_of(model, given - 1) or names_of(model, given)
    if not names and not loss and given > 1 and names_of(model, given - 1):
        raise Refused("forward of %s takes %d of the %d inputs of build(): where the last one is the target of a loss "
                      "of its outputs, give --loss %s" % (type(model).__name__, given - 1, given, "|".join(LOSSES)))
    if not names:
        raise Refused("forward of %s does not take %d inputs" % (type(model).__name__, given))
    check_inputs(inputs)
    check_modules(model)
    for key, value, _, _ in walk(model):
        check_tensor(key, value)
        if value._backward_hooks:
            hooked()
    at = {id(x): x.data_ptr() for _, x, _, _ in walk(model)}
    before = {id(x): (x, x.detach().clone()) for _, x, buffer, _ in walk(model) if buffer}
    example = Example(model, loss, len(names), inputs)
    inputs = tuple(x.detach().clone() for x in example.inputs)  # copies: the trace tells inputs apart by identity
    names += ["target"] * (len(inputs) - len(names))
    if len(inputs) < 2:
        raise Refused("there is one input; the last one is the target: give it, or --loss")
    graph = Graph(example, folder)
    graph.own(model, before)
    with warnings.catch_warnings(record=True) as warned, watched(example):
        warnings.simplefilter("always")
        wider = traced_wider(example, inputs, folder)
        traced = torch.jit.trace(example, inputs, check_trace=False)
    graph.read(traced, wider)
    for key, value, buffer, _ in walk(model):
        if (value is not graph.live.get(key) or value.data_ptr() != at[id(value)]
                or buffer and graph.name_of[id(value)] not in graph.written and not alike(*before[id(value)])
                ) and not key.endswith("num_batches_tracked"):  # torch 1.8 replaces num_batches_tracked itself
            raise Refused("forward replaces %s; write into it, as in self.%s.copy_(...)" % (key, key.split(".")[-1]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            still_graph = torch.jit.trace(example.eval(), inputs, check_trace=False).inlined_graph
        graph.keep_modes(still_graph)
        otherwise = strays(traced.inlined_graph, still_graph, folder)
        otherwise = otherwise and otherwise + ": in evaluation forward computes something else"
    except Exception as why:
        otherwise = "in evaluation forward does not return its loss, as it does in training (%s: %.200s)" % (
            type(why).__name__, " ".join(str(why).split()))
    graph.write(path, name, inputs, names)
    decided = {place([(w.filename, w.lineno)], folder) for w in warned if re.search(
        "Python|NumPy|Using len", str(w.message)) and issubclass(w.category, torch.jit.TracerWarning)} - {""}
    notes = ["%s: Python decides by a tensor: the file has the example's way alone" % at for at in sorted(decided)]
    notes += ["%s stays in evaluation mode, as it is given" % n for n, _ in still]
    notes += example.left_out
    notes += ["%s; evaluations compute what training does, without dropout and by the statistics of batch norms"
              % otherwise] * bool(otherwise)
    notes += ["the target is made to fit the outputs: %s of %s" % (list(x.shape), x.dtype) for x in inputs[given:]]
    trained = [graph.values[n].numel() for n, t in graph.tensors.items() if t["trained"]]
    buffers = sum(t["role"] == "buffer" for t in graph.tensors.values())
    return notes, "%s: %d operators, %s parameters in %d tensors%s, in %s" % (name, len(graph.nodes), format(
        sum(trained), ","), len(trained), buffers and " and %d buffers" % buffers or "", path)

def main(arguments=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("spec", metavar="SPEC.py:build", help="a file, and a function of it that returns (module, inputs)")
    p.add_argument("-o", "--output", required=True, metavar="MODEL", help="the file to write")
    p.add_argument("--loss", choices=LOSSES, help="the mean loss of outputs; bce takes logits")
    p.add_argument("--name", help="what the model is called; default: the module's class")
    a = p.parse_args(arguments)
    try:
        if os.path.realpath(a.output) == os.path.realpath(a.spec.rpartition(":")[0]):
            raise Refused("-o %s: it would replace the file that it is made of" % a.output)
        model, inputs, folder = load(a.spec)
        notes, done = export(model, inputs, folder, a.loss, a.output, a.name or type(model).__name__)
    except (Exception, SystemExit) as why:  # including what the user's code raises
        frames = frames_of(why)
        frames[:0] = [(why.filename, why.lineno)] if isinstance(why, SyntaxError) and why.filename else []
        text = str(why) if place(frames) else getattr(why, "strerror", str(why))
        said = place(frames) or "-o " + a.output, type(why).__name__, " ".join(str(text).split())[:400]
        print("millrace_export: %s" % (why if isinstance(why, Refused) else "%s: %s: %s" % said), file=sys.stderr)
        return 2
    sys.stderr.write("".join("note: %s\n" % note for note in notes))
    print(done)
    return 0

def stopped(number, _):
    raise KeyboardInterrupt(number)  # on which write() removes its temporary file

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stopped)
    try:
        sys.exit(main())
    except KeyboardInterrupt as by:
        print("millrace_export: stopped by %s before it was done" % signal.Signals(by.args[0]).name, file=sys.stderr)
        sys.exit(128 + by.args[0])
