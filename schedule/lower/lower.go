package lower

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// Options are the inputs of lowering other than the Program.
type Options struct {
	Tied [][]int // groups of stages that share a parameter
	Clip bool    // the update needs the global gradient norm
	// PostValidate lets updates come before the norm is known, and validates them in the next step. It has an effect
	// only with Clip, synchronous weights, and a body of one minibatch.
	PostValidate bool
}

// Lower returns a compute-only Program with everything that its order implies: transfers at the boundaries,
// collectives, and updates. p is not changed.
func Lower(p *schedule.Program, o Options) (*schedule.Program, error) {
	if p.Lowered {
		return nil, fmt.Errorf("schedule: program %s is lowered already", p.Name)
	}
	out := *p
	out.Tied, out.Clip = o.Tied, o.Clip
	if err := CheckTies(&out); err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	for _, part := range []*schedule.Part{&out.Prologue, &out.Body, &out.Epilogue} {
		if *part == nil {
			continue
		}
		lowered := make(schedule.Part, len(*part))
		for w, list := range *part {
			lowered[w] = addTransfers(&out, list)
		}
		*part = lowered
	}
	if err := addUpdates(&out); err != nil {
		return nil, err
	}
	if o.PostValidate && o.Clip && out.Weights.Synchronous() && out.Period == 1 && trains(&out) {
		validateLater(&out)
	}
	out.Lowered = true
	return &out, nil
}

// addUpdates adds what updates need, and the updates themselves if the family has not added them. The weight policy
// decides where they come.
func addUpdates(p *schedule.Program) error {
	switch {
	case p.Served():
		for _, part := range []schedule.Part{p.Prologue, p.Body, p.Epilogue} {
			addServed(p, part)
		}
	case p.Defers():
		return addDeferred(p)
	case p.Streams():
		return addStream(p)
	case p.Weights.Averages():
		for _, part := range []schedule.Part{p.Prologue, p.Body, p.Epilogue} {
			for w := range part {
				part[w] = addElastic(p, part[w])
			}
		}
	case trains(p):
		for w := range p.Body {
			p.Body[w] = addFlush(p, w, p.Body[w])
		}
	}
	return nil
}

// trains reports whether a step makes gradients. An evaluation or a checkpoint has none, and no update.
func trains(p *schedule.Program) bool { return slices.ContainsFunc(p.Body, schedule.List.Trains) }

// CheckTies refuses groups of tied stages that cannot be summed. A group must have two stages or more. Every stage in
// it must exist, and may be in no other group and only once in this one.
func CheckTies(p *schedule.Program) error {
	group := map[int]int{}
	for g, stages := range p.Tied {
		if len(stages) < 2 {
			return fmt.Errorf("its ties name %v; a tie is of two stages at least", stages)
		}
		for _, s := range stages {
			if s < 0 || s >= p.Stages {
				return fmt.Errorf("stage %d is tied; stages are 0 to %d", s, p.Stages-1)
			}
			if _, taken := group[s]; taken {
				return fmt.Errorf("stage %d is tied twice; name each stage once, in one group with all that it is "+
					"tied to", s)
			}
			group[s] = g
		}
	}
	return nil
}
