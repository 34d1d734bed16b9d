package family

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// greedy is a list scheduler that fills bubbles with ready computations. A free worker goes through the kinds in its
// order of preference, and starts the first computation that has all its inputs. Forwards and backwards of chunks take
// turns as in a listRule. A micro-batch needs room on a worker. Its first forward there takes as much room as the
// worker has chunks, and each last gradient frees the room of one chunk. Micro-batches come to every stage in order, so
// only the next computation of each kind and stage is considered. If every worker has room for one micro-batch, there
// is no deadlock, because the oldest micro-batch finds room everywhere. Times are in slots, and messages take none.
type greedy struct {
	p       *schedule.Program
	prefer  []schedule.Kind
	queues  [][schedule.W + 1][][]queued // by worker, kind and chunk: the remaining computations, in order
	room    []int                        // by worker: how many chunks' activations it may hold
	stages  []int                        // by worker: number of its stages
	held    []int
	entered []map[int32]bool // by worker: micro-batches that have taken room there
}

// queued is a computation and its position among all of its kind on the worker.
type queued struct {
	in schedule.Instruction
	at int
}

// run writes the lists, and returns how many slots they take. It returns an error if no worker can go on.
func (g *greedy) run() (lists schedule.Part, slots int, err error) {
	ended := map[schedule.Instruction]int{} // first slot after each computation
	lists = make(schedule.Part, g.p.Workers)
	free := make([]int, g.p.Workers)
	g.held, g.entered = make([]int, g.p.Workers), make([]map[int32]bool, g.p.Workers)
	for w := range g.entered {
		g.entered[w] = map[int32]bool{}
	}
	left := 0
	for _, q := range g.queues {
		for _, k := range g.prefer {
			for _, chunk := range q[k] {
				left += len(chunk)
			}
		}
	}
	for now := 0; left > 0; now++ {
		busy := false
		for w := range g.p.Workers {
			if free[w] > now {
				busy = true
				continue
			}
			in, ok := g.pick(w, ended, now)
			if !ok {
				continue
			}
			busy = true
			left--
			lists[w] = append(lists[w], in)
			free[w] = now + 1
			ended[in] = free[w]
			slots = max(slots, free[w])
			switch in.Kind {
			case schedule.F:
				if !g.entered[w][in.Micro] {
					g.entered[w][in.Micro] = true
					g.held[w] += g.chunks(w)
				}
			case schedule.B, schedule.W:
				g.held[w]--
			}
		}
		if !busy {
			return nil, 0, fmt.Errorf("with room for %v chunks' activations nobody can go on in slot %d", g.room, now)
		}
	}
	return lists, slots, nil
}

// pick chooses the next computation of a free worker, removes it from the worker's queues and returns it. It returns
// false if none can start now.
func (g *greedy) pick(w int, ended map[schedule.Instruction]int, now int) (schedule.Instruction, bool) {
	full := g.held[w]+g.chunks(w) > g.room[w]
	for _, k := range g.prefer {
		var first *[]queued
		for c := range g.queues[w][k] {
			chunk := &g.queues[w][k][c]
			if len(*chunk) == 0 || first != nil && (*first)[0].at < (*chunk)[0].at {
				continue
			}
			in := (*chunk)[0].in
			if (k != schedule.F || !full || g.entered[w][in.Micro]) && g.ready(in, ended, now) {
				first = chunk
			}
		}
		if first != nil {
			in := (*first)[0].in
			*first = (*first)[1:]
			return in, true
		}
	}
	return schedule.Instruction{}, false
}

// chunks returns the number of stages of a worker.
func (g *greedy) chunks(w int) int { return g.stages[w] }

// ready reports whether everything that a computation needs has ended.
func (g *greedy) ready(in schedule.Instruction, ended map[schedule.Instruction]int, now int) bool {
	there := func(in schedule.Instruction) bool {
		at, done := ended[in]
		return done && at <= now
	}
	near := in
	switch in.Kind {
	case schedule.F:
		near.Stage--
		return in.Stage == 0 || there(near)
	case schedule.W:
		return there(in.As(schedule.I))
	}
	near.Stage++
	return there(in.As(schedule.F)) && (int(in.Stage) == g.p.Stages-1 || there(near))
}

// queued fills the queues with a step's computations in the order of a listRule: forwards chunk by chunk in groups,
// backwards with the last chunk first. If the micro-batches do not fill whole groups, chunks take turns with each
// micro-batch.
func (g *greedy) queued(s schedule.Settings) {
	g.queues, g.stages = make([][schedule.W + 1][][]queued, g.p.Workers), make([]int, g.p.Workers)
	for w := range g.queues {
		held := g.p.StagesOf(w)
		g.stages[w] = len(held)
		at := listPlace{workers: max(1, g.p.Workers), chunks: len(held), micros: s.MicroBatches}
		rule := listRule{}
		for _, kind := range g.prefer {
			g.queues[w][kind] = make([][]queued, len(held))
		}
		for k := range len(held) * s.MicroBatches {
			chunk, micro := k%len(held), k/len(held)
			if s.MicroBatches%at.workers == 0 {
				chunk, micro = rule.turn(at, k)
			}
			for _, kind := range g.prefer {
				of := chunk
				if kind != schedule.F {
					of = len(held) - 1 - chunk
				}
				in := schedule.Instruction{Stage: int32(held[of][1]), Micro: int32(micro), Kind: kind}
				g.queues[w][kind][of] = append(g.queues[w][kind][of], queued{in, k})
			}
		}
	}
}
