package curves

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/tune/avgpipe"
	"github.com/millrace-ml/millrace/tune/predict"
)

// TimesVersion is the version of times.json.
const TimesVersion = 1

// Times has the step times of every contender, measured in rounds in which each contender has a turn. This part of
// bench curves needs a quiet machine.
type Times struct {
	Version   int          `json:"version"`
	Model     string       `json:"model"`
	Batch     int          `json:"batch"`
	Workers   int          `json:"workers"`
	Cores     int          `json:"cores"`
	Wire      string       `json:"wire,omitempty"`
	Stages    []int        `json:"stages"` // first layers
	Contested []*contender `json:"contenders"`
	// Held has, for each rival, AvgPipe's best setting within that rival's memory, as positions in Contested. If no
	// setting with several pipelines fits, it also has the least memory that such a setting needs.
	Held []heldTo `json:"held"`
	// Filling shows how AvgPipe fills 1F1B's bubbles; nil if one of the two contenders is missing.
	Filling *filling `json:"filling,omitempty"`
}

// contender is the plan of one method, predicted and measured.
type contender struct {
	Name         string          `json:"name"`
	Policy       schedule.Policy `json:"policy"`
	Pipelines    int             `json:"pipelines"`
	Split        bool            `json:"split,omitempty"`   // the pipelines share a batch
	MicroBatches int             `json:"micro_batches"`     // micro-batches in one pipeline's batch
	Advance      int             `json:"advance,omitempty"` // number of advance forwards
	PredictedS   float64         `json:"predicted_s"`       // predicted seconds of a batch
	Predicted    []int64         `json:"predicted_bytes"`   // predicted memory by worker
	StepS        []float64       `json:"step_s"`            // measured seconds of a batch, by round
	Busy         []float64       `json:"busy"`              // fraction of the time in which workers compute, by round
	PeakBytes    []int64         `json:"peak_bytes"`        // measured memory by worker

	Plan *plan.Plan
}

// Batches returns how many batches an iteration trains.
func (c *contender) Batches() int {
	if c.Split {
		return 1
	}
	return c.Pipelines
}

// heldTo names a rival, and the best setting of AvgPipe that fits the rival's memory. Both are indices in
// Times.Contested.
type heldTo struct {
	Rival         int   `json:"rival"`
	AvgPipe       int   `json:"avgpipe"` // -1: no setting fits
	SmallestBytes int64 `json:"smallest_bytes,omitempty"`
}

// peak returns the largest measured memory of a worker.
func (c *contender) peak() int64 {
	if len(c.PeakBytes) == 0 {
		return 0
	}
	return slices.Max(c.PeakBytes)
}

func FirstLayers(pl *plan.Plan) []int {
	var first []int
	for _, st := range pl.Stages {
		first = append(first, st.FirstLayer)
	}
	return first
}

func TimesPath(j *job.Job) string { return filepath.Join(j.Output.Folder, "times.json") }

// ReadTimes returns what an earlier run measured; nil if there was none. It refuses times of another model or batch.
func ReadTimes(l *Setting) (*Times, error) {
	text, err := document.Read(TimesPath(l.Job), document.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	t := &Times{}
	if err == nil {
		err = document.Decode(text, TimesVersion, t)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("bench: %s: %w", TimesPath(l.Job), err)
	case t.Model != l.Model.ID() || t.Batch != l.Job.Plan.Batch:
		return nil, fmt.Errorf("bench: %s is of model %s and batches of %d; this is %s and %d: give another --out, or "+
			"measure again", TimesPath(l.Job), t.Model, t.Batch, l.Model.ID(), l.Job.Plan.Batch)
	}
	if f := t.Filling; f != nil && (min(f.OneF1B, f.AvgPipe) < 0 || max(f.OneF1B, f.AvgPipe) >= len(t.Contested)) {
		return nil, fmt.Errorf("bench: %s: no contender %d or %d of %d", TimesPath(l.Job), f.OneF1B, f.AvgPipe,
			len(t.Contested))
	}
	for _, h := range t.Held {
		if h.Rival < 0 || h.Rival >= len(t.Contested) || h.AvgPipe >= len(t.Contested) {
			return nil, fmt.Errorf("bench: %s: no contender %d or %d of %d", TimesPath(l.Job), h.Rival, h.AvgPipe,
				len(t.Contested))
		}
	}
	return t, nil
}

// systems maps each published system to its name in the tables and its weight policy.
var systems = map[string]struct {
	name   string
	policy schedule.Policy
}{
	"data parallelism": {"DP", schedule.Sync}, "GPipe": {"GPipe (AFAB)", schedule.Sync},
	"DAPPLE":    {"DAPPLE (1F1B)", schedule.Sync},
	"PipeDream": {"PipeDream (stash)", schedule.Stash}, "PipeDream-2BW": {"PipeDream-2BW", schedule.DoubleBuffered},
}

// Contend plans the rivals, and PipeDream also under two more weight policies. For each rival it plans AvgPipe within
// the rival's memory. It also adds AvgPipe's fastest settings without any memory limit.
func (t *Times) Contend(ctx context.Context, w *avgpipe.Workload, micros int, methods []Method) error {
	rivals, err := w.Baselines(ctx, micros)
	if err != nil {
		return err
	}
	for _, b := range slices.Clone(rivals) {
		if b.Name != "PipeDream" {
			continue
		}
		for _, policy := range []schedule.Policy{schedule.Vertical, schedule.Latest} {
			pl := *b.Plan
			pl.Weights = string(policy)
			predicted, err := predict.Plan(w.Profile, w.Cluster, &pl, w.Clip)
			if err != nil {
				return err
			}
			rivals = append(rivals, avgpipe.Baseline{Name: string(policy), Plan: &pl, Predicted: predicted, Fits: true})
		}
	}
	ways, err := averagings(w, methods)
	if err != nil {
		return err
	}
	for _, b := range rivals {
		t.Contested = append(t.Contested, rivalContender(b))
		t.Held = append(t.Held, heldTo{Rival: len(t.Contested) - 1, AvgPipe: -1})
	}
	if err := t.hold(ctx, ways, rivals); err != nil {
		return err
	}
	return t.free(ctx, ways)
}

func rivalContender(b avgpipe.Baseline) *contender {
	c := &contender{
		Name: b.Name, Policy: schedule.Policy(b.Plan.Weights), Pipelines: 1, MicroBatches: b.Plan.MicroBatches,
		PredictedS: b.Predicted.StepS, Predicted: b.Predicted.MemoryBytes, Plan: b.Plan,
	}
	if s, ok := systems[b.Name]; ok {
		c.Name, c.Policy = s.name, s.policy
	}
	return c
}
