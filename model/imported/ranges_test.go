package imported_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/torchtest"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/model/imported"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/stage"
)

// The ranges of a model's inputs equal those that PyTorch accepts, which are found by trying. Exceptions are calculated
// indices, and operators that take indices only from some rows.
func TestRangesOfInputsAreWhatPyTorchTakes(t *testing.T) {
	a := torchtest.Run(t, torchtest.Request{Name: "indices", File: "ranges.py"})[0]
	if a.Code != 0 {
		t.Fatal(a.Said)
	}
	for _, fuse := range []string{imported.Off, imported.Fused} {
		m := opened(t, a.Model, fuse).Model
		unknown := map[string][]int{"tokens": {1}, "places": {1, 2, 3}} // positions where PyTorch accepts fewer numbers
		all, err := m.Weights.Tensor("tried")
		if err != nil {
			t.Fatal(err)
		}
		tried := len(all.Data) / 8
		for _, in := range m.Inputs {
			v, err := m.Weights.Tensor("takes_" + in.Name)
			if err != nil {
				t.Fatal(err)
			}
			for at := range int(in.Elements()) {
				for k := range tried {
					value := int64(binary.LittleEndian.Uint64(all.Data[8*k:]))
					takes := binary.LittleEndian.Uint64(v.Data[8*(tried*at+k):]) == 1
					if allowed := within(in.Ranges, at, value); allowed != takes && !(allowed &&
						slices.Contains(unknown[in.Name], at)) {
						t.Errorf("%s of %s at %d: %d is allowed: %v; PyTorch takes it: %v", fuse, in.Name, at, value, allowed, takes)
					}
				}
			}
			for _, r := range in.Ranges {
				if r.Only == (in.Name == "tokens" || in.Name == "places") {
					t.Errorf("%s: %+v", in.Name, r)
				}
			}
		}
		calculated(t, m)
	}
}

// within says whether all ranges allow a number.
func within(ranges []model.Range, at int, value int64) bool {
	return !slices.ContainsFunc(ranges, func(r model.Range) bool {
		return (r.At == nil || slices.Contains(r.At, at)) && (value < r.Least || value > r.Most) &&
			(r.Skip == nil || value != *r.Skip)
	})
}

// calculated checks the error for a number from which the network calculates an index out of range.
func calculated(t *testing.T, m *model.Model) {
	l := newLine(t, device(t), m, 0)
	defer l.close()
	given := stage.Tensors{}
	for _, v := range l.stages[0].Feeds() {
		in := m.Inputs[slices.IndexFunc(m.Inputs, func(x model.Tensor) bool { return x.Name == l.stages[0].Graph.Name(v) })]
		words := make([]int64, 2*in.Elements())
		if in.Name == "tokens" {
			words[1] = 140
		}
		raw, err := binary.Append(nil, binary.LittleEndian, words)
		if err != nil {
			t.Fatal(err)
		}
		var shape []int64
		for _, n := range append([]int{2}, in.Shape...) {
			shape = append(shape, int64(n))
		}
		if given[v], err = l.dev.FromBytes(engine.Int64, shape, raw); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := l.stages[0].Forward(stage.Micro{ID: 1, Rows: 2}, given)
	var index *nn.IndexError
	if !errors.As(err, &index) || index.Least != 0 || index.Greatest != 20 || index.From != 0 || index.To != 19 ||
		!strings.Contains(err.Error(), "embedding in far, ranges.py:") {
		t.Errorf("a calculated index that is out of range: %v", err)
	}
}
