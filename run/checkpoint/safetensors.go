package checkpoint

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

	"github.com/millrace-ml/millrace/engine"
)

// The layout of safetensors (https://github.com/huggingface/safetensors): 8 bytes,
// little-endian, that say how long the header is; the header, a JSON object from name to
// {dtype, shape, data_offsets}; the data, tensor after tensor without holes. Elements are
// little-endian, which every machine millrace runs on is.

// maxHeader is the longest header that is read; the reference implementation has the same limit.
const maxHeader = 100_000_000

// maxRank bounds what a header may call a shape.
const maxRank = 16

// Tensor is one named tensor in host memory, elements in the machine's byte order.
type Tensor struct {
	Name  string
	DType engine.DType
	Shape []int64
	Data  []byte
}

// entry is what the header says of one tensor.
type entry struct {
	DType   string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// dtypes are the element types by the names that headers use.
var dtypes = map[string]engine.DType{}

func init() {
	for _, d := range []engine.DType{engine.Float32, engine.Float64, engine.Int64, engine.Uint8, engine.Bool} {
		dtypes[d.String()] = d
	}
}

// Write writes tensors in the order given, which is also their order in the file.
func Write(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	for _, t := range tensors {
		if size, err := byteSize(t.DType, t.Shape); err == nil && size != int64(len(t.Data)) {
			return fmt.Errorf("checkpoint: tensor %q: %d bytes; %v%v needs %d", t.Name, len(t.Data), t.DType, t.Shape, size)
		}
	}
	if err := writeHeader(w, tensors, metadata); err != nil {
		return err
	}
	for _, t := range tensors {
		if _, err := w.Write(t.Data); err != nil {
			return err
		}
	}
	return nil
}

// writeHeader writes what stands in front of tensors, whose data is not looked at.
func writeHeader(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	header, err := encodeHeader(tensors, metadata)
	if err != nil {
		return err
	}
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(header)))
	if _, err := w.Write(length[:]); err != nil {
		return err
	}
	_, err = w.Write(header)
	return err
}

// encodeHeader is the header's JSON, padded with spaces so that the data is aligned.
func encodeHeader(tensors []Tensor, metadata map[string]string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	field := func(name string, v any) error {
		if b.Len() > 1 {
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
		size, err := byteSize(t.DType, t.Shape)
		switch {
		case err != nil:
			return nil, fmt.Errorf("checkpoint: tensor %q: %w", t.Name, err)
		case seen[t.Name] || t.Name == "__metadata__":
			return nil, fmt.Errorf("checkpoint: tensor %q: the name is taken", t.Name)
		}
		seen[t.Name] = true
		shape := t.Shape
		if shape == nil {
			shape = []int64{}
		}
		if err := field(t.Name, entry{DType: t.DType.String(), Shape: shape, Offsets: [2]int64{at, at + size}}); err != nil {
			return nil, err
		}
		at += size
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	return b.Bytes(), nil
}

// byteSize is the bytes of a tensor, or why it can have none.
func byteSize(d engine.DType, shape []int64) (int64, error) {
	size := d.Size()
	if size == 0 {
		return 0, fmt.Errorf("element type %v is not one that millrace keeps", d)
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

// Index is what a safetensors file says it holds, checked against its length.
type Index struct {
	Metadata map[string]string
	names    []string // in the order of the data
	entries  map[string]entry
	start    int64 // where the data begins
}

// ReadIndex reads and checks the header of a file of size bytes.
func ReadIndex(r io.ReaderAt, size int64) (*Index, error) {
	var length [8]byte
	if size < 8 {
		return nil, fmt.Errorf("checkpoint: %d bytes are no safetensors file: the first 8 hold the header's length", size)
	}
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return nil, fmt.Errorf("checkpoint: header length: %w", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader || int64(n) > size-8 {
		return nil, fmt.Errorf("checkpoint: the header is said to have %d bytes in a file of %d: the file is cut short or "+
			"is no safetensors file", n, size)
	}
	header := make([]byte, n)
	if _, err := r.ReadAt(header, 8); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("checkpoint: header: %w", err)
	}
	x, err := decodeHeader(header)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: header: %w", err)
	}
	x.start = 8 + int64(n)
	if err := x.check(size - x.start); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return x, nil
}

// decodeHeader reads the header's object field by field, because encoding/json would
// let the last of two equal names win.
func decodeHeader(header []byte) (*Index, error) {
	x := &Index{entries: map[string]entry{}}
	dec := json.NewDecoder(bytes.NewReader(header))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, fmt.Errorf("it is no JSON object")
	}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name := tok.(string) // a key is always one
		if name == "__metadata__" {
			if x.Metadata != nil {
				return nil, fmt.Errorf("__metadata__ is there twice")
			}
			if err := dec.Decode(&x.Metadata); err != nil {
				return nil, fmt.Errorf("__metadata__: %w", err)
			}
			continue
		}
		var e entry
		if err := dec.Decode(&e); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		if _, twice := x.entries[name]; twice {
			return nil, fmt.Errorf("tensor %q is there twice", name)
		}
		x.entries[name] = e
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("something follows the object")
	}
	return x, nil
}

// check compares every entry with its shape and the file's data.
func (x *Index) check(data int64) error {
	x.names = slices.SortedFunc(maps.Keys(x.entries), func(a, b string) int {
		ea, eb := x.entries[a], x.entries[b]
		if c := cmp.Compare(ea.Offsets[0], eb.Offsets[0]); c != 0 {
			return c
		}
		if c := cmp.Compare(ea.Offsets[1], eb.Offsets[1]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	var at int64
	for _, name := range x.names {
		e := x.entries[name]
		d, known := dtypes[e.DType]
		if !known {
			return fmt.Errorf("tensor %q: element type %q; F32, F64, I64, U8 and BOOL are read", name, e.DType)
		}
		size, err := byteSize(d, e.Shape)
		switch {
		case err != nil:
			return fmt.Errorf("tensor %q: %w", name, err)
		case e.Offsets[0] != at:
			return fmt.Errorf("tensor %q begins at byte %d of the data; the one before it ends at %d", name, e.Offsets[0], at)
		case e.Offsets[1]-e.Offsets[0] != size:
			return fmt.Errorf("tensor %q: offsets %v; %s%v has %d bytes", name, e.Offsets, e.DType, e.Shape, size)
		}
		at = e.Offsets[1]
		if at > data {
			return fmt.Errorf("tensor %q ends at byte %d of %d: the file is cut short", name, at, data)
		}
	}
	if at != data {
		return fmt.Errorf("%d bytes follow the last tensor", data-at)
	}
	return nil
}

// Read reads one tensor of the file that x is the index of.
func (x *Index) Read(r io.ReaderAt, name string) (Tensor, error) {
	e, ok := x.entries[name]
	if !ok {
		return Tensor{}, fmt.Errorf("checkpoint: there is no tensor %q", name)
	}
	t := Tensor{Name: name, DType: dtypes[e.DType], Shape: e.Shape, Data: make([]byte, e.Offsets[1]-e.Offsets[0])}
	if len(t.Data) == 0 {
		return t, nil
	}
	if _, err := r.ReadAt(t.Data, x.start+e.Offsets[0]); err != nil {
		return Tensor{}, fmt.Errorf("checkpoint: tensor %q: %w", name, err)
	}
	return t, nil
}
