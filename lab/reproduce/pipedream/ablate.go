package pipedream

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

// slowerCollectives adds to a row that is not near the paper's what it is with all-reduces below the wires' rate: at a
// half, at a quarter, and at the part, if any, at which it is the paper's value. What frameworks of these years reached
// is in no paper of the four; the part that a row wants can be compared with those of the other rows.
func slowerCollectives(b *bench.Bench, r *table.Row, format string, value func() (float64, error)) error {
	if r.Values == nil || math.Abs(r.Values.Ours/r.Values.Paper-1) <= table.Near {
		return nil
	}
	before := b.Collectives
	defer func() { b.Collectives = before }()
	at := func(part float64) (float64, error) {
		b.Collectives = part
		return value()
	}
	for _, part := range []float64{.5, .25} {
		v, err := at(part)
		if err != nil {
			return err
		}
		r.Ablate(fmt.Sprintf("all-reduces at %g of the wires' rate", part), v, format)
	}
	const least = 1. / 64
	lo, hi := least, 1. // the slower, the greater the value
	if v, err := at(lo); err != nil || r.Values.Ours > r.Values.Paper || v < r.Values.Paper {
		return err
	}
	for range 40 {
		mid := math.Sqrt(lo * hi)
		v, err := at(mid)
		if err != nil {
			return err
		}
		if v > r.Values.Paper {
			lo = mid
		} else {
			hi = mid
		}
	}
	v, err := at(hi)
	if err != nil {
		return err
	}
	r.Ablate(fmt.Sprintf("all-reduces at %.2f of the wires' rate", hi), v, format)
	return nil
}

// lessBytes is what Figure 17's text says that pipelines send less than data parallelism for a sample, by workload.
var lessBytes = map[string]float64{"awd-lm": .88, "s2vt": .85}

// lighterBoundaries adds to a row of Table 1 what it is where boundaries carry so much less than the workload's
// description says that its configuration sends as little as Figure 17's text has it.
func lighterBoundaries(b *bench.Bench, r *table.Row, of pipedreamRow, value func() (float64, error)) error {
	less, known := lessBytes[of.Workload]
	if !known {
		return nil
	}
	p, costs, err := b.Costs(of.Batch)
	if err != nil {
		return err
	}
	replicas := of.Replicas
	if of.Config == "straight" {
		replicas = bench.Ones(min(len(b.C.Devices), len(b.M.Layers)-1))
	}
	s, err := b.BestSplit(replicas, of.Batch)
	if err != nil {
		return err
	}
	n := float64(len(b.C.Devices))
	dp := 2 * (n - 1) * float64(bench.ParameterBytes(p)) / n / float64(of.Batch)
	f := fourGPUs{p: p, costs: costs, Partition: s}
	all := f.bytesPerSample(of.Batch)
	f.Replicas = bench.Ones(len(replicas))
	crossing := f.bytesPerSample(of.Batch) // without all-reduces
	part := ((1-less)*dp - (all - crossing)) / crossing
	defer func() { b.Boundaries, b.Collectives, b.Quicker = 0, 0, 0 }()
	var what string
	if part > 0 { // else the replicas' all-reduces alone send more than that
		b.Boundaries = part
		what = fmt.Sprintf("boundaries carry %.2f of what is described, which is Figure 17's %.0f %% less", part, 100*less)
		v, err := value()
		if err != nil {
			return err
		}
		r.Ablate(what, v, "%.2f")
		what += ", "
	}
	for i, further := range []struct {
		what string
		set  func()
	}{
		{"all-reduces are at 0.25 of the wires' rate", func() { b.Collectives = .25 }},
		{", layers compute for 0.1 of the described time", func() { b.Quicker = .1 }},
	} {
		further.set()
		what += further.what
		v, err := value()
		if err != nil {
			return err
		}
		if part > 0 || i > 0 { // the first alone is in the row already
			r.Ablate(what, v, "%.2f")
		}
	}
	return nil
}
