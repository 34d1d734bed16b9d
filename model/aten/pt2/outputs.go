package pt2

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/model/aten"
)

// returned is one of the values that the module returns.
type returned struct {
	name string
	arg  aten.Arg
	meta tensorMeta
	loss bool // the file marks it as the loss
}

// outputs converts what the graph returns, and finds the loss.
func (b *builder) outputs() error {
	from, specs := b.program.Module.Graph.Outputs, b.program.Module.Signature.Outputs
	if len(from) != len(specs) {
		return fmt.Errorf("the graph has %d outputs, and signature.output_specs %d", len(from), len(specs))
	}
	count := 0
	for _, u := range specs {
		if u.kind == "user_output" || u.kind == "loss_output" {
			count++
		}
	}
	called, whole := b.outputNames(count)
	var all []returned
	at := 0
	for i, u := range specs {
		s, err := as[spec](u)
		if err != nil {
			return fmt.Errorf("output_specs[%d]: %w", i, err)
		}
		name := ""
		if u.kind == "user_output" || u.kind == "loss_output" {
			name = called[at]
			at++
		}
		r, err := b.output(u.kind, s, from[i], name)
		if err != nil {
			return fmt.Errorf("output_specs[%d]: %w", i, err)
		}
		if r != nil {
			all = append(all, *r)
		}
	}
	return b.chooseLoss(all, whole)
}

// output converts one output of the graph. If the output is no tensor, or if the module itself does not return it,
// output returns nil.
func (b *builder) output(kind string, s spec, from union, name string) (*returned, error) {
	arg := union{kind: "as_tensor", body: s.Arg}
	switch kind {
	case "user_output":
		var err error
		if arg, err = as[union](union{"arg", s.Arg}); err != nil {
			return nil, err
		}
	case "loss_output", "buffer_mutation":
	case "parameter_mutation", "user_input_mutation":
		return nil, fmt.Errorf("forward writes to a parameter or an input (%s of %.80s): write to a copy of it", kind, s.Arg)
	case "gradient_to_parameter", "gradient_to_user_input":
		return nil, fmt.Errorf("the graph has its own backward (%s): export the module's forward alone", kind)
	case "token":
		return nil, fmt.Errorf("a token orders operators with effects: only tensors are read; take those operators out " +
			"of forward")
	default:
		return nil, fmt.Errorf("an output of the kind %.40q: user_output, loss_output and buffer_mutation are known", kind)
	}
	if arg.kind != from.kind {
		return nil, fmt.Errorf("it is %.40s, and the graph's output there %.40s", arg.kind, from.kind)
	}
	if arg.kind != "as_tensor" {
		b.note("the output %s is no tensor (%s), and is left out", name, arg.kind)
		return nil, nil
	}
	tensor, err := as[named](arg)
	if err != nil {
		return nil, err
	}
	if given, err := as[named](from); err != nil || given != tensor {
		return nil, fmt.Errorf("it is of %.80q, and the graph's output there is %.80s", tensor.Name, from.body)
	}
	value, err := b.find(tensor.Name, "Tensor")
	if err != nil {
		return nil, err
	}
	if kind == "buffer_mutation" {
		return nil, b.mutate(s.Buffer, value)
	}
	return &returned{name, value, b.program.Module.Graph.Tensors[tensor.Name], kind == "loss_output"}, nil
}

// mutate adds a node at the end of the graph. The node writes a buffer's new value.
func (b *builder) mutate(buffer string, value aten.Arg) error {
	if owner := b.graph.Aliases[buffer]; owner != "" {
		buffer = owner
	}
	t, ok := b.tensors[buffer]
	if !ok || t.Role != aten.Buffer {
		return fmt.Errorf("buffer_mutation is of %.80q, which is no buffer of the module", buffer)
	}
	v := aten.Value{ID: b.values, Type: "Tensor", Shape: t.Shape, DType: t.DType}
	b.values++
	b.graph.Nodes = append(b.graph.Nodes, aten.Node{Op: "aten::copy_", Out: []aten.Value{v},
		In: []aten.Arg{{Kind: aten.FromTensor, Tensor: buffer}, value}})
	return nil
}

// chooseLoss divides what the module returns into a loss and numbers to report. If there is no loss, it keeps
// everything.
func (b *builder) chooseLoss(all []returned, whole bool) error {
	seen := map[string]bool{}
	for _, r := range all {
		if err := names.Check(r.name); err != nil {
			return fmt.Errorf("an output: %w", err)
		}
		if seen[r.name] {
			return fmt.Errorf("two outputs are named %s: name them apart", r.name)
		}
		seen[r.name] = true
	}
	if len(all) == 0 {
		return fmt.Errorf("the module returns no tensor: it returns its mean loss, or outputs to add a loss to")
	}
	at := slices.IndexFunc(all, func(r returned) bool { return r.loss })
	if at < 0 {
		at = slices.IndexFunc(all, func(r returned) bool { return r.name == "loss" })
	}
	if at < 0 && whole { // not for a dict: its loss must have the key "loss"
		at = 0
	}
	if at < 0 || !all[at].isLoss() {
		b.graph.NoLoss = true
		for _, r := range all {
			b.graph.Outputs = append(b.graph.Outputs, aten.Output{Name: r.name, Arg: r.arg})
		}
		return nil
	}
	if len(b.graph.Inputs) < 2 {
		return fmt.Errorf("the module returns a loss and has one input, %s: the last input is the target, and there is "+
			"another in front of it", b.graph.Inputs[0].Name)
	}
	b.graph.Inputs[len(b.graph.Inputs)-1].Target = true
	if seen["loss"] && all[at].name != "loss" {
		return fmt.Errorf("the output loss is not the one that the file says is the loss, %s: name them apart", all[at].name)
	}
	b.graph.Outputs = []aten.Output{{Name: "loss", Arg: b.scalar(all[at])}}
	for i, r := range all {
		if i == at {
			continue
		}
		if !r.isNumber() {
			b.note("the output %s%s is not one number, and is left out", r.name, r.shape())
			continue
		}
		b.graph.Outputs = append(b.graph.Outputs, aten.Output{Name: r.name, Arg: r.arg})
	}
	return nil
}

