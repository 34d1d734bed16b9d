package scheduletest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace-ml/millrace/schedule"
)

// Order reads a story's command: family, stages, micro, replicas, repeat, split, staleness, and k, the warm-up depths.
func Order(t *testing.T, d *datadriven.TestData) (family string, s schedule.Settings) {
	stages, replicas := 1, 1
	s.MicroBatches, s.Repeat = 1, 1
	d.ScanArgs(t, "family", &family)
	for name, to := range map[string]*int{"stages": &stages, "micro": &s.MicroBatches, "replicas": &replicas,
		"repeat": &s.Repeat} {
		d.MaybeScanArgs(t, name, to)
	}
	s.Placement = schedule.Replicated(stages, replicas)
	if d.HasArg("split") {
		s.Replication = schedule.Split
	}
	if d.HasArg("staleness") {
		s.Staleness = new(int)
		d.ScanArgs(t, "staleness", s.Staleness)
	}
	for _, a := range d.CmdArgs {
		if a.Key != "k" {
			continue
		}
		for _, v := range a.Vals {
			k, err := strconv.Atoi(v)
			if err != nil {
				d.Fatalf(t, "k: %v", err)
			}
			s.Warmup = append(s.Warmup, k)
		}
	}
	return family, s
}

// Lists returns the text of a Program's lists, from its body on, without its settings.
func Lists(p *schedule.Program) string {
	_, body, _ := strings.Cut(p.Text(), "\nbody\n")
	return body
}
