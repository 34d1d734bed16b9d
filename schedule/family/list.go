package family

import "github.com/millrace-ml/millrace/schedule"

// listRule describes an order as data. A worker first runs some forwards, and then one backward and one forward in
// turn. The rule says how many forwards go first, in which order a worker's chunks take turns, whether backwards are
// split and how late weight gradients come. GPipe, every 1F1B, interleaving, looped breadth-first, data and model
// parallelism and the zero-bubble orders are rules. Orders that look for ready computations use greedy or listing.
type listRule struct {
	// ahead returns how many forwards, over all its chunks, a worker runs before its first backward.
	ahead func(at listPlace) int
	// breadth runs all micro-batches of a chunk before the next chunk. Otherwise chunks take turns after each group of
	// micro-batches. A group has one micro-batch for each worker. With one chunk, both orders are the same.
	breadth bool
	// late returns by how many backwards a worker delays its weight gradients, if backwards are split. nil means whole
	// backwards.
	late func(at listPlace) int
}

// listPlace describes a worker to a rule: its position and its work.
type listPlace struct {
	s       schedule.Settings
	workers int // number of workers over which the chunks are placed round robin
	worker  int // the worker's index from 0, in the order of the workers' first stages
	stage   int // the worker's first stage
	chunks  int // how many stages the worker holds
	micros  int // how many micro-batches the worker computes
}

// depth returns how many forwards a rule runs first, from the depths by stage.
func depth(at listPlace) int { return at.s.Warmup[at.stage] }

// list writes the body of a Program by a rule. If each stage has its own workers, each replica takes its share of the
// micro-batches. Otherwise stages are placed round robin over all workers (Wrap).
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

// order returns the list of one worker.
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
			chunk = at.chunks - 1 - chunk // backwards begin with the last chunk
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

// turn returns the chunk and the micro-batch of a worker's k-th forward. For the k-th backward the chunks count from
// the other end.
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
