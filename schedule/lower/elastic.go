package lower

import "github.com/millrace-ml/millrace/schedule"

// addElastic lowers one list of family elastic, in which the updates stand already: a
// stage's first collective goes right behind the last gradient of its minibatch, where
// nobody waits for it, the others in front of its update, which stands where all workers'
// first ones can be complete.
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
