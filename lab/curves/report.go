package curves

import (
	"errors"
	"fmt"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/record"
)

// Report is the result of bench curves: how each method learns, and how fast AvgPipe is relative to 1F1B.
type Report struct {
	record.Head
	Model   string         `json:"model"`
	Metric  Metric         `json:"metric"`
	Target  float64        `json:"target"`
	Methods []MethodReport `json:"methods,omitempty"`
	Gains   []GainReport   `json:"gains,omitempty"`
}

// MethodReport says how many epochs the trainings of one method take to reach the target.
type MethodReport struct {
	Name    string    `json:"name"`
	Epochs  []float64 `json:"epochs,omitempty"` // only of trainings that reach the target, by seed
	Seeds   int       `json:"seeds"`
	Reached int       `json:"reached"`
	Mean    float64   `json:"mean"` // Mean, Least and Most are computed from Epochs
	Least   float64   `json:"least"`
	Most    float64   `json:"most"`
	Best    float64   `json:"best"` // mean of the trainings' best values
}

// GainReport compares one setting of AvgPipe with 1F1B.
type GainReport struct {
	Name      string         `json:"name"`
	Split     bool           `json:"split"`            // each pipeline takes a part of a batch
	Ratios    []float64      `json:"ratios,omitempty"` // by round: 1F1B's batch time divided by this setting's
	Gain      float64        `json:"gain"`             // median of Ratios
	Interval  stats.Interval `json:"interval,omitzero"`
	ToTarget  float64        `json:"to_target"` // Gain times 1F1B's epochs divided by this setting's epochs; 0: not known
	PeakBytes int64          `json:"peak_bytes"`
	BaseBytes int64          `json:"base_bytes"` // 1F1B's memory
}

// Kind returns the name of the benchmark, as in Head.Bench.
func (r *Report) Kind() string { return "curves" }

// Recount returns an error for means and gains that do not follow from epochs and rounds.
func (r *Report) Recount() (wrong error) {
	for _, m := range r.Methods {
		if r.Carried() && len(m.Epochs) == 0 {
			continue
		}
		if len(m.Epochs) != m.Reached || m.Reached > m.Seeds {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %d epochs, reached by %d of %d seeds", m.Name, len(m.Epochs), m.Reached,
				m.Seeds))
		}
		wrong = errors.Join(wrong, r.Value(m.Name+": mean", m.Mean, stats.Mean(m.Epochs)))
	}
	for _, g := range r.Gains {
		wrong = errors.Join(wrong, r.Median(g.Name+": gain", g.Ratios, g.Gain, g.Interval))
	}
	return wrong
}

// Report returns the comparison's results in the form of their file.
func (s *Comparison) Report(head record.Head) (*Report, error) {
	r := &Report{Head: head, Model: s.Model.Name, Metric: s.Metric, Target: s.Target}
	for _, m := range s.Methods {
		e, seeds := s.found[m.Name], len(s.Trained[m.Name])
		if seeds == 0 {
			continue
		}
		r.Methods = append(r.Methods, MethodReport{Name: m.Name, Epochs: e.Epochs, Seeds: seeds, Reached: seeds - e.Missed,
			Mean: e.Mean, Least: e.Lo, Most: e.Hi, Best: e.Best})
	}
	if s.Times == nil {
		return r, nil
	}
	var base *contender
	for _, c := range s.Times.Contested {
		if c.Name == systems["DAPPLE"].name {
			base = c
		}
	}
	for _, c := range s.Times.Contested {
		if base == nil || c.Pipelines < 2 {
			continue
		}
		g := GainReport{Name: c.Name, Split: c.Split, PeakBytes: c.peak(), BaseBytes: base.peak()}
		speed, err := SpeedupOf(c.StepS, base.StepS, s.epochsOf(c), s.epochsOf(base))
		if err != nil {
			return nil, err
		}
		for i, step := range c.StepS {
			g.Ratios = append(g.Ratios, base.StepS[i]/step)
		}
		g.Gain, g.Interval, g.ToTarget = speed.Batch, speed.Interval, speed.Target
		r.Gains = append(r.Gains, g)
	}
	return r, nil
}
