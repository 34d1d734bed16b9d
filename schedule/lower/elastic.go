package lower

import "github.com/millrace-ml/millrace/schedule"

// addCollectives lowers one list of family elastic, in which the updates stand already: a
// stage's first collective goes right behind the last gradient of its minibatch, where
// nobody waits for it, the others in front of its update, which stands where all workers'
// first ones can be complete.
func addCollectives(p *schedule.Program, list schedule.List) schedule.List {
	var out schedule.List
	for j := 0; j < len(list); j++ {
		in := list[j]
		if in.Kind == schedule.U && !p.IsReference(int(in.Pipeline)) {
			if chain := updating(p, in, in.Micro); len(chain) > 2 {
				out = append(out, chain[1:len(chain)-1]...)
			}
		}
		out = append(out, in)
		if in.Kind != schedule.B && in.Kind != schedule.W || !closes(p, in) {
			continue
		}
		for j+1 < len(list) && list[j+1].Kind == schedule.SB {
			j++ // the neighbour waits for the gradient
			out = append(out, list[j])
		}
		if chain := updating(p, in, p.UpdateOf(int(in.Pipeline), int(in.Stage), in.Micro)); len(chain) > 1 {
			out = append(out, chain[0])
		}
	}
	return out
}
