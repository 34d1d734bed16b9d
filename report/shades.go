package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/trace"
)

// heldStage is a stage of a pipeline on a worker; replica is told apart because Chimera's two
// directions are two replicas of each stage.
type heldStage struct {
	pipeline, stage, replica int
	updates                  bool // and nothing else: it is of a reference model
}

// holdings is, for each worker, the stages that it computes for: by pipeline, then by
// direction, then ascending, so that a shade means the same on every worker.
type holdings [][]heldStage

// shades is how many stages of a worker are told apart by shade; further ones begin anew.
const shades = 4

// stagesOf is what the computations of a Timeline are for.
func stagesOf(events []trace.Event, workers int) holdings {
	held := make(holdings, workers)
	for i := range events {
		e := &events[i]
		if f, ok := trace.ParseFields(e.Instruction); ok && e.Lane == trace.Compute && trace.IsBusy(e.Kind) {
			at := held.index(e.Worker, f)
			if at < 0 {
				held[e.Worker] = append(held[e.Worker], heldStage{f.Pipeline, f.Stage, f.Replica, true})
				at = len(held[e.Worker]) - 1
			}
			if e.Kind != "U" {
				held[e.Worker][at].updates = false
			}
		}
	}
	for _, list := range held {
		slices.SortFunc(list, func(a, b heldStage) int {
			return cmp.Or(a.pipeline-b.pipeline, a.replica-b.replica, a.stage-b.stage)
		})
	}
	return held
}

// index is where an instruction's stage is in its worker's list; -1: nowhere.
func (h holdings) index(worker int, f trace.Fields) int {
	return slices.IndexFunc(h[worker], func(s heldStage) bool {
		return s.pipeline == f.Pipeline && s.stage == f.Stage && s.replica == f.Replica
	})
}

// shade tells an instruction's stage from the others of its worker, 0 to shades-1.
func (h holdings) shade(worker int, f trace.Fields) int {
	return max(0, h.index(worker, f)) % shades
}

// legend says what the shades stand for; nothing where every worker has one stage.
func (h holdings) legend() []colourKey {
	var most []heldStage
	for _, list := range h {
		if len(list) > len(most) {
			most = list
		}
	}
	var keys []colourKey
	for c := range min(len(most), shades) {
		if len(most) > 1 {
			keys = append(keys, colourKey{Class: fmt.Sprintf("k-F s%d", c), Label: shadeLabel(most, c)})
		}
	}
	return keys
}

// shadeLabel names one of a worker's stages by what tells it from the others: its
// pipeline, its direction, or that it is another chunk of the model.
func shadeLabel(held []heldStage, c int) string {
	first, last := held[0], held[len(held)-1]
	nth := [shades]string{"first", "second", "third", "fourth"}[c]
	pipelines, directions := last.pipeline-first.pipeline+1, last.replica-first.replica+1
	switch len(held) {
	case pipelines:
		if held[c].updates && held[c].pipeline > 0 {
			return fmt.Sprintf("reference (pipeline %d)", held[c].pipeline)
		}
		return fmt.Sprintf("pipeline %d", held[c].pipeline)
	case directions:
		return nth + " direction"
	}
	return nth + " chunk of a worker"
}
