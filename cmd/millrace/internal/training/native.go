package training

import (
	"context"
	"fmt"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/process"
)

// otherBits returns a note for a plan, which says that sums are formed in another order.
func otherBits(p *plan.Plan) string {
	replicas := 1
	for i := range p.Stages {
		replicas = max(replicas, len(p.Stages[i].Devices))
	}
	return fmt.Sprintf("Gloo sums gradients over %d replicas in an order of its own, within %.1e of their magnitudes: "+
		"the bits of one worker are not promised", replicas, torch.SumTolerance(replicas))
}

// meets makes Gloo sum gradients over replicas, if the job asks for that.
func (t *training) meets(c *run.Config, j *job.Job, n *needs) error {
	if j.Machine.Collectives != job.Native {
		return nil
	}
	refuse := func(err error) error {
		return cli.BadInput(fmt.Errorf("--collectives %s: %w", j.Machine.Collectives, err))
	}
	host := "127.0.0.1"
	if t.peers.party != nil {
		at, err := t.peers.party.Open(t.Context())
		if err != nil {
			return refuse(err)
		}
		host = at
	}
	if err := n.engine.CanGloo(); err != nil {
		return refuse(err)
	}
	c.Wire.Meet = func(ctx context.Context, rank, size int,
		exchange func(context.Context, []byte) ([][]byte, error)) (process.Summer, error) {
		return n.engine.NewGloo(ctx, host, rank, size, exchange)
	}
	return nil
}
