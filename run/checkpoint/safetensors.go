package checkpoint

import (
	"fmt"
	"io"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/safetensors"
)

// Tensor is one named tensor in host memory, with its elements in the machine's byte order.
type Tensor struct {
	Name  string
	DType engine.DType
	Shape []int64
	Data  []byte
}

// entry is a file header's description of one tensor.
type entry = safetensors.Entry

// dtypes maps the names in headers to element types. `kept` lists the same names.
var (
	dtypes = map[string]engine.DType{}
	kept   []string
)

func init() {
	for _, d := range []engine.DType{engine.Float32, engine.Float64, engine.Int64, engine.Uint8, engine.Bool} {
		dtypes[d.String()] = d
		kept = append(kept, d.String())
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

// writeHeader writes what comes before the tensors' data. It does not use the data.
func writeHeader(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	var all []safetensors.Named
	for _, t := range tensors {
		all = append(all, safetensors.Named{Name: t.Name, Entry: entry{DType: t.DType.String(), Shape: t.Shape}})
	}
	header, err := safetensors.Header(all, metadata)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	_, err = w.Write(header)
	return err
}

// byteSize returns the size of a tensor in bytes, or an error for an impossible one.
func byteSize(d engine.DType, shape []int64) (int64, error) {
	return safetensors.Size(d.String(), shape)
}

// Index is the content of a safetensors file's header, checked against the file's length.
type Index struct {
	Metadata map[string]string
	names    []string // in the order of the data
	entries  map[string]entry
	start    int64 // where the data begins
}

// ReadIndex reads and checks the header of a file that is `size` bytes long.
func ReadIndex(r io.ReaderAt, size int64) (*Index, error) {
	x, err := safetensors.ReadIndex(r, size, safetensors.LongestHeader, kept...)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return &Index{Metadata: x.Metadata, names: x.Names, entries: x.Entries, start: x.Start}, nil
}

// Read reads one tensor of the file that x describes.
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
