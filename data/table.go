package data

import "math"

// table holds samples of numbers with a class each, as bytes or floats.
type table struct {
	order  order
	pair   pair
	width  int
	pixels []uint8 // raw numbers; nil if they are in `values`
	values []float32
	scaled // the scale of all columns if `columns` is nil, as for the pixels of an image
	// columns has a scale for each column, since the columns of a table measure different things. nil: all columns use
	// the embedded scale.
	columns []scaled
	labels  []uint8
	rows    []int // the row of each sample in the file, from 0 without a heading; nil: sample s is row s
}

// scaled turns a raw number into (raw - shift) * scale.
type scaled struct{ shift, scale float32 }

func (s scaled) of(raw float32) float32 { return (raw - s.shift) * s.scale }

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
		switch {
		case t.pixels != nil:
			for i, p := range t.pixels[s*t.width : (s+1)*t.width] {
				row[i] = t.of(float32(p))
			}
		case t.columns != nil:
			for i, v := range t.values[s*t.width : (s+1)*t.width] {
				row[i] = t.columns[i].of(v)
			}
		default:
			for i, v := range t.values[s*t.width : (s+1)*t.width] {
				row[i] = t.of(v)
			}
		}
		target[r] = int64(t.labels[s])
	}
	return t.pair.batch(Array{Floats: in}, Array{Ints: target}, rows), nil
}

// normalise gives both tables the same scale. With this scale, the values of the table `train` have mean 0 and standard
// deviation 1.
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
		t.scaled = scaled{float32(mean), float32(1 / deviation)}
	}
}

// normaliseColumns gives each column a scale of its own. With its scale, the column has mean 0 and standard deviation 1
// in the table `train`. A column that is constant in `train` becomes 0 there.
func normaliseColumns(train, test *table) {
	n := float64(len(train.labels))
	columns := make([]scaled, train.width)
	for c := range columns {
		mean, squares := 0.0, 0.0
		for at := c; at < len(train.values); at += train.width {
			mean += float64(train.values[at]) / n
		}
		for at := c; at < len(train.values); at += train.width {
			squares += (float64(train.values[at]) - mean) * (float64(train.values[at]) - mean) / n
		}
		deviation := math.Sqrt(squares)
		if scale := 1 / deviation; deviation <= roundingError*math.Abs(mean) || scale > math.MaxFloat32 {
			deviation = 1
		}
		columns[c] = scaled{float32(mean), float32(1 / deviation)}
	}
	train.columns, test.columns = columns, columns
}

// roundingError limits the relative error of the mean of equal numbers. Two different float32 numbers differ by more.
const roundingError = 1e-9
