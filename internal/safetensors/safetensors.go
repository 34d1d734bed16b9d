// Package safetensors writes and reads the headers of safetensors files.
//
// Input: names, element types and shapes, or a file. Output: a header, or an Index of the file with the position of
// each tensor's elements. Elements are neither written nor read. It refuses truncated files, and headers that repeat a
// name or whose tensors overlap or leave holes. It also refuses sizes that do not fit their shapes, element types that
// the caller does not accept, and headers above the caller's bound. The caller adds its package's name to errors,
// and closes the file.
//
// The layout (https://github.com/huggingface/safetensors) has three parts. The first 8 bytes are the header's length,
// little-endian. The header is a JSON object from name to {dtype, shape, data_offsets}. The data follows, tensor after
// tensor without holes. Elements are little-endian, as on every machine that millrace runs on.
package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// LongestHeader is the length in bytes of the longest header that any reader accepts. The reference implementation has
// the same limit.
const LongestHeader = 100_000_000

// maxRank bounds the dimensions of a shape in a header.
const maxRank = 16

// sizes maps the type names in headers to the size of an element, in bytes.
var sizes = map[string]int64{"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1,
	"BOOL": 1, "U16": 2, "U32": 4, "U64": 8, "C64": 8, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1}

// Entry is a header's description of one tensor.
type Entry struct {
	DType   string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// Named is an Entry with its name; its Offsets are ignored.
type Named struct {
	Name string
	Entry
}

// Size returns the size of a tensor in bytes, or an error for an impossible tensor.
func Size(dtype string, shape []int64) (int64, error) {
	size := sizes[dtype]
	if size == 0 {
		return 0, fmt.Errorf("element type %v is not one that millrace keeps", dtype)
	}
	if len(shape) > maxRank {
		return 0, fmt.Errorf("%d dimensions; at most %d are read", len(shape), maxRank)
	}
	for _, n := range shape {
		if n < 0 {
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		}
		if n > 0 && size > math.MaxInt64/n {
			return 0, fmt.Errorf("shape %v has more bytes than can be counted", shape)
		}
		size *= n
	}
	return size, nil
}

// Header returns a file's header: a length, and JSON padded with spaces so that the data is aligned.
func Header(tensors []Named, metadata map[string]string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("        {") // eight bytes for the length, then the JSON text
	field := func(name string, v any) error {
		if b.Len() > 9 {
			b.WriteByte(',')
		}
		k, err := json.Marshal(name)
		if err != nil {
			return err
		}
		j, err := json.Marshal(v)
		if err != nil {
			return err
		}
		b.Write(k)
		b.WriteByte(':')
		b.Write(j)
		return nil
	}
	if len(metadata) > 0 {
		if err := field("__metadata__", metadata); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{}
	var at int64
	for _, t := range tensors {
		size, err := Size(t.DType, t.Shape)
		switch {
		case err != nil:
			return nil, fmt.Errorf("tensor %.200q: %w", t.Name, err)
		case seen[t.Name] || t.Name == "__metadata__":
			return nil, fmt.Errorf("tensor %.200q: the name is taken", t.Name)
		}
		seen[t.Name] = true
		e := Entry{DType: t.DType, Shape: t.Shape, Offsets: [2]int64{at, at + size}}
		if e.Shape == nil {
			e.Shape = []int64{}
		}
		if err := field(t.Name, e); err != nil {
			return nil, err
		}
		at += size
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(b.Len()-8))
	return b.Bytes(), nil
}

// Index is the content of a file's header, checked against the file's length.
type Index struct {
	Metadata map[string]string
	Names    []string // in the order of the data
	Entries  map[string]Entry
	Start    int64 // where the data begins
}

// ReadIndex reads and checks the header of a file of `size` bytes. The header may have at most `longest` bytes, and
// name no other element types than the given ones.
func ReadIndex(r io.ReaderAt, size, longest int64, types ...string) (*Index, error) {
	var length [8]byte
	if size < 8 {
		return nil, fmt.Errorf("%d bytes are no safetensors file: the first 8 hold the header's length", size)
	}
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return nil, fmt.Errorf("header length: %w", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > uint64(longest) || int64(n) > size-8 {
		return nil, fmt.Errorf("the header is said to have %d bytes in a file of %d: the file is cut short or "+
			"is no safetensors file", n, size)
	}
	header := make([]byte, n)
	if _, err := r.ReadAt(header, 8); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("header: %w", err)
	}
	x, err := decode(header)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	x.Start = 8 + int64(n)
	return x, x.check(size-x.Start, types)
}

// decode reads the header's object field by field, because encoding/json would use the last of two equal names.
func decode(header []byte) (*Index, error) {
	x := &Index{Entries: map[string]Entry{}}
	dec := json.NewDecoder(bytes.NewReader(header))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, fmt.Errorf("it is no JSON object")
	}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name := tok.(string) // a key is always a string
		if name == "__metadata__" {
			if x.Metadata != nil {
				return nil, fmt.Errorf("__metadata__ is there twice")
			}
			if err := dec.Decode(&x.Metadata); err != nil {
				return nil, fmt.Errorf("__metadata__: %w", err)
			}
			continue
		}
		var e Entry
		if err := dec.Decode(&e); err != nil {
			return nil, fmt.Errorf("tensor %.200q: %w", name, err)
		}
		if _, twice := x.Entries[name]; twice {
			return nil, fmt.Errorf("tensor %.200q is there twice", name)
		}
		x.Entries[name] = e
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("something follows the object")
	}
	return x, nil
}

// check checks that the element type of every entry is accepted, and that its bytes fit its shape. It also checks that
// the tensors fill the file's data without holes and overlaps.
func (x *Index) check(data int64, types []string) error {
	x.Names = slices.SortedFunc(maps.Keys(x.Entries), func(a, b string) int {
		ea, eb := x.Entries[a], x.Entries[b]
		if c := cmp.Compare(ea.Offsets[0], eb.Offsets[0]); c != 0 {
			return c
		}
		if c := cmp.Compare(ea.Offsets[1], eb.Offsets[1]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	var at int64
	for _, name := range x.Names {
		e := x.Entries[name]
		if !slices.Contains(types, e.DType) {
			last := len(types) - 1
			return fmt.Errorf("tensor %.200q: element type %.40q; %s and %s are read", name, e.DType,
				strings.Join(types[:last], ", "), types[last])
		}
		size, err := Size(e.DType, e.Shape)
		switch {
		case err != nil:
			return fmt.Errorf("tensor %.200q: %w", name, err)
		case e.Offsets[0] != at:
			return fmt.Errorf("tensor %.200q begins at byte %d of the data; the one before it ends at %d", name,
				e.Offsets[0], at)
		case e.Offsets[1]-e.Offsets[0] != size:
			return fmt.Errorf("tensor %.200q: offsets %v; %s%v has %d bytes", name, e.Offsets, e.DType, e.Shape, size)
		}
		at = e.Offsets[1]
		if at > data {
			return fmt.Errorf("tensor %.200q ends at byte %d of %d: the file is cut short", name, at, data)
		}
	}
	if at != data {
		return fmt.Errorf("%d bytes follow the last tensor", data-at)
	}
	return nil
}
