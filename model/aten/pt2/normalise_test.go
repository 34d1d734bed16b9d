package pt2

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/model/aten"
	"github.com/millrace-ml/millrace/model/aten/rules"
)

func normalised(t *testing.T, g *aten.Graph) *rules.Network {
	t.Helper()
	n, err := rules.Normalise(g)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// operators returns the operators of a network, layer by layer.
func operators(n *rules.Network) string {
	var all []string
	for _, l := range n.Layers {
		var in []string
		for _, i := range l.Nodes {
			in = append(in, strings.TrimPrefix(n.Nodes[i].Op, "aten::"))
		}
		all = append(all, l.Name+": "+strings.Join(in, " "))
	}
	return strings.Join(all, ", ")
}

// Keyword arguments of torch.export are put into their positions in PyTorch's schema. Defaults fill the positions
// between them.
func TestGraphsOfTorchExportAreNormalised(t *testing.T) {
	g, _ := open(t, mlp(t))
	n := normalised(t, g)
	want := "fc1: linear, relu: relu, head.0.fc2: linear, cross_entropy_loss: cross_entropy_loss mean"
	if got := operators(n); got != want {
		t.Errorf("%s; want %s", got, want)
	}
	for _, node := range n.Nodes {
		if node.Op == "aten::cross_entropy_loss" {
			// The arguments are self, target, weight, reduction, ignore_index, label_smoothing.
			if a := node.In; len(a) != 6 || a[2].Kind != rules.None || a[3].Size.String() != "1" || a[4].Size.String() !=
				"-100" || a[5].Literal.Float != 0.1 {
				t.Errorf("cross_entropy_loss of %+v", a)
			}
		}
	}
}

// For a batch of any size, the sizes that depend on its rows are derived from torch.export's size expressions.
func TestRowsOfTorchExportAreFollowed(t *testing.T) {
	g, _ := open(t, convnet().replace(t, modelJSON, `Infinity`, `1.0`))
	n := normalised(t, g)
	want := "conv: conv2d, batch_norm: add_.Scalar batch_norm view add.Tensor mse_loss copy_"
	if got := operators(n); got != want {
		t.Errorf("%s; want %s", got, want)
	}
	for _, node := range n.Nodes {
		if node.Op == "aten::view" {
			if got := fmt.Sprint(n.Values[node.Out[0]].Dims); got != "[rows 8]" {
				t.Errorf("the view is %s", got)
			}
		}
	}
	for _, node := range g.Nodes { // the reshape returns 2*s77 rows (8 in the example) of 4 columns
		if v := node.Out[0]; node.Op == "aten::reshape" && fmt.Sprint(v.Shape, v.Double) != "[8 4] [16 4]" {
			t.Errorf("with twice the rows %v is %v", v.Shape, v.Double)
		}
	}
}

// A module that returns outputs is refused if no loss is given. If one is given, the graph gets this loss and a fitting
// target.
func TestLossesAreAdded(t *testing.T) {
	g, _ := open(t, tied())
	_, err := rules.Normalise(g)
	if err == nil || !strings.Contains(err.Error(), "give --loss cross_entropy, --loss mse") {
		t.Errorf("without a loss: %v", err)
	}
	for loss, want := range map[string]string{"cross_entropy": "I64", "mse": "F32", "bce": "F32"} {
		with, err := rules.WithLoss(g, loss)
		if err != nil {
			t.Fatal(err)
		}
		n := normalised(t, with)
		target := with.Inputs[len(with.Inputs)-1]
		if string(target.DType) != want || !target.Target || target.Shape[0] != g.Rows || len(n.Outputs) != 1 {
			t.Errorf("%s: the target is %+v", loss, target)
		}
	}
	for _, c := range []struct{ loss, want string }{
		{"hinge", `there is no loss "hinge"; there are cross_entropy, mse, bce`},
	} {
		if _, err := rules.WithLoss(g, c.loss); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.loss, err)
		}
	}
	g, _ = open(t, mlp(t))
	if _, err := rules.WithLoss(g, "mse"); err == nil || !strings.Contains(err.Error(), "leave out --loss mse") {
		t.Errorf("a second loss: %v", err)
	}
}
