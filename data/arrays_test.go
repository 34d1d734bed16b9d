package data

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/safetensors"
)

// tensor is an array for a file, with its elements as a Go slice.
type tensor struct {
	name, dtype string
	shape       []int64
	elements    any
}

// tensorFile writes arrays as safetensors.
func tensorFile(t *testing.T, tensors ...tensor) string {
	t.Helper()
	var named []safetensors.Named
	var text []byte
	for _, x := range tensors {
		named = append(named, safetensors.Named{Name: x.name, Entry: safetensors.Entry{DType: x.dtype, Shape: x.shape}})
		var err error
		if text, err = binary.Append(text, binary.LittleEndian, x.elements); err != nil {
			t.Fatal(err)
		}
	}
	header, err := safetensors.Header(named, nil)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "a.safetensors", append(header, text...))
}

// numbered returns a file of arrays with n rows whose values show their row. There are floats, an 8-bit number, and a
// bool that says whether the row is odd.
func numbered(t *testing.T, n int64) string {
	t.Helper()
	x, id, odd := make([]float64, 2*n), make([]uint8, n), make([]bool, n)
	for i := range n {
		x[2*i], x[2*i+1], id[i], odd[i] = float64(i), float64(i)+0.5, uint8(i), i%2 == 1
	}
	return tensorFile(t, tensor{"x", "F64", []int64{n, 1, 2}, x}, tensor{"id", "U8", []int64{n}, id},
		tensor{"odd", "BOOL", []int64{n, 1}, odd})
}

// wanted has the fields that a model might read from the file that `numbered` returns.
var wanted = Options{Seed: 7, Target: "id",
	Fields: []Field{{"odd", []int{}, Bool, nil}, {"x", []int{2}, Float, nil}, {"id", []int{1}, Int, nil}}}

// epoch checks the values of an epoch's rows, and returns the rows in order.
func epoch(t *testing.T, s Split, batch, number int) []int {
	t.Helper()
	var ids []int
	for k := range s.Len() / batch {
		b, err := s.Batch(number*s.Len()/batch+k, batch, 0, batch)
		if err != nil {
			t.Fatal(err)
		}
		x, odd, id := b["x"], b["odd"], b["id"]
		if fmt.Sprint(x.Shape, odd.Shape, id.Shape) != fmt.Sprint([]int{batch, 2}, []int{batch}, []int{batch, 1}) {
			t.Errorf("shapes %v, %v and %v", x.Shape, odd.Shape, id.Shape)
		}
		for r, id := range id.Ints {
			if x.Floats[2*r] != float32(id) || x.Floats[2*r+1] != float32(id)+0.5 || odd.Bools[r] != (id%2 == 1) {
				t.Fatalf("row %d has %v and %v", id, x.Floats[2*r:2*r+2], odd.Bools[r])
			}
			ids = append(ids, int(id))
		}
	}
	return ids
}

