package imported

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/model/aten"
	"github.com/millrace-ml/millrace/model/aten/rules"
)

// builder makes a model from a network.
type builder struct {
	net     *rules.Network
	m       *model.Model
	tensors map[string]*aten.Tensor
	ranges  map[int][]rules.Range // ranges of inputs, by value
	held    map[string]bool       // tensors that an earlier layer holds
	also    map[string][]string   // by tensor: its other names
	makers  map[int]string        // for each value: the input or the layer that makes it
	yields  map[string][]int      // for each input or layer: its values, in order
}

// kind is the kind of layers that package nn computes from a rules.Program.
const kind = "aten"

func (b *builder) model() (*model.Model, error) {
	g := b.net.Graph
	b.m = &model.Model{Name: g.Name}
	for i := range g.Tensors {
		b.tensors[g.Tensors[i].Name] = &g.Tensors[i]
	}
	for _, name := range slices.Sorted(maps.Keys(g.Aliases)) {
		b.also[g.Aliases[name]] = append(b.also[g.Aliases[name]], name)
	}
	taken := map[string]bool{}
	for _, in := range g.Inputs {
		dtype, err := element(in.DType, in.Shape)
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", in.Name, err)
		}
		t := model.Tensor{Name: in.Name, Shape: ints(in.Shape[1:]), DType: dtype}
		for _, r := range b.ranges[in.Value] {
			t.Ranges = append(t.Ranges, model.Range(r))
		}
		b.m.Inputs = append(b.m.Inputs, t)
		b.makes(in.Name, in.Value)
		taken[in.Name] = true
	}
	for i := range b.net.Layers {
		if err := b.layer(i, taken); err != nil {
			return nil, fmt.Errorf("layer %s: %w", b.net.Layers[i].Name, err)
		}
	}
	if err := b.rest(); err != nil {
		return nil, err
	}
	return b.m, b.m.Check()
}

func (b *builder) makes(name string, values ...int) {
	b.yields[name] = append(b.yields[name], values...)
	for _, v := range values {
		b.makers[v] = name
	}
}

func (b *builder) layer(at int, taken map[string]bool) error {
	of := &b.net.Layers[at]
	l := model.Layer{
		Name: free(of.Name, taken), Kind: kind, ForwardFLOPs: of.ForwardFLOPs, InputFLOPs: of.InputFLOPs,
		WeightFLOPs: of.WeightFLOPs, SavedBytes: of.SavedBytes,
	}
	var reads []int
	for _, v := range of.In {
		if from := b.makers[v]; !slices.Contains(l.From, from) {
			l.From = append(l.From, from)
			reads = append(reads, b.yields[from]...)
		}
	}
	p, err := b.net.Program(at, reads)
	if err != nil {
		return err
	}
	l.Attr = map[string]any{"program": p}
	for _, h := range of.Tensors {
		if err := b.hold(&l, h.Name, h.Tensor); err != nil {
			return err
		}
	}
	for i, t := range of.Out {
		dtype, err := element(t.DType, t.Shape)
		if err != nil {
			return err
		}
		l.Outputs = append(l.Outputs, model.Tensor{Name: numbered("out", i), Shape: ints(t.Shape), DType: dtype})
		b.makes(l.Name, t.Value)
	}
	if at == len(b.net.Layers)-1 {
		for i, o := range b.net.Outputs {
			name := o.Name
			if i == 0 {
				name = "loss"
			}
			l.Outputs = append(l.Outputs, model.Tensor{Name: name, Shape: []int{}, DType: model.Float})
		}
	}
	l.Divides = features(&l, p)
	b.m.Layers = append(b.m.Layers, l)
	return nil
}

// features says how a layer can be divided; nil if it cannot be divided. The layer must be a single product with
// weights of its own: a linear layer, or a convolution with one group. Rows must be the first dimension of its input
// and output.
func features(l *model.Layer, p *rules.Program) *model.Features {
	first := rules.Spread{Lead: 1, Tail: 1}
	if len(p.Calls) != 1 || len(p.Inputs) != 1 || p.Inputs[0] != first || len(p.Yields) != 1 || p.Yields[0] != first ||
		p.Loss || len(p.State) > 0 {
		return nil
	}
	c := &p.Calls[0]
	f := model.Features{Params: 1}
	_, op, _ := strings.Cut(c.Op, "::")
	switch op {
	case "linear":
		f.Dim = len(l.Outputs[0].Shape) - 1
	case "conv2d":
		if n := len(c.In); n > 6 && c.In[6].Literal.Int != 1 {
			return nil
		}
	default:
		return nil
	}
	for i := range 2 { // the weight, and the bias if there is one
		if at := i + 1; at < len(c.In) && c.In[at].Kind == rules.FromTensor {
			if c.In[at].Index != i {
				return nil
			}
			f.Params = i + 1
		} else if i == 0 {
			return nil
		}
	}
	f.Count = l.Params[0].Shape[0]
	return &f
}

// hold adds a tensor of the module to a layer.
func (b *builder) hold(l *model.Layer, name, tensor string) error {
	t := b.tensors[tensor]
	dtype, err := element(t.DType, t.Shape)
	if err != nil {
		return fmt.Errorf("%s: %w", tensor, err)
	}
	p := model.Param{Name: name, Full: tensor, Shape: ints(t.Shape), Init: model.Init{Kind: "given"},
		Buffer: t.Role != aten.Parameter, Frozen: !b.changes(t), Inner: t.Role == aten.Constant || t.Unsaved,
		Also: b.also[tensor]}
	if dtype != model.Float {
		p.DType = dtype
	}
	if b.held[tensor] {
		p.Tied, p.Full, p.Also = tensor, "", nil
	}
	b.held[tensor] = true
	l.Params = append(l.Params, p)
	return nil
}

// changes says whether training changes a tensor: a trained parameter, or a buffer that a node writes.
func (b *builder) changes(t *aten.Tensor) bool {
	if t.Role == aten.Parameter {
		return t.Trained
	}
	return slices.ContainsFunc(b.net.Nodes, func(n rules.Node) bool { return slices.Contains(n.Updates, t.Name) })
}

// rest adds the saved tensors that no layer reads to the first layer, so that checkpoints contain all of them.
func (b *builder) rest() error {
	l := &b.m.Layers[0]
	taken := map[string]bool{}
	for _, p := range l.Params {
		taken[p.Name] = true
	}
	for _, t := range b.net.Graph.Tensors {
		if b.held[t.Name] || t.Role == aten.Constant || t.Unsaved {
			continue
		}
		if err := b.hold(l, free(t.Name[strings.LastIndex(t.Name, ".")+1:], taken), t.Name); err != nil {
			return err
		}
		l.Params[len(l.Params)-1].Frozen = true
	}
	return nil
}

// free turns a name into a valid one that is not taken yet, and marks it as taken.
func free(name string, taken map[string]bool) string {
	name = strings.NewReplacer(" ", "_", "\t", "_", "\r", "_", "\n", "_", "/", "_").Replace(name)
	one := name
	for i := 1; taken[one]; i++ {
		one = numbered(name, i)
	}
	taken[one] = true
	return one
}

// numbered returns the i-th variant of a name, from 0: name, name_2, name_3.
func numbered(name string, i int) string {
	if i == 0 {
		return name
	}
	return fmt.Sprintf("%s_%d", name, i+1)
}

func ints(shape []int64) []int {
	out := make([]int, len(shape))
	for i, n := range shape {
		out[i] = int(n)
	}
	return out
}
