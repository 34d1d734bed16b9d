package job

import (
	"strings"
	"testing"
)

// What the rate is multiplied by and which part of the reference a pipeline takes over, by what was asked for.
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
		{ScaleStiff, Auto, 1, 1, 1},
		{ScaleStiff, Auto, 2, 2.5, 0.75},
		{ScaleStiff, Auto, 3, 3.75, 0.5},
		{ScaleStiff, 0, 2, 2.5, 0}, // given, as nothing
	} {
		j := Job{RateScale: c.scale, Alpha: c.alpha}
		if f, a := j.RateFactor(c.pipelines), j.AlphaOf(c.pipelines); f != c.factor || a != c.wants {
			t.Errorf("%q, alpha %v, %d pipelines: rate times %v, alpha %v; want %v and %v", c.scale, c.alpha, c.pipelines, f, a, c.factor, c.wants)
		}
	}
	j := Default()
	j.Model, j.RateScale = "mlp", ScaleStiff
	if err := j.Complete(); err == nil || !strings.Contains(err.Error(), "give pipelines too") {
		t.Errorf("stiff without pipelines: %v", err)
	}
}
