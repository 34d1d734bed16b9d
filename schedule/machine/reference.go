package machine

import "github.com/millrace-ml/millrace/schedule"

// references counts, by stage, the updates of a reference beside a Program's pipelines. It is nil if there is no
// such reference.
type references []int

func referencesOf(p *schedule.Program) references {
	if !p.Beside() {
		return nil
	}
	return make([]int, p.Stages)
}

// moved notes that an instruction is complete, and counts it if it is an update of the reference.
func (r references) moved(in schedule.Instruction) {
	if in.Kind == schedule.UR {
		r[in.Stage]++
	}
}

// Sees returns how many updates a stage's reference beside the pipelines has had in this Program. An update that starts
// now is pulled towards that version.
func (l *Local) Sees(stage int32) int {
	if l.references == nil {
		return 0
	}
	return l.references[stage]
}

// Sees returns what Local.Sees returns for one of the workers.
func (s *Process) Sees(worker int, stage int32) int { return s.locals[worker].Sees(stage) }
