package pt2

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/model/aten"
)

// builder makes a Graph from a program.
type builder struct {
	program *program
	weights *weights
	graph   aten.Graph
	symbol  string                 // the program's symbol for the number of rows: "s77"; empty if the number is fixed
	named   map[string]known       // the meaning of names in the program's graph
	tensors map[string]aten.Tensor // the Graph's tensors, by name
	values  int                    // number of values so far
	checks  int                    // number of assertions left out
}

// known is what a name in the program's graph refers to.
type known struct {
	arg  aten.Arg
	kind string // "Tensor", "int", "float", "bool"
}

func newBuilder(a *archive, p *program) (*builder, error) {
	w, err := newWeights(a)
	return &builder{program: p, weights: w, named: map[string]known{}, tensors: map[string]aten.Tensor{},
		graph: aten.Graph{Aliases: map[string]string{}}}, err
}

func (b *builder) build() error {
	if err := b.inputs(); err != nil {
		return err
	}
	if err := b.weights.checkOverlaps(); err != nil {
		return err
	}
	others, unused := b.weights.rest(b.tensors)
	for _, name := range others {
		b.graph.Aliases[name] = b.weights.owner[name]
	}
	if len(unused) > 0 {
		b.note("%d tensors that the graph does not have are left out: %s", len(unused), shortened(unused))
	}
	for i, n := range b.program.Module.Graph.Nodes {
		if err := b.node(n); err != nil {
			return fmt.Errorf("node %d, %.80s%s: %w", i, n.Target, place(n.Meta), err)
		}
	}
	if b.checks > 0 {
		b.note("%d assertions of the graph are left out", b.checks)
	}
	return b.outputs()
}

// note adds a text to the graph's notes, which tell the user what was left out.
func (b *builder) note(format string, args ...any) {
	b.graph.Notes = append(b.graph.Notes, fmt.Sprintf(format, args...))
}

// shortened lists at most five of the names.
func shortened(all []string) string {
	if len(all) > 5 {
		all = append(slices.Clone(all[:5]), "...")
	}
	return names.Shown(strings.Join(all, ", "))
}

// place describes where a node comes from in the user's code.
func place(m metadata) string {
	if where := whereOf(m.Stack); where != "" {
		return " (" + where + ")"
	}
	return ""
}

// define records the meaning of a name.
func (b *builder) define(name string, k known) error {
	if name == "" {
		return fmt.Errorf("a value has no name")
	}
	if err := names.Check(name); err != nil {
		return err
	}
	if _, twice := b.named[name]; twice {
		return fmt.Errorf("%s is made twice", name)
	}
	b.named[name] = k
	return nil
}

// find returns the argument that a name refers to. It must be of the given kind.
func (b *builder) find(name, kind string) (aten.Arg, error) {
	k, ok := b.named[name]
	if !ok {
		return aten.Arg{}, fmt.Errorf("it reads %.80q, which nothing before it yields", name)
	}
	if k.kind != kind {
		return aten.Arg{}, fmt.Errorf("it reads %s as a %s, and that is a %s", name, kind, k.kind)
	}
	return k.arg, nil
}

// value makes a value with a name.
func (b *builder) value(name, kind string) (aten.Value, error) {
	v := aten.Value{ID: b.values, Type: kind}
	b.values++
	if kind == "Tensor" {
		meta, ok := b.program.Module.Graph.Tensors[name]
		if !ok {
			return v, fmt.Errorf("tensor_values does not have %q", name)
		}
		k, err := findKind(meta.DType)
		if err != nil {
			return v, fmt.Errorf("%s: %w", name, err)
		}
		v.DType = k.dtype
		var symbols []string
		if v.Shape, symbols, err = shapeOf(meta.Sizes); err != nil {
			return v, fmt.Errorf("%s: %w", name, err)
		}
		v.Double = b.double(v.Shape, symbols)
	}
	return v, b.define(name, known{aten.Arg{Kind: aten.FromValue, Value: v.ID}, kind})
}

