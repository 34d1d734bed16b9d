package rules

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/model/aten"
)

// Losses lists the losses that WithLoss can add. Each is a mean over the elements; bce takes logits.
var Losses = []string{"cross_entropy", "mse", "bce"}

// WithLoss adds a mean loss to a graph whose module returns none, and the loss's target as the last input. The loss
// uses the output called logits, or otherwise the first one. All other outputs are left out.
func WithLoss(g *aten.Graph, loss string) (*aten.Graph, error) {
	switch {
	case !slices.Contains(Losses, loss):
		return nil, registry.None("loss", loss, Losses)
	case !g.NoLoss:
		return nil, fmt.Errorf("the module returns its loss, %s; leave out --loss %s", g.Outputs[0].Name, loss)
	case len(g.Outputs) == 0:
		return nil, fmt.Errorf("the module returns nothing; a loss is of an output")
	}
	at := max(0, slices.IndexFunc(g.Outputs, func(o aten.Output) bool { return o.Name == "logits" }))
	out := g.Outputs[at]
	of, next := aten.Value{}, 0
	for _, in := range g.Inputs {
		next = max(next, in.Value+1)
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if next = max(next, v.ID+1); out.Arg.Kind == aten.FromValue && v.ID == out.Arg.Value {
				of = v
			}
		}
	}
	least := map[string]int{"cross_entropy": 2}[loss]
	if len(of.Shape) < max(1, least) || of.Shape[0] != g.Rows || !floats(of.DType) {
		return nil, fmt.Errorf("the output %s is %s%v; %s is of real numbers with the %d rows of the example in front%s",
			out.Name, of.DType, of.Shape, loss, g.Rows, map[bool]string{true: ", and classes behind them"}[least > 0])
	}
	target := aten.Input{Name: "target", Shape: of.Shape, DType: of.DType, Target: true, Value: next}
	none, mean := aten.Arg{}, aten.Arg{Kind: aten.Int, Int: 1}
	in := []aten.Arg{out.Arg, {Kind: aten.FromValue, Value: next}, mean}
	op := "aten::mse_loss"
	switch loss {
	case "cross_entropy":
		op = "aten::cross_entropy_loss"
		target.Shape, target.DType = slices.Delete(slices.Clone(of.Shape), 1, 2), "I64"
		in = append(slices.Insert(in, 2, none), aten.Arg{Kind: aten.Int, Int: -100}, aten.Arg{Kind: aten.Float})
	case "bce":
		op = "aten::binary_cross_entropy_with_logits"
		in = slices.Insert(in, 2, none, none)
	}
	for i := 2; slices.ContainsFunc(g.Inputs, func(in aten.Input) bool { return in.Name == target.Name }); i++ {
		target.Name = fmt.Sprintf("target_%d", i)
	}
	with := *g
	with.NoLoss = false
	with.Inputs = append(slices.Clone(g.Inputs), target)
	with.Nodes = append(slices.Clone(g.Nodes), aten.Node{Op: op, In: in, Out: []aten.Value{
		{ID: next + 1, Type: "Tensor", Shape: []int64{}, Double: []int64{}, DType: of.DType}}})
	with.Outputs = []aten.Output{{Name: "loss", Arg: aten.Arg{Kind: aten.FromValue, Value: next + 1}}}
	with.Notes = slices.Clone(g.Notes)
	for i, o := range g.Outputs {
		if i != at {
			with.Notes = append(with.Notes, fmt.Sprintf("the output %s is left out", o.Name))
		}
	}
	return &with, with.Check()
}
