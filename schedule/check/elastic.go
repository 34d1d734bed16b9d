package check

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/schedule"
)

// checkElastic refuses a Program whose pipelines do not fit elastic averaging.
func checkElastic(p *schedule.Program) error {
	if p.Weights != schedule.Elastic {
		if p.Elastic != nil {
			return fmt.Errorf("it has settings of elastic averaging and weight policy %q; they belong to %q",
				p.Weights, schedule.Elastic)
		}
		return nil
	}
	if p.Elastic == nil {
		return fmt.Errorf("weight policy %q without its settings: how many pipelines, and alpha", schedule.Elastic)
	}
	if err := p.Elastic.Check(); err != nil {
		return err
	}
	n := p.Elastic.Pipelines
	want := n
	if n > 1 {
		want++ // one more for the reference
	}
	if len(p.Placement) != want {
		return fmt.Errorf("it places %d pipelines; elastic averaging of %d has %d, the reference among them if "+
			"there are several", len(p.Placement), n, want)
	}
	if p.Elastic.Besides() {
		for s, on := range p.Placement[0] {
			if len(on) > 1 {
				return fmt.Errorf("stage %d is on %d workers, each of which would see another reference; with the reference "+
					"beside the pipelines a stage is on one worker", s, len(on))
			}
		}
		if len(p.Tied) > 0 {
			return fmt.Errorf("stages %v share a parameter, of which each would see another reference; with the reference "+
				"beside the pipelines they are one stage, or the parameter is not shared", p.Tied[0])
		}
	}
	for pl, stages := range p.Placement {
		if !slices.EqualFunc(stages, p.Placement[0], slices.Equal[[]int]) {
			return fmt.Errorf("pipeline %d lies on other workers than pipeline 0; a stage of all pipelines and of "+
				"the reference is on the same worker", pl)
		}
	}
	return nil
}

// averaged refuses a pipeline's update if the reference is not at the version that the update must see. It refuses an
// update of the reference if the steps that it must apply do not exist.
func (l *list) averaged(u schedule.Instruction) error {
	n := l.p.Pipelines()
	if n == 1 {
		return nil
	}
	if l.p.IsReference(int(u.Pipeline)) {
		for p := range n {
			local := u.As(schedule.U)
			if local.Pipeline = int16(p); !l.have[local] {
				return fmt.Errorf("it applies the steps of all pipelines: %v must come before it", local)
			}
		}
		return nil
	}
	if l.p.Elastic.Besides() {
		return nil // the update sees the newest reference, or the recorded one
	}
	reference := u
	reference.Pipeline, reference.Micro = int16(n), u.Micro-1
	if u.Micro > 0 && !l.have[reference] {
		return fmt.Errorf("it would see an older reference than it is to: %v must come before it", reference)
	}
	if reference.Micro = u.Micro; l.have[reference] {
		return fmt.Errorf("the reference has been updated without it by %v", reference)
	}
	return nil
}
