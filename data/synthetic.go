package data

// synthetic makes samples from a hash of their position.
type synthetic struct {
	order  order
	fields []Field
	limits [][][2]int64 // by field: the least and the greatest value of each whole number in a row
}

// Synthetic returns n samples of noise, for measuring a model's speed without data. They have floats from -1 to 1,
// whole numbers within their ranges, and bools. A whole number without a range is 0 or 1.
func Synthetic(n int, fields []Field) Split {
	s := &synthetic{order: newOrder(n, 1, true), fields: fields}
	for _, f := range fields {
		var l [][2]int64
		for i := range f.Elements() {
			if f.DType == Int {
				least, most := f.limits(i)
				l = append(l, [2]int64{least, most})
			}
		}
		s.limits = append(s.limits, l)
	}
	return s
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
					least, most := s.limits[k][i][0], s.limits[k][i][1]
					a.Ints = append(a.Ints, least+int64(h%uint64(most-least+1)))
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
