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
	"github.com/millrace-ml/millrace/model/aten"
	"github.com/millrace-ml/millrace/model/aten/fuse"
	"github.com/millrace-ml/millrace/model/aten/rules"
	"github.com/millrace-ml/millrace/model/imported"
)

// shownNetwork is what import says of a network.
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

// shownLayer is one of its layers. A plan may cut behind each but the last.
type shownLayer struct {
	Name         string   `json:"name"`
	Operators    []string `json:"operators"`
	Parameters   int64    `json:"parameters"`
	ForwardFLOPs int64    `json:"forward_flops"` // of one sample
	Yields       []string `json:"yields"`
}

// importNetwork shows a network and, with dir, makes a folder of it.
func importNetwork(c *cobra.Command, file, dir string, o imported.Options, asJSON bool) error {
	if o.Fuse != imported.Fused && o.Fuse != imported.Off {
		return cli.BadInput(fmt.Errorf("import: --fuse is %q; %s and %s are right", o.Fuse, imported.Fused, imported.Off))
	}
	if dir != "" {
		if err := imported.CheckFolder(file, dir); err != nil {
			return cli.BadInput(err)
		}
	}
	n, err := imported.Open(file, o)
	if err != nil {
		return cli.BadInput(err)
	}
	if dir != "" {
		if err := imported.Save(c.Context(), file, dir, o); err != nil {
			return err
		}
	}
	s := shown(n.Network)
	s.Fuse = n.Fuse
	if asJSON {
		return cli.WriteJSON(c.OutOrStdout(), s)
	}
	s.print(c.OutOrStdout())
	if dir != "" {
		fmt.Fprintf(c.OutOrStdout(), "wrote %s, for --model\n", dir)
	}
	return nil
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

func (s *shownNetwork) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %d layers, %d parameters (%d trained), inputs %s\n", s.Name, len(s.Layers), s.Parameters,
		s.Trained, strings.Join(s.Inputs, ", "))
	wide := len("layer")
	for _, l := range s.Layers {
		wide = max(wide, len(l.Name))
	}
	fmt.Fprintf(w, "%-*s  %12s  %12s  %-20s  operators\n", wide, "layer", "parameters", "MFLOPs", "yields")
	for _, l := range s.Layers {
		fmt.Fprintf(w, "%-*s  %12d  %12.4g  %-20s  %s\n", wide, l.Name, l.Parameters, float64(l.ForwardFLOPs)/1e6,
			strings.Join(l.Yields, " "), strings.Join(slices.Compact(l.Operators), " "))
	}
	if s.Fuse != nil {
		s.printFused(w)
	}
	for _, note := range s.Notes {
		fmt.Fprintln(w, "note:", note)
	}
}

// printFused says which operators were replaced by millrace's own, and why others were not.
func (s *shownNetwork) printFused(w io.Writer) {
	var fused []string
	for _, op := range slices.Sorted(maps.Keys(s.Fuse.Fused)) {
		fused = append(fused, fmt.Sprintf("%d %s", s.Fuse.Fused[op], op))
	}
	fmt.Fprintln(w, "fused:", cmp.Or(strings.Join(fused, ", "), "nothing"))
	for _, l := range s.Fuse.Left {
		where := ""
		if l.Scope != "" {
			where = ", in " + l.Scope
		}
		if l.Count > 1 {
			where += " and others"
		}
		fmt.Fprintf(w, "left alone: %d %s: %s%s\n", l.Count, l.Op, l.Reason, where)
	}
}
