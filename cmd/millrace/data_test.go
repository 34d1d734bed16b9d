package main

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/internal/safetensors"
)

// shownArrays writes four arrays with four rows each. Three can be read, one of them with a value that is not finite.
func shownArrays(t *testing.T, dir string) {
	t.Helper()
	entry := func(name, dtype string, shape ...int64) safetensors.Named {
		return safetensors.Named{Name: name, Entry: safetensors.Entry{DType: dtype, Shape: shape}}
	}
	text, err := safetensors.Header([]safetensors.Named{entry("x", "F32", 4, 2), entry("y", "I64", 4),
		entry("m", "BOOL", 4), entry("z", "BF16", 4)}, nil)
	if err == nil {
		text, err = binary.Append(text, binary.LittleEndian, struct {
			X [8]float32
			Y [4]int64
			M [4]bool
			Z [4]uint16
		}{[8]float32{1, 2, -3, 4, 5, float32(math.Inf(1)), 7, 8}, [4]int64{-100, 1, 2, 3}, [4]bool{true}, [4]uint16{}})
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "a.safetensors"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDataShow(t *testing.T) {
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	shownArrays(t, p.Dir)
	text := []byte(strings.Repeat("abcdefghij", 200))
	if err := os.WriteFile(filepath.Join(p.Dir, "a.txt"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	out := p.Run(t, strings.Fields("data show a.safetensors --train-part 0.5"), false)
	for _, line := range []string{"data     a.safetensors", "rows     2 to train, 2 to evaluate",
		"array  a row  type   in the file  least  greatest", "\nm      []     bool   bool             0         1  ",
		"\nx      [2]    float  float32         -3  8, 1 not finite  ",
		"\ny      []     int    int64          -100         3  ",
		"\nz         its elements are BF16; bool, float32, "} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), strings.Join(strings.Fields(line), " ")) {
			t.Errorf("%s\nwant %q in it", out, line)
		}
	}
	var seen seenData
	read := func(args string) {
		t.Helper()
		text := p.Run(t, strings.Fields("data show --json "+args), false)
		seen = seenData{}
		if err := json.Unmarshal([]byte(text), &seen); err != nil {
			t.Fatalf("%s: %s: %v", args, text, err)
		}
	}
	read("a.safetensors --train-part 1")
	x := seen.Arrays[slices.IndexFunc(seen.Arrays, func(a *seenArray) bool { return a.Name == "x" })]
	if seen.Train != 4 || seen.Test != 0 || len(seen.Arrays) != 3 || len(seen.Refused) != 1 || x.Type != "float" ||
		x.Stored != "float32" || *x.Least != -3 || *x.Greatest != 8 || x.NotFinite != 1 || len(x.First) != 2 ||
		!slices.Equal(x.Shape, []int{2}) {
		t.Errorf("%+v, x is %+v", seen, x)
	}
	read("digits")
	if in := seen.Arrays[0]; seen.Train != 1438 || seen.Test != 359 || seen.Classes != 10 || in.Name != "input" ||
		in.Stored != "" || *in.Least >= 0 || *seen.Arrays[1].Greatest != 9 || len(in.First) != firstValues {
		t.Errorf("%+v", seen)
	}
	read("a.txt")
	if in := seen.Arrays[0]; seen.Train != 14 || seen.Test != 1 || *in.Least != 'a' || *in.Greatest != 'j' ||
		in.First[1].(float64) != float64('a'+(int(in.First[0].(float64))-'a'+1)%10) {
		t.Errorf("%+v", seen)
	}
	held := strings.Fields(p.Run(t, strings.Fields("data show a.safetensors --train-part 0.5 --rows test"), false))
	rest := strings.Fields(p.Run(t, strings.Fields("data show a.safetensors --train-part 0.5 --rows train"), false))
	all := slices.Sorted(slices.Values(slices.Concat(held, rest)))
	if len(held) != 2 || !slices.IsSorted(rest) || !slices.Equal(all, []string{"0", "1", "2", "3"}) {
		t.Errorf("rows %q are held out, and %q train", held, rest)
	}
	var fifths []int
	out = p.Run(t, strings.Fields("data show digits --rows test --json"), false)
	if err := json.Unmarshal([]byte(out), &fifths); err != nil || len(fifths) != 359 || fifths[0] != 4 ||
		fifths[358] != 1794 {
		t.Errorf("of digits rows %v are held out, %v", fifths, err)
	}
	for args, want := range map[string]string{
		"a.txt --rows test":   "--rows: a.txt: data: it has no rows that could be numbered; a text has windows\nexit 2\n",
		"digits --rows every": "millrace: --rows is \"every\"; it is train or test\nexit 2\n",
		"a.safetensors --train-part 1 --rows test": "millrace: --rows test: all rows of a.safetensors train, and none " +
			"is held out\nexit 2\n",
		"none.npz":                       "millrace: data: there is no none.npz\nexit 2\n",
		"digits --train-part 0.5":        "digits has test rows of its own\nexit 2\n",
		"a.safetensors --train-part abc": "--train-part is \"abc\"; give a number; see millrace data show -h\nexit 2\n",
		"a.safetensors --json=maybe":     "--json is \"maybe\"; give true or false; see millrace data show -h\nexit 2\n",
		"a.safetensors --train-part 0":   "millrace: --train-part 0; it is above 0, and with 1 all rows train\nexit 2\n",
		"a.safetensors --train-part NaN": "millrace: --train-part NaN; it is above 0, and with 1 all rows train\nexit 2\n",
	} {
		if out := p.Run(t, strings.Fields("data show "+args), true); !strings.HasSuffix(out, want) {
			t.Errorf("%s: %q; want %q", args, out, want)
		}
	}
}
