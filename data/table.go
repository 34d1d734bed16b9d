package data

import "math"

// table is samples of numbers with a class each, held as bytes or floats.
type table struct {
	order  order
	pair   pair
	width  int
	pixels []uint8 // one of these two
	values []float32
	// value = (raw - shift) * scale
	shift, scale float32
	labels       []uint8
}

func (t *table) Len() int { return len(t.labels) }

// Batch implements Split.
func (t *table) Batch(step, batchSize, firstRow, rows int) (Batch, error) {
	samples, err := t.order.positions(step, batchSize, firstRow, rows)
	if err != nil {
		return nil, err
	}
	in := make([]float32, rows*t.width)
	target := make([]int64, rows)
	for r, s := range samples {
		row := in[r*t.width : (r+1)*t.width]
		if t.pixels != nil {
			for i, p := range t.pixels[s*t.width : (s+1)*t.width] {
				row[i] = (float32(p) - t.shift) * t.scale
			}
		} else {
			for i, v := range t.values[s*t.width : (s+1)*t.width] {
				row[i] = (v - t.shift) * t.scale
			}
		}
		target[r] = int64(t.labels[s])
	}
	return t.pair.batch(Array{Floats: in}, Array{Ints: target}, rows), nil
}

// normalise gives both tables the scale that makes the first one's values have mean 0
// and standard deviation 1.
func normalise(train, test *table) {
	var sum, squares float64
	n := 0
	each := func(v float64) { sum, squares, n = sum+v, squares+v*v, n+1 }
	for _, p := range train.pixels {
		each(float64(p))
	}
	for _, v := range train.values {
		each(float64(v))
	}
	mean := sum / float64(n)
	deviation := math.Sqrt(max(squares/float64(n)-mean*mean, 0))
	if deviation == 0 {
		deviation = 1
	}
	for _, t := range []*table{train, test} {
		t.shift, t.scale = float32(mean), float32(1/deviation)
	}
}
