package scheduletest

import (
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// Damage is a kind of change that can make a Program invalid.
type Damage string

// The kinds of damage. Sometimes the changed Program is still valid, and Replay accepts it.
const (
	Drop      Damage = "drop"
	Double    Damage = "double"
	Swap      Damage = "swap"
	Move      Damage = "move"
	Renumber  Damage = "renumber"
	Extra     Damage = "another number"
	Elsewhere Damage = "another worker"
	Cross     Damage = "cross-wait" // two swaps, on two workers
)

var damages = []Damage{Drop, Double, Swap, Move, Renumber, Extra, Elsewhere, Cross}

// Corrupt returns a copy of a Program with random damage to one or two of its lists. Programs without instructions are
// returned unchanged.
func Corrupt(choose Choose, p *schedule.Program) (*schedule.Program, Damage) {
	bad := *p
	bad.Prologue, bad.Body, bad.Epilogue = clone(p.Prologue), clone(p.Body), clone(p.Epilogue)
	var lists []*schedule.List
	for _, part := range []schedule.Part{bad.Prologue, bad.Body, bad.Epilogue} {
		for w := range part {
			if len(part[w]) > 0 {
				lists = append(lists, &part[w])
			}
		}
	}
	how := damages[choose(len(damages))]
	if len(lists) == 0 {
		return &bad, how
	}
	list := lists[choose(len(lists))]
	i, j := choose(len(*list)), choose(len(*list))
	switch how {
	case Drop:
		*list = slices.Delete(*list, i, i+1)
	case Double:
		*list = slices.Insert(*list, j, (*list)[i])
	case Swap:
		swap(*list, i, j)
	case Move:
		in := (*list)[i]
		*list = slices.Insert(slices.Delete(*list, i, i+1), j, in)
	case Renumber:
		(*list)[i].Micro = int32(choose(p.MicroBatches))
	case Extra:
		in := (*list)[i]
		in.Micro = int32(choose(p.MicroBatches + 1))
		*list = slices.Insert(*list, j, in)
	case Elsewhere:
		in := (*list)[i]
		*list = slices.Delete(*list, i, i+1)
		other := lists[choose(len(lists))]
		*other = slices.Insert(*other, choose(len(*other)+1), in)
	case Cross:
		swap(*list, i, j)
		other := lists[choose(len(lists))]
		swap(*other, choose(len(*other)), choose(len(*other)))
	}
	return &bad, how
}

func swap(list schedule.List, i, j int) { list[i], list[j] = list[j], list[i] }

func clone(part schedule.Part) schedule.Part {
	if part == nil {
		return nil
	}
	out := make(schedule.Part, len(part))
	for w := range part {
		out[w] = slices.Clone(part[w])
	}
	return out
}
