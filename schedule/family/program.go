package family

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// RegisterProgram registers a Program from outside as a family under its own name. It can then be planned for,
// simulated and run like any other. The family has the Program's placement, micro-batches and weights. The body of a
// Program that has no other part is repeated until all steps are done. A stream runs only for certain numbers of
// minibatches: those of its prologue, whole repetitions of its body, and its epilogue.
//
// Transfers, collectives and updates may be left out, or be where Lower would put them. A Program that has them
// elsewhere is refused. RegisterProgram also refuses a Program that does not pass Check, has several pipelines, has no
// name, or has the name or an alias of a registered family.
func RegisterProgram(p *schedule.Program) error {
	f, err := Of(p)
	if err == nil {
		Register(f)
	}
	return err
}

// Of returns the family that RegisterProgram registers.
func Of(p *schedule.Program) (Family, error) {
	if _, err := check.Check(p); err != nil {
		return Family{}, err
	}
	if _, err := Lookup(p.Name); err == nil {
		return Family{}, fmt.Errorf("schedule: a program cannot be called %q: a family is; give it another name",
			p.Name)
	}
	if p.Name == "" {
		return Family{}, fmt.Errorf("schedule: a program without a name cannot be made a schedule of; give it one")
	}
	if len(p.Placement) != 1 {
		return Family{}, fmt.Errorf("schedule: program %s has %d pipelines; one alone can be made a schedule of",
			p.Name, len(p.Placement))
	}
	bare, err := bare(p)
	if err != nil {
		return Family{}, err
	}
	chunks := 1
	for w := range p.Workers {
		chunks = max(chunks, len(p.StagesOf(w)))
	}
	halves := slices.ContainsFunc(slices.Concat(p.Prologue, p.Body), func(list schedule.List) bool {
		return slices.ContainsFunc(list, func(in schedule.Instruction) bool { return in.Kind == schedule.I })
	})
	once := *bare
	once.Repeat = 0
	fixed := once.Minibatches() // number of minibatches of the prologue and the epilogue
	f := Family{
		Name: p.Name, Doc: "read from a file", Policies: []schedule.Policy{p.Weights}, Chunks: chunks,
		Undivided: p.Stages == 1, Halves: halves, Least: cmp.Or(fixed, p.Period), Each: p.Period,
		Replications: []schedule.Replication{p.Replication},
		Place:        func(int, int) [][]int { return p.Placement[0] },
		Admits: func(s schedule.Settings) error {
			switch {
			case !reflect.DeepEqual(s.Placement, p.Placement[0]):
				return fmt.Errorf("stages lie on %v; the program's on %v", s.Placement, p.Placement[0])
			case s.MicroBatches != p.PerMinibatch():
				return fmt.Errorf("%d micro-batches; the program has %d", s.MicroBatches, p.PerMinibatch())
			case s.Warmup != nil:
				return fmt.Errorf("warm-up depths %v; the program has its own", s.Warmup)
			}
			return nil
		},
	}
	f.Generate = func(s schedule.Settings) (*schedule.Program, error) {
		if !f.Trains(s.Repeat) {
			return nil, fmt.Errorf("%d minibatches in a row; this program trains %s", s.Repeat, f.InARow())
		}
		out := *bare
		out.Recompute = s.Recompute
		out.Repeat = (s.Repeat - fixed) / p.Period
		return &out, nil
	}
	return f, nil
}

// bare returns the Program without what Lower adds.
func bare(p *schedule.Program) (*schedule.Program, error) {
	if !p.Lowered {
		return p, nil
	}
	out := *p
	out.Lowered = false
	for _, part := range []*schedule.Part{&out.Prologue, &out.Body, &out.Epilogue} {
		lists := slices.Clone(*part)
		for w := range lists {
			lists[w] = slices.DeleteFunc(slices.Clone(lists[w]), func(in schedule.Instruction) bool {
				return in.Kind == schedule.U || !in.Kind.IsCompute() && in.Kind != schedule.DR
			})
		}
		*part = lists
	}
	if p.PostValidate { // its first step is the prologue; the plan says whether updates are validated later
		out.Prologue, out.Body, out.Epilogue = nil, out.Prologue, nil
		out.Repeat, out.PostValidate = p.Repeat+1, false
	}
	again, err := lower.Lower(&out, lower.Options{Tied: p.Tied, Clip: p.Clip, PostValidate: p.PostValidate})
	if err != nil {
		return nil, err
	}
	for i, part := range []schedule.Part{again.Prologue, again.Body, again.Epilogue} {
		was := []schedule.Part{p.Prologue, p.Body, p.Epilogue}[i]
		for w := range part {
			if w >= len(was) || !slices.Equal(part[w], was[w]) {
				return nil, fmt.Errorf("schedule: program %s, worker %d: its transfers, collectives or updates "+
					"stand elsewhere than millrace puts them; leave them out, and they are added", p.Name, w)
			}
		}
	}
	return &out, nil
}
