package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/trace"
)

// heldStage is a stage of a pipeline on a worker; replica is told apart because Chimera's two
// directions are two replicas of each stage.
type heldStage struct{ pipeline, stage, replica int }

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
			h := heldStage{f.Pipeline, f.Stage, f.Replica}
			if !slices.Contains(held[e.Worker], h) {
				held[e.Worker] = append(held[e.Worker], h)
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

// shade tells an instruction's stage from the others of its worker, 0 to shades-1.
func (h holdings) shade(worker int, f trace.Fields) int {
	return max(0, slices.Index(h[worker], heldStage{f.Pipeline, f.Stage, f.Replica})) % shades
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
		return fmt.Sprintf("pipeline %d", held[c].pipeline)
	case directions:
		return nth + " direction"
	}
	return nth + " chunk of a worker"
}
