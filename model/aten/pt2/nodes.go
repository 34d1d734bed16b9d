package pt2

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/model/aten"
)

// node converts a call of an operator.
func (b *builder) node(n node) error {
	if assertions[n.Target] && len(n.Out) == 0 {
		b.checks++
		return nil
	}
	args, kinds, err := b.arguments(n.In)
	if err != nil {
		return err
	}
	op, err := operator(n.Target, kinds)
	if err != nil {
		return err
	}
	call := aten.Node{Op: op, In: args, Scope: scopeOf(n.Meta.Modules), Where: whereOf(n.Meta.Stack)}
	if err := errors.Join(names.Check(op), names.Check(call.Scope), names.Check(call.Where)); err != nil {
		return err
	}
	if len(n.Out) == 0 {
		return fmt.Errorf("it yields nothing: only operators that yield a value are read; take it out of forward")
	}
	var unpack []aten.Node
	for i, u := range n.Out {
		v, taken, err := b.result(u)
		if err != nil {
			return fmt.Errorf("output %d: %w", i, err)
		}
		call.Out = append(call.Out, v)
		if len(taken) > 0 {
			unpack = append(unpack, aten.Node{Op: "prim::ListUnpack", In: []aten.Arg{{Kind: aten.FromValue, Value: v.ID}},
				Out: taken, Scope: call.Scope, Where: call.Where})
		}
	}
	b.graph.Nodes = append(append(b.graph.Nodes, call), unpack...)
	return nil
}

// result makes the value for a node's result. For a list it also makes the values into which the list is unpacked.
func (b *builder) result(u union) (v aten.Value, taken []aten.Value, err error) {
	switch u.kind {
	case "as_tensor":
		t, err := as[named](u)
		if err != nil {
			return v, nil, err
		}
		v, err = b.value(t.Name, "Tensor")
		return v, nil, err
	case "as_tensors":
		list, err := as[[]named](u)
		v = aten.Value{ID: b.values, Type: "Tensor[]"}
		b.values++
		for _, t := range list {
			one, err := b.value(t.Name, "Tensor")
			if err != nil {
				return v, nil, err
			}
			taken = append(taken, one)
		}
		return v, taken, err
	case "as_sym_int", "as_sym_float", "as_sym_bool":
		inner, err := as[union](u)
		if err != nil {
			return v, nil, err
		}
		if inner.kind != "as_name" {
			return v, nil, fmt.Errorf("%s has no name: %.80s", u.kind, u.body)
		}
		name, err := as[string](inner)
		if err != nil {
			return v, nil, err
		}
		v, err = b.value(name, strings.TrimPrefix(u.kind, "as_sym_"))
		return v, nil, err
	case "as_none": // an optional tensor that the operator does not return
		v = aten.Value{ID: b.values, Type: "Tensor"}
		b.values++
		return v, nil, nil
	}
	return v, nil, fmt.Errorf("it yields %.40q: tensors, lists of them, numbers of sizes and None are read", u.kind)
}

const maxArguments = 256 // arguments of a call; a list counts as one

// arguments converts a call's arguments, and returns the kind of each.
func (b *builder) arguments(list []given) ([]aten.Arg, []string, error) {
	if len(list) > maxArguments {
		return nil, nil, fmt.Errorf("it has %d arguments: at most %d", len(list), maxArguments)
	}
	args, kinds := make([]aten.Arg, 0, len(list)), make([]string, 0, len(list))
	byName := false
	for i, g := range list {
		arg, err := b.argument(g.Arg)
		if err != nil {
			return nil, nil, fmt.Errorf("argument %d, %.80s: %w", i, g.Name, err)
		}
		switch {
		case g.Kind < 0 || g.Kind > 2:
			return nil, nil, fmt.Errorf("argument %d, %.80s: its kind is %d: 1 by position or 2 by keyword", i, g.Name, g.Kind)
		case g.Kind != 1: // by keyword, or of unknown kind: then defaults before this argument may be missing
			byName = true
		case byName:
			return nil, nil, fmt.Errorf("argument %d, %.80s: it is by position, behind one by keyword", i, g.Name)
		}
		if byName {
			if arg.Name = g.Name; g.Name == "" {
				return nil, nil, fmt.Errorf("argument %d: it is by keyword and has no name", i)
			}
			if slices.ContainsFunc(args, func(a aten.Arg) bool { return a.Name == g.Name }) {
				return nil, nil, fmt.Errorf("argument %d: %.80s is given twice", i, g.Name)
			}
		}
		args, kinds = append(args, arg), append(kinds, numberKind(g.Arg.kind))
	}
	return args, kinds, nil
}

// numberKind returns which kind of number an argument is: "int", "float" or "bool"; "" if it is not a number.
func numberKind(kind string) string {
	switch rest := strings.TrimPrefix(strings.TrimPrefix(kind, "as_"), "sym_"); rest {
	case "int", "float", "bool":
		return rest
	}
	return ""
}

// assertions lists operators that check sizes and values and return nothing. They are left out, with a note.
var assertions = map[string]bool{
	"torch.ops.aten._assert_scalar.default":               true,
	"torch.ops.aten._assert_async.msg":                    true,
	"torch.ops.aten._assert_async.default":                true,
	"torch.ops.aten._assert_tensor_metadata.default":      true,
	"torch.ops.aten.sym_constrain_range.default":          true,
	"torch.ops.aten.sym_constrain_range_for_size.default": true,
}

