package arrays

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"
)

// Type is the type of an array's elements, with NumPy's name.
type Type string

// The types that can be read.
const (
	float32s Type = "float32"
	float64s Type = "float64"
	int8s    Type = "int8"
	int16s   Type = "int16"
	int32s   Type = "int32"
	int64s   Type = "int64"
	uint8s   Type = "uint8"
	uint16s  Type = "uint16"
	uint32s  Type = "uint32"
	bools    Type = "bool"
)

// types maps the names of types in .npy files, without the byte order, to types.
var types = map[string]Type{"f4": float32s, "f8": float64s, "i1": int8s, "i2": int16s, "i4": int32s, "i8": int64s,
	"u1": uint8s, "u2": uint16s, "u4": uint32s, "b1": bools}

// tensorTypes maps the names of types in safetensors files to types. "" marks a known type that cannot be read.
var tensorTypes = map[string]Type{"F32": float32s, "F64": float64s, "I8": int8s, "I16": int16s, "I32": int32s,
	"I64": int64s, "U8": uint8s, "U16": uint16s, "U32": uint32s, "BOOL": bools,
	"F16": "", "BF16": "", "U64": "", "C64": "", "F8_E4M3": "", "F8_E5M2": "", "F8_E8M0": ""}

// known lists the types that can be read, for errors.
func known() string {
	var names []string
	for _, t := range types {
		names = append(names, string(t))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// bytes returns the size of an element, or 0 for an unknown type.
func (t Type) bytes() int {
	switch t {
	case float64s, int64s:
		return 8
	case float32s, int32s, uint32s:
		return 4
	case int16s, uint16s:
		return 2
	case int8s, uint8s, bools:
		return 1
	}
	return 0
}

// Float says whether the elements are floats.
func (t Type) Float() bool { return t == float32s || t == float64s }

// Bool says whether the elements are bools.
func (t Type) Bool() bool { return t == bools }

// whole lists the whole-number types in memory. A bool is read as a uint8.
type whole interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32
}

// view returns the memory of `from` as numbers of the type To.
func view[To, From any](from []From) []To {
	var to To
	var of From
	n := len(from) * int(unsafe.Sizeof(of)) / int(unsafe.Sizeof(to))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*To)(unsafe.Pointer(unsafe.SliceData(from))), n)
}

// mostExact is the largest number up to which float32 can represent every whole number.
const mostExact = 1 << 24

// Floats reads rows as float32. float64 values are rounded. It refuses values that are too large for float32, and whole
// numbers beyond mostExact.
func (a *Array) Floats(rows []int) ([]float32, error) {
	return read(a, rows, func(dst []float32, src []byte) error {
		switch a.Type {
		case float32s:
			copy(dst, view[float32](src))
			return nil
		case float64s:
			for i, v := range view[float64](src) {
				dst[i] = float32(v)
				if math.IsInf(float64(dst[i]), 0) && !math.IsInf(v, 0) {
					return fmt.Errorf("%v, which a float of 32 bits cannot hold", v)
				}
			}
			return nil
		}
		return a.each(src, func(i int, v int64) error {
			dst[i] = float32(v)
			if v < -mostExact || v > mostExact {
				return fmt.Errorf("%d, and floats of 32 bits hold whole numbers up to %d; make it an array of float32", v,
					mostExact)
			}
			return nil
		})
	})
}

// Ints reads rows as whole numbers. Floats are refused.
func (a *Array) Ints(rows []int) ([]int64, error) {
	return read(a, rows, func(dst []int64, src []byte) error {
		return a.each(src, func(i int, v int64) error {
			dst[i] = v
			return nil
		})
	})
}

// Bools reads rows as bools. It refuses floats, and whole numbers other than 0 and 1.
func (a *Array) Bools(rows []int) ([]bool, error) {
	return read(a, rows, func(dst []bool, src []byte) error {
		return a.each(src, func(i int, v int64) error {
			dst[i] = v != 0
			if v != 0 && v != 1 {
				return fmt.Errorf("%d, and true and false are 1 and 0", v)
			}
			return nil
		})
	})
}

// read reads rows and converts each row with the function `into`.
func read[T any](a *Array, rows []int, into func(dst []T, src []byte) error) ([]T, error) {
	if err := a.Load(); err != nil {
		return nil, err
	}
	each := a.elements()
	all, buffer := make([]T, len(rows)*each), a.buffer()
	for k, row := range rows {
		if err := a.row(buffer, row); err != nil {
			return nil, err
		}
		if err := into(all[k*each:(k+1)*each], buffer); err != nil {
			return nil, &ValueError{row, err}
		}
	}
	return all, nil
}

// ValueError says that a row has a value that cannot be read as the wanted type.
type ValueError struct {
	Row int
	Err error // names the value and what would be right
}

func (e *ValueError) Error() string { return fmt.Sprintf("row %d has %v", e.Row, e.Err) }
func (e *ValueError) Unwrap() error { return e.Err }

// each calls f for every whole number of a row, in order.
func (a *Array) each(src []byte, f func(i int, v int64) error) error {
	switch a.Type {
	case int8s:
		return forEach(view[int8](src), f)
	case int16s:
		return forEach(view[int16](src), f)
	case int32s:
		return forEach(view[int32](src), f)
	case int64s:
		return forEach(view[int64](src), f)
	case uint16s:
		return forEach(view[uint16](src), f)
	case uint32s:
		return forEach(view[uint32](src), f)
	case uint8s:
		return forEach(src, f)
	case bools:
		return forEach(src, func(i int, v int64) error { return f(i, min(v, 1)) }) // NumPy takes every byte except 0 as true
	}
	return fmt.Errorf("fractions (%s), where whole numbers are wanted; make it an array of int64", a.Type)
}

func forEach[T whole](all []T, f func(i int, v int64) error) error {
	for i, v := range all {
		if err := f(i, int64(v)); err != nil {
			return err
		}
	}
	return nil
}
