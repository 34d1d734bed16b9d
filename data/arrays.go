package data

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/data/arrays"
)

// DefaultTrainPart is the fraction of an array file's rows that are training rows, unless Options give another.
const DefaultTrainPart = 0.9

// column is an array of a file in the form that a model reads.
type column struct {
	*arrays.Array
	as Field
}

// rows is the training part or the test part of a file's rows. Both parts share one shuffle of all rows, `among`. A
// part begins at position `first` of the shuffle: its sample s is the row at position first+s.
type rows struct {
	path    string
	order   order
	among   order
	first   int
	columns []column
}

func (r *rows) Len() int { return int(r.order.n) }

func (r *rows) head(n int) Split {
	short := *r
	short.order = r.order.of(n)
	return &short
}

// Batch implements Split.
func (r *rows) Batch(step, batchSize, firstRow, n int) (Batch, error) {
	samples, err := r.order.positions(step, batchSize, firstRow, n)
	if err != nil {
		return nil, err
	}
	for i, s := range samples {
		samples[i] = r.among.sample(uint64(r.first + s))
	}
	b := Batch{}
	for _, c := range r.columns {
		a := Array{Shape: append([]int{n}, c.as.Shape...)}
		switch c.as.DType {
		case Int:
			a.Ints, err = c.indices(samples)
		case Bool:
			a.Bools, err = c.Bools(samples)
		default:
			a.Floats, err = c.numbers(samples)
		}
		if err != nil {
			return nil, fmt.Errorf("data: %s: array %q: %w", r.path, c.Name, err)
		}
		b[c.as.Name] = a
	}
	return b, nil
}

// numbers reads rows as floats. It refuses NaN, because one such value makes all weights NaN. Infinite values stay:
// masks that are added to attention scores have them.
func (c column) numbers(rows []int) ([]float32, error) {
	all, err := c.Floats(rows)
	if i := slices.IndexFunc(all, func(v float32) bool { return v != v }); err == nil && i >= 0 {
		err = &arrays.ValueError{Row: rows[i*len(rows)/len(all)],
			Err: errors.New("NaN, which would make the loss and all weights NaN; leave the row out, or give a number")}
	}
	return all, err
}

// openArrays opens a file with an array for each input of a model. If some rows are test rows, the training rows are
// chosen at random, but are the same for every seed. So with the same TrainPart, no run evaluates rows that another run
// has trained on.
func openArrays(path string, o Options) (*Set, error) {
	f, err := arrays.Open(path)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	set, err := arraySet(path, f, o)
	if err != nil {
		_ = f.Close() // nothing was written to it
		return nil, fmt.Errorf("data: %s: %w", path, err)
	}
	return set, nil
}

// arraySet selects the wanted arrays of a file and divides their rows into parts.
func arraySet(path string, f *arrays.File, o Options) (*Set, error) {
	set := &Set{Name: path, Fields: o.Fields, Stored: map[string]string{}, Refused: map[string]string{}}
	if o.Fields == nil {
		for _, name := range slices.Sorted(maps.Keys(f.Arrays)) {
			if a := f.Arrays[name]; a.Refused != nil {
				set.Refused[name] = a.Refused.Error()
			} else {
				set.Fields = append(set.Fields, asItIs(a))
			}
		}
		if len(set.Fields) == 0 {
			return nil, noneOf(set.Refused)
		}
	}
	var columns []column
	for _, field := range set.Fields {
		a := f.Arrays[field.Name]
		if a == nil {
			return nil, fmt.Errorf("the model reads %v, and no array has that name; there are %q", field,
				slices.Sorted(maps.Keys(f.Arrays)))
		}
		c := column{a, field}
		if err := c.fits(); err != nil {
			return nil, fmt.Errorf("array %.80q: %w", a.Name, err)
		}
		if first := f.Arrays[set.Fields[0].Name]; a.Rows() != first.Rows() {
			return nil, fmt.Errorf("array %.80q has %d rows and array %.80q has %d; all must have as many", first.Name,
				first.Rows(), a.Name, a.Rows())
		}
		columns = append(columns, c)
	}
	for _, c := range columns {
		set.Stored[c.Name] = string(c.Type)
		target := c.as.Name == o.Target && c.as.DType == Int
		if !target && len(c.as.Ranges) == 0 || c.Rows()*int64(c.as.Elements()) > cheaply {
			continue
		}
		greatest, err := c.greatest()
		if err != nil {
			return nil, fmt.Errorf("array %.80q: %w", c.Name, err)
		}
		if target {
			set.Classes = greatest + 1
		}
	}
	n := columns[0].Rows()
	part := o.TrainPart
	if part == 0 {
		part = DefaultTrainPart
	}
	train := int(n)
	if part < 1 {
		train = min(max(int(math.Round(part*float64(n))), 1), int(n)-1)
	}
	if train < 1 {
		return nil, fmt.Errorf("of its %d row, train_part %v leaves none to train on or none to evaluate; with 1, all rows "+
			"train", n, part)
	}
	among := newOrder(int(n), 0, part == 1)
	set.Train = &rows{path, newOrder(train, o.Seed, false), among, 0, columns}
	if train < int(n) {
		set.Test = &rows{path, newOrder(int(n)-train, o.Seed, true), among, train, columns}
	}
	return set, nil
}

