package pt2

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/model/aten"
)

var widths = map[aten.DType]int64{"U8": 1, "I8": 1, "I16": 2, "I32": 4, "I64": 8, "F16": 2, "F32": 4, "F64": 8,
	"BOOL": 1, "BF16": 2}

// sound checks what Read guarantees for every file that it accepts.
func sound(t *testing.T, raw []byte) {
	g, of, err := read(bytes.NewReader(raw), int64(len(raw)), "net")
	if err != nil {
		return
	}
	made := map[int]bool{}
	for _, in := range g.Inputs {
		made[in.Value] = true
	}
	tensors := map[string]bool{}
	for _, x := range g.Tensors {
		tensors[x.Name] = true
		r := of[x.Name]
		count := widths[x.DType]
		for _, d := range x.Shape {
			count *= d
		}
		if r == nil || r.Size() != count {
			t.Fatalf("%s: not %d bytes for %v", x.Name, count, x.Shape)
		}
		if n, err := io.Copy(io.Discard, r); err != nil || n != r.Size() {
			t.Fatalf("%s: %d bytes of %d: %v", x.Name, n, r.Size(), err)
		}
	}
	var check func(a aten.Arg)
	check = func(a aten.Arg) {
		if a.Kind == aten.FromValue && !made[a.Value] {
			t.Fatalf("%%%d is read before it is made", a.Value)
		}
		if a.Kind == aten.FromTensor && !tensors[a.Tensor] {
			t.Fatalf("there is no tensor %s", a.Tensor)
		}
		for _, one := range a.List {
			check(one)
		}
	}
	for _, n := range g.Nodes {
		for _, a := range n.In {
			check(a)
		}
		for _, v := range n.Out {
			if made[v.ID] {
				t.Fatalf("%%%d is made twice", v.ID)
			}
			made[v.ID] = true
		}
	}
	if len(g.Outputs) == 0 || len(g.Inputs) == 0 {
		t.Fatal("a graph without inputs or outputs")
	}
	for _, o := range g.Outputs {
		check(o.Arg)
	}
	for name, of := range g.Aliases {
		if !tensors[of] || tensors[name] {
			t.Fatalf("%s is an alias of %s", name, of)
		}
	}
}

// FuzzArchive changes the bytes of whole archives.
func FuzzArchive(f *testing.F) {
	for _, a := range []archived{mlp(f), convnet(), tied(), masked()} {
		f.Add(a.zip(f))
	}
	f.Add([]byte("PK\x05\x06"))
	f.Fuzz(sound)
}

// FuzzProgram changes the texts in an archive. FuzzArchive cannot do this, because a changed text has a wrong checksum.
func FuzzProgram(f *testing.F) {
	for _, a := range []archived{mlp(f), convnet(), tied(), masked()} {
		f.Add(a[modelJSON], a[weightsJSON], a[constJSON])
	}
	of := masked()
	for _, absurd := range []string{`{"as_int":1e400}`, `{"as_int":9223372036854775808}`, `{"as_int":4611686018427387904}`,
		`NaN`, `{"as_expr":{"expr_str":"s77**s77","hint":{"as_int":0}}}`, strings.Repeat("[", 10_000),
		`{"as_expr":{"expr_str":"` + strings.Repeat("(", 10_000) + `s77","hint":{"as_int":4}}}`} {
		f.Add(strings.Replace(of[modelJSON], `{"as_int":3}`, absurd, 1), of[weightsJSON], of[constJSON])
		f.Add(of[modelJSON], strings.Replace(of[weightsJSON], `{"as_int":2}`, absurd, 1), of[constJSON])
	}
	f.Fuzz(func(t *testing.T, model, weights, constants string) {
		a := archived{"archive_format": "pt2", modelJSON: model, weightsJSON: weights, constJSON: constants}
		for _, name := range []string{"weights/weight_0", "weights/weight_1", "weights/weight_2", "weights/weight_3",
			"weights/weight_5", "constants/tensor_0", "constants/tensor_1"} {
			a["data/"+name] = counted(10)
		}
		sound(t, a.zip(t))
	})
}
