package rules

import "github.com/millrace-ml/millrace/model/aten"

// Indexed says which arguments of an operator are indices, and which dimension of which argument they index.
type Indexed struct {
	Index    int  // the argument with the indices; if Listed, it is a list with one tensor for each dimension
	Of       int  // the argument that is indexed
	Dim      int  // the indexed dimension; if FromArg, the number of the argument that has the dimension
	FromArg  bool // Dim is the number of the argument that gives the dimension
	Listed   bool
	Negative bool // -n to -1 are allowed and count from the end
	Ignored  int  // the argument with the class number that a loss ignores; 0: none
}

// indexed lists the operators that take indices. The class numbers of losses are treated as indices into the scores of
// a row.
var indexed = map[string]Indexed{
	"embedding":          {Index: 1},
	"embedding_bag":      {Index: 1},
	"index_select":       {Index: 2, Dim: 1, FromArg: true},
	"gather":             {Index: 2, Dim: 1, FromArg: true},
	"scatter":            {Index: 2, Dim: 1, FromArg: true},
	"scatter_add":        {Index: 2, Dim: 1, FromArg: true},
	"index_add":          {Index: 2, Dim: 1, FromArg: true},
	"index":              {Index: 1, Listed: true, Negative: true},
	"cross_entropy_loss": {Index: 1, Dim: 1, Ignored: 4},
	"nll_loss":           {Index: 1, Dim: 1, Ignored: 4},
	"nll_loss_nd":        {Index: 1, Dim: 1, Ignored: 4},
	"nll_loss2d":         {Index: 1, Dim: 1, Ignored: 4},
	"multi_margin_loss":  {Index: 1, Dim: 1},
}

// IndexedBy says which arguments of an operator are indices. It returns false if there are none.
func IndexedBy(op string) (Indexed, bool) {
	x, is := indexed[base(op)]
	return x, is
}

// DimOf returns the indexed dimension of a tensor with the given rank; -1 if it is unknown. The function `number` reads
// an argument as a number.
func (x Indexed) DimOf(rank int, number func(arg int) (int64, bool)) int {
	dim := int64(x.Dim)
	if x.FromArg {
		var ok bool
		if dim, ok = number(x.Dim); !ok {
			return -1
		}
	} else if x.Ignored > 0 || x.Dim > 0 { // without a batch dimension, the classes are dimension 0
		dim = min(dim, int64(rank)-1)
	}
	if dim < 0 {
		dim += int64(rank)
	}
	if dim < 0 || dim >= int64(rank) {
		return -1
	}
	return int(dim)
}

// Range returns the smallest and largest index into n elements.
func (x Indexed) Range(n int64) (least, most int64) {
	if x.Negative {
		return -n, n - 1
	}
	return 0, n - 1
}

// Skipped returns the index that the operator ignores; nil if there is none.
func (x Indexed) Skipped(number func(arg int) (int64, bool)) *int64 {
	if x.Ignored == 0 {
		return nil
	}
	if n, given := number(x.Ignored); given {
		return &n
	}
	n := int64(ignoredClass)
	return &n
}

// ignoredClass is the class that PyTorch's losses ignore by default.
const ignoredClass = -100

// counts says whether elements of a type are whole numbers, which can be indices.
func counts(d aten.DType) bool { return d == "I64" || d == "I32" || d == "I16" || d == "I8" }
