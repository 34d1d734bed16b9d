package run

// statistics holds, by norm layer, what the forward of each micro-batch has kept.
type statistics map[string][]*kept

func (s statistics) note(links []link, all []*kept) {
	for i, l := range links {
		if l.norm {
			s[l.name] = append(s[l.name], all[i])
		}
	}
}

// running returns the running means and variances of norms. Every forward of a replica moves the replica's own
// statistics by a tenth towards those of the micro-batch. At every update and at the end, each replica gets the mean
// over all replicas. If a.apart is set, this happens only at the end.
func (a *alone) running() values {
	out := values{}
	for i := range a.first {
		for _, l := range a.of(i) {
			if seen := a.statistics[l.name]; l.norm {
				out[l.name+".mean"] = a.moved(i, seen, 0, func(k *kept, part int) []float64 { return k.means[part] }, l.in)
				out[l.name+".variance"] = a.moved(i, seen, 1, func(k *kept, part int) []float64 { return k.variances[part] }, l.in)
			}
		}
	}
	return out
}

// moved returns a running statistic of a stage. `start` is its first value.
func (a *alone) moved(
	stage int, seen []*kept, start float64, of func(k *kept, part int) []float64, width int,
) []float64 {
	r := a.replicas[stage]
	own, taken := make([][]float64, r), make([]int, r)
	for k := range own {
		own[k] = make([]float64, width)
		for c := range own[k] {
			own[k][c] = start
		}
	}
	forward := func(k, until int) { // moves replica k's statistics until they include `until` micro-batches
		for ; taken[k] < until; taken[k]++ {
			at, part := taken[k]*r+k, 0
			if a.split {
				at, part = taken[k], k
			} else if a.flushes() {
				per := (a.micros - k + r - 1) / r // micro-batches of replica k per step
				at = taken[k]/per*a.micros + taken[k]%per*r + k
			}
			if at >= len(seen) {
				return
			}
			for c, x := range of(seen[at], part) {
				own[k][c] = 0.9*own[k][c] + 0.1*x
			}
		}
	}
	agree := func() {
		for c := range width {
			mean := 0.0
			for k := range r {
				mean += own[k][c] / float64(r)
			}
			for k := range r {
				own[k][c] = mean
			}
		}
	}
	for u := 1; u < len(a.versions[stage]); u++ {
		for k := range r {
			switch {
			case a.split:
				forward(k, u*a.micros)
			case a.flushes():
				forward(k, u*((a.micros-k+r-1)/r))
			default: // a replica's forwards are ahead of its backwards
				forward(k, u-1+a.depth(stage))
			}
		}
		if !a.apart {
			agree()
		}
	}
	for k := range r {
		forward(k, len(seen))
	}
	agree()
	return own[0]
}