// sizes maps operators on a tensor's sizes to their names in a trace.
var sizes = map[string]string{
	"torch.ops.aten.sym_size.int":               "aten::size.int",
	"torch.ops.aten.sym_size.default":           "aten::size",
	"torch.ops.aten.sym_stride.int":             "aten::stride.int",
	"torch.ops.aten.sym_numel.default":          "aten::numel",
	"torch.ops.aten.sym_storage_offset.default": "aten::storage_offset",
}

// numbers maps operators on Python numbers to their names in a trace. A name that ends with a dot needs an overload,
// which depends on the kinds of the arguments.
var numbers = map[string]string{
	"_operator.add": "aten::add.", "_operator.sub": "aten::sub.", "_operator.mul": "aten::mul.",
	"_operator.floordiv": "aten::floordiv.", "_operator.mod": "aten::remainder.", "_operator.truediv": "aten::div.",
	"_operator.pow": "aten::pow.", "_operator.neg": "aten::neg.", "_operator.eq": "aten::eq.",
	"_operator.ne": "aten::ne.", "_operator.lt": "aten::lt.", "_operator.le": "aten::le.", "_operator.gt": "aten::gt.",
	"_operator.ge": "aten::ge.", "_operator.and_": "aten::__and__.", "_operator.or_": "aten::__or__.",
	"torch.sym_max": "prim::max.", "torch.sym_min": "prim::min.", "torch.sym_not": "aten::__not__",
	"torch.sym_int": "aten::Int.Scalar", "torch.sym_float": "aten::Float.Scalar", "math.trunc": "aten::Int.Scalar",
}

// decomposed lists operators that return new values of buffers. They only occur in decomposed graphs, which are
// refused.
var decomposed = []string{"_native_batch_norm_legit", "_native_batch_norm_legit_functional", "native_batch_norm",
	"_batch_norm_with_update", "_batch_norm_with_update_functional", "cudnn_batch_norm", "miopen_batch_norm"}

// operator returns the name that a target has in a trace.
func operator(target string, kinds []string) (string, error) {
	if name := sizes[target]; name != "" {
		return name, nil
	}
	if name := numbers[target]; name != "" {
		return overload(name, kinds)
	}
	rest, ok := strings.CutPrefix(target, "torch.ops.")
	parts := strings.Split(rest, ".")
	if ok && parts[0] == "higher_order" {
		return "", fmt.Errorf("it calls inner graphs: control flow (cond, while_loop), checkpoint, or a block under " +
			"no_grad, set_grad_enabled or autocast inside forward; write forward without it")
	}
	if !ok || len(parts) != 3 || !plainName.MatchString(rest) {
		return "", fmt.Errorf("the target is unknown: torch.ops.NAMESPACE.NAME.OVERLOAD and Python's arithmetic are read")
	}
	if parts[0] == "aten" && slices.Contains(decomposed, parts[1]) {
		return "", fmt.Errorf("the graph is decomposed, so its batch norm does not train as written: save what " +
			"torch.export.export returns, before run_decompositions")
	}
	name := parts[0] + "::" + parts[1]
	if parts[2] != "default" {
		name += "." + parts[2]
	}
	return name, nil
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$`)

func overload(name string, kinds []string) (string, error) {
	for i, k := range kinds {
		if k == "" {
			return "", fmt.Errorf("argument %d is no number", i)
		}
	}
	if len(kinds) == 0 || len(kinds) > 2 {
		return "", fmt.Errorf("it has %d arguments", len(kinds))
	}
	if !strings.HasSuffix(name, ".") {
		return name, nil
	}
	if len(kinds) == 1 || kinds[0] == kinds[1] {
		return name + kinds[0], nil
	}
	return name + kinds[0] + "_" + kinds[1], nil
}

// scopeOf returns the innermost module of a stack: "layer1.0.conv1".
func scopeOf(stack string) string {
	entries := strings.Split(stack, ";")
	parts := strings.SplitN(entries[len(entries)-1], ",", 3)
	if len(parts) < 2 {
		return ""
	}
	scope := strings.TrimPrefix(parts[1], "L['self']")
	scope = again.ReplaceAllString(subscript.ReplaceAllString(scope, ".$1"), "")
	return strings.TrimPrefix(strings.ReplaceAll(scope, "._modules.", "."), ".")
}

var (
	subscript = regexp.MustCompile(`\[['"]?([^\]'"]*)['"]?\]`) // _modules['0']
	again     = regexp.MustCompile(`@[0-9]+`)                  // the suffix of a module's second call: "@1"
	frame     = regexp.MustCompile(`File "([^"\n]+)", line ([0-9]+)`)
)

// whereOf returns the innermost line of the user's code in a stack of calls: "model.py:31".
func whereOf(stack string) string {
	frames := frame.FindAllStringSubmatch(stack, -1)
	if len(frames) == 0 {
		return ""
	}
	last := frames[len(frames)-1]
	for _, f := range slices.Backward(frames) {
		if !strings.Contains(f[1], "-packages/torch/") { // site-packages, dist-packages
			last = f
			break
		}
	}
	return path.Base(last[1]) + ":" + last[2]
}
