package training

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/job"
	"github.com/spf13/cobra"
)

// TestReplanKeepsWhatAFlagDoesNotContradict: a run has two fixed stages on two workers. It keeps them under another
// schedule with one stage on each worker. It drops them under a schedule with two stages on each worker, under a
// schedule that does not divide the model, and with another number of workers. The text names what is dropped.
func TestReplanKeepsWhatAFlagDoesNotContradict(t *testing.T) {
	for _, c := range []struct {
		flag, value string
		kept        bool
		want        string
	}{
		{"schedule", "afab", true, ""},
		{"schedule", "1f1b", true, ""},
		{"schedule", "zb-h1", true, ""},
		{"schedule", "zb-v", false, "no longer fixed, because of --schedule: stages 2, split dense1\n"},
		{"schedule", "dp", false, "no longer fixed, because of --schedule: stages 2, split dense1\n"},
		{"workers", "3", false, "no longer fixed, because of --workers: stages 2, split dense1, schedule 1f1b\n"},
		{"lr", "0.1", true, ""},
	} {
		tr := &training{Command: &cobra.Command{}}
		tr.Flags().String(c.flag, "", "")
		if err := tr.Flags().Set(c.flag, c.value); err != nil {
			t.Fatal(err)
		}
		j := new(job.Default())
		j.Machine.Workers = 2
		j.Plan.Stages, j.Plan.Split, j.Plan.Schedule = 2, []string{"dense1"}, "1f1b"
		if c.flag == "schedule" {
			j.Plan.Schedule = c.value
		}
		tr.replan(j, false)
		kept := j.Plan.Stages == 2 && slices.Equal(j.Plan.Split, []string{"dense1"})
		if gone := j.Plan.Stages == 0 && j.Plan.Split == nil; kept != c.kept || gone == c.kept {
			t.Errorf("--%s %s leaves stages %d and split %v", c.flag, c.value, j.Plan.Stages, j.Plan.Split)
		}
		if got := tr.dropped.explain(); got != c.want {
			t.Errorf("--%s %s: got %q, want %q", c.flag, c.value, got, c.want)
		}
	}
}

// TestReplanByAFileKeepsNoMicroBatches: a plan's file has its own number of micro-batches. So the run's earlier number
// is dropped. A number on the command line is kept.
func TestReplanByAFileKeepsNoMicroBatches(t *testing.T) {
	for _, asked := range []bool{false, true} {
		tr := &training{Command: &cobra.Command{}}
		tr.Flags().String("plan", "", "")
		tr.Flags().Int("micro-batches", 0, "")
		j := new(job.Default())
		j.Plan.MicroBatches = 4
		flags := []string{"--plan", "p.json"}
		if asked {
			flags = append(flags, "--micro-batches", "4")
		}
		if err := tr.ParseFlags(flags); err != nil {
			t.Fatal(err)
		}
		tr.replan(j, false)
		if kept := j.Plan.MicroBatches == 4; kept != asked {
			t.Errorf("asked %v: %d micro-batches are kept", asked, j.Plan.MicroBatches)
		}
	}
}
