package data

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestOrderIsAPermutation: every epoch visits every sample once.
func TestOrderIsAPermutation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "n")
		o := newOrder(n, rapid.Uint64().Draw(t, "seed"), false)
		for epoch := range uint64(2) {
			seen := make([]bool, n)
			for i := range uint64(n) {
				s := o.sample(epoch*uint64(n) + i)
				if seen[s] {
					t.Fatalf("epoch %d visits sample %d twice", epoch, s)
				}
				seen[s] = true
			}
		}
	})
}

// reading returns Options for a model with one input of this type and shape, and a target. The target has that shape
// too if the type is Int.
func reading(of DType, shape ...int) Options {
	target := []int{}
	if of == Int {
		target = shape
	}
	return Options{Fields: []Field{{"x", shape, of, nil}, {"y", target, Int, nil}}, Target: "y"}
}

func TestDigits(t *testing.T) {
	set, err := Open("digits", Options{Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	if set.Train.Len()+set.Test.Len() != 1797 || set.Classes != 10 || !cmp.Equal(set.Fields[0].Shape, []int{64}) {
		t.Errorf("%d + %d samples of %v in %d classes", set.Train.Len(), set.Test.Len(), set.Fields, set.Classes)
	}
	whole, err := set.Train.Batch(2, 32, 0, 32)
	if err != nil {
		t.Fatal(err)
	}
	part, err := set.Train.Batch(2, 32, 12, 4)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(whole["input"].Floats[12*64:16*64], part["input"].Floats); d != "" {
		t.Errorf("rows 12 to 16 of the batch differ from the same rows asked for alone: %s", d)
	}
	if _, err := set.Train.Batch(0, 8, 6, 4); err == nil {
		t.Error("rows beyond the batch were given")
	}
	if _, err := Open("digits", reading(Float, 1, 8, 8)); err != nil {
		t.Error(err)
	}
	if _, err := Open("digits", reading(Float, 1, 28, 28)); err == nil || !strings.Contains(err.Error(),
		"cannot be read as") {
		t.Errorf("got %v", err)
	}
}

func TestPrefetchChangesNothing(t *testing.T) {
	set, err := Open("digits", Options{Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	ahead := Prefetch(set.Train, 3)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for step := range 60 {
				for first := 0; first < 32; first += 8 {
					want, _ := set.Train.Batch(step, 32, first, 8)
					got, err := ahead.Batch(step, 32, first, 8)
					if err != nil || !cmp.Equal(want, got) {
						t.Errorf("step %d rows from %d differ", step, first)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(path, []byte(strings.Repeat("0123456789", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := Open(path, reading(Int, 16))
	if err != nil {
		t.Fatal(err)
	}
	if set.Train.Len() != 899/16 || set.Test.Len() != 99/16 {
		t.Errorf("%d and %d samples", set.Train.Len(), set.Test.Len())
	}
	b, err := set.Test.Batch(0, 2, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b["x"].Ints {
		if want := '0' + (b["x"].Ints[i]-'0'+1)%10; b["y"].Ints[i] != want {
			t.Fatalf("behind %c comes %c", b["x"].Ints[i], b["y"].Ints[i])
		}
	}
	if _, err := Open(path, reading(Int, 500)); err == nil || !strings.Contains(err.Error(), "it needs 5010") {
		t.Errorf("got %v", err)
	}
}

func idxBytes(dims []uint32, data []byte) []byte {
	var b bytes.Buffer
	b.Write([]byte{0, 0, 8, byte(len(dims))})
	for _, d := range dims {
		_ = binary.Write(&b, binary.BigEndian, d) // writing to memory cannot fail
	}
	b.Write(data)
	return b.Bytes()
}

func TestIDXRefusals(t *testing.T) {
	good := idxBytes([]uint32{2, 2, 2}, make([]byte, 8))
	for _, c := range []struct {
		file []byte
		want string
	}{
		{nil, "shorter than a header"},
		{good[:3], "shorter than a header"},
		{[]byte{1, 2, 3, 4}, "it begins 01020304"},
		{good[:10], "dimension 1 is cut short"},
		{good[:20], "ends after 4 of 8 bytes"},
		{append(bytes.Clone(good), 0), "data behind the last"},
		{idxBytes([]uint32{0}, nil), "dimension 0 is 0"},
		{idxBytes([]uint32{1 << 31, 1 << 31}, nil), "2^30 elements"},
	} {
		if _, err := readIDX(bytes.NewReader(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%x: got %v, want it to say %q", c.file, err, c.want)
		}
	}
}

func TestOpenRefusals(t *testing.T) {
	dir := t.TempDir()
	csv := filepath.Join(dir, "a.csv")
	if err := os.WriteFile(csv, []byte("a,b,class\n1,2,0\n1,x,0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[string]string{
		"":                             "no data set is named",
		filepath.Join(dir, "none.txt"): "there is no file and no data set",
		csv:                            `line 3, field 2 is "x"`,
		dir:                            "train-images-idx3-ubyte",
	} {
		if _, err := Open(spec, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want it to say %q", spec, err, want)
		}
	}
}

func TestCSVRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "has 0 of the 5 rows of numbers that it needs at least",
		"a,b\n":                   "has 0 of the 5 rows of numbers",
		"a,b\n1,0\n":              "has 1 of the 5 rows of numbers",
		"5\n":                     "line 1 has one field",
		"1,2,3\n1,2\n":            "line 2 has 2 fields; the first row has 3",
		"a,b,c\n1,2,3\n1,2\n":     "line 3 has 2 fields",
		"\"a\nb\",c\n1,x,2\n":     "line 3 has 3 fields; the first row has 2",
		"\"a\nb\",c,d\n1,x,2\n":   `line 3, field 2 is "x"`,
		"x,2,3\n":                 `line 1, field 1 is "x"`,
		"1e400,2,3\n":             `line 1, field 1 is "1e400"; it must be a number that 32 bits can hold`,
		"1,NaN,3\n":               `line 1, field 2 is "NaN"`,
		"1,2,3.5\n":               `line 1, the class "3.5"`,
		"1,2,256\n":               `line 1, the class "256"`,
		"1,2,-1\n":                `line 1, the class "-1"`,
		"1,2,3\n1,\"2,3\n":        "parse error on line 2",
		"1,yes\n1,0\n":            `line 2, the class "0" is a number, and that of line 1 is a word; give all as words`,
		"1,0\n1,yes\n":            `line 2, the class "yes" is a word, and that of line 1 is a number`,
		"1,yes\n1,\n":             "line 2, the class is missing",
		"1,\n":                    `line 1, the class ""; it must be a whole number`,
		"1,0\n1,0\n1,0\n1,0\n1,1": "no class has 5 rows, of which one could be kept for testing",
	} {
		if _, err := readCSV("a.csv", strings.NewReader(text), Options{}, normaliseColumns); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want it to say %q", text, err, want)
		}
	}
}

// TestIDXFoldersMayHaveOtherFiles: a folder with IDX files is read as a data set, even if it has other files.
func TestIDXFoldersMayHaveOtherFiles(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"train-images-idx3-ubyte": idxBytes([]uint32{6, 2, 2}, make([]byte, 24)),
		"train-labels-idx1-ubyte": idxBytes([]uint32{6}, make([]byte, 6)),
		"t10k-images-idx3-ubyte":  idxBytes([]uint32{2, 2, 2}, make([]byte, 8)),
		"t10k-labels-idx1-ubyte":  idxBytes([]uint32{2}, make([]byte, 2)),
		"manifest.json":           []byte("{}"), // a checkpoint, too, has a file of this name
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(dir, Options{}); err != nil {
		t.Error(err)
	}
}

// TestIDXFolderRefusals: if one file of an IDX folder is wrong, the error names that file.
func TestIDXFolderRefusals(t *testing.T) {
	images, labels := idxBytes([]uint32{6, 2, 2}, make([]byte, 24)), idxBytes([]uint32{6}, make([]byte, 6))
	for _, c := range []struct {
		file    string
		content []byte
		want    string
	}{
		{"train-images-idx3-ubyte", nil, "train-images-idx3-ubyte: offset 0: it is shorter than a header"},
		{"train-images-idx3-ubyte", images[:20], "train-images-idx3-ubyte: offset 20: the data ends after 4 of 24 bytes"},
		{"t10k-labels-idx1-ubyte", append(bytes.Clone(labels), 7), "t10k-labels-idx1-ubyte: offset 14: there is data behind"},
		{"t10k-labels-idx1-ubyte", idxBytes([]uint32{5}, make([]byte, 5)), "images of shape [6 2 2] and labels of shape [5]"},
		{"t10k-images-idx3-ubyte", idxBytes([]uint32{6, 2, 3}, make([]byte, 36)),
			"training samples have 4 values, test samples 6"},
	} {
		dir := t.TempDir()
		for _, prefix := range []string{"train", "t10k"} {
			for name, content := range map[string][]byte{prefix + "-images-idx3-ubyte": images, prefix +
				"-labels-idx1-ubyte": labels} {
				if name == c.file {
					content = c.content
				}
				if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %d bytes: got %v, want it to say %q", c.file, len(c.content), err, c.want)
		}
	}
	packed := filepath.Join(t.TempDir(), "train-images-idx3-ubyte.gz")
	if err := os.WriteFile(packed, []byte("no gzip"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Dir(packed), Options{}); err == nil || !strings.Contains(err.Error(),
		"it is no gzip file") {
		t.Errorf("got %v", err)
	}
}

func FuzzIDX(f *testing.F) {
	f.Add(idxBytes([]uint32{2, 2}, make([]byte, 4)))
	f.Fuzz(func(t *testing.T, file []byte) { _, _ = readIDX(bytes.NewReader(file)) })
}

func FuzzCSV(f *testing.F) {
	f.Add("1,2,0\n1,2,0\n1,2,0\n1,2,0\n1,2,1\n")
	f.Fuzz(func(t *testing.T, file string) {
		_, _ = readCSV("fuzz", strings.NewReader(file), Options{}, normaliseColumns)
	})
}
