package job

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/stage/optim"
)

// TestRateAndAlphaOfPipelines checks the factor of the learning rate, and alpha, the fraction of the reference that a
// pipeline takes over.
func TestRateAndAlphaOfPipelines(t *testing.T) {
	for _, c := range []struct {
		scale         string
		alpha         float64
		pipelines     int
		factor, wants float64
	}{
		{"", Auto, 2, 1, 0.5},
		{"", 0.9, 4, 1, 0.9},
		{ScaleByPipelines, Auto, 3, 3, 1. / 3},
		{ScaleByPipelines, 0, 2, 2, 0}, // alpha is given as 0
	} {
		j := Job{Train: Train{RateScale: c.scale}, Plan: Plan{Elastic: Elastic{Alpha: c.alpha}}}
		if f, a := j.Train.RateFactor(c.pipelines), j.AlphaOf(c.pipelines); f != c.factor || a != c.wants {
			t.Errorf("%q, alpha %v, %d pipelines: rate times %v, alpha %v; want %v and %v", c.scale, c.alpha,
				c.pipelines, f, a, c.factor, c.wants)
		}
	}
	// Here four pipelines share one batch. SGD and ASGD without clipping keep their rate. SGD and ASGD with clipping,
	// and the other optimizers, make steps of the same length for any batch. Their rate is multiplied by the square
	// root of 4.
	for _, c := range []struct {
		kind string
		clip float64
		want float64
	}{{optim.SGD, 0, 1}, {optim.SGD, 0.25, 2}, {optim.Adam, 0, 2}, {optim.AdamW, 1, 2},
		{optim.ASGD, 0, 1}, {optim.LARS, 0, 2}} {
		j := Job{Train: Train{RateScale: ScaleSplit, Clip: c.clip}, Plan: Plan{Elastic: Elastic{Alpha: Auto}}}
		j.Train.Optimizer.Kind = c.kind
		if f, a := j.Train.RateFactor(4), j.AlphaOf(4); f != c.want || a != 0.375 || j.Train.RateFactor(1) != 1 {
			t.Errorf("split, %s, clip %v: rate times %v, alpha %v; want %v and 0.375", c.kind, c.clip, f, a, c.want)
		}
	}
	for _, scale := range []string{ScaleSplit} {
		j := Default()
		j.Model.Name, j.Train.RateScale = "mlp", scale
		if err := j.Complete(); err == nil || !strings.Contains(err.Error(), "give --pipelines too") {
			t.Errorf("%s without pipelines: %v", scale, err)
		}
	}
	j := Default()
	j.Model.Name, j.Train.RateScale = "mlp", "steep"
	if err := j.Complete(); err == nil || !strings.Contains(err.Error(),
		`rate_scale is "steep"; there are pipelines, split, or`) {
		t.Errorf("steep: %v", err)
	}
}