// noneOf returns an error that says why none of a file's arrays can be read.
func noneOf(refused map[string]string) error {
	all := slices.Sorted(maps.Keys(refused))
	if len(all) == 0 {
		return errors.New("it has no arrays")
	}
	more := ""
	if len(all) > 1 {
		more = fmt.Sprintf(", and %d others", len(all)-1)
	}
	return fmt.Errorf("it has no array that can be read: array %.80q: %s%s", all[0], refused[all[0]], more)
}

// asItIs returns the field for an array if there is no model: the array's own shape and type.
func asItIs(a *arrays.Array) Field {
	f := Field{Name: a.Name, Shape: sizes(a.Shape[1:]), DType: Int}
	switch {
	case a.Type.Float():
		f.DType = Float
	case a.Type.Bool():
		f.DType = Bool
	}
	return f
}

func sizes(shape []int64) []int {
	out := []int{}
	for _, d := range shape {
		out = append(out, int(d))
	}
	return out
}

// fits checks that an array can be read as its field. Their shapes must be equal apart from sizes of 1, and floats are
// read only as floats. An equal number of elements is not enough, because an image with channels last has as many
// elements as one with channels first.
func (c column) fits() error {
	if err := c.Load(); err != nil {
		return err
	}
	beyond := func(shape []int) []int {
		return slices.DeleteFunc(slices.Clone(shape), func(d int) bool { return d == 1 })
	}
	if have := sizes(c.Shape[1:]); !slices.Equal(beyond(have), beyond(c.as.Shape)) {
		return fmt.Errorf("its rows have the shape %v, and the model reads %v", have, c.as.Shape)
	}
	if c.Type.Float() && c.as.DType != Float {
		as := map[DType]string{Int: "int64", Bool: "bool_"}[c.as.DType]
		return fmt.Errorf("it has %s, and the model reads %s; write x.astype(numpy.%s)", c.Type, c.as.DType, as)
	}
	return nil
}

// cheaply limits how many numbers of an array are read beforehand to find their range.
const cheaply = 1 << 24

// greatest returns the greatest number of an array, or 0 if no number is above 0. It refuses an array with a number out
// of range.
func (c column) greatest() (int, error) {
	greatest, some := int64(0), max(1, (1<<16)/c.as.Elements())
	for row := 0; row < int(c.Rows()); row += some {
		var sought []int
		for r := row; r < min(row+some, int(c.Rows())); r++ {
			sought = append(sought, r)
		}
		all, err := c.indices(sought)
		if err != nil {
			return 0, err
		}
		greatest = max(greatest, slices.Max(all))
	}
	return int(min(greatest, math.MaxInt32-1)), nil
}

// indices reads rows of whole numbers, and refuses numbers out of range.
func (c column) indices(rows []int) ([]int64, error) {
	all, err := c.Ints(rows)
	if err != nil {
		return nil, err
	}
	each := c.as.Elements()
	for i, row := range rows {
		if err := c.as.check(all[i*each : (i+1)*each]); err != nil {
			return nil, &arrays.ValueError{Row: row, Err: err}
		}
	}
	return all, nil
}
