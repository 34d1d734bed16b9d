package sim

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
)

// FuzzOddPrograms: whatever text is read is simulated to its end, or refused, without a panic.
func FuzzOddPrograms(f *testing.F) {
	for _, order := range []string{"1f1b", "1f1b-rr", "elastic", "dp-async", "chimera", "zb-v", "fbp-as"} {
		known, err := schedule.Lookup(order)
		if err != nil {
			f.Fatal(err)
		}
		p, err := schedule.Generate(order, schedule.Settings{Placement: known.Placement(2, 2), MicroBatches: 2, Repeat: 4})
		for _, later := range []bool{false, true} {
			if err != nil {
				f.Fatal(err)
			}
			f.Add(p.Text())
			q, err := schedule.Lower(p, schedule.LowerOptions{Clip: true, PostValidate: later})
			if err != nil {
				f.Fatal(err)
			}
			f.Add(q.Text())
		}
	}
	f.Fuzz(func(_ *testing.T, text string) {
		p, err := schedule.Read(strings.NewReader(text))
		if err != nil || p.Instructions() > 1<<12 || p.Workers > 1<<6 || p.Stages > 1<<8 {
			return
		}
		if !p.Lowered {
			if schedule.Validate(p) != nil {
				return
			}
			if p, err = schedule.Lower(p, schedule.LowerOptions{Tied: p.Tied, Clip: p.Clip}); err != nil {
				return
			}
		}
		for _, cores := range []int{0, 1} {
			_, _, _ = Run(p, Streaming(Uniform(p.Stages, 1, 2, 0), 0.5), Options{Record: true, Cores: cores})
		}
	})
}
