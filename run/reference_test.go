package run

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/run/optim"
	"github.com/millrace-ml/millrace/run/stage"
)

// reference is what every synchronous schedule must equal bit by bit: one worker, one
// stage, a loop over the micro-batches that adds up gradients, one update a step. No
// Program, no Gate, no executor. With replicas it is as many such stages that take turns, and
// a sum in rank order.
func reference(t testing.TB, c Config) map[string]Weight {
	t.Helper()
	var out map[string]Weight
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- guarded(func() (err error) {
			out, err = referenceLoop(c)
			return err
		})
	}()
	if err := <-done; err != nil {
		t.Fatal("reference: ", err)
	}
	return out
}

func referenceLoop(c Config) (map[string]Weight, error) {
	dev, err := c.Engine.Open(0, 1)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	graph, err := stage.NewGraph(c.Model)
	if err != nil {
		return nil, err
	}
	layers, err := nn.Build(c.Model)
	if err != nil {
		return nil, err
	}
	replicas := make([]*stage.Stage, len(c.Plan.Stages[0].Devices))
	for r := range replicas {
		replicas[r], err = stage.New(stage.Config{
			Device: dev, Float: c.Engine.Float(), Graph: graph, Last: len(layers) - 1, Layers: layers, Seed: c.Seed, States: c.Optimizer.States(),
		})
		if err != nil {
			return nil, err
		}
		defer replicas[r].Close()
	}
	w := &worker{dev: dev, job: &job{engine: c.Engine}}
	for step := range c.Steps {
		for m := range c.Plan.MicroBatches {
			s := replicas[m%len(replicas)]
			given := stage.Tensors{}
			rows := c.Plan.MicroBatch
			if err := w.feed(&holding{Stage: s}, given, c.Data.Train, step, c.Plan.Batch(), m*rows, rows); err != nil {
				return nil, err
			}
			if _, _, err := s.Forward(stage.Micro{ID: m, Step: step, Index: m, Rows: rows, Version: s.Version()}, given); err != nil {
				return nil, err
			}
			if _, err := s.Backward(m, nil, float64(rows)/float64(c.Plan.Batch())); err != nil {
				return nil, err
			}
		}
		if err := sumReplicas(c.Engine, replicas, true); err != nil {
			return nil, err
		}
		scale := 1.0
		if c.Clip > 0 {
			vectors, err := replicas[0].Norms()
			if err != nil {
				return nil, err
			}
			var squares []float64
			for _, v := range vectors {
				squares = append(squares, stage.SquareSum(v))
			}
			scale = optim.ClipScale(stage.GlobalNorm(squares), c.Clip)
		}
		for _, s := range replicas {
			if err := s.Update(c.Optimizer, optim.Step{Count: step + 1, Rate: c.Rate.At(step), GradScale: scale}, stage.Replace); err != nil {
				return nil, err
			}
		}
	}
	out := map[string]Weight{}
	vectors, err := replicas[0].Snapshot()
	for _, v := range vectors {
		if !strings.Contains(v.Name, "#") {
			out[v.Name] = Weight{DType: v.DType, Shape: v.Shape, Data: bytes.Clone(v.Data)}
		}
	}
	return out, err
}

// sumReplicas gives every replica the sums, in rank order, of gradients and, if they are wanted, of
// buffers, and the mean of the latter.
func sumReplicas(e engine.Engine, replicas []*stage.Stage, buffers bool) error {
	if len(replicas) == 1 {
		return nil
	}
	all := make([][]stage.Vector, len(replicas))
	for r, s := range replicas {
		gradients, err := s.Gradients()
		if err != nil {
			return err
		}
		if all[r] = gradients; !buffers {
			continue
		}
		statistics, err := s.Statistics()
		if err != nil {
			return err
		}
		all[r] = append(all[r], statistics...)
	}
	for i, total := range all[0] {
		for _, other := range all[1:] {
			if err := e.SumInto(total.Data, other[i].Data, total.DType); err != nil {
				return err
			}
		}
		for _, other := range all[1:] {
			copy(other[i].Data, total.Data)
		}
	}
	for _, s := range replicas {
		if !buffers {
			break
		}
		if err := s.AverageStatistics(len(replicas)); err != nil {
			return err
		}
	}
	return nil
}
