package curves

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
)

// Comparison holds both parts of bench curves for display.
type Comparison struct {
	*Setting
	Metric  Metric
	Target  float64
	Trained map[string][]Training
	found   map[string]Efficiency
	Times   *Times // nil: not measured
	Study   report.Study
	Files   []plotFile
}

// plotFile is a plot and the name of its file.
type plotFile struct {
	Name string
	Plot report.Plot
}

// Count counts the epochs to the target. If no target is given, the target is what every training of sync reaches in
// the first two thirds of its epochs.
func (s *Comparison) Count() error {
	if s.Target == 0 {
		var sync [][]Point
		for _, t := range s.Trained["sync"] {
			sync = append(sync, t.Points)
		}
		var err error
		if s.Target, err = s.Metric.ReachedBy(sync, 2./3); err != nil {
			return fmt.Errorf("%w; give a --target, or let it learn first", err)
		}
	}
	s.found = map[string]Efficiency{}
	for _, m := range s.Methods {
		s.found[m.Name] = s.Metric.Efficiency(s.Trained[m.Name], s.Target)
	}
	return nil
}

func (s *Comparison) goal() string {
	if s.Metric == Accuracy {
		return fmt.Sprintf("an accuracy of %.4g %%", 100*s.Target)
	}
	return fmt.Sprintf("a loss of %.4g", s.Target)
}

// value formats a value of the metric.
func (s *Comparison) value(x float64) string {
	if s.Metric == Accuracy {
		return fmt.Sprintf("%.2f %%", 100*x)
	}
	return fmt.Sprintf("%.4f", x)
}

// learningSection shows the epochs to the target and the curves, if anything was trained.
func (s *Comparison) learningSection() {
	if len(s.Trained) == 0 {
		return
	}
	t := &report.Table{Head: []string{"method", " learning rate", " epochs to target", " least", " most", " over sync",
		" reached", " diverged", " best " + string(s.Metric)}}
	reached := &report.Bars{Title: "Epochs to the target"}
	sync := s.found["sync"]
	for _, m := range s.Methods {
		e := s.found[m.Name]
		all := len(s.Trained[m.Name])
		if all == 0 {
			continue
		}
		row := []any{m.Name, fmt.Sprintf("%.3g", s.Job.Train.Rate.Base*m.Factor(s.Job))}
		bar := report.Bar{None: "not reached"}
		if n := len(e.Epochs); n > 0 {
			row = append(row, fmt.Sprintf("%.3f", e.Mean), fmt.Sprintf("%.3f", e.Lo), fmt.Sprintf("%.3f", e.Hi))
			bar = report.Bar{Value: e.Mean, Lo: e.Lo, Hi: e.Hi}
			if e.Missed > 0 {
				bar.Note = fmt.Sprintf("(%d of %d)", n, all)
			}
		} else {
			row = append(row, "–", "–", "–")
		}
		over := "–"
		if e.Mean > 0 && e.Missed == 0 && sync.Mean > 0 {
			over = fmt.Sprintf("%.3f", e.Mean/sync.Mean)
		}
		best := "–"
		if e.Diverged < all {
			best = s.value(e.Best)
		}
		t.Add(append(row, over, fmt.Sprintf("%d of %d", all-e.Missed, all), e.Diverged, best)...)
		reached.Groups = append(reached.Groups, report.BarGroup{Name: m.Name, Bars: []report.Bar{bar}})
	}
	s.Study.Sections = append(s.Study.Sections, report.StudySection{
		Title: "Epochs to " + s.goal(),
		Note:  fmt.Sprintf("The mean of the seeds, evaluated %d times an epoch of %d samples.", s.Evals, s.Rows),
		Table: t, Plots: []report.Plot{s.plot("epochs.svg", reached), s.plot("loss.svg", s.curves(Loss, "")),
			s.plot("accuracy.svg", s.curves(Accuracy, report.UnitPart))},
		Notes: []string{
			"sync stands for AFAB (GPipe) and 1F1B (DAPPLE), which give the bits of one worker with their micro-batches, and " +
				"for data parallelism, which adds the same gradients in another order. Batches are not cut to learn (2BW's are): " +
				"that changes rounding alone, and where layers normalise over micro-batches they are cut.",
			"Evaluations drain the pipeline; the first minibatches behind one see fresher weights than the policy has them see.",
		},
	})
}

