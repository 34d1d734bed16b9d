package curves

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// filling compares how AvgPipe and 1F1B use their time. It says what every worker of either did during a batch, both on
// a machine and in the simulator.
type filling struct {
	OneF1B  int `json:"one_f1b"` // positions of 1F1B and of AvgPipe among the contenders
	AvgPipe int `json:"avgpipe"`

	Measured  [2][]Share `json:"measured"` // shares of 1F1B and of AvgPipe, each by worker
	Simulated [2][]Share `json:"simulated"`
}

// The number of batches of a recorded training, and the number of first iterations that are left out.
const (
	recordedBatches = 24
	recordedSkip    = 3
)

// compared returns the positions, among the contenders, of 1F1B with a flush and of AvgPipe's fastest setting with
// several pipelines. It returns false if one of them is missing.
func (t *Times) compared() (f filling, ok bool) {
	f = filling{OneF1B: -1, AvgPipe: -1}
	for i, c := range t.Contested {
		switch {
		case c.Name == systems["DAPPLE"].name:
			f.OneF1B = i
		case c.Policy == schedule.Elastic && c.Pipelines > 1 &&
			(f.AvgPipe < 0 || stats.Median(c.StepS) < stats.Median(t.Contested[f.AvgPipe].StepS)):
			f.AvgPipe = i
		}
	}
	return f, f.OneF1B >= 0 && f.AvgPipe >= 0
}

// Fill trains with 1F1B and with AvgPipe once more, on a machine and in the simulator. It records how each worker spent
// its time in a batch. If one of these contenders is missing, it does nothing.
func (t *Times) Fill(ctx context.Context, machine, simulated avgpipe.Machine) error {
	f, ok := t.compared()
	if !ok {
		return nil
	}
	for _, by := range []struct {
		machine avgpipe.Machine
		shares  *[2][]Share
	}{{machine, &f.Measured}, {simulated, &f.Simulated}} {
		for i, at := range []int{f.OneF1B, f.AvgPipe} {
			c := t.Contested[at]
			degrees := avgpipe.Degrees{MicroBatches: c.MicroBatches, Pipelines: c.Pipelines}
			setting := &avgpipe.Pipelined{Scored: avgpipe.Scored{At: degrees}, Plan: c.Plan}
			trial, err := by.machine(ctx, setting, avgpipe.Iterations(degrees, recordedBatches), true)
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			if by.shares[i], err = Shares(trial.Timeline, c.Pipelines, recordedSkip); err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			for w := range by.shares[i] { // converts the shares from a batch of one pipeline to a batch of the comparison
				by.shares[i][w] = by.shares[i][w].Times(float64(c.Pipelines) / float64(c.Batches()))
			}
		}
	}
	t.Filling = &f
	return nil
}

// fillingSection explains why AvgPipe is or is not faster than 1F1B, with a table by worker and a sentence.
func (s *Comparison) fillingSection() error {
	f := s.Times.Filling
	if f == nil {
		return nil
	}
	one, avg := s.Times.Contested[f.OneF1B], s.Times.Contested[f.AvgPipe]
	table := &report.Table{Head: []string{"timeline", "order", " worker", " a batch", " forwards, backwards", " updates",
		" reference", " bubble", " messages", " waits for a core", " between", " busy"}}
	for _, by := range []struct {
		name   string
		shares [2][]Share
	}{{"measured", f.Measured}, {"simulated", f.Simulated}} {
		for i, c := range []*contender{one, avg} {
			for w, x := range by.shares[i] {
				table.Add(by.name, c.Name, w, terminal.Duration(x.LengthS()), terminal.Duration(x.ComputeS),
					terminal.Duration(x.UpdateS),
					terminal.Duration(x.ReferenceS),
					terminal.Duration(x.BubbleS), terminal.Duration(x.MessageS), terminal.Duration(x.CoreS),
					terminal.Duration(x.BetweenS),
					report.Percent(x.BusyS()/x.LengthS()))
			}
		}
	}
	notes, err := s.overOneF1B(one, avg)
	if err != nil {
		return err
	}
	s.Study.Sections = append(s.Study.Sections, report.StudySection{
		Title: "Where AvgPipe's time differs from 1F1B's",
		Note: "What each worker does during a batch, from recorded timelines: the bubble is waiting for what other " +
			"workers had to compute; updates of parallel pipelines dilute the weights too; the reference's update is a " +
			"part of each pipeline's batch.",
		Table: table,
		Notes: append(notes,
			"Measured: "+explained(one.Name, avg.Name, f.Measured, s.Times.Cores),
			"Simulated: "+explained(one.Name, avg.Name, f.Simulated, s.Times.Cores),
			"AvgPipe's authors have 1.3, 1.1 and 1.8 over GPipe (GNMT, BERT, AWD) and 1.7 on average over all pipelines, of "+
				"time to a target at equal memory on 6 V100 and 1 Gbit/s; over 1F1B with a flush they print none. "+
				"Their cluster and workloads, simulated: millrace-lab reproduce avgpipe-fig11.",
		),
	})
	return nil
}