// double returns a shape with twice the rows; nil if that is unknown.
func (b *builder) double(shape []int64, symbols []string) []int64 {
	if b.symbol == "" {
		return nil // no symbol says which sizes are the number of rows
	}
	twice := slices.Clone(shape)
	for i, symbol := range symbols {
		per, _, product := strings.Cut(strings.ReplaceAll(symbol, " ", ""), "*"+b.symbol)
		switch {
		case symbol == "":
		case shape == nil || shape[i]%b.graph.Rows != 0:
			return nil
		case symbol != b.symbol && (!product || fmt.Sprint(shape[i]/b.graph.Rows) != per):
			return nil
		default:
			twice[i] *= 2
		}
	}
	return twice
}

// inputs converts parameters, buffers, constants and the inputs from a batch.
func (b *builder) inputs() error {
	from, specs := b.program.Module.Graph.Inputs, b.program.Module.Signature.Inputs
	if len(from) != len(specs) {
		return fmt.Errorf("the graph has %d inputs, and signature.input_specs %d", len(from), len(specs))
	}
	for i, u := range specs {
		s, err := as[spec](u)
		if err != nil {
			return fmt.Errorf("input_specs[%d]: %w", i, err)
		}
		if err := b.input(u.kind, s, from[i]); err != nil {
			return fmt.Errorf("input_specs[%d]: %w", i, err)
		}
	}
	if len(b.graph.Inputs) == 0 {
		return fmt.Errorf("the module takes no tensors: forward has at least an input")
	}
	b.nameInputs()
	return nil
}

func (b *builder) input(kind string, s spec, from union) error {
	switch kind {
	case "parameter", "buffer", "tensor_constant", "user_input":
	case "custom_obj":
		return fmt.Errorf("%s is a custom object: only tensors are read; keep it out of the module", s.Object)
	case "token":
		return fmt.Errorf("a token orders operators with effects: only tensors are read; take those operators out of " +
			"forward")
	case "constant_input":
		return fmt.Errorf("the input %s is no tensor but %.80s (%s): leave it out of the example, and give it a default or "+
			"make it an attribute of the module", s.Name, s.Value.body, s.Value.kind)
	default:
		return fmt.Errorf("an input of the kind %.40q: parameter, buffer, tensor_constant and user_input are known", kind)
	}
	var arg named
	var err error
	if kind == "user_input" {
		var u union
		if u, err = as[union](union{"arg", s.Arg}); err != nil {
			return err
		}
		if u.kind != "as_tensor" {
			return fmt.Errorf("the input %.80s is no tensor (%.40s): leave it out of the example, and give it a default or "+
				"make it an attribute of the module", u.body, u.kind)
		}
		arg, err = as[named](u)
	} else {
		arg, err = as[named](union{"arg", s.Arg})
	}
	if err != nil {
		return err
	}
	given, err := as[named](from)
	if from.kind != "as_tensor" || err != nil || given.Name != arg.Name {
		return fmt.Errorf("it is of %.80q, and the graph's input there is %.40s %.80s", arg.Name, from.kind,
			from.body)
	}
	switch kind {
	case "parameter":
		return b.tensor(arg.Name, aten.Tensor{Name: s.Parameter, Role: aten.Parameter})
	case "buffer":
		unsaved := s.Persistent != nil && !*s.Persistent
		return b.tensor(arg.Name, aten.Tensor{Name: s.Buffer, Role: aten.Buffer, Unsaved: unsaved})
	case "tensor_constant":
		return b.tensor(arg.Name, aten.Tensor{Name: s.Constant, Role: aten.Constant})
	}
	return b.userInput(arg.Name)
}

