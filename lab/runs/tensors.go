package runs

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type tensor struct {
	DType string
	Shape []int64
	Bytes []byte
}

// tensors holds the tensors of a checkpoint, by name.
type tensors map[string]tensor

// readCheckpoint reads all safetensors files of a folder. It does not share code with millrace, because shared code
// could hide a change.
func readCheckpoint(dir string) (tensors, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	all := tensors{}
	for _, f := range files {
		if filepath.Ext(f.Name()) != ".safetensors" {
			continue
		}
		path := filepath.Join(dir, f.Name())
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := all.add(content); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no tensors", dir)
	}
	return all, nil
}

// add adds the tensors of one file. The file consists of the header's length in 8 bytes, the header, and the data.
func (t tensors) add(content []byte) error {
	if len(content) < 8 || binary.LittleEndian.Uint64(content) > uint64(len(content)-8) {
		return fmt.Errorf("%d bytes are less than its header says", len(content))
	}
	data := 8 + binary.LittleEndian.Uint64(content)
	header := map[string]json.RawMessage{}
	if err := json.Unmarshal(content[8:data], &header); err != nil {
		return err
	}
	delete(header, "__metadata__")
	for name, raw := range header {
		var entry struct {
			DType   string    `json:"dtype"`
			Shape   []int64   `json:"shape"`
			Offsets [2]uint64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw, &entry); err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		from, to := entry.Offsets[0], entry.Offsets[1]
		if from > to || to > uint64(len(content))-data {
			return fmt.Errorf("tensor %q is at %d to %d of %d bytes", name, from, to, uint64(len(content))-data)
		}
		if _, twice := t[name]; twice {
			return fmt.Errorf("tensor %q is in two files", name)
		}
		t[name] = tensor{DType: entry.DType, Shape: entry.Shape, Bytes: content[data+from : data+to]}
	}
	return nil
}

// split separates the weights and buffers from the optimizer state. Names of the optimizer state contain a #.
func (t tensors) split() (weights, state tensors) {
	weights, state = tensors{}, tensors{}
	for name, x := range t {
		if strings.Contains(name, "#") {
			state[name] = x
		} else {
			weights[name] = x
		}
	}
	return weights, state
}

// hash returns the SHA-256 over the tensors sorted by name; "" if there are none.
func (t tensors) hash() string {
	if len(t) == 0 {
		return ""
	}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(t)) {
		x := t[name]
		// Quotes and lengths ensure that the texts of different tensors differ.
		fmt.Fprintf(h, "%q %q %d %d\n", name, x.DType, x.Shape, len(x.Bytes))
		h.Write(x.Bytes)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// distance returns how much two sets of tensors differ. For each tensor, it divides the norm of the difference by the
// norm of the tensor in `want`. It returns the largest of these ratios, and the name of that tensor in `at`. If two
// tensors cannot be compared, the distance is infinite, and `at` names them and says why.
func (t tensors) distance(want tensors) (worst float64, at string) {
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if _, ok := want[name]; !ok {
			return math.Inf(1), name + " is on one side only"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		x, ok := t[name]
		if !ok {
			return math.Inf(1), name + " is on one side only"
		}
		d, why := x.distance(want[name])
		if why != "" {
			return math.Inf(1), name + ": " + why
		}
		if d > worst {
			worst, at = d, name
		}
	}
	return worst, at
}

func (x tensor) distance(want tensor) (d float64, why string) {
	if x.DType != want.DType || !slices.Equal(x.Shape, want.Shape) || len(x.Bytes) != len(want.Bytes) {
		return 0, fmt.Sprintf("%s%v against %s%v", x.DType, x.Shape, want.DType, want.Shape)
	}
	if slices.Equal(x.Bytes, want.Bytes) {
		return 0, ""
	}
	var apart, norm float64
	for i := 0; ; i++ {
		a, ok := x.float(i)
		b, _ := want.float(i)
		if !ok {
			break
		}
		apart += (a - b) * (a - b)
		norm += b * b
	}
	switch {
	case math.IsNaN(apart) || math.IsInf(apart, 0):
		return 0, "it is not finite"
	case apart > 0 && norm == 0:
		return 0, "it was zero"
	case apart == 0:
		return 0, "other bits" // signs of zeros, or elements that are not floats
	}
	return math.Sqrt(apart / norm), ""
}

// float returns the i-th element of a float tensor. It returns false after the last one, and for other types.
func (x tensor) float(i int) (float64, bool) {
	switch {
	case x.DType == "F32" && 4*i+4 <= len(x.Bytes):
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(x.Bytes[4*i:]))), true
	case x.DType == "F64" && 8*i+8 <= len(x.Bytes):
		return math.Float64frombits(binary.LittleEndian.Uint64(x.Bytes[8*i:])), true
	}
	return 0, false
}
