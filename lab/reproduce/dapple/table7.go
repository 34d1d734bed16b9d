package dapple

import (
	"context"
	"fmt"
	"sort"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

func dappleTable7(ctx context.Context, o table.Options, t *table.Table) error {
	type row struct {
		Devices int `yaml:"devices"`
		Layers  int `yaml:"layers"`
	}
	rows, err := table.Rows[row](files, "table7", t)
	if err != nil {
		return err
	}
	t.Notes = append(t.Notes, "Adam: 16 bytes a parameter; micro-batches of 2 with 384 positions (Table 1's profile), "+
		"two for each stage; a stage keeps its inputs and recomputes the rest")
	layers := func(devices int, reserved int64) (int, error) {
		return bench.Largest(ctx, 1, func(layers int) (bool, error) {
			b, err := bench.New(o, "bert-48", map[string]any{"layers": max(layers, devices)}, "dapple-a:1x8")
			if err != nil {
				return false, err
			}
			for name, d := range b.C.DeviceTypes {
				d.MemoryBytes -= reserved
				b.C.DeviceTypes[name] = d
			}
			b.A.Optimizer, b.A.States = "adam", 2
			return b.Fits("1f1b", devices, 2, 2*devices, true)
		})
	}
	reserved, err := reservedFor(rows[0].Layers, func(bytes int64) (int, error) { return layers(1, bytes) })
	if err != nil {
		return err
	}
	for _, r := range rows {
		most, err := layers(r.Devices, 0)
		if err != nil {
			return err
		}
		row := t.Number(fmt.Sprintf("layers on %d V100", r.Devices), float64(r.Layers), float64(most), "%.0f", "")
		row.In("layers")
		if most, err = layers(r.Devices, reserved); err != nil {
			return err
		}
		row.Ablate(fmt.Sprintf("%s of each device are not millrace's to fill, so that one holds what the paper's does",
			terminal.Bytes(reserved)), float64(most), "%.0f")
	}
	return nil
}

// reservedFor returns the fewest bytes to leave free so that at most `want` layers fit, in steps of 32 MiB.
func reservedFor(want int, layers func(reserved int64) (int, error)) (int64, error) {
	const step, most = 32 << 20, 16 << 30
	var failed error
	n := sort.Search(most/step, func(i int) bool { // the more bytes are left free, the fewer layers fit
		if failed != nil {
			return true
		}
		fit, err := layers(int64(i) * step)
		failed = err
		return fit <= want
	})
	return int64(n) * step, failed
}
