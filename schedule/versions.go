package schedule

// Versions of the weights: which one each instruction of a lowered Program uses, and how many are kept. The versions
// follow only from the lists and the policy's rule; nothing is simulated.

// Use is an instruction of a worker with a version of its stage's weights. F, B, I, W and EV read that version; U
// makes it.
type Use struct {
	Instruction Instruction // with absolute ids
	Version     int
	// Frees is the version that no instruction uses after this one; -1 means none. If an update frees the version
	// before its own, it may change the weights in place.
	Frees int
	At    int // position in the worker's walk
}

// Uses lists every F, B, I, W, EV and U of a worker, in the order of its list. The Program must be lowered and pass
// check.Check.
func (p *Program) Uses(worker int) []Use {
	type version struct {
		pipeline int16
		stage    int32
		number   int
	}
	uses := p.uses(worker)
	last, replaced := map[version]int{}, map[version]int{}
	for i, u := range uses {
		v := version{u.Instruction.Pipeline, u.Instruction.Stage, u.Version}
		if u.Instruction.Kind == U {
			v.number--
			replaced[v] = i
			continue
		}
		last[v] = i
	}
	for v, by := range replaced {
		gone := by
		if l, ok := last[v]; ok && l > by {
			gone = l
		}
		uses[gone].Frees = v.number
	}
	return uses
}

// uses returns what Uses returns, but without Frees, because Frees can be set only once all uses are known.
func (p *Program) uses(worker int) []Use {
	type place struct {
		pipeline int16
		stage    int32
	}
	current := map[place]int{}
	forward := map[Instruction]int{}
	tags := map[int16]map[int32]int{}
	rule := p.Weights.rule()
	if rule.tagged {
		for pl := range p.Placement {
			tags[int16(pl)] = p.entries(pl)
		}
	}
	var out []Use
	at := -1
	p.Walk(worker, func(in Instruction) bool {
		at++
		here := place{in.Pipeline, in.Stage}
		version := current[here]
		switch in.Kind {
		case F:
			g := p.UpdateSpan(int(in.Pipeline), int(in.Stage))
			version = rule.forward(version, int(in.Micro)/g, tags[in.Pipeline][in.Micro]/g)
			forward[in] = version
		case B, I, W:
			if v, ok := forward[in.As(F)]; ok && !rule.mismatches {
				version = v
			}
		case U:
			current[here]++
			version++
		case EV:
		default:
			return true
		}
		out = append(out, Use{Instruction: in, Version: version, Frees: -1, At: at})
		return true
	})
	return out
}

// entries returns a number for each micro-batch. It says how many micro-batches' gradients are in the input stage's
// weights when this micro-batch's forward begins there. Vertical passes the number along as the tag.
func (p *Program) entries(pipeline int) map[int32]int {
	tags := map[int32]int{}
	g := p.UpdateSpan(pipeline, 0)
	for _, w := range p.Placement[pipeline][0] {
		updates := 0
		p.Walk(w, func(in Instruction) bool {
			if int(in.Pipeline) != pipeline || in.Stage != 0 {
				return true
			}
			switch in.Kind {
			case U:
				updates++
			case F:
				tags[in.Micro] = updates * g
			}
			return true
		})
	}
	return tags
}

// Needs returns the update that must come before a forward. `needs` is false if there is no such update. Under Vertical
// the answer is incomplete: what a forward needs depends on all lists (entries).
func (p *Program) Needs(f Instruction) (u Instruction, needs bool) {
	back, g := int32(p.Weights.rule().needs), int32(p.UpdateSpan(int(f.Pipeline), int(f.Stage)))
	before := (f.Micro/g-back)*g + g - 1
	if back == 0 || before < 0 {
		return Instruction{}, false
	}
	u = f.As(U)
	u.Micro = p.UpdateOf(int(f.Pipeline), int(f.Stage), before)
	return u, true
}

// Copies returns by how much each instruction changes the number of copies of weights that a worker keeps.
// Instructions have absolute ids; those that change nothing are left out. An update adds a copy. The replaced
// version is freed by the last instruction that uses it, which may be the update itself (PipeDream §4).
func (p *Program) Copies(worker int) map[Instruction]int {
	change := map[Instruction]int{}
	for _, u := range p.Uses(worker) {
		by := 0
		if u.Instruction.Kind == U {
			by++
		}
		if u.Frees >= 0 {
			by--
		}
		if by != 0 {
			change[u.Instruction] = by
		}
	}
	return change
}

// MostCopies returns the largest number of copies of weights that a worker keeps at a time. A worker begins with one
// for each of its stages.
func (p *Program) MostCopies(worker int) int {
	now := len(p.StagesOf(worker))
	most := now
	change := p.Copies(worker)
	p.Walk(worker, func(in Instruction) bool {
		now += change[in]
		most = max(most, now)
		return true
	})
	return most
}