// plot adds a plot to Files and returns it.
func (s *Comparison) plot(name string, p report.Plot) report.Plot {
	s.Files = append(s.Files, plotFile{name, p})
	return p
}

// curvesFrom is the fraction of a training, from its start, that plots leave out. In this part the curves fall by more
// than the methods differ.
const curvesFrom = 0.1

// curves plots a metric over epochs, by method.
func (s *Comparison) curves(metric Metric, unit report.Unit) report.Plot {
	p := &report.Lines{Title: "Test " + string(metric), XLabel: "epochs", Unit: unit}
	if metric == s.Metric {
		p.Target = &s.Target
	}
	for _, m := range s.Methods {
		var points [][]Point
		for _, t := range s.Trained[m.Name] {
			points = append(points, t.Points)
		}
		line := report.Series{Name: m.Name, Like: -1}
		spreads := metric.Spreads(points)
		for _, at := range spreads {
			if at.Epoch < spreads[len(spreads)-1].Epoch*curvesFrom {
				continue
			}
			line.Points = append(line.Points, report.SeriesPoint{X: at.Epoch, Y: at.Mean, Lo: at.Lo, Hi: at.Hi})
		}
		if len(line.Points) > 0 {
			p.Series = append(p.Series, line)
		}
	}
	return p
}

// epochsOf returns how many epochs a contender takes to reach the target; 0 if that is not known.
func (s *Comparison) epochsOf(c *contender) float64 {
	m, ok := MethodOf(s.Methods, c.Policy, c.Pipelines, c.Split)
	if e := s.found[m.Name]; ok && e.Missed == 0 {
		return e.Mean
	}
	return 0
}

// targetS returns a contender's time to the target in seconds; 0 if that is not known.
func (s *Comparison) targetS(c *contender) float64 {
	return TimeTo(s.epochsOf(c), s.Rows, s.Times.Batch, stats.Median(c.StepS))
}

// timeSections shows a table of all contenders, AvgPipe within the memory of each rival, and how AvgPipe fills 1F1B's
// bubbles.
func (s *Comparison) timeSections() error {
	t := &report.Table{Head: []string{"method", " batch", " predicted", " samples/s", " epochs to target",
		" time to target", " peak memory", " predicted", " computing"}}
	for _, c := range s.Times.Contested {
		batch := stats.Median(c.StepS)
		row := []any{c.Name, terminal.Duration(batch), terminal.Duration(c.PredictedS),
			fmt.Sprintf("%.4g", float64(s.Times.Batch)/batch)}
		if e := s.epochsOf(c); e > 0 {
			row = append(row, fmt.Sprintf("%.3f", e), terminal.Duration(s.targetS(c)))
		} else {
			row = append(row, "–", "–")
		}
		t.Add(append(row, terminal.Bytes(c.peak()), terminal.Bytes(slices.Max(c.Predicted)),
			report.Percent(stats.Median(c.Busy)))...)
	}
	s.Study.Sections = append(s.Study.Sections, report.StudySection{
		Title: "Time to " + s.goal(),
		Note: "Time to the target is epochs × batches of an epoch × the median time of a batch; evaluations are not " +
			"counted. Computing is the part of the workers' time; memory is of the fullest worker, by its allocator.",
		Table: t,
	})
	if err := s.heldSection(); err != nil {
		return err
	}
	return s.fillingSection()
}

