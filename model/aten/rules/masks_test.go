package rules

import (
	"testing"

	"github.com/millrace-ml/millrace/model/aten"
)

// In x[mask, i], x has the shape [2 2 9]. If the mask has one dimension, it applies to the first dimension of x, and i
// to the second. If the mask has two dimensions, it applies to the first two, and i to the last.
func TestIndicesBehindMasks(t *testing.T) {
	for _, c := range []struct {
		mask []int64
		most int64 // -1: the range is unknown
	}{{[]int64{2}, 1}, {[]int64{2, 2}, -1}} {
		net := &Network{Graph: &aten.Graph{Rows: 2, Inputs: []aten.Input{{Name: "i", Shape: []int64{2}, DType: "I64"}}}}
		net.Values = map[int]*Value{0: {DType: "I64", Shape: []int64{2}}, 1: {DType: "BOOL", Shape: c.mask},
			2: {DType: "F32", Shape: []int64{2, 2, 9}, Dims: []*Expr{Constant(2), Constant(2), Constant(9)}}, 3: {}}
		net.Nodes = []Node{{Op: "aten::index.Tensor", Out: []int{3}, In: []Arg{{Kind: FromValue, Value: 2},
			{List: []Arg{{Kind: FromValue, Value: 1}, {Kind: FromValue, Value: 0}}}}}}
		most := int64(-1)
		for _, r := range net.Ranges()[0] {
			most = r.Most
		}
		if most != c.most {
			t.Errorf("behind a mask of %v an index may be %d at most; want %d", c.mask, most, c.most)
		}
	}
}