// overOneF1B says how many times as fast as 1F1B the settings with several pipelines are. The setting whose Timeline is
// shown comes first.
func (s *Comparison) overOneF1B(one, first *contender) ([]string, error) {
	several := []*contender{first}
	for _, c := range s.Times.Contested {
		if c != first && c.Policy == schedule.Elastic && c.Pipelines > 1 {
			several = append(several, c)
		}
	}
	var notes []string
	for _, c := range several {
		speed, err := SpeedupOf(c.StepS, one.StepS, s.epochsOf(c), s.epochsOf(one))
		if err != nil {
			return nil, err
		}
		note := fmt.Sprintf("In rounds in which both had their turn %s is %.3f times as fast as %s over a batch (95 %% "+
			"interval %.3f to %.3f)", c.Name, speed.Batch, one.Name, speed.Interval.Lo, speed.Interval.Hi)
		if speed.Target > 0 {
			note += fmt.Sprintf(", and %.3f times to %s", speed.Target, s.goal())
		}
		notes = append(notes, note+fmt.Sprintf("; its fullest worker holds %s instead of %s.",
			terminal.Bytes(c.peak()), terminal.Bytes(one.peak())))
	}
	return notes, nil
}

// explained says how much of 1F1B's idle time AvgPipe fills on an average worker. It also says how much faster a batch
// would be if the bubble were filled at no cost. Such a batch takes as long as the busiest worker works. If the workers
// share cores, it takes at least the work of all workers divided by the number of cores.
func explained(one, avg string, of [2][]Share, cores int) string {
	a, b := Mean(of[0]), Mean(of[1])
	var out strings.Builder
	fmt.Fprintf(&out, "a worker of %s is idle for %s of a batch's %s (%s), of %s for %s of %s (%s). ", one,
		terminal.Duration(a.IdleS()), terminal.Duration(a.LengthS()), report.Percent(a.IdleS()/a.LengthS()),
		avg, terminal.Duration(b.IdleS()), terminal.Duration(b.LengthS()), report.Percent(b.IdleS()/b.LengthS()))
	filled := a.IdleS() - b.IdleS()
	if filled > 0 {
		fmt.Fprintf(&out, "That fills %s of the idle time, %s a batch. ", report.Percent(filled/a.IdleS()),
			terminal.Duration(filled))
	} else {
		fmt.Fprintf(&out, "That fills none of it: %s more. ", terminal.Duration(-filled))
	}
	costs := []struct {
		what string
		s    float64
	}{
		{"diluting the weights and the queue", b.UpdateS - a.UpdateS},
		{"the reference", b.ReferenceS},
		{"forwards and backwards, whose micro-batches have another size and which share caches and memory with those of " +
			"another pipeline,", b.ComputeS - a.ComputeS},
	}
	var said []string
	for _, c := range costs {
		verb := "cost"
		if c.s < 0 {
			verb = "save"
		}
		said = append(said, fmt.Sprintf("%s %s %s", c.what, verb, terminal.Duration(math.Abs(c.s))))
	}
	out.WriteString(upperFirst(strings.Join(said[:2], ", ")) + "; " + said[2] + ". ")
	if core := b.CoreS - a.CoreS; core > 0 {
		fmt.Fprintf(&out, "Of what is idle, waiting for a core that workers share is %s, in 1F1B %s. ",
			terminal.Duration(b.CoreS), terminal.Duration(a.CoreS))
	}
	fmt.Fprintf(&out, "So a batch takes %s instead of %s: %.3f times as fast", terminal.Duration(b.LengthS()),
		terminal.Duration(a.LengthS()), a.LengthS()/b.LengthS())
	least := 0.0
	for _, x := range of[0] {
		least = max(least, x.BusyS())
	}
	if cores > 0 {
		least = max(least, a.BusyS()*float64(len(of[0]))/float64(cores))
	}
	if least > 0 {
		fmt.Fprintf(&out, ", where a bubble filled for nothing would give %.3f", a.LengthS()/least)
	}
	out.WriteString(".")
	const full = 0.97
	for w, x := range of[1] {
		if x.BusyS() > full*x.LengthS() {
			fmt.Fprintf(&out, " Worker %d computes for %s of it: with these stages no order is faster.", w,
				report.Percent(x.BusyS()/x.LengthS()))
			break
		}
	}
	return out.String()
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