// TestRowsOfArrays: the arrays of a batch have the same rows. An epoch has every training row once, in a new order each
// time and with each seed. The test rows are the same for every seed.
func TestRowsOfArrays(t *testing.T) {
	path := numbered(t, 200)
	set, err := Open(path, wanted)
	if err != nil {
		t.Fatal(err)
	}
	other := wanted
	other.Seed = 8
	again, err := Open(path, other)
	if err != nil {
		t.Fatal(err)
	}
	if set.Train.Len() != 180 || set.Test.Len() != 20 || set.Classes != 200 || set.Stored["x"] != "float64" {
		t.Errorf("%d and %d rows, %d classes, %v", set.Train.Len(), set.Test.Len(), set.Classes, set.Stored)
	}
	first, second, third := epoch(t, set.Train, 18, 0), epoch(t, set.Train, 18, 1), epoch(t, again.Train, 18, 0)
	if slices.Equal(first, second) || slices.Equal(first, third) {
		t.Errorf("orders %v, %v and %v", first, second, third)
	}
	tests := epoch(t, set.Test, 10, 0)
	if !slices.Equal(tests, epoch(t, again.Test, 10, 0)) {
		t.Error("seeds evaluate different rows")
	}
	if slices.IsSorted(tests) || slices.Max(tests) < 100 || slices.Min(tests) >= 100 {
		t.Errorf("rows %v are evaluated; want some of everywhere", tests)
	}
	all := slices.Concat(first, tests)
	slices.Sort(all)
	for i, id := range all {
		if i != id {
			t.Fatalf("rows %v", all)
		}
	}
	slices.Sort(first)
	slices.Sort(second)
	slices.Sort(third)
	if !slices.Equal(first, second) || !slices.Equal(first, third) {
		t.Error("epochs have different rows")
	}
	if b, err := Only(set.Train, "id").Batch(0, 180, 0, 180); err != nil || len(b) != 1 ||
		fmt.Sprint(slices.Sorted(slices.Values(b["id"].Ints))) != fmt.Sprint(first) {
		t.Errorf("the identities alone: %v, %v", b, err)
	}
	head, err := Head(set.Train, 36)
	if err != nil || head.Len() != 36 {
		t.Fatal(err)
	}
	if ids := epoch(t, head, 18, 0); len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 36 {
		t.Errorf("the head has the rows %v", ids)
	}
}

func TestTrainPart(t *testing.T) {
	path := numbered(t, 10)
	for part, want := range map[float64][2]int{0: {9, 1}, 0.5: {5, 5}, 0.001: {1, 9}, 0.999: {9, 1}, 1: {10, 0}} {
		o := wanted
		o.TrainPart = part
		set, err := Open(path, o)
		if err != nil {
			t.Fatal(err)
		}
		tests := 0
		if set.Test != nil {
			tests = set.Test.Len()
		}
		if set.Train.Len() != want[0] || tests != want[1] {
			t.Errorf("part %v: %d and %d rows; want %v", part, set.Train.Len(), tests, want)
		}
		if part == 1 {
			if ids := slices.Sorted(slices.Values(epoch(t, set.Train, 10, 0))); ids[9] != 9 || ids[0] != 0 {
				t.Errorf("rows %v", ids)
			}
		}
	}
	for data, want := range map[string]string{"digits": "digits has test rows of its own",
		numbered(t, 1): "of its 1 row, train_part 0.5 leaves none"} {
		o := wanted
		o.TrainPart = 0.5
		if _, err := Open(data, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", data, err, want)
		}
	}
}