// claims are the AvgPipe paper's speedups over each rival at equal memory, for GNMT, BERT and AWD (section 7.1.1). The
// paper gives none over DAPPLE.
var claims = map[string]string{
	"DP": "–, 1.3, 7.0", "GPipe (AFAB)": "1.3, 1.1, 1.8", "PipeDream (stash)": "1.6, –, 3.0",
	"PipeDream-2BW": "1.6, 1.8, 1.8",
}

// heldSection shows AvgPipe within each rival's memory, as the paper's Figures 11 to 13 do.
func (s *Comparison) heldSection() error {
	t := &report.Table{Head: []string{"rival", "AvgPipe", " rival holds", " AvgPipe", " faster, batch", " 95 % interval",
		" x epochs", " = to target", " paper"}}
	names := []string{"rival", "AvgPipe at its memory"}
	taken, memory, busy := &report.Bars{Title: "Time to the target", Unit: report.UnitSeconds,
		Names: names}, &report.Bars{Title: "Peak memory of the fullest worker", Unit: report.UnitBytes, Names: names},
		&report.Bars{Title: "Workers computing", Unit: report.UnitPart, Names: names}
	batches := &report.Bars{Title: "Time of a batch", Unit: report.UnitSeconds, Names: names}
	for _, h := range s.Times.Held {
		rival := s.Times.Contested[h.Rival]
		groups := map[*report.Bars]report.BarGroup{}
		add := func(c *contender) {
			bars := map[*report.Bars]report.Bar{
				batches: {Value: stats.Median(c.StepS), Lo: slices.Min(c.StepS), Hi: slices.Max(c.StepS)},
				memory:  {Value: float64(c.peak())}, busy: {Value: stats.Median(c.Busy)}, taken: {Value: s.targetS(c)},
			}
			for p, b := range bars {
				if b.Value == 0 {
					b.None = "not reached"
				}
				g := groups[p]
				g.Name, g.Bars = rival.Name, append(g.Bars, b)
				groups[p] = g
			}
		}
		add(rival)
		if h.AvgPipe < 0 {
			t.Add(rival.Name, "none fits; the smallest needs "+terminal.Bytes(h.SmallestBytes),
				terminal.Bytes(rival.peak()), "", "", "", "", "", claims[rival.Name])
			for p, g := range groups {
				g.Bars = append(g.Bars, report.Bar{None: "none fits"})
				groups[p] = g
			}
		} else {
			own := s.Times.Contested[h.AvgPipe]
			add(own)
			speed, err := SpeedupOf(own.StepS, rival.StepS, s.epochsOf(own), s.epochsOf(rival))
			if err != nil {
				return err
			}
			epochs, target := "–", "–"
			if speed.Target > 0 {
				epochs, target = fmt.Sprintf("%.3f", speed.Epochs), fmt.Sprintf("%.3f", speed.Target)
			}
			name := strings.TrimPrefix(own.Name, "AvgPipe ")
			if own.Pipelines == 1 && h.SmallestBytes > 0 {
				name += fmt.Sprintf(" (several pipelines need %s)", terminal.Bytes(h.SmallestBytes))
			}
			t.Add(rival.Name, name, terminal.Bytes(rival.peak()), terminal.Bytes(own.peak()),
				fmt.Sprintf("%.3f", speed.Batch),
				fmt.Sprintf("%.3f to %.3f", speed.Interval.Lo, speed.Interval.Hi), epochs, target,
				cmp.Or(claims[rival.Name], "–"))
		}
		for _, p := range []*report.Bars{taken, batches, memory, busy} {
			p.Groups = append(p.Groups, groups[p])
		}
	}
	s.Study.Sections = append(s.Study.Sections, report.StudySection{
		Title: "AvgPipe held to each rival's memory",
		Note: "M micro-batches, N pipelines, +x forwards in advance of 1F1B: the fastest setting, by simulation, whose " +
			"fullest worker holds no more than the rival's. How much faster it is over a batch is the median over rounds in " +
			"which both had their turn; times the rival's epochs over its own, that is how much faster it is to the target.",
		Table: t,
		Plots: []report.Plot{s.plot("time.svg", taken), s.plot("batch.svg", batches), s.plot("memory.svg", memory),
			s.plot("computing.svg", busy)},
		Notes: []string{"The paper's are of GNMT, BERT (where PipeDream runs out of memory) and AWD, of its training time " +
			"to a target on 6 V100 (AWD: 4) and 1 Gbit/s (section 7.1.1); over all pipelines it has 1.7."},
	})
	return nil
}

