package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune/predict"
)

// foresight predicts plans anew before they are trained once more, from a profile that another process measured
// a moment before. The one that the plans were made from may be minutes old, and a machine that is
// shared with others has another pace by then. Where the job names a profile, that is what all
// trainings are predicted from.
type foresight struct {
	p   *prepare.Prepared
	dir string // profiles are written here
	n   int    // measured so far
}

// again measures the sizes of these plans in as many passes (0: a profile's default), unless the job names a profile, and
// predicts all plans.
func (f *foresight) again(ctx context.Context, plans []*plan.Plan, passes int) ([]plan.Predicted, error) {
	if f.p.Job.Profile == "" && f.p.Job.Cluster == "" {
		var sizes []int
		for _, pl := range plans {
			sizes = append(sizes, pl.MicroBatch)
		}
		slices.Sort(sizes)
		path := filepath.Join(f.dir, fmt.Sprintf("profile%d.json", f.n))
		f.n++
		if err := prepare.ProfileInChild(ctx, f.p.Job, path, slices.Compact(sizes), passes); err != nil {
			return nil, err
		}
		again, err := profile.Read(path)
		if err != nil {
			return nil, err
		}
		if again.PaceSpread == 0 && f.p.Profile != nil { // a brief one sees too little of it
			again.PaceSpread = f.p.Profile.PaceSpread
		}
		f.p.Profile = again
		if err := f.p.Local(); err != nil {
			return nil, err
		}
	}
	out := make([]plan.Predicted, len(plans))
	for i, pl := range plans {
		var err error
		if out[i], err = predict.Plan(f.p.Profile, f.p.Cluster, pl, f.p.Job.Clip > 0); err != nil {
			return nil, err
		}
	}
	return out, nil
}
