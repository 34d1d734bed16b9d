package data

// synthetic is samples made of a hash of their position.
type synthetic struct {
	order  order
	fields []Field
	below  int
}

// Synthetic is n samples of noise for measuring how fast a model is where no data is at hand: values from -1 to
// 1, whole numbers from 0 to below, which is left out, and bools.
func Synthetic(n int, fields []Field, below int) Split {
	return &synthetic{order: newOrder(n, 1, true), fields: fields, below: below}
}

func (s *synthetic) Len() int { return int(s.order.n) }

// Batch implements Split.
func (s *synthetic) Batch(step, batchSize, firstRow, rows int) (Batch, error) {
	samples, err := s.order.positions(step, batchSize, firstRow, rows)
	if err != nil {
		return nil, err
	}
	b := Batch{}
	for k, f := range s.fields {
		a := Array{Shape: append([]int{rows}, f.Shape...)}
		for _, sample := range samples {
			for i := range f.Elements() {
				switch h := mix(uint64(sample)<<32 + uint64(i) + uint64(k+1)<<60); f.DType {
				case Int:
					a.Ints = append(a.Ints, int64(h%uint64(s.below)))
				case Bool:
					a.Bools = append(a.Bools, h&1 == 1)
				default:
					a.Floats = append(a.Floats, float32(int32(h))/(1<<31))
				}
			}
		}
		b[f.Name] = a
	}
	return b, nil
}
