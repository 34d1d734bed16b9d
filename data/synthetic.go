package data

// synthetic is samples made of a hash of their position.
type synthetic struct {
	order         order
	input, target []int
	tokens        bool
	classes       int
}

// Synthetic is n samples of noise for measuring how fast a model is where no data is at
// hand: inputs of a shape (tokens below classes, or values from -1 to 1) and targets of
// a shape, below classes.
func Synthetic(n int, input, target []int, tokens bool, classes int) Split {
	return &synthetic{order: newOrder(n, 1, true), input: input, target: target, tokens: tokens, classes: classes}
}

func (s *synthetic) Len() int { return int(s.order.n) }

// Batch implements Split.
func (s *synthetic) Batch(step, batchSize, firstRow, rows int) (Batch, error) {
	samples, err := s.order.positions(step, batchSize, firstRow, rows)
	if err != nil {
		return Batch{}, err
	}
	numbers := func(shape []int, salt uint64, whole bool) Array {
		each := 1
		for _, d := range shape {
			each *= d
		}
		a := Array{Shape: append([]int{rows}, shape...)}
		for _, sample := range samples {
			for i := range each {
				h := mix(uint64(sample)<<32 + uint64(i) + salt<<60)
				if whole {
					a.Ints = append(a.Ints, int64(h%uint64(s.classes)))
				} else {
					a.Floats = append(a.Floats, float32(int32(h))/(1<<31))
				}
			}
		}
		return a
	}
	return Batch{Input: numbers(s.input, 1, s.tokens), Target: numbers(s.target, 2, true)}, nil
}
