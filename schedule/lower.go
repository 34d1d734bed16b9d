package schedule

import (
	"fmt"
	"slices"
)

// LowerOptions is what the passes need beside the Program.
type LowerOptions struct {
	Tied [][]int // groups of stages that share a parameter
	Clip bool    // the update needs the global gradient norm
	// PostValidate lets updates go before the norm is known and validates them in the next step; it
	// changes nothing without Clip.
	PostValidate bool
}

// Lower adds to a compute-only Program everything that its order implies:
// transfers around the boundaries, the collectives of a flush, and updates. The
// argument is left as it is.
func Lower(p *Program, o LowerOptions) (*Program, error) {
	if p.Lowered {
		return nil, fmt.Errorf("schedule: program %s is lowered already", p.Name)
	}
	out := *p
	out.Tied, out.Clip = o.Tied, o.Clip
	if err := out.checkTies(); err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	for _, part := range []*Part{&out.Prologue, &out.Body, &out.Epilogue} {
		if *part == nil {
			continue
		}
		lowered := make(Part, len(*part))
		for w, list := range *part {
			lowered[w] = addTransfers(&out, list)
		}
		*part = lowered
	}
	if p.Streams() {
		if err := addUpdates(&out); err != nil {
			return nil, err
		}
	} else if p.Weights == Elastic {
		for _, part := range []Part{out.Prologue, out.Body, out.Epilogue} {
			for w := range part {
				part[w] = out.addCollectives(part[w])
			}
		}
	} else if slices.ContainsFunc(out.Body, List.trains) {
		for w := range out.Body {
			out.Body[w] = addFlush(&out, w, out.Body[w])
		}
		if o.PostValidate && o.Clip && out.Weights == Sync && out.Period == 1 {
			validateLater(&out)
		}
	}
	out.Lowered = true
	return &out, nil
}

// addTransfers puts a receive right before the instruction that needs the message,
// so that nothing else waits for it, and a send right after the one that makes it. A
// pair is one instruction in that: its receives, the two, its sends.
func addTransfers(p *Program, list List) List {
	out := make(List, 0, 2*len(list))
	for i := 0; i < len(list); i++ {
		in := list[i]
		if p.Paired && in.Kind == B && i+1 < len(list) && list[i+1].Kind == F {
			i++
			beforeB, afterB := p.transfers(in)
			beforeF, afterF := p.transfers(list[i])
			out = slices.Concat(out, beforeB, beforeF, List{list[i], in}, afterF, afterB)
			continue
		}
		before, after := p.transfers(in)
		out = append(append(append(out, before...), in), after...)
	}
	return out
}

// transfers is the receive that a computation needs and the send it makes, if any.
func (p *Program) transfers(in Instruction) (before, after List) {
	receive, send := Kind(0), Kind(0)
	switch in.Kind {
	case F, EV:
		receive, send = RF, SF
	case B, I:
		receive, send = RB, SB
	default:
		return nil, nil
	}
	if r := in.as(receive); p.hasPeers(r) {
		before = List{r}
	}
	if s := in.as(send); p.hasPeers(s) {
		after = List{s}
	}
	return before, after
}

// hasPeers says whether a transfer has anyone on its other end but the worker itself.
func (p *Program) hasPeers(in Instruction) bool { return len(p.otherWorkers(in)) > 0 }

// trains says whether a list makes gradients.
func (l List) trains() bool {
	return slices.ContainsFunc(l, func(in Instruction) bool { return in.Kind == B || in.Kind == W })
}

