package family

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
)

// PipeDream's order (§3.2) is a stream of minibatches without a flush. Every replica of the input stage first runs NOAM
// = ceil(workers / replicas of the input stage) minibatches forward. From then on every worker alternates strictly
// between one backward and one forward. Minibatch m belongs to replica m mod r of a stage, forward and backward. Stage
// i of S begins with K_i forwards, K_i = ceil(workers of stages i..S-1 / replicas of stage i), as in PipeDream's
// runtime. This is NOAM on the input stage, and S-i on a straight pipeline.
//
// Settings.MicroBatches is the number of micro-batches of a minibatch. It is 1 in PipeDream. It is more if gradients
// are summed over several, as in PipeDream-2BW, which needs at least one for each stage. Settings.Repeat is the number
// of minibatches of the stream.
//
// The second family here, model parallelism, is 1F1B with K_i = 1 on every stage.
func init() {
	Register(Family{
		Name: "1f1b-rr", Doc: "a stream without flush, strict alternation, replicas in turn (PipeDream §3.2, " +
			"PipeDream-2BW)",
		Policies:     []schedule.Policy{schedule.Stash, schedule.Vertical, schedule.DoubleBuffered, schedule.Latest},
		Replications: []schedule.Replication{schedule.RoundRobin},
		Admits:       admitRoundRobin, Generate: roundRobin,
	})
	Register(Family{
		Name: "mp", Doc: "model parallelism: stages without pipelining, one micro-batch at a time",
		Alone: true,
		Admits: func(s schedule.Settings) error {
			if slices.ContainsFunc(s.Warmup, func(k int) bool { return k != 1 }) {
				return fmt.Errorf("warm-up %v; without pipelining every stage holds one micro-batch", s.Warmup)
			}
			return admitOneF1B(s)
		},
		Generate: func(s schedule.Settings) (*schedule.Program, error) {
			s.Warmup = slices.Repeat([]int{1}, len(s.Placement))
			return oneF1B(s)
		},
	})
}

// NOAM returns the depths of PipeDream's start-up by stage: how many micro-batches each replica runs forward before its
// first backward. In PipeDream, a micro-batch is a minibatch.
func NOAM(placement [][]int) []int {
	k := make([]int, len(placement))
	behind := 0
	for i := len(placement) - 1; i >= 0; i-- {
		r := len(placement[i])
		behind += r
		k[i] = (behind + r - 1) / r
	}
	return k
}

func admitRoundRobin(s schedule.Settings) error {
	if err := admitOneF1B(schedule.Settings{Placement: s.Placement, MicroBatches: s.MicroBatches}); err != nil {
		return err
	}
	for i, on := range s.Placement {
		if s.MicroBatches > 1 && len(on) > s.MicroBatches {
			return fmt.Errorf("%w, or a minibatch is one micro-batch", tooFew(s, i))
		}
	}
	for i, k := range s.Warmup {
		if k < 1 || k > schedule.MaxMicro {
			return fmt.Errorf("warm-up K_%d is %d; it must be 1 to %d", i, k, schedule.MaxMicro)
		}
	}
	return nil
}

// roundRobin writes the stream as prologue, body and epilogue. The whole list of a replica is its first K forwards,
// then backward and forward in turn, then the remaining backwards. The body has a whole number of minibatches, and a
// whole number of turns on every stage. The prologue ends at the same micro-batch on every stage, so that bodies fit
// together.
func roundRobin(s schedule.Settings) (*schedule.Program, error) {
	depths := s.Warmup
	if depths == nil {
		depths = NOAM(s.Placement)
	}
	p, err := streamed(s, depths, 0)
	if err == nil && (unequal(s.Placement) || s.Warmup != nil || s.Weights.Accumulates()) {
		p.Name = "1f1b-rr"
		if _, err := check.Check(p); err != nil {
			return nil, fmt.Errorf("these depths, replicas and weights do not go together: %w", err)
		}
	}
	return p, err
}

// streamed writes the lists of a stream. Each stage first runs as many forwards as its depth, and then backwards and
// forwards alternate. The prologue has at least `cycles` cycles.
func streamed(s schedule.Settings, depths []int, cycles int) (*schedule.Program, error) {
	cycle, fill := s.MicroBatches, 0
	for i, on := range s.Placement {
		if cycle = schedule.LeastCommonMultiple(cycle, len(on)); cycle > schedule.MaxMicro {
			return nil, fmt.Errorf("replicas and micro-batches come out even only after %d micro-batches or more; there "+
				"can be %d", cycle, schedule.MaxMicro)
		}
		fill = max(fill, depths[i]*len(on))
	}
	fill = max(cycles, (fill+cycle-1)/cycle) * cycle
	total := s.MicroBatches * s.Repeat
	p := s.Program()
	p.MicroBatches, p.Period, p.Repeat = cycle, cycle/s.MicroBatches, max(0, (total-fill)/cycle)
	p.Prologue, p.Epilogue = make(schedule.Part, p.Workers), make(schedule.Part, p.Workers)
	shift := p.Repeat * cycle
	listed := total - shift + min(p.Repeat, 1)*cycle
	if most := schedule.MaxInstructions / (2 * len(s.Placement)); listed > most {
		return nil, fmt.Errorf("replicas and micro-batches come out even after %d micro-batches, which makes lists of %d "+
			"through %d stages; a program can have %d instructions, which is %d micro-batches here", cycle, listed,
			len(s.Placement), schedule.MaxInstructions, most)
	}
	for stage, on := range s.Placement {
		for r, w := range on {
			a := alternation{at: schedule.Instruction{Stage: int32(stage), Replica: int16(r)}, replicas: len(on),
				depth: depths[stage]}
			p.Prologue[w] = a.list(0, min(fill, total), 0, total)
			if p.Repeat > 0 {
				p.Body[w] = a.list(fill, fill+cycle, 0, fill+2*cycle)
			}
			if total > fill {
				p.Epilogue[w] = a.list(fill, total-shift, shift, total)
			}
		}
	}
	return p, nil
}

// alternation is the list of one replica in a stream.
type alternation struct {
	at       schedule.Instruction
	replicas int
	depth    int
}

// list returns the part of the replica's list with the forwards of the stream's micro-batches from+shift to to+shift-1.
// Before each forward past the depth comes the backward that makes room for it. At the end of a stream of `total`
// micro-batches come the remaining backwards. The ids in the part are those of the stream minus `shift`.
func (a alternation) list(from, to, shift, total int) schedule.List {
	var out schedule.List
	add := func(kind schedule.Kind, micro int) {
		in := a.at.As(kind)
		in.Micro = int32(micro - shift)
		out = append(out, in)
	}
	r := a.replicas
	first := func(bound int) int { // the replica's first micro-batch at or after bound
		return bound + (((int(a.at.Replica)-bound)%r)+r)%r
	}
	from, to = from+shift, to+shift
	for m := first(from); m < to; m += r {
		if back := m - a.depth*r; back >= 0 {
			add(schedule.B, back)
		}
		add(schedule.F, m)
	}
	if to >= total {
		for m := max(int(a.at.Replica), first(total)-a.depth*r); m < total; m += r {
			add(schedule.B, m)
		}
	}
	return out
}
