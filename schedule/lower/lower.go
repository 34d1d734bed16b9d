package lower

import (
	"fmt"
	"github.com/millrace-ml/millrace/schedule"
	"slices"
)

// LowerOptions is what the passes need beside the Program.
type Options struct {
	Tied [][]int // groups of stages that share a parameter
	Clip bool    // the update needs the global gradient norm
	// PostValidate lets updates go before the norm is known and validates them in the next step; it
	// changes nothing without Clip.
	PostValidate bool
}

// Lower adds to a compute-only Program everything that its order implies:
// transfers around the boundaries, the collectives of a flush, and updates. The
// argument is left as it is.
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
	if p.Streams() {
		if err := addUpdates(&out); err != nil {
			return nil, err
		}
	} else if p.Weights == schedule.Elastic {
		for _, part := range []schedule.Part{out.Prologue, out.Body, out.Epilogue} {
			for w := range part {
				part[w] = addCollectives(&out, part[w])
			}
		}
	} else if slices.ContainsFunc(out.Body, schedule.List.Trains) {
		for w := range out.Body {
			out.Body[w] = addFlush(&out, w, out.Body[w])
		}
		if o.PostValidate && o.Clip && out.Weights == schedule.Sync && out.Period == 1 {
			validateLater(&out)
		}
	}
	out.Lowered = true
	return &out, nil
}

// addTransfers puts a receive right before the instruction that needs the message,
// so that nothing else waits for it, and a send right after the one that makes it. A
// pair is one instruction in that: its receives, the two, its sends.
func addTransfers(p *schedule.Program, list schedule.List) schedule.List {
	out := make(schedule.List, 0, 2*len(list))
	for i := 0; i < len(list); i++ {
		in := list[i]
		if p.Paired && in.Kind == schedule.B && i+1 < len(list) && list[i+1].Kind == schedule.F {
			i++
			beforeB, afterB := transfers(p, in)
			beforeF, afterF := transfers(p, list[i])
			out = slices.Concat(out, beforeB, beforeF, schedule.List{list[i], in}, afterF, afterB)
			continue
		}
		before, after := transfers(p, in)
		out = append(append(append(out, before...), in), after...)
	}
	return out
}

// transfers is the receive that a computation needs and the send it makes, if any.
func transfers(p *schedule.Program, in schedule.Instruction) (before, after schedule.List) {
	receive, send := schedule.Kind(0), schedule.Kind(0)
	switch in.Kind {
	case schedule.F, schedule.EV:
		receive, send = schedule.RF, schedule.SF
	case schedule.B, schedule.I:
		receive, send = schedule.RB, schedule.SB
	default:
		return nil, nil
	}
	if r := in.As(receive); len(p.Senders(r)) > 0 {
		before = schedule.List{r}
	}
	if s := in.As(send); len(p.Receivers(s)) > 0 {
		after = schedule.List{s}
	}
	return before, after
}

// addFlush ends a synchronous step on one worker, also on a replica that had no micro-batch
// to work on. The collectives of a stage need each other in turn: replicas, then ties, then
// the norm. The first goes right behind the stage's last gradient, where nothing waits for
// it; the others end the list before the updates, those of all stages kind by kind. Where
// a worker holds several stages, one that waited sooner could keep back a collective that the
// others wait for.
func addFlush(p *schedule.Program, worker int, list schedule.List) schedule.List {
	held := p.StagesOf(worker)
	var late [2]schedule.List // TG, GN
	for _, h := range held {
		flush := schedule.Instruction{Pipeline: int16(h[0]), Stage: int32(h[1]), Replica: int16(h[2])}
		var chain schedule.List
		if len(p.Placement[h[0]][h[1]]) > 1 {
			chain = append(chain, flush.As(schedule.AR))
		}
		if p.TiedTo(h[1]) != nil {
			chain = append(chain, flush.As(schedule.TG))
		}
		if p.Clip {
			chain = append(chain, flush.As(schedule.GN))
		}
		if len(chain) == 0 {
			continue
		}
		at := 0
		for i, in := range list {
			if (in.Kind == schedule.B || in.Kind == schedule.W) && in.Stage == flush.Stage && in.Pipeline == flush.Pipeline {
				at = i + 1
			}
		}
		for at < len(list) && list[at].Kind == schedule.SB {
			at++ // the neighbour waits for the gradient; nobody waits for the collective yet
		}
		list = slices.Insert(list, at, chain[0])
		for _, in := range chain[1:] {
			if in.Kind == schedule.TG {
				late[0] = append(late[0], in)
			} else {
				late[1] = append(late[1], in)
			}
		}
	}
	list = slices.Concat(list, late[0], late[1])
	for _, h := range held {
		list = append(list, schedule.Instruction{Pipeline: int16(h[0]), Stage: int32(h[1]), Replica: int16(h[2]), Kind: schedule.U})
	}
	return list
}

// CheckTies refuses ties that no program can sum: of stages that are not there, of one stage with
// itself, or one stage in two groups, whose sums would have other members on either side.
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
				return fmt.Errorf("stage %d is tied twice; name each stage once, in one group with all that it is tied to", s)
			}
			group[s] = g
		}
	}
	return nil
}
