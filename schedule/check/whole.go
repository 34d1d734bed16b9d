package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// whole checks how often things are done by all workers together. If one stage has computed a micro-batch, every stage
// must have computed it. Every stage must have updated once for each group of micro-batches (UpdateSpan). If one stage
// saves, every stage must save.
func (t *tally) whole() error {
	if err := t.everyMicro(); err != nil {
		return err
	}
	if err := t.everyUpdate(); err != nil || t.end == 0 {
		return err
	}
	return t.everySave()
}

// everySave checks that if one stage saves after a minibatch, all stages do. Only then is a checkpoint complete.
func (t *tally) everySave() error {
	for _, in := range slices.SortedFunc(maps.Keys(t.saves), func(a, b schedule.Instruction) int {
		return cmp.Or(cmp.Compare(a.Micro, b.Micro), cmp.Compare(a.Stage, b.Stage))
	}) {
		for s := range t.p.Stages {
			own := schedule.Instruction{Pipeline: in.Pipeline, Stage: int32(s), Kind: schedule.CK, Micro: in.Micro}
			if t.saves[own] == 0 {
				return &Error{Program: t.p.Name, Worker: t.p.WorkerOf(int(in.Pipeline), s, 0), Position: -1,
					Why: fmt.Sprintf("%v is missing: stage %d saves itself there, and the checkpoint is of all stages", own,
						in.Stage)}
			}
		}
	}
	return nil
}

func (t *tally) everyMicro() error {
	type micro struct {
		pipeline int16
		id       int32
		eval     bool
	}
	seen, ids := map[micro]bool{}, map[int32]bool{}
	for in := range t.done {
		seen[micro{in.Pipeline, in.Micro, in.Kind == schedule.EV}] = true
		ids[in.Micro] = true
	}
	missing := func(in schedule.Instruction, what string) error {
		w := t.p.WorkerOf(int(in.Pipeline), int(in.Stage), int(in.Replica))
		return &Error{Program: t.p.Name, Worker: w, Position: -1, Why: fmt.Sprintf("%v is missing: %s", in, what)}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		for pl := range t.p.Placement {
			for _, eval := range []bool{false, true} {
				if !seen[micro{int16(pl), id, eval}] {
					continue
				}
				for s, on := range t.p.Placement[pl] {
					first, end := 0, len(on)
					if t.p.Replication == schedule.RoundRobin {
						first = t.p.ReplicaOf(id, len(on))
						end = first + 1
					}
					for r := first; r < end; r++ {
						in := schedule.Instruction{Pipeline: int16(pl), Stage: int32(s), Micro: id, Replica: int16(r),
							Kind: schedule.F}
						if eval {
							if t.done[in.As(schedule.EV)] == 0 {
								return missing(in.As(schedule.EV), "other stages evaluate this micro-batch")
							}
							continue
						}
						if t.done[in] == 0 {
							return missing(in, "other stages run this micro-batch")
						}
						if t.done[in.As(schedule.B)] == 0 && (t.done[in.As(schedule.I)] == 0 ||
							t.done[in.As(schedule.W)] == 0) {
							return missing(in.As(schedule.B), "the stage runs this micro-batch's forward")
						}
					}
				}
			}
		}
	}
	return nil
}

func (t *tally) everyUpdate() error {
	if len(t.updates) == 0 {
		for in := range t.done {
			if in.Kind == schedule.B || in.Kind == schedule.W {
				return &Error{Program: t.p.Name, Worker: -1, Position: -1, Why: "it makes gradients and never updates"}
			}
		}
		return nil
	}
	type place struct {
		pipeline, stage int
		id              int32
	}
	type update struct {
		pipeline, group int
		id              int32
	}
	expected, shared := map[place]bool{}, map[update]bool{}
	for in := range t.updates {
		// An update of one stage must also be made by every other stage with the same UpdateSpan.
		u := update{int(in.Pipeline), t.p.UpdateSpan(int(in.Pipeline), int(in.Stage)), in.Micro}
		if shared[u] {
			continue
		}
		shared[u] = true
		for s := range t.p.Placement[in.Pipeline] {
			if t.p.UpdateSpan(u.pipeline, s) == u.group {
				expected[place{u.pipeline, s, u.id}] = true
			}
		}
	}
	trained := map[int32]bool{}
	for in := range t.done {
		if in.Kind != schedule.B && in.Kind != schedule.W {
			continue
		}
		pl := int(in.Pipeline)
		if t.p.Served() {
			pl = 1 // the pipeline of the server's weights
		}
		if !t.p.Streams() && !trained[in.Micro] {
			// without a stream, every stage of every pipeline makes the update with this number
			trained[in.Micro] = true
			for other := range t.p.Placement {
				for s := range t.p.Placement[other] {
					expected[place{other, s, t.p.UpdateOf(other, s, in.Micro)}] = true
				}
			}
		}
		expected[place{pl, int(in.Stage), t.p.UpdateOf(pl, int(in.Stage), in.Micro)}] = true
	}
	order := slices.SortedFunc(maps.Keys(expected), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.id, b.id), a.pipeline-b.pipeline, a.stage-b.stage)
	})
	for _, e := range order {
		for r, w := range t.p.Placement[e.pipeline][e.stage] {
			in := schedule.Instruction{Pipeline: int16(e.pipeline), Stage: int32(e.stage), Micro: e.id,
				Replica: int16(r), Kind: schedule.U}
			if v := in.As(schedule.PV); t.p.ValidatesLater() && t.validated[v] != 1 {
				return &Error{Program: t.p.Name, Worker: w, Position: -1,
					Why: fmt.Sprintf("%v is there %d times; every update is validated once", v, t.validated[v])}
			}
			if t.updates[in] != 1 {
				return &Error{Program: t.p.Name, Worker: w, Position: -1,
					Why: fmt.Sprintf("%v is there %d times; every stage updates once for each minibatch", in,
						t.updates[in])}
			}
		}
	}
	return nil
}