// scalar returns a loss without dimensions. If the loss has dimensions, it adds a node that reshapes it.
func (b *builder) scalar(loss returned) aten.Arg {
	if len(loss.meta.Sizes) == 0 {
		return loss.arg
	}
	k, _ := findKind(loss.meta.DType) // isLoss has checked it
	v := aten.Value{ID: b.values, Type: "Tensor", Shape: []int64{}, DType: k.dtype}
	b.values++
	b.graph.Nodes = append(b.graph.Nodes, aten.Node{Op: "aten::reshape", Out: []aten.Value{v},
		In: []aten.Arg{loss.arg, {Kind: aten.List, List: []aten.Arg{}}}})
	return aten.Arg{Kind: aten.FromValue, Value: v.ID}
}

// shape describes a tensor's shape for a message; "" if it is unknown or has no dimensions.
func (r returned) shape() string {
	shape, _, err := shapeOf(r.meta.Sizes)
	if err != nil || len(shape) == 0 {
		return ""
	}
	return fmt.Sprintf(", a tensor of shape %v,", shape)
}

// isNumber says whether an output has one element.
func (r returned) isNumber() bool {
	shape, _, err := shapeOf(r.meta.Sizes)
	if err != nil || shape == nil {
		return false
	}
	count, err := countOf(shape)
	return err == nil && count == 1
}

// isLoss says whether an output is one real number of the graph, which may be a loss.
func (r returned) isLoss() bool {
	k, err := findKind(r.meta.DType)
	return err == nil && r.isNumber() && k.float() && r.arg.Kind == aten.FromValue
}

// tree is the nesting of a module's outputs, in the format of torch.utils._pytree.
type tree struct {
	Type     *string         `json:"type"`
	Context  json.RawMessage `json:"context"`
	Children []tree          `json:"children_spec"`
}

// outputNames returns a name for each of the `count` tensors that the module returns. The names are those in the
// module's dict or named tuple. Tensors without a name there are called output0, output1 and so on. The result `first`
// is for the case that no tensor is called "loss": it says whether the first tensor may be the loss. For a dict,
// `first` is false.
func (b *builder) outputNames(count int) (all []string, first bool) {
	for i := range count {
		all = append(all, fmt.Sprintf("output%d", i))
	}
	for _, call := range b.program.Module.Calls {
		if call.Path != "" || call.Signature == nil {
			continue
		}
		var parts []json.RawMessage // a version, and the tree
		var t tree
		if json.Unmarshal([]byte(call.Signature.Out), &parts) != nil || len(parts) != 2 ||
			json.Unmarshal(parts[1], &t) != nil {
			continue
		}
		if found := b.leaves(nil, "", t); len(found) == count {
			for i, name := range found {
				if name != "" {
					all[i] = name
				}
			}
			return all, t.Type == nil || !isDict(*t.Type)
		}
	}
	return all, true
}

// leaves collects the names of a tree's leaves, "" for a leaf without a name.
func (b *builder) leaves(to []string, name string, t tree) []string {
	if t.Type == nil {
		return append(to, name)
	}
	var keys []string
	context := []byte(t.Context)
	var text string
	if json.Unmarshal(context, &text) == nil {
		context = []byte(text) // torch writes the JSON as a string
	}
	switch {
	case isDict(*t.Type):
		keys = keysOf(context)
	case strings.HasSuffix(*t.Type, "namedtuple"):
		var of string
		if json.Unmarshal(context, &of) != nil {
			of = text
		}
		keys = b.program.Module.Tuples[of].Fields
	}
	for i, child := range t.Children {
		inner := name
		if len(keys) == len(t.Children) {
			inner = strings.TrimPrefix(name+"."+keys[i], ".")
		} else if name != "" {
			inner = fmt.Sprintf("%s.%d", name, i)
		}
		to = b.leaves(to, inner, child)
	}
	return to
}

// isDict says whether a type's values have keys: builtins.dict, collections.OrderedDict.
func isDict(name string) bool { return strings.HasSuffix(strings.ToLower(name), "dict") }

// keysOf returns a dict's keys, or nil if they are not all strings.
func keysOf(context []byte) []string {
	var keys []string
	if json.Unmarshal(context, &keys) != nil {
		return nil
	}
	return keys
}
