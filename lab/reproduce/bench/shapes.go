package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/tune/shape"
)

// Shapes is the content of a file that records how long predictions take.
type Shapes struct {
	record.Head
	Rows []ShapesTimed `json:"rows"`
}

// Kind returns "shapes", the Head's Bench.
func (s *Shapes) Kind() string { return "shapes" }

// Recount returns an error for medians that do not follow from the times.
func (s *Shapes) Recount() (wrong error) {
	for _, r := range s.Rows {
		wrong = errors.Join(wrong, s.Median(r.Question+": median_s", r.Seconds, r.MedianS, stats.Interval{}))
	}
	return wrong
}

// ShapesTimed holds how long the predictions for one question take.
type ShapesTimed struct {
	Question string    `json:"question"`
	Devices  int       `json:"devices"`
	Shapes   int       `json:"shapes"`
	Seconds  []float64 `json:"seconds,omitempty"` // time of all shapes together, by repetition
	MedianS  float64   `json:"median_s"`
	MostS    float64   `json:"most_s"`
}

// TimeShapes measures how long a prediction for 1,024 devices takes, and how long a sweep of the same model takes. It
// repeats each of them `times` times. The prediction is for GPT-3's shape under Megatron-LM's parallelism (Narayanan et
// al., SC 2021, section 5.1).
func TimeShapes(ctx context.Context, times int) ([]ShapesTimed, error) {
	m, err := model.Build("gpt", map[string]any{"layers": 96, "width": 12288, "heads": 96, "context": 2048,
		"vocabulary": 51200, "tied": true})
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	c, err := cluster.Preset("dgx-a100:128x8")
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	one := shape.Shape{Batch: 1536, MicroBatch: 1, Replicas: 8, Stages: 16, Tensor: 8, Chunks: 3, Precision: "bf16",
		Recompute: "full", States: 2}
	sweep := shape.Sweep{Base: shape.Shape{Batch: 1536, Precision: "bf16", States: 2, Shard: "zero1"}, Replicas: []int{0},
		Stages: []int{2, 4, 8, 16, 32, 64}, Tensors: []int{1, 2, 4, 8}, MicroBatches: []int{1, 2, 4},
		Recomputes: []string{"none", "selective", "full"}}
	var out []ShapesTimed
	for _, q := range []struct {
		name string
		ask  func() (int, error)
	}{
		{"GPT-3, dp 8 x pp 16 x tp 8, 192 micro-batches of 1, 3 chunks", func() (int, error) {
			_, err := shape.Predict(m, c, one)
			return 1, err
		}},
		{"GPT-3, a sweep over stages, groups, micro-batches and recompute", func() (int, error) {
			found, err := shape.Run(m, c, sweep)
			return len(found), err
		}},
	} {
		row := ShapesTimed{Question: q.name, Devices: len(c.Devices)}
		for range times {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			began := time.Now()
			if row.Shapes, err = q.ask(); err != nil {
				return nil, fmt.Errorf("bench: %w", err)
			}
			took := time.Since(began).Seconds()
			row.Seconds, row.MostS = append(row.Seconds, took), max(row.MostS, took)
		}
		row.MedianS = stats.Median(row.Seconds)
		out = append(out, row)
	}
	return out, nil
}
