package reporting

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// settled is the number of minibatches per worker that lags looks at. After this many, a stream's weights get no older.
const settled = 8

// lags returns how old the weights are that a stream computes with, by pipeline and stage. It returns nil in three
// cases: there is no plan, the plan flushes with one set of weights, or the age depends on timing.
func lags(p *plan.Plan) []report.Lag {
	if p == nil || schedule.Policy(p.Weights).Synchronous() || schedule.Policy(p.Weights).Served() {
		return nil
	}
	program, err := programs.AtLeast(p, nil, false, settled*max(2, len(p.Devices())))
	if err != nil {
		return nil
	}
	type place struct{ pipeline, stage int }
	found := map[place]*report.Lag{}
	var all []place
	for w := range program.Workers {
		for _, u := range program.Uses(w) {
			at := place{int(u.Instruction.Pipeline), int(u.Instruction.Stage)}
			l := found[at]
			if l == nil {
				l = &report.Lag{Pipeline: at.pipeline, Stage: at.stage,
					Span: program.UpdateSpan(at.pipeline, at.stage)}
				found[at], all = l, append(all, at)
			}
			behind := int(u.Instruction.Micro)/l.Span - u.Version
			switch u.Instruction.Kind { // the largest lag counts: early minibatches use the initial weights
			case schedule.F:
				l.Forward = max(l.Forward, behind)
			case schedule.B, schedule.I, schedule.W:
				l.Backward = max(l.Backward, behind)
			}
		}
	}
	var out []report.Lag
	for _, at := range all {
		out = append(out, *found[at])
	}
	return out
}
