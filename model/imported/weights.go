package imported

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/model/aten"
)

// element returns the type that millrace uses for elements of the type d. A tensor of 64-bit floats must be a number
// without dimensions.
func element(d aten.DType, shape []int64) (model.DType, error) {
	switch d {
	case "F32":
		return model.Float, nil
	case "F64":
		if len(shape) == 0 {
			return model.Float, nil
		}
	case "I64", "I32", "I16", "I8":
		return model.Int, nil
	case "BOOL":
		return model.Bool, nil
	case "U8":
		return "", fmt.Errorf("it has elements of U8; convert it with .long(), or with .bool() where it is a mask")
	}
	return "", fmt.Errorf("it has elements of %s; networks compute in F32 here: convert it with .float()", d)
}

// weights gives access to the tensors of a network's file.
type weights struct {
	file    *aten.Weights
	tensors map[string]*aten.Tensor
}

// Tensor implements model.Weights.
func (w *weights) Tensor(name string) (model.Values, error) {
	t, r := w.tensors[name], w.file.Of[name]
	if t == nil || r == nil {
		return model.Values{}, fmt.Errorf("import: the network has no tensor %q", name)
	}
	v := model.Values{DType: string(t.DType), Shape: t.Shape, Data: make([]byte, r.Size())}
	if _, err := io.ReadFull(io.NewSectionReader(r, 0, r.Size()), v.Data); err != nil {
		return v, fmt.Errorf("import: tensor %s: %w: the file has changed", name, err)
	}
	switch t.DType {
	case "I32":
		widen(&v, 4, func(b []byte) int64 { return int64(int32(binary.LittleEndian.Uint32(b))) })
	case "I16":
		widen(&v, 2, func(b []byte) int64 { return int64(int16(binary.LittleEndian.Uint16(b))) })
	case "I8":
		widen(&v, 1, func(b []byte) int64 { return int64(int8(b[0])) })
	case "BOOL":
		for i, b := range v.Data {
			v.Data[i] = min(b, 1)
		}
	}
	return v, nil
}

// widen turns integers of `size` bytes into 64-bit ones.
func widen(v *model.Values, size int, read func([]byte) int64) {
	wide := make([]byte, 0, len(v.Data)/size*8)
	for at := 0; at+size <= len(v.Data); at += size {
		wide = binary.LittleEndian.AppendUint64(wide, uint64(read(v.Data[at:])))
	}
	v.DType, v.Data = "I64", wide
}
