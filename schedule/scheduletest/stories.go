package scheduletest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace-ml/millrace/schedule"
)

// World is what a story goes on in: it does a command and says what came of it.
type World interface {
	Do(t *testing.T, d *datadriven.TestData) (string, error)
}

// Stories tells each story of a folder in a world of its own. Record new output with -rewrite, and read it.
func Stories(t *testing.T, folder string, world func() World) {
	datadriven.Walk(t, folder, func(t *testing.T, path string) {
		w := world()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := w.Do(t, d)
			if err != nil {
				return "error: " + err.Error() + "\n"
			}
			return out
		})
	})
}

// Order is what a story's command asks of a family: family, stages, micro, replicas, repeat, split and depths
// k.
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

// Lists is a Program's body without its settings.
func Lists(p *schedule.Program) string {
	_, body, _ := strings.Cut(p.Text(), "\nbody\n")
	return body
}
