package sim

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/exchange"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// FuzzOddPrograms: every text that parses is either simulated to its end or refused, without a panic.
func FuzzOddPrograms(f *testing.F) {
	for _, order := range []string{"1f1b", "1f1b-rr", "elastic", "dp-async", "chimera", "zb-v", "fbp-as"} {
		known, err := family.Lookup(order)
		if err != nil {
			f.Fatal(err)
		}
		p, err := family.Generate(order, schedule.Settings{Placement: known.Placement(2, 2), MicroBatches: 2, Repeat: 4})
		for _, later := range []bool{false, true} {
			if err != nil {
				f.Fatal(err)
			}
			f.Add(p.Text())
			q, err := lower.Lower(p, lower.Options{Clip: true, PostValidate: later})
			if err != nil {
				f.Fatal(err)
			}
			f.Add(q.Text())
		}
	}
	f.Fuzz(func(_ *testing.T, text string) {
		p, err := exchange.Read(strings.NewReader(text))
		if err != nil || p.Instructions() > 1<<12 || p.Workers > 1<<6 || p.Stages > 1<<8 {
			return
		}
		if !p.Lowered {
			if check.Validate(p) != nil {
				return
			}
			if p, err = lower.Lower(p, lower.Options{Tied: p.Tied, Clip: p.Clip}); err != nil {
				return
			}
		}
		for _, cores := range []int{0, 1} {
			c := Streaming(Uniform(p.Stages, 1, 2, 0), 0.5)
			c.Cores = machine.Share(cores)
			_, _, _ = Run(p, c, Options{Record: true})
		}
	})
}