// addFlush ends a synchronous step on one worker, also on a replica that had no micro-batch
// to work on. The collectives of a stage need each other in turn: replicas, then ties, then
// the norm. The first goes right behind the stage's last gradient, where nothing waits for
// it; the others end the list before the updates, those of all stages kind by kind. Where
// a worker holds several stages, one that waited sooner could keep back a collective that the
// others wait for.
func addFlush(p *Program, worker int, list List) List {
	held := p.StagesOf(worker)
	var late [2]List // TG, GN
	for _, h := range held {
		flush := Instruction{Pipeline: int16(h[0]), Stage: int32(h[1]), Replica: int16(h[2])}
		var chain List
		if len(p.Placement[h[0]][h[1]]) > 1 {
			chain = append(chain, flush.as(AR))
		}
		if p.tiedTo(h[1]) != nil {
			chain = append(chain, flush.as(TG))
		}
		if p.Clip {
			chain = append(chain, flush.as(GN))
		}
		if len(chain) == 0 {
			continue
		}
		at := 0
		for i, in := range list {
			if (in.Kind == B || in.Kind == W) && in.Stage == flush.Stage && in.Pipeline == flush.Pipeline {
				at = i + 1
			}
		}
		for at < len(list) && list[at].Kind == SB {
			at++ // the neighbour waits for the gradient; nobody waits for the collective yet
		}
		list = slices.Insert(list, at, chain[0])
		for _, in := range chain[1:] {
			if in.Kind == TG {
				late[0] = append(late[0], in)
			} else {
				late[1] = append(late[1], in)
			}
		}
	}
	list = slices.Concat(list, late[0], late[1])
	for _, h := range held {
		list = append(list, Instruction{Pipeline: int16(h[0]), Stage: int32(h[1]), Replica: int16(h[2]), Kind: U})
	}
	return list
}

func (in Instruction) as(k Kind) Instruction {
	in.Kind = k
	return in
}

// EvaluationWindow is how many micro-batches of an evaluation a replica may be ahead of the
// stages behind it. Without a backward pass nothing else holds the first stage back, and
// everything it has sent would lie in memory. A drain costs the pipeline's fill,
// (stages - 1) of so many micro-batches.
const EvaluationWindow = 4

// Evaluation is a lowered Program that passes n micro-batches forward through the
// stages and updates nothing. Replicas share them in turn. All workers drain every
// EvaluationWindow micro-batches.
func Evaluation(placement [][]int, n int) (*Program, error) {
	s, err := Settings{Placement: placement, MicroBatches: n}.checked()
	if err != nil {
		return nil, fmt.Errorf("schedule: evaluation: %w", err)
	}
	p := s.program()
	p.Name = "evaluation"
	widest := 1
	for _, on := range placement {
		widest = max(widest, len(on))
	}
	window := EvaluationWindow * widest
	for from := 0; from < n; from += window {
		if from > 0 {
			p.drain(from / window)
		}
		for stage, on := range placement {
			for r, w := range on {
				for m := from; m < min(n, from+window); m++ {
					if m%len(on) == r { // replicas take micro-batches in turn
						p.Body[w] = append(p.Body[w], Instruction{Stage: int32(stage), Kind: EV, Micro: int32(m), Replica: int16(r)})
					}
				}
			}
		}
	}
	return p.bracketed((n-1)/window + 1)
}

// drain appends a drain of this number to every worker's list.
func (p *Program) drain(number int) {
	for w := range p.Body {
		p.Body[w] = append(p.Body[w], Instruction{Kind: DR, Micro: int32(number)})
	}
}

// Checkpoint is a lowered Program in which every stage of the placement is saved, by
// its first replica, once nothing is in flight.
func Checkpoint(placement [][]int) (*Program, error) {
	s, err := Settings{Placement: placement, MicroBatches: 1}.checked()
	if err != nil {
		return nil, fmt.Errorf("schedule: checkpoint: %w", err)
	}
	p := s.program()
	p.Name = "checkpoint"
	for stage, on := range placement {
		p.Body[on[0]] = append(p.Body[on[0]], Instruction{Stage: int32(stage), Kind: CK})
	}
	return p.bracketed(1)
}

// bracketed lowers p and puts a drain before and after it on every worker, the last one with
// this number.
func (p *Program) bracketed(last int) (*Program, error) {
	out, err := Lower(p, LowerOptions{})
	if err != nil {
		return nil, err
	}
	for w := range out.Body {
		out.Body[w] = slices.Concat(List{{Kind: DR}}, out.Body[w], List{{Kind: DR, Micro: int32(last)}})
	}
	return out, nil
}