func TestArraysThatDoNotFit(t *testing.T) {
	path := numbered(t, 10)
	ragged := tensorFile(t, tensor{"x", "F32", []int64{2}, []float32{1, 2}}, tensor{"y", "I64", []int64{1}, []int64{1}})
	x, y := Field{"x", nil, Float, nil}, Field{"y", nil, Int, nil}
	for _, c := range []struct {
		path   string
		fields []Field
		want   string
	}{
		{path, []Field{{"mask", []int{3}, Bool, nil}},
			`the model reads mask bool[3], and no array has that name; there are ["id" "odd" "x"]`},
		{path, []Field{{"x", []int{3}, Float, nil}}, `array "x": its rows have the shape [1 2], and the model reads [3]`},
		{path, []Field{{"x", []int{2, 2}, Float, nil}}, `array "x": its rows have the shape [1 2], and the model reads [2 2]`},
		{path, []Field{{"x", []int{2}, Int, nil}}, `array "x": it has float64, and the model reads int; write x.astype(numpy.int64)`},
		{path, []Field{{"x", []int{2}, Bool, nil}}, `array "x": it has float64, and the model reads bool; write x.astype(numpy.bool_)`},
		{ragged, []Field{x, y}, `array "x" has 2 rows and array "y" has 1`},
		{ragged, nil, `array "x" has 2 rows and array "y" has 1`},
		{"none.npz", []Field{x}, "none.npz: no such file"},
		{"none.npy", nil, "there is no file and no data set"},
		{writeFile(t, "a.npy", []byte("\x93NUMPY")), nil, "one array of numpy.save: write numpy.savez("},
		{writeFile(t, "a.npz", []byte("\x02\x00\x00\x00\x00\x00\x00\x00{}")), nil,
			"a file of safetensors: arrays for --data"},
		{writeFile(t, "a.txt", []byte("\x80\x02}q\x00.")), nil, "a pickle of torch.save"},
		{filepath.Dir(writeFile(t, "import.json", []byte("{}"))), nil, "a folder of millrace import: give it as --model"},
		{tensorFile(t, tensor{"x", "F32", []int64{}, []float32{1}}), []Field{x}, `array "x": it is a single number`},
		{tensorFile(t, tensor{"x", "F16", []int64{1}, []uint16{1}}), []Field{x},
			`array "x": its elements are F16; bool, float32, float64, int16`},
		{tensorFile(t, tensor{"x", "U64", []int64{1}, []uint64{1}}), []Field{x}, `array "x": its elements are U64; bool,`},
		{tensorFile(t, tensor{"x", "F8_E4M3", []int64{1}, []uint8{1}}), []Field{x}, `array "x": its elements are F8_E4M3;`},
		{tensorFile(t, tensor{"x", "F32", []int64{}, []float32{1}}), nil, `it has no array that can be read: array "x": it is a`},
		{tensorFile(t, tensor{"x", "F32", []int64{}, []float32{1}}, tensor{"w", "F16", []int64{1}, []uint16{1}}), nil,
			"float32, float64, int16, int32, int64, int8, uint16, uint32, uint8 are read, and 1 others"},
		{tensorFile(t), nil, "it has no arrays"},
	} {
		if _, err := Open(c.path, Options{Fields: c.fields}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want it to say %q", c.fields, err, c.want)
		}
	}
	large := tensorFile(t, tensor{"x", "I64", []int64{2}, []int64{1 << 40, 1 << 40}})
	set, err := Open(large, Options{Fields: []Field{x}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := set.Train.Batch(0, 1, 0, 1); err == nil || !strings.Contains(err.Error(), `array "x": row `) {
		t.Errorf("a number beyond a float's: %v", err)
	}
	if err := os.Truncate(large, 60); err != nil {
		t.Fatal(err)
	}
	if _, err := set.Train.Batch(0, 1, 0, 1); err == nil || !strings.Contains(err.Error(), "cut short after it was") {
		t.Errorf("a file cut short: %v", err)
	}
}

func TestNaNIsRefusedWithItsRow(t *testing.T) {
	inf := float32(math.Inf(1))
	path := tensorFile(t, tensor{"x", "F32", []int64{4, 2}, []float32{0, 1, 2, inf, 4, 5, 6, float32(math.NaN())}})
	set, err := Open(path, Options{Fields: []Field{{"x", []int{2}, Float, nil}}, TrainPart: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = set.Train.Batch(0, 4, 0, 4)
	if err == nil || !strings.Contains(err.Error(), `array "x": row 3 has NaN`) {
		t.Errorf("got %v", err)
	}
}

// TestUnsignedTensors: unsigned numbers are read up to 32 bits, even from files that also have tensors of unreadable
// types.
func TestUnsignedTensors(t *testing.T) {
	path := tensorFile(t, tensor{"a", "U16", []int64{2}, []uint16{65535, 1}}, tensor{"b", "U32", []int64{2},
		[]uint32{1 << 31, 1}}, tensor{"w", "F8_E5M2", []int64{3}, []uint8{1, 2, 3}})
	set, err := Open(path, Options{Fields: []Field{{"a", nil, Int, nil}, {"b", nil, Int, nil}}, TrainPart: 1})
	if err != nil {
		t.Fatal(err)
	}
	b, err := set.Train.Batch(0, 2, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := b["a"].Ints, b["b"].Ints; max(a[0], a[1]) != 65535 || max(b[0], b[1]) != 1<<31 || min(b[0], b[1]) != 1 {
		t.Errorf("a is %v, b %v", a, b)
	}
	if set, err = Open(path, Options{}); err == nil && set.Refused["w"] == "" {
		t.Error("w, of a type that is not read, is shown")
	}
}
