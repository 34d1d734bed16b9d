package prepare

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
)

// bound sets the tensor format between the stages of a given plan, if the job sets one. It refuses a format with fewer
// bits for a plan of one stage.
func bound(j *job.Job, pl *plan.Plan) (err error) {
	if j.Plan.Boundary == "" {
		return nil
	}
	if pl.Boundary, err = packing.Named(j.Plan.Boundary); err == nil && pl.Boundary.Packs() && len(pl.Stages) == 1 {
		err = fmt.Errorf("%s %s: the plan in %s has one stage, which sends no other its activations; leave it out",
			j.Called("boundary"), pl.Boundary, j.Plan.File)
	}
	return err
}

// rounds is the beginning of a plan's note on the format of tensors between stages.
const rounds = "boundary "

// noteBoundary replaces a plan's note on the format of tensors between stages. If the format has fewer bits, the note
// says how much precision that costs, or that a single stage sends no tensors.
func (p *Prepared) noteBoundary(pl *plan.Plan) {
	pl.Why = slices.DeleteFunc(pl.Why, func(why string) bool { return strings.HasPrefix(why, rounds) })
	asked, _ := packing.Named(p.Job.Plan.Boundary) // Overrides has already refused unknown names
	switch f := pl.Boundary; {
	case f.Packs():
		pl.Why = append(pl.Why, fmt.Sprintf("%s%s rounds what stages send each other, by at most %s; %s", rounds, f,
			f.Bound(), NotPromised))
	case asked.Packs():
		pl.Why = append(pl.Why, fmt.Sprintf("%s%s rounds nothing here: one stage sends no other its activations", rounds,
			asked))
	}
}
