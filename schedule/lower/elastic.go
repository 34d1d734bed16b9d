package lower

import "github.com/millrace-ml/millrace/schedule"

// addElastic lowers one list of family elastic, which already has the updates. A stage's first collective comes right
// after the last gradient of its minibatch, where no worker waits for it. The stage's other collectives come right
// before its update. By then the first collectives of all workers can be complete.
func addElastic(p *schedule.Program, list schedule.List) schedule.List {
	list = behindGradients(p, list, func(u schedule.Instruction) schedule.List {
		chain := collectives(p, u)
		return chain[:min(1, len(chain))]
	})
	var out schedule.List
	for _, in := range list {
		if in.Kind == schedule.U && !p.IsReference(int(in.Pipeline)) {
			chain := collectives(p, in)
			out = append(out, chain[min(1, len(chain)):]...)
		}
		out = append(out, in)
	}
	return out
}
