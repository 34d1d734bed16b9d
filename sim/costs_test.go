package sim

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

// TestCostsThatNoClockCanTake: every cost that is NaN, infinite or negative is refused, and so is every size that is
// negative or too large. Otherwise the simulator would answer planners and users with a NaN.
func TestCostsThatNoClockCanTake(t *testing.T) {
	p := program(t, "1f1b", 2, 2, 1)
	refused := func(what string, change func(*Costs)) {
		t.Helper()
		c := Uniform(2, 1, 2, 0.5)
		change(&c)
		if _, sum, err := Run(p, c, Options{}); err == nil {
			t.Errorf("%s: a step of %v, and no error", what, sum.StepS)
		} else if !strings.HasPrefix(err.Error(), "sim: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	numbers := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1}
	each := func(of reflect.Type, at func(*Costs) reflect.Value) {
		for i := range of.NumField() {
			name := of.Name() + "." + of.Field(i).Name
			switch of.Field(i).Type.Kind() {
			case reflect.Float64:
				for _, x := range numbers {
					refused(name, func(c *Costs) { at(c).Field(i).SetFloat(x) })
				}
			case reflect.Int64:
				for _, x := range []int64{-1, math.MaxInt64} {
					refused(name, func(c *Costs) { at(c).Field(i).SetInt(x) })
				}
			}
		}
	}
	each(reflect.TypeFor[StageCost](), func(c *Costs) reflect.Value { return reflect.ValueOf(&c.Stages[1][0]).Elem() })
	each(reflect.TypeFor[Costs](), func(c *Costs) reflect.Value { return reflect.ValueOf(c).Elem() })
	for _, x := range numbers {
		refused("Transfer's latency", func(c *Costs) {
			c.Transfer = func(int, int, int64) (float64, float64) { return x, 0 }
		})
		refused("Transfer's link", func(c *Costs) { c.Transfer = func(int, int, int64) (float64, float64) { return 0, x } })
		refused("a share", func(c *Costs) { c.Stages[0][0].Shares = []Share{{At: x, Part: 1}} })
	}
	refused("times that add up to no number", func(c *Costs) {
		c.Stages[0][0].ForwardS, c.Stages[0][0].BackwardS = 1e308, 1e308
	})
}