// facts lists how the comparison was measured.
func (s *Comparison) facts() {
	j := s.Job
	add := func(name, value string) { s.Study.Facts = append(s.Study.Facts, report.Fact{Name: name, Value: value}) }
	add("model", fmt.Sprintf("%s, %d parameters", s.Model.Name, s.Model.ParameterElements()))
	add("data", fmt.Sprintf("%s, the first %d samples; test: %s", j.Data.Source, s.Rows,
		rowsText(j.Train.EvalRows, s.Tests)))
	add("batch", fmt.Sprintf("%d samples; GPipe, DAPPLE and 2BW cut it into %d micro-batches", j.Plan.Batch, s.Micros))
	add("optimizer", fmt.Sprintf("%s, momentum %g, learning rate %g, %s", j.Train.Optimizer.Kind,
		j.Train.Optimizer.Momentum, j.Train.Rate.Base, j.Train.Rate.Kind))
	add("seeds", fmt.Sprintf("%d from %d on", s.Seeds, j.Data.Seed))
	add("AvgPipe", "learning rate times the number of pipelines, unless its name says otherwise; alpha 1/N; dilutes "+
		"first; split: an N-th of a batch each, rate and alpha as of train --lr-scale split")
	add("stages that learn", fmt.Sprintf("begin with layers %v", FirstLayers(s.Base)))
	if t := s.Times; t != nil {
		where := fmt.Sprintf("%d workers on %d of %d cores", t.Workers, t.Cores, runtime.NumCPU())
		if t.Wire != "" {
			where += ", behind the links of " + t.Wire
		}
		add("measured", where)
		add("stages measured", fmt.Sprintf("begin with layers %v", t.Stages))
		add("rounds", fmt.Sprint(len(t.Contested[0].StepS)))
	}
	for _, p := range s.Files {
		s.Study.Links = append(s.Study.Links, report.StudyLink{File: p.Name, What: "plot"})
	}
	s.Study.Links = append(s.Study.Links, report.StudyLink{File: "trainings.jsonl",
		What: "every training with its evaluations"})
	if s.Times != nil {
		s.Study.Links = append(s.Study.Links, report.StudyLink{File: "times.json", What: "every contender's rounds"})
	}
}

func rowsText(asked, all int) string {
	if asked > 0 && asked < all {
		return fmt.Sprintf("the first %d", asked)
	}
	return fmt.Sprintf("all %d", all)
}

// Fill makes the study with all sections, facts and plots.
func (s *Comparison) Fill() error {
	s.Study = report.Study{
		Title: fmt.Sprintf("%s: time to %s", s.Model.Name, s.goal()),
		Subtitle: fmt.Sprintf("%d samples a batch, %d workers; AvgPipe's Figures 11 to 14 on this machine", s.Job.Plan.Batch,
			s.Job.Machine.Workers),
	}
	s.learningSection()
	if s.Times != nil {
		if err := s.timeSections(); err != nil {
			return err
		}
	}
	s.facts()
	return nil
}

// Setting says how methods are compared: what they learn, from how much data, over which stages.
type Setting struct {
	Job     *job.Job
	Model   *model.Model
	Base    *plan.Plan // a plan that has the stages
	Micros  int        // micro-batches of a rival's batch
	Methods []Method
	Seeds   int
	Epochs  float64 // in a training
	Evals   int     // evaluations in an epoch
	Rows    int     // training samples in an epoch
	Tests   int     // test samples
}
