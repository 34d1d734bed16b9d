package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/model/aten"
	"github.com/millrace-ml/millrace/model/aten/fuse"
	"github.com/millrace-ml/millrace/model/aten/rules"
	"github.com/millrace-ml/millrace/model/imported"
)

// shownNetwork is what import prints about a network.
type shownNetwork struct {
	Name       string         `json:"name"`
	Inputs     []string       `json:"inputs"`
	Parameters int64          `json:"parameters"`
	Trained    int64          `json:"trained"`
	Operators  map[string]int `json:"operators"`
	Layers     []shownLayer   `json:"layers"`
	Fuse       *fuse.Report   `json:"fuse,omitempty"`
	Notes      []string       `json:"notes,omitempty"`
}

// shownLayer is one layer of a shown network. A plan may cut after each layer except the last.
type shownLayer struct {
	Name         string   `json:"name"`
	Operators    []string `json:"operators"`
	Parameters   int64    `json:"parameters"`
	ForwardFLOPs int64    `json:"forward_flops"` // of one sample
	Yields       []string `json:"yields"`
}

// importNetwork prints a network. If `dir` is given, it also converts the network to a folder there.
func importNetwork(c *cobra.Command, file, dir string, o imported.Options, asJSON bool) error {
	if o.Fuse != imported.Fused && o.Fuse != imported.Off {
		return cli.BadInput(fmt.Errorf("import: --fuse is %q; %s and %s are right", o.Fuse, imported.Fused, imported.Off))
	}
	if dir != "" {
		if err := imported.CheckFolder(file, dir); err != nil {
			return cli.BadInput(err)
		}
	}
	meter := cli.StartMeter("import")
	defer meter.Stop()
	meter.Doing("reading " + file)
	n, err := imported.Open(file, o)
	if err != nil {
		return cli.BadInput(err)
	}
	if dir != "" {
		meter.Doing("writing " + dir)
		if err := imported.Save(c.Context(), file, dir, o); err != nil {
			return err
		}
	}
	meter.Stop()
	s := shown(n.Network)
	s.Fuse = n.Fuse
	if asJSON {
		return cli.WriteJSON(c.OutOrStdout(), s)
	}
	if err := s.print(c.OutOrStdout()); err != nil || dir == "" {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "wrote %s, for --model\n", dir)
	return err
}

func shown(n *rules.Network) *shownNetwork {
	s := &shownNetwork{Name: n.Graph.Name, Operators: map[string]int{}, Notes: n.Graph.Notes}
	size := map[string]int64{}
	for _, t := range n.Graph.Tensors {
		if t.Role != aten.Parameter {
			continue
		}
		size[t.Name] = elements(t.Shape)
		s.Parameters += size[t.Name]
		if t.Trained {
			s.Trained += size[t.Name]
		}
	}
	for _, in := range n.Graph.Inputs {
		s.Inputs = append(s.Inputs, fmt.Sprintf("%s %s%v", in.Name, in.DType, in.Shape[1:]))
	}
	for _, node := range n.Nodes {
		s.Operators[node.Op]++
	}
	for _, l := range n.Layers {
		one := shownLayer{Name: l.Name, ForwardFLOPs: l.ForwardFLOPs}
		for _, at := range l.Nodes {
			_, op, _ := strings.Cut(n.Nodes[at].Op, "::")
			one.Operators = append(one.Operators, op)
		}
		for _, held := range l.Tensors {
			if held.Tied == "" {
				one.Parameters += size[held.Tensor]
			}
		}
		for _, out := range l.Out {
			one.Yields = append(one.Yields, fmt.Sprintf("%s%v", out.DType, out.Shape))
		}
		s.Layers = append(s.Layers, one)
	}
	return s
}

func elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

func (s *shownNetwork) print(w io.Writer) error {
	facts := [][2]string{{"network", s.Name}, {"inputs", strings.Join(s.Inputs, ", ")},
		{"parameters", fmt.Sprintf("%s, %s of them trained", terminal.Number(float64(s.Parameters), 0),
			terminal.Number(float64(s.Trained), 0))}}
	if s.Fuse != nil {
		facts = append(facts, s.fused()...)
	}
	for i, note := range s.Notes {
		name := ""
		if i == 0 {
			name = terminal.Plural(len(s.Notes), "note")
		}
		facts = append(facts, [2]string{name, note})
	}
	t := terminal.Table{Columns: []terminal.Column{{Heading: "layer"}, {Heading: "parameters", Number: true},
		{Heading: "forward", Unit: "MFLOP", Number: true}, {Heading: "yields", Wraps: true},
		{Heading: "operators", Wraps: true, Spare: 1}}}
	for _, l := range s.Layers {
		t.Add(names.Shown(l.Name), terminal.Number(float64(l.Parameters), 0),
			terminal.Number(float64(l.ForwardFLOPs)/1e6, 3), strings.Join(l.Yields, " "),
			strings.Join(slices.Compact(l.Operators), " "))
	}
	if err := writeFacts(w, facts); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return t.Write(w, terminal.Of(w))
}

// fused says which operators were replaced by millrace's own, and why others were not.
func (s *shownNetwork) fused() [][2]string {
	var fused []string
	for _, op := range slices.Sorted(maps.Keys(s.Fuse.Fused)) {
		fused = append(fused, fmt.Sprintf("%d %s", s.Fuse.Fused[op], op))
	}
	facts := [][2]string{{"fused", cmp.Or(strings.Join(fused, ", "), "nothing")}}
	for i, l := range s.Fuse.Left {
		where, name := "", ""
		if i == 0 {
			name = "left alone"
		}
		if l.Scope != "" {
			where = ", in " + l.Scope
		}
		if l.Count > 1 {
			where += " and others"
		}
		facts = append(facts, [2]string{name, fmt.Sprintf("%d %s: %s%s", l.Count, l.Op, l.Reason, where)})
	}
	return facts
}