// tensor converts one of the module's own tensors.
func (b *builder) tensor(value string, t aten.Tensor) error {
	name := t.Name
	if name == "" {
		return fmt.Errorf("%s has no name in the module", value)
	}
	if err := names.Check(name); err != nil {
		return err
	}
	if _, twice := b.tensors[name]; twice || b.graph.Aliases[name] != "" {
		return fmt.Errorf("the tensor %s is there twice", name)
	}
	s, owner, err := b.weights.take(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	meta, ok := b.program.Module.Graph.Tensors[value]
	if !ok {
		return fmt.Errorf("%s: tensor_values does not have %q", name, value)
	}
	shape, _, err := shapeOf(meta.Sizes)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if meta.DType != s.kind.serial || fmt.Sprint(shape) != fmt.Sprint(s.shape) {
		return fmt.Errorf("%s: its elements are %s %v, and tensor_values has %v of type number %d", name, s.kind.dtype,
			s.shape, shape, meta.DType)
	}
	if owner != "" {
		if b.tensors[owner].Role != t.Role {
			return fmt.Errorf("%s and %s share their elements, and only one is a parameter or buffer: clone() one", owner,
				name)
		}
		if t.Role != aten.Constant {
			b.graph.Aliases[name] = owner
		}
		return b.define(value, known{aten.Arg{Kind: aten.FromTensor, Tensor: owner}, "Tensor"})
	}
	t.Shape, t.DType, t.Trained = s.shape, s.kind.dtype, t.Role == aten.Parameter && s.trained && s.kind.float()
	b.tensors[name] = t
	b.graph.Tensors = append(b.graph.Tensors, t)
	return b.define(value, known{aten.Arg{Kind: aten.FromTensor, Tensor: name}, "Tensor"})
}

// userInput converts a tensor that comes from a batch.
func (b *builder) userInput(name string) error {
	v, err := b.value(name, "Tensor")
	if err != nil {
		return err
	}
	_, symbols, err := shapeOf(b.program.Module.Graph.Tensors[name].Sizes)
	if err != nil {
		return err
	}
	if v.Shape == nil {
		return fmt.Errorf("the input %s has sizes without a hint (%.80v): export with example inputs", name, symbols)
	}
	if len(v.Shape) == 0 {
		return fmt.Errorf("the input %s is one number: the first dimension of each input is the batch", name)
	}
	if v.Shape[0] < 1 {
		return fmt.Errorf("the input %s has %d rows: export with 2 or more", name, v.Shape[0])
	}
	if len(b.graph.Inputs) == 0 {
		b.graph.Rows, b.symbol = v.Shape[0], symbols[0]
		if err := b.limits(); err != nil {
			return err
		}
	} else if v.Shape[0] != b.graph.Rows || symbols[0] != b.symbol {
		return fmt.Errorf("the input %s has %s rows, and %s has %s: the first dimension of each input is the batch, by "+
			"one torch.export.Dim", name, rows(v.Shape[0], symbols[0]), b.graph.Inputs[0].Name,
			rows(b.graph.Rows, b.symbol))
	}
	b.graph.Inputs = append(b.graph.Inputs, aten.Input{Name: name, Shape: v.Shape, DType: v.DType, Value: v.ID})
	return nil
}

// limits finds the numbers of rows for which the graph is valid.
func (b *builder) limits() error {
	g := &b.graph
	if b.symbol == "" {
		g.Least, g.Most = g.Rows, g.Rows
		return nil
	}
	g.Least, g.Most = 1, 0
	r := b.program.Ranges[b.symbol]
	if r.Min.value != nil {
		g.Least = max(1, *r.Min.value)
	}
	if r.Max.value != nil {
		g.Most = *r.Max.value
	}
	if g.Rows < g.Least {
		return fmt.Errorf("the example has %d rows, and range_constraints has %.40s from %d", g.Rows, b.symbol, g.Least)
	}
	if r.Max.value != nil && g.Rows > *r.Max.value {
		return fmt.Errorf("the example has %d rows, and range_constraints has %.40s to %d", g.Rows, b.symbol, *r.Max.value)
	}
	return nil
}

func rows(count int64, symbol string) string {
	if symbol == "" {
		return fmt.Sprint("always ", count)
	}
	return fmt.Sprintf("%.80s (%d)", symbol, count)
}

// nameInputs gives inputs their names in the module's forward, if the file has them.
func (b *builder) nameInputs() {
	for _, call := range b.program.Module.Calls {
		if call.Path != "" || call.Signature == nil || len(call.Signature.Names) != len(b.graph.Inputs) {
			continue
		}
		sorted := slices.Sorted(slices.Values(call.Signature.Names))
		if sorted[0] == "" || len(slices.Compact(sorted)) != len(b.graph.Inputs) ||
			slices.ContainsFunc(sorted, func(name string) bool { return names.Check(name) != nil }) {
			continue
		}
		for i, name := range call.Signature.Names {
			b.graph.Inputs[i].Name = name
		}
	}
}
