package lower

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// Averaged returns a Program of elastic averaging that replays a recorded order. p is lowered, with the reference
// beside the pipelines. For each pipeline's update on each stage, `seen` says how many updates of the reference the
// pipeline's update saw. In the result, each update of the reference stands in its worker's list, before the first
// pipeline update that saw its outcome. Averaged refuses an order that does not have this Program's updates, or that no
// run can have.
func Averaged(p *schedule.Program, seen []schedule.Seen) (*schedule.Program, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("schedule: the recorded order of %d updates beside a reference: %s", len(seen),
			fmt.Sprintf(format, args...))
	}
	if !p.Beside() || !p.Lowered {
		return nil, bad("program %s has weights %s and no reference beside its pipelines", p.Name, p.Weights)
	}
	type place struct{ pipeline, stage, minibatch int }
	versions := map[place]int{}
	for _, s := range seen {
		at := place{s.Pipeline, s.Stage, s.Minibatch}
		if _, twice := versions[at]; twice {
			return nil, bad("the update of pipeline %d on stage %d for minibatch %d is there twice", s.Pipeline, s.Stage,
				s.Minibatch)
		}
		versions[at] = s.Version
	}
	if want := p.Minibatches() * p.Stages * p.Pipelines(); len(seen) != want {
		return nil, bad("the program has %d: %d minibatches of %d pipelines on %d stages", want, p.Minibatches(),
			p.Pipelines(), p.Stages)
	}
	out := *p
	out.InOrder, out.Repeat, out.Body, out.Epilogue = true, 0, nil, nil
	out.Prologue = make(schedule.Part, p.Workers)
	for w := range p.Workers {
		var wrong error
		issued, made := map[int32][]schedule.Instruction{}, map[int32]int{} // by stage
		apply := func(stage int32, until int) {
			for ; made[stage] < until; made[stage]++ {
				out.Prologue[w] = append(out.Prologue[w], issued[stage][made[stage]].As(schedule.U))
			}
		}
		p.Walk(w, func(in schedule.Instruction) bool {
			if in.Kind == schedule.UR {
				issued[in.Stage] = append(issued[in.Stage], in)
				return true
			}
			if in.Kind == schedule.U {
				version, known := versions[place{int(in.Pipeline), int(in.Stage), int(in.Micro)}]
				least, most := made[in.Stage], len(issued[in.Stage])
				switch {
				case !known:
					wrong = bad("it does not say which reference %v saw", in)
				case version < least || version > most:
					wrong = bad("%v saw the reference behind %d updates; there it has had %d to %d", in, version, least, most)
				default:
					apply(in.Stage, version)
				}
			}
			out.Prologue[w] = append(out.Prologue[w], in)
			return wrong == nil
		})
		if wrong != nil {
			return nil, wrong
		}
		for _, held := range p.StagesOf(w) {
			apply(int32(held[1]), len(issued[int32(held[1])]))
		}
	}
	return &out, nil
}
