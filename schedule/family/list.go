package family

import "github.com/millrace-ml/millrace/schedule"

// listRule is a family of orders as data: what a worker runs first, and then, over and over, one
// backward and one forward. It has how many forwards go first, in which order a worker's chunks take their
// turns, and whether backwards are split and how late weight gradients come. GPipe, every 1F1B,
// interleaving, looped breadth-first, data and model parallelism and the zero-bubble orders are
// rules; see listed for those that fill bubbles by looking for what is ready.
type listRule struct {
	// ahead is how many forwards, over all its chunks, a worker runs before its first backward.
	ahead func(at listPlace) int
	// breadth takes all micro-batches of a chunk before the next chunk; otherwise chunks take turns,
	// a group of as many micro-batches as there are workers at a time. With one chunk they are the same.
	breadth bool
	// late, where backwards are split, is by how many of them a worker puts its weight gradients
	// off; nil is whole backwards.
	late func(at listPlace) int
}

// listPlace is what a rule knows of a worker: where it stands, and what it has to do.
type listPlace struct {
	s       schedule.Settings
	workers int // that the chunks of each go around
	worker  int // from 0, in the order of its first stage
	stage   int // its first
	chunks  int // stages that it holds
	micros  int // that fall to it
}

// depth is a rule's forwards ahead from depths by stage.
func depth(at listPlace) int { return at.s.Warmup[at.stage] }

// list writes the body of a Program by a rule. Stages lie on workers of their own, each replica
// with its share of the micro-batches, or in turn on all of them (Wrap).
func list(s schedule.Settings, rule listRule) *schedule.Program {
	p := s.Program()
	chunks := 1
	if rounds := len(s.Placement) / p.Workers; rounds > 1 {
		chunks = rounds
	}
	around := len(s.Placement) / chunks
	for stage, on := range s.Placement[:around] {
		for r, w := range on {
			mine := microsOf(s, len(on), r)
			at := listPlace{s: s, workers: around, worker: stage, stage: stage, chunks: chunks, micros: len(mine)}
			p.Body[w] = append(p.Body[w], rule.order(at, mine, int16(r))...)
		}
	}
	return p
}

// order is the list of one worker.
func (rule listRule) order(at listPlace, mine []int, replica int16) schedule.List {
	total := at.chunks * len(mine)
	ahead := min(rule.ahead(at), total)
	late, each := 0, 2
	if rule.late != nil {
		late, each = rule.late(at), 3
	}
	out := make(schedule.List, 0, each*total)
	add := func(kind schedule.Kind, k int) {
		chunk, micro := rule.turn(at, k)
		if kind != schedule.F {
			chunk = at.chunks - 1 - chunk // backwards begin at the end of the model
		}
		out = append(out, schedule.Instruction{Stage: int32(chunk*at.workers + at.stage), Kind: kind,
			Micro: int32(mine[micro]), Replica: replica})
	}
	for k := range ahead {
		add(schedule.F, k)
	}
	for k := range total {
		if rule.late == nil {
			add(schedule.B, k)
		} else {
			add(schedule.I, k)
			if k >= late {
				add(schedule.W, k-late)
			}
		}
		if ahead+k < total {
			add(schedule.F, ahead+k)
		}
	}
	if rule.late != nil {
		for k := max(0, total-late); k < total; k++ {
			add(schedule.W, k)
		}
	}
	return out
}

// turn is the chunk and the micro-batch of a worker's k-th forward. With the chunks counted from the other end they
// are those of its k-th backward.
func (rule listRule) turn(at listPlace, k int) (chunk, micro int) {
	if at.chunks == 1 {
		return 0, k
	}
	if rule.breadth {
		return k / at.micros, k % at.micros
	}
	round := at.workers * at.chunks
	return k % round / at.workers, k/round*at.workers + k%at.workers
}
