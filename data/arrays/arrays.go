// Package arrays reads arrays of numbers from the files that NumPy and safetensors write, row by row.
//
// Input: the path of an .npz or .safetensors file. Output: a File with its arrays by name: type, shape, and any row as
// floats, whole numbers or bools. Rows are read from the file when they are asked for, so the file may be larger than
// memory. A compressed member of an .npz is unpacked as a whole. It is refused if it and the members unpacked before it
// exceed 1 GiB together. Pickles are refused, and so are structured, big-endian and column-major arrays, other element
// types, and sizes that do not fit the file. An array that is refused does not affect the file's other arrays. If the
// wanted type cannot hold a number, the error tells the number's row. The caller keeps the File open while it reads.
package arrays

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/millrace-ml/millrace/internal/content"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/safetensors"
)

// Is says whether a path has an extension that Open reads.
func Is(path string) bool {
	return strings.HasSuffix(path, ".npz") || strings.HasSuffix(path, ".safetensors")
}

// Holds returns the kind of file that a path's extension stands for. The extension must be one that Open reads.
func Holds(path string) content.Kind {
	if strings.HasSuffix(path, ".safetensors") {
		return content.Safetensors
	}
	return content.NPZ
}

// Array holds numbers of one type. Its first dimension counts rows.
type Array struct {
	Name  string
	Type  Type
	Shape []int64
	// Refused says why the array cannot be read; nil if it can.
	Refused error

	load func() (io.ReaderAt, error) // unpacks a compressed array; nil for other arrays
	once sync.Once
	r    io.ReaderAt // reads the elements
	bad  error       // the error of load
}

// File holds arrays by name.
type File struct {
	io.Closer
	Arrays map[string]*Array
}

// Open lists the arrays of a file.
func Open(path string) (*File, error) {
	f, err := document.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	open := openNPZ
	if Holds(path) == content.Safetensors {
		open = openSafetensors
	}
	all, err := open(f, info.Size())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	for _, a := range all {
		switch {
		case a.Refused != nil:
		case len(a.Shape) == 0:
			a.Refused = errors.New("it is a single number; an array has rows")
		case slices.Contains(a.Shape, 0):
			a.Refused = fmt.Errorf("it has the shape %v, which holds nothing", a.Shape)
		case a.bytes()/a.Rows() > mostRow:
			a.Refused = fmt.Errorf("a row of the shape %v has more than %d bytes", a.Shape[1:], mostRow)
		}
	}
	return &File{f, all}, nil
}

const (
	// longestHeader limits the header of a safetensors file, in bytes.
	longestHeader = 1 << 20
	// mostRow limits the bytes of a row, which must fit in memory. No model reads larger rows.
	mostRow = 8 << 30
)

// openSafetensors lists the tensors of a file.
func openSafetensors(f *os.File, size int64) (map[string]*Array, error) {
	x, err := safetensors.ReadIndex(f, size, longestHeader, slices.Sorted(maps.Keys(tensorTypes))...)
	if err != nil {
		return nil, err
	}
	all := map[string]*Array{}
	for name, e := range x.Entries {
		a := &Array{Name: name, Type: tensorTypes[e.DType], Shape: e.Shape,
			r: io.NewSectionReader(f, x.Start+e.Offsets[0], e.Offsets[1]-e.Offsets[0])}
		if a.Type.bytes() == 0 {
			a.Refused = fmt.Errorf("its elements are %s; %s are read", e.DType, known())
		}
		all[name] = a
	}
	return all, nil
}

// Rows returns the number of rows.
func (a *Array) Rows() int64 { return a.Shape[0] }

// elements returns how many numbers a row has.
func (a *Array) elements() int {
	n := int64(1)
	for _, d := range a.Shape[1:] {
		n *= d
	}
	return int(n)
}

// Load unpacks the array if it is compressed. It does not unpack other arrays of the file.
func (a *Array) Load() error {
	if a.Refused != nil {
		return a.Refused
	}
	a.once.Do(func() {
		if a.load != nil {
			a.r, a.bad = a.load()
		}
	})
	return a.bad
}

// row reads the bytes of a row into a buffer that is aligned for any number.
func (a *Array) row(buffer []byte, row int) error {
	n, err := a.r.ReadAt(buffer, int64(row)*int64(len(buffer)))
	switch {
	case n == len(buffer):
		return nil
	case errors.Is(err, io.EOF):
		return fmt.Errorf("row %d: the file ends before it: it was cut short after it was opened", row)
	}
	return fmt.Errorf("row %d: %w", row, err)
}

// buffer returns memory for a row of an array.
func (a *Array) buffer() []byte {
	words := make([]uint64, (a.elements()*a.Type.bytes()+7)/8) // aligned for elements of any Type
	return view[byte](words)[:a.elements()*a.Type.bytes()]
}
