package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/plan"
)

// TextHeader is the first line of the text form.
const TextHeader = "millrace program 1"

// Text writes the Program in its text form: a line for each setting, then the lists of each part that has any.
// ParseText reads it back to the same Program.
func (p *Program) Text() string {
	var b strings.Builder
	fmt.Fprintln(&b, TextHeader)
	fmt.Fprintf(&b, "name %s\nstages %d\nworkers %d\nmicro_batches %d\nperiod %d\nrepeat %d\n",
		written(p.Name), p.Stages, p.Workers, p.MicroBatches, p.Period, p.Repeat)
	fmt.Fprintf(&b, "weights %s\nreplication %s\nlowered %v\n", p.Weights, p.Replication, p.Lowered)
	for pl, stages := range p.Placement {
		for s, on := range stages {
			fmt.Fprintf(&b, "place p%d/%d: %s\n", pl, s, numbers(on))
		}
	}
	if e := p.Elastic; e != nil {
		fmt.Fprintf(&b, "elastic %d %s %s", e.Pipelines, strconv.FormatFloat(e.Alpha, 'g', -1, 64), e.Order)
		if e.Reference != "" {
			fmt.Fprintf(&b, " %s", e.Reference)
		}
		fmt.Fprintln(&b)
	}
	if p.Clip {
		fmt.Fprintln(&b, "clip true")
	}
	if p.Paired {
		fmt.Fprintln(&b, "paired true")
	}
	if p.DeferUpdates {
		fmt.Fprintln(&b, "defer_updates true")
	}
	if p.PostValidate {
		fmt.Fprintln(&b, "post_validate true")
	}
	if p.Staleness != nil {
		fmt.Fprintf(&b, "staleness %d\n", *p.Staleness)
	}
	if p.InOrder {
		fmt.Fprintln(&b, "in_order true")
	}
	if slices.ContainsFunc(p.Recompute, plan.Recompute.Again) {
		fmt.Fprintf(&b, "recompute%s\n", recomputing(p.Recompute))
	}
	for _, group := range p.Tied {
		fmt.Fprintf(&b, "tied %s\n", numbers(group))
	}
	for _, part := range []struct {
		name  string
		lists Part
	}{{"prologue", p.Prologue}, {"body", p.Body}, {"epilogue", p.Epilogue}} {
		if part.lists == nil {
			continue
		}
		fmt.Fprintln(&b, part.name)
		for w, list := range part.lists {
			fmt.Fprintf(&b, "%d:", w)
			for _, in := range list {
				b.WriteByte(' ')
				b.WriteString(in.String())
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// written returns a name as it stands in its line: in quotes if it would be misread without them.
func written(name string) string {
	quoted := strconv.Quote(name)
	if quoted != `"`+name+`"` || strings.TrimSpace(name) != name || strings.Contains(name, "#") {
		return quoted
	}
	return name
}

// recomputing lists the stages that recompute, each with a space in front. "3" is stage 3 all at once, "3:2" two of its
// layers at a time, and "3:blocks" a block at a time.
func recomputing(stages []plan.Recompute) string {
	var b strings.Builder
	for s, r := range stages {
		switch {
		case r == plan.KeepInput:
			fmt.Fprintf(&b, " %d", s)
		case !r.Trained():
			fmt.Fprintf(&b, " %d:%v", s, r)
		case r.Again():
			fmt.Fprintf(&b, " %d:%d", s, int(r))
		}
	}
	return b.String()
}

func numbers(ns []int) string {
	words := make([]string, len(ns))
	for i, n := range ns {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, " ")
}

// clip returns the beginning of a text that may be long, for an error.
func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}
