package schedule

// Holding counts what one replica of a stage keeps and sends while a Program runs.
type Holding struct {
	Pipeline int `json:"pipeline"`
	Stage    int `json:"stage"`
	Replica  int `json:"replica"`
	Worker   int `json:"worker"`
	// Peak is the largest number of micro-batches that are between their forward and their last gradient at once.
	Peak int `json:"peak_activations"`
	// Versions is the largest number of copies of the weights that the replica keeps at once.
	Versions int `json:"versions"`
	// Activations and Gradients count the messages sent to other workers over the whole Program. Activations go to the
	// next stage, gradients to the previous one.
	Activations int `json:"activations_sent"`
	Gradients   int `json:"gradients_sent"`
	// Reductions counts the all-reduces over the stage's replicas.
	Reductions int `json:"reductions"`
}

// Holdings returns the Holding of every replica, ordered by pipeline, stage and replica. The Program must be lowered
// and pass check.Check.
func (p *Program) Holdings() []Holding {
	type place struct{ pipeline, stage, replica int }
	var out []Holding
	at := map[place]int{}
	for pl, stages := range p.Placement {
		for s, on := range stages {
			for r, w := range on {
				at[place{pl, s, r}] = len(out)
				out = append(out, Holding{Pipeline: pl, Stage: s, Replica: r, Worker: w, Versions: 1})
			}
		}
	}
	for w := range p.Workers {
		var copies map[Instruction]int
		if p.Streams() {
			copies = p.Copies(w)
		}
		held, versions := map[place]int{}, map[place]int{}
		p.Walk(w, func(in Instruction) bool {
			if in.Kind == DR {
				return true
			}
			here := place{int(in.Pipeline), int(in.Stage), int(in.Replica)}
			h := &out[at[here]]
			switch in.Kind {
			case F:
				held[here]++
				h.Peak = max(h.Peak, held[here])
			case B, W:
				held[here]--
			case SF:
				h.Activations += len(p.Receivers(in))
			case SB:
				h.Gradients += len(p.Receivers(in))
			case AR:
				h.Reductions++
			}
			versions[here] += copies[in]
			switch {
			case p.ValidatesLater() && in.Kind == U:
				versions[here]++
			case in.Kind == PV:
				versions[here]--
			}
			h.Versions = max(h.Versions, 1+versions[here])
			return true
		})
	}
	return out
}
