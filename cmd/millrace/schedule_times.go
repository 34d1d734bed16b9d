package main

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/sim"
)

// times holds the times of computations and transfers on uniform stages, in units of the user's choice.
type times struct {
	forward, backward        []float64 // by stage, or one number for all workers
	weight, transfer, update float64
	allReduce, norm          float64
	streaming                bool // devices transfer while they compute
}

// mostCost is the maximal time of an instruction on uniform stages. With larger times, a simulated Program's sums of
// times could lose the shortest time to rounding.
const mostCost = 1e9

// check refuses impossible times.
func (t *times) check() error {
	for _, f := range []struct {
		name   string
		values []float64
	}{{"forward", t.forward}, {"backward", t.backward}, {"weight", []float64{t.weight}},
		{"transfer", []float64{t.transfer}}, {"update", []float64{t.update}}, {"all-reduce", []float64{t.allReduce}},
		{"norm", []float64{t.norm}}} {
		for _, value := range f.values {
			if !(value >= 0 && value <= mostCost) {
				return fmt.Errorf("--%s %s; give a time from 0 to %g", f.name, commas(f.values), mostCost)
			}
		}
	}
	if t.weight > slices.Min(t.backward) {
		return fmt.Errorf("--weight %v; it is a part of --backward, which is %s", t.weight, commas(t.backward))
	}
	return nil
}

// fit refuses times by stage whose number differs from a Program's number of stages.
func (t *times) fit(p *schedule.Program) error {
	for _, f := range []struct {
		name  string
		times []float64
	}{{"forward", t.forward}, {"backward", t.backward}} {
		if len(f.times) > 1 && len(f.times) != p.Stages {
			return fmt.Errorf("--%s %s has %d times; give one, or one for each of the %d stages", f.name,
				commas(f.times), len(f.times), p.Stages)
		}
	}
	return nil
}

// costs returns the costs of a Program's instructions on uniform stages. The chunks of a worker share its time.
func (t *times) costs(p *schedule.Program) sim.Costs {
	held := 1
	for w := range p.Workers {
		places := map[int]bool{} // two replicas of a stage are not chunks: each has its own micro-batches
		for _, h := range p.StagesOf(w) {
			if h[0] == 0 && h[2] == 0 {
				places[h[1]] = true
			}
		}
		held = max(held, len(places))
	}
	chunks := float64(held)
	c := sim.Uniform(p.Stages, 0, 0, t.transfer)
	if t.onStreaming(p) {
		c = sim.Streaming(c, t.transfer)
	}
	for i := range c.Stages {
		k := &c.Stages[i][0]
		k.ForwardS, k.BackwardS = timeOf(t.forward, i, chunks), timeOf(t.backward, i, chunks)
		k.WeightS = k.BackwardS / 2
		if t.weight != 0 {
			k.WeightS = t.weight / chunks
		}
		k.InputS, k.EvaluateS = k.BackwardS-k.WeightS, k.ForwardS
		k.UpdateS, k.AllReduceS, k.NormS = t.update/chunks, t.allReduce/chunks, t.norm
	}
	return c
}

// timeOf returns the time of a stage: its own, or its share of its worker's time.
func timeOf(times []float64, stage int, chunks float64) float64 {
	if len(times) > 1 {
		return times[stage]
	}
	return times[0] / chunks
}

// onStreaming reports whether a Program runs on devices that transfer while they compute. That is so if asked for,
// or if its family requires it.
func (t *times) onStreaming(p *schedule.Program) bool {
	f, err := family.Lookup(p.Name)
	return t.streaming || p.Paired || err == nil && f.Streaming
}

// oneForEach ends what is said about micro-batches in flight on workers that have several stages.
const oneForEach = "; with several stages on a worker, one counts for each of them"

// hasChunks reports whether a worker computes several stages of the same micro-batch.
func hasChunks(p *schedule.Program) bool {
	for w := range p.Workers {
		held := map[[2]int]bool{} // by pipeline and replica: each has its own micro-batches
		for _, h := range p.StagesOf(w) {
			of := [2]int{h[0], h[2]}
			if held[of] {
				return true
			}
			held[of] = true
		}
	}
	return false
}
