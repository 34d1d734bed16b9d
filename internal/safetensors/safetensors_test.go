package safetensors

import (
	"bytes"
	"strings"
	"testing"
)

// file returns a header of these tensors, followed by zeros.
func file(t *testing.T, zeros int, tensors ...Named) *bytes.Reader {
	t.Helper()
	header, err := Header(tensors, nil)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(append(header, make([]byte, zeros)...))
}

// TestReadersSayWhatTheyTake: a reader sets the element types and the header length that it accepts.
func TestReadersSayWhatTheyTake(t *testing.T) {
	r := file(t, 8, Named{"a", Entry{DType: "BF16", Shape: []int64{3}}},
		Named{"b", Entry{DType: "I8", Shape: []int64{2, 1}}})
	x, err := ReadIndex(r, r.Size(), LongestHeader, "I8", "BF16")
	if err != nil || strings.Join(x.Names, " ") != "a b" || x.Entries["b"].Offsets != [2]int64{6, 8} ||
		x.Start+8 != r.Size() {
		t.Errorf("%+v, %v", x, err)
	}
	for says, read := range map[string]func() error{
		`tensor "a": element type "BF16"; I8, I16 and F32 are read`: func() error {
			_, err := ReadIndex(r, r.Size(), LongestHeader, "I8", "I16", "F32")
			return err
		},
		"the header is said to have": func() error {
			_, err := ReadIndex(r, r.Size(), 10, "I8", "BF16")
			return err
		},
	} {
		if err := read(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}

// TestSizes: every known element type has its size; unknown types have none.
func TestSizes(t *testing.T) {
	for dtype, want := range map[string]int64{"F64": 48, "F32": 24, "F16": 12, "BF16": 12, "I64": 48, "I32": 24, "I16": 12,
		"I8": 6, "U8": 6, "BOOL": 6} {
		if got, err := Size(dtype, []int64{2, 3}); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", dtype, got, err, want)
		}
	}
	if _, err := Size("F8", nil); err == nil {
		t.Error("F8 has a size")
	}
	_, err := Header([]Named{{"a", Entry{DType: "F8"}}}, nil)
	if err == nil || !strings.Contains(err.Error(), `tensor "a"`) {
		t.Errorf("a header of F8: %v", err)
	}
}
