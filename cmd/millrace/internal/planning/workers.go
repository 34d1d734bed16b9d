package planning

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
)

// mostRows is the maximal number of rows in a list of workers or rivals on a screen.
const mostRows = 8

// workers prints a table in which all workers with the same stages share a row. Values that differ among them are given
// as a range. A worker that holds the weights for others has a row of its own.
func (v *view) workers() {
	t := &terminal.Table{Columns: []terminal.Column{{Heading: "worker"}, {Heading: "stage"},
		{Heading: "layers", Wraps: true}, {Heading: "recompute", Spare: 2}, {Heading: "computes", Number: true},
		{Heading: "holds", Number: true}, {Heading: "in flight", Number: true, Spare: 1}}}
	type group struct {
		workers, at, stages []int
		serves              bool
	}
	var groups []*group
	devices := v.Plan.Devices()
	for i, d := range devices {
		serves := schedule.Policy(v.Plan.Weights).Served() && i == len(devices)-1
		var stages []int
		for s := range v.Plan.Stages {
			if slices.Contains(v.Plan.Stages[s].Devices, d) {
				stages = append(stages, s)
			}
		}
		k := slices.IndexFunc(groups, func(g *group) bool { return slices.Equal(g.stages, stages) && g.serves == serves })
		if k < 0 {
			k, groups = len(groups), append(groups, &group{stages: stages, serves: serves})
		}
		groups[k].workers, groups[k].at = append(groups[k].workers, d), append(groups[k].at, i)
	}
	for n, g := range groups {
		if n == mostRows-1 && len(groups) > mostRows && !v.all {
			rest := 0
			for _, g := range groups[n:] {
				rest += len(g.workers)
			}
			t.AddFaint("...", "", fmt.Sprintf("%s more; %s", terminal.Count(rest, "worker"), v.rest))
			break
		}
		var layers []string
		for _, s := range g.stages {
			layers = append(layers, v.layers(&v.Plan.Stages[s]))
		}
		row := []string{list(g.workers), list(g.stages), strings.Join(layers, ", "), v.recomputes(g.stages)}
		if q := v.Plan.Predicted; q != nil {
			row = append(row, among(g.at, q.BusyS, func(s float64) string { return terminal.Number(1e3*s, 4) + " ms" }),
				among(g.at, q.MemoryBytes, terminal.Bytes), among(g.at, q.PeakActivations, strconv.Itoa))
		}
		t.Add(row...)
	}
	_ = t.Write(v.to, v.Screen) // if the output fails, the error cannot be printed there
}

// among writes the least and the largest of the values at these places. It writes one value if they have the same text,
// or if rounding explains the difference.
func among[T int | int64 | float64](at []int, values []T, text func(T) string) string {
	least, most := values[at[0]], values[at[0]]
	for _, i := range at {
		least, most = min(least, values[i]), max(most, values[i])
	}
	from, to := text(least), text(most)
	if from == to || float64(most-least) <= 1e-3*float64(most) {
		return to
	}
	if _, unit, is := strings.Cut(to, " "); is {
		from = strings.TrimSuffix(from, " "+unit)
	}
	return from + " to " + to
}

// recomputes says what is recomputed on some stages, and on which of them if they differ.
func (v *view) recomputes(stages []int) string {
	of := map[plan.Recompute][]int{}
	for _, s := range stages {
		again := v.Plan.Stages[s].Recompute
		of[again] = append(of[again], s)
	}
	var all []string
	for _, s := range stages {
		again := v.Plan.Stages[s].Recompute
		switch {
		case !again.Again() || of[again][0] != s:
		case len(of) == 1:
			all = append(all, again.String())
		default:
			all = append(all, again.String()+": "+list(of[again]))
		}
	}
	return strings.Join(all, "; ")
}

// layers returns the numbers of a stage's first and last layer, with the names of these two layers. For a single layer
// it returns one number and one name.
func (v *view) layers(s *plan.Stage) string {
	name := func(layer int) string {
		if v.Plan.Order != nil {
			layer = v.Plan.Order[layer]
		}
		return v.Profile.Layers[layer].Name
	}
	if s.FirstLayer == s.LastLayer {
		return fmt.Sprintf("%s\u00a0%s", s.Layers(), name(s.FirstLayer))
	}
	return fmt.Sprintf("%s\u00a0%s ..\u00a0%s", s.Layers(), name(s.FirstLayer), name(s.LastLayer))
}
