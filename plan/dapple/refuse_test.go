package dapple

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
)

func TestRefuses(t *testing.T) {
	p, c, batch, mb := plantest.ChainCase(rand.New(rand.NewPCG(9, 9)))
	c = c.Unlimited()
	for set, want := range map[string]string{
		"nvlink=25e9": "no setting", "dp=perhaps": "auto, yes, no", "speed=1": "no setting",
		"server=1.5": "whole number", "policy=pc": "auto, pa, pb", "acr_threshold=NaN": "acr_threshold",
	} {
		k, v, _ := strings.Cut(set, "=")
		for _, formula := range []string{"paper", "artifact"} {
			_, err := find(context.Background(), plan.Request{Profile: p, Cluster: c, Batch: batch, MicroBatch: mb,
				Formula: formula, Set: map[string]string{k: v}})
			if err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "of formula") {
				t.Errorf("%s, %s: %v; it should say %q, or that it is the other formula's", formula, set, err, want)
			}
		}
	}
	for _, r := range []plan.Request{
		{Cluster: c, Batch: 8}, {Profile: p, Batch: 8}, {Profile: p, Cluster: c},
		{Profile: p, Cluster: c, Batch: batch, MicroBatch: batch + 1},
		{Profile: p, Cluster: c, Batch: batch, Formula: "folklore"},
	} {
		if _, err := find(context.Background(), r); err == nil || !strings.HasPrefix(err.Error(), "plan: dapple: ") {
			t.Errorf("%+v: %v", r.Formula, err)
		}
	}
}
