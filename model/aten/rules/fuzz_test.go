package rules

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/model/aten"
)

// FuzzNormalise makes graphs of any operators with any arguments. Each must be refused or normalised, without a panic.
func FuzzNormalise(f *testing.F) {
	var names []string
	for _, s := range []map[string]bool{views, maybe, alike, broadcast, samplewise, moved, reduced, heavy, created,
		set(`add_ mul_ relu_ copy_ zero_ fill_ masked_fill_ cat stack arange size numel __getitem__ len Int index_put_
			linear`)} {
		for n := range s {
			names = append(names, "aten::"+n)
		}
	}
	names = append(names, "prim::ListConstruct", "prim::ListUnpack", "prim::NumToTensor", "aten::arange.start",
		"aten::lstm.input", "aten::slice.Tensor", "aten::div.Tensor_mode", "aten::add.Tensor", "aten::where.self")
	slices.Sort(names)
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	f.Add([]byte("every operator reads what is there, or not"))
	types := []string{"Tensor", "Tensor", "int", "Tensor[]"}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := begin()
		next := func() int {
			if len(data) == 0 {
				return 0
			}
			c := data[0]
			data = data[1:]
			return int(c)
		}
		var arg func(depth int) aten.Arg
		arg = func(depth int) aten.Arg {
			switch k := next(); k % 8 {
			case 0:
				return aten.Arg{}
			case 1:
				return tensor([]string{"m.w", "m.b", "c"}[k/8%3])
			case 2:
				return integer(int64(k/8) - 4)
			case 3:
				return float(float64(k))
			case 4:
				return truth(k > 100)
			case 5:
				l := listed()
				for range k / 8 % 4 {
					if depth < 3 {
						l.List = append(l.List, arg(depth+1))
					}
				}
				return l
			}
			return value(next() % (len(b.g.Nodes) + 3))
		}
		for len(data) > 0 && len(b.g.Nodes) < 60 {
			op := names[(next()*256+next())%len(names)]
			var in []aten.Arg
			for range next() % 9 {
				in = append(in, arg(0))
			}
			if k := next(); len(in) > 0 && k%8 == 0 {
				in[len(in)-1].Name = []string{"dim", "self", "other", "alpha", "input"}[k/8%5]
			}
			shape := []int64{4, 3, int64(next()), 1}[:next()%5]
			b.call(op, types[next()%4], shape, in...)
			made := &b.g.Nodes[len(b.g.Nodes)-1].Out[0]
			if made.Detached = next()%8 == 0; next()%2 == 0 {
				made.Double = []int64{8, 3, int64(next()), 2}[:next()%5]
			}
		}
		if n, err := b.end(value(len(b.g.Nodes) + 1)); err == nil {
			checkLayers(t, n)
			n.Ranges()
		}
	})
}
