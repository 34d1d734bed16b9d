package schedule

import "fmt"

// Several chunks on each of p workers, placed in turn (Wrap), v on each:
//
//	interleaved   1F1B over chunks (Narayanan et al., SC 2021): worker i runs
//	              2(p-i-1) + (v-1)p forwards first; bubble (p-1)(F+B)/v, where F and B are of
//	              all chunks of a worker; the first worker holds pv + p-1 chunks' activations
//	bfs           all micro-batches of one chunk, then of the next (Lamy-Poirier, 2022):
//	              the same bubble, all M v activations held, traffic in one run for each chunk
//
// Micro-batches go in groups of p through a worker's chunks, so interleaved needs a multiple of p.
func init() {
	admit := func(s Settings) error {
		p := s.workers()
		if len(s.Placement)%p != 0 || len(s.Placement) < 2*p && p > 1 {
			return fmt.Errorf("%d virtual stages on %d workers; give each worker as many, two at least", len(s.Placement), p)
		}
		return s.placed(Wrap(p, len(s.Placement)/p), "stage s lies on worker s mod workers")
	}
	Register(Family{
		Name: "interleaved", Doc: "1F1B over several chunks a worker (Megatron-LM, arXiv 2104.04473)", Chunks: -1, Place: Wrap,
		Admits: func(s Settings) error {
			if err := admit(s); err != nil {
				return err
			}
			if p := s.workers(); s.MicroBatches%p != 0 {
				return fmt.Errorf("%d micro-batches on %d workers; give a multiple", s.MicroBatches, p)
			}
			return nil
		},
		Generate: interleaved,
	})
	Register(Family{
		Name: "bfs", Doc: "looped, breadth first: all micro-batches of a chunk, then the next chunk (arXiv 2211.05953)", Chunks: -1, Place: Wrap,
		Admits: admit, Generate: breadthFirst,
	})
}

func interleaved(s Settings) (*Program, error) {
	prog := s.program()
	p := prog.Workers
	v := len(s.Placement) / p
	total := s.MicroBatches * v
	for w := range p {
		nth := func(k int, kind Kind) Instruction {
			chunk := k % (p * v) / p
			if kind == B {
				chunk = v - 1 - chunk
			}
			return Instruction{Stage: int32(chunk*p + w), Kind: kind, Micro: int32(k/(p*v)*p + k%p)}
		}
		warm := min(total, 2*(p-w-1)+(v-1)*p+1)
		list := make(List, 0, 2*total)
		for k := range warm {
			list = append(list, nth(k, F))
		}
		for k := range total {
			list = append(list, nth(k, B))
			if warm+k < total {
				list = append(list, nth(warm+k, F))
			}
		}
		prog.Body[w] = list
	}
	return prog, nil
}

func breadthFirst(s Settings) (*Program, error) {
	prog := s.program()
	p := prog.Workers
	v := len(s.Placement) / p
	for w := range p {
		list := make(List, 0, 2*v*s.MicroBatches)
		for _, kind := range []Kind{F, B} {
			for c := range v {
				if kind == B {
					c = v - 1 - c
				}
				for m := range s.MicroBatches {
					list = append(list, Instruction{Stage: int32(c*p + w), Kind: kind, Micro: int32(m)})
				}
			}
		}
		prog.Body[w] = list
	}
	return prog, nil
}
