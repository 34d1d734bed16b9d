package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/millrace-ml/millrace/internal/storytest"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/schedule/scheduletest"
	"github.com/millrace-ml/millrace/trace"
)

// TestStories runs the cases in testdata: which workers wait for cores, links and devices, and what memory holds.
func TestStories(t *testing.T) {
	storytest.Tell(t, "testdata/stories", func() storytest.World { return &storyWorld{} })
}

type storyWorld struct {
	p *schedule.Program
	c Costs
}

func (w *storyWorld) Do(t *testing.T, d *datadriven.TestData) (string, error) {
	switch d.Cmd {
	case "program":
		return "", w.program(t, d)
	case "costs":
		w.costs(t, d)
		return "", nil
	case "simulate":
		o := Options{Record: true}
		cores := 0
		d.MaybeScanArgs(t, "cores", &cores)
		c := w.c
		c.Cores = machine.Share(cores)
		tl, sum, err := Run(w.p, c, o)
		if err != nil {
			return "", err
		}
		return w.tell(d, tl, sum)
	}
	return "", fmt.Errorf("no command %q", d.Cmd)
}

func (w *storyWorld) program(t *testing.T, d *datadriven.TestData) error {
	if d.Input != "" {
		p, err := schedule.ParseText(strings.NewReader(d.Input))
		if err == nil {
			p, err = lower.Lower(p, lower.Options{})
		}
		w.p = p
		return err
	}
	order, settings := scheduletest.Order(t, d)
	p, err := family.Generate(order, settings)
	if err == nil {
		p, err = lower.Lower(p, lower.Options{Clip: d.HasArg("clip")})
	}
	w.p = p
	return err
}

// costs reads uniform costs; latency, link and bytes set the transfers.
func (w *storyWorld) costs(t *testing.T, d *datadriven.TestData) {
	var f, b, latency, link, allReduce, norm, update float64
	for name, to := range map[string]*float64{"f": &f, "b": &b, "latency": &latency, "link": &link,
		"allreduce": &allReduce, "norm": &norm, "update": &update} {
		d.MaybeScanArgs(t, name, to)
	}
	w.c = Uniform(w.p.Stages, f, b, 0)
	w.c.Transfer = func(int, int, int64) (float64, float64) { return latency, link }
	for s := range w.c.Stages {
		k := &w.c.Stages[s][0]
		k.AllReduceS, k.NormS, k.UpdateS = allReduce, norm, update
		for name, to := range map[string]*int64{
			"activation": &k.ActivationBytes, "saved": &k.SavedBytes, "fixed": &k.FixedBytes, "parameters": &k.ParameterBytes,
			"fpeak": &k.ForwardPeak, "bpeak": &k.BackwardPeak, "bpeak1": &k.FirstBackwardPeak,
		} {
			d.MaybeScanArgs(t, name, to)
		}
		if s > 0 {
			k.InputBytes, k.GradientBytes = k.ActivationBytes, k.ActivationBytes
		}
	}
	last := &w.c.Stages[w.p.Stages-1][0]
	last.ActivationBytes = 0
	if d.HasArg("occupies") {
		w.c.Occupies = func(int, int) bool { return true }
	}
	switch {
	case d.HasArg("half"):
		w.c.Links = func(a, b int) [][2]int { return [][2]int{{min(a, b), max(a, b)}} }
	case d.HasArg("shared"):
		w.c.Links = func(int, int) [][2]int { return [][2]int{{}} }
	}
}

func (w *storyWorld) tell(d *datadriven.TestData, tl *trace.Timeline, sum Summary) (string, error) {
	var b strings.Builder
	var spans []scheduletest.Span
	for _, e := range tl.Events {
		if e.Lane == trace.Compute {
			spans = append(spans, scheduletest.Span{Worker: e.Worker, Text: e.Instruction, Start: e.StartS, End: e.EndS})
		}
	}
	grid, err := scheduletest.Grid(tl.Workers, spans, 1)
	if err != nil {
		return "", err
	}
	b.WriteString(grid)
	if d.HasArg("waits") {
		for _, e := range tl.Events {
			if e.StartS > e.ReadyS || e.Lane == trace.Comm && e.EndS > e.StartS {
				fmt.Fprintf(&b, "%d %s ready %g, from %g to %g", e.Worker, e.Instruction, e.ReadyS, e.StartS, e.EndS)
				if e.BlockedBy != "" {
					fmt.Fprintf(&b, ", waited for %s", e.BlockedBy)
				}
				b.WriteByte('\n')
			}
		}
	}
	if d.HasArg("memory") {
		for w := range tl.Workers {
			fmt.Fprintf(&b, "%d holds", w)
			for _, m := range tl.Memory {
				if m.Worker == w {
					fmt.Fprintf(&b, " %g:%d", m.AtS, m.Bytes)
				}
			}
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "peak bytes %v, activations %v\n", sum.PeakBytes, sum.PeakActivations)
	}
	for _, s := range tl.Steps {
		fmt.Fprintf(&b, "step %d from %g to %g\n", s.Step, s.StartS, s.EndS)
	}
	fmt.Fprintf(&b, "step %g, bubble %.1f%%, busy %v\n", sum.StepS, 100*sum.Bubble, sum.BusyS)
	return b.String(), nil
}
