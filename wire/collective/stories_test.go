package collective

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace-ml/millrace/internal/storytest"
	"github.com/millrace-ml/millrace/wire"
)

// TestStories shows, in testdata, which member adds what, and in which order.
func TestStories(t *testing.T) {
	storytest.Tell(t, "testdata/stories", func() storytest.World { return storytest.WorldFunc(allReduce) })
}

// allReduce runs one member for each line of input. A line has the member's values, and "|" separates several vectors.
// allReduce prints the additions of each member, in order, and the final values.
func allReduce(t *testing.T, d *datadriven.TestData) (string, error) {
	if d.Cmd != "all-reduce" {
		return "", fmt.Errorf("no command %q", d.Cmd)
	}
	lines := strings.Split(d.Input, "\n")
	vectors := make([][]wire.Buffer, len(lines))
	for k, line := range lines {
		for vector := range strings.SplitSeq(line, "|") {
			b := wire.Buffer{DType: wire.F64}
			for _, word := range strings.Fields(vector) {
				x, err := strconv.ParseFloat(word, 64)
				if err != nil {
					return "", err
				}
				b.Data = binary.LittleEndian.AppendUint64(b.Data, math.Float64bits(x))
			}
			vectors[k] = append(vectors[k], b)
		}
	}
	ports, groups := open(t, len(lines))
	defer ports.Close()
	told, errs := make([]strings.Builder, len(lines)), make([]error, len(lines))
	var calls sync.WaitGroup
	for k, g := range groups {
		calls.Go(func() {
			errs[k] = g.AllReduce(t.Context(), vectors[k], func(dst, src []byte, dtype wire.DType) error {
				before := floats(dst)
				err := add(dst, src, dtype)
				fmt.Fprintf(&told[k], "member %d: %v + %v = %v\n", k, before, floats(src), floats(dst))
				return err
			})
			if errs[k] != nil {
				ports.Fail(k, errs[k])
			}
		})
	}
	calls.Wait()
	var b strings.Builder
	for k := range lines {
		if errs[k] != nil {
			return "", errs[k]
		}
		b.WriteString(told[k].String())
	}
	for k := range lines {
		fmt.Fprintf(&b, "member %d has", k)
		for _, v := range vectors[k] {
			fmt.Fprintf(&b, " %v", floats(v.Data))
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}

func floats(data []byte) (all []float64) {
	for ; len(data) > 0; data = data[8:] {
		all = append(all, math.Float64frombits(binary.LittleEndian.Uint64(data)))
	}
	return all
}
