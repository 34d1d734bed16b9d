package sim

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// mostPaced is the largest number of workers for which Expect makes each worker the slow one in a simulation of its
// own. With more workers the simulations would take too long.
const mostPaced = 16

// Expect returns the Summary that Run would give on workers whose pace varies.
//
// Its times are means over several runs. In each run a different worker is slower by Noise.PaceSpread, and the others
// are faster, so that the total work stays the same.
//
// On a real machine a core stays slow for seconds, and a step takes milliseconds. So the same core is slow throughout a
// step. As long as the order of computations stays the same, the step time is convex in the computations' times. So the
// mean is at least the step time at equal pace. How much it exceeds that step time depends only on how often the
// schedule makes workers wait for each other.
//
// Expect simulates only once, at equal pace, if there are more than mostPaced workers, or if workers take turns on
// fewer cores. With fewer cores no worker has a core of its own that could be slow: a free worker runs on any core, and
// only the mean pace counts.
//
// Everything else in Costs.Noise is always applied. Options.Vary must be nil, since Expect sets it.
func Expect(p *schedule.Program, costs Costs, o Options) (Summary, error) {
	if o.Vary != nil {
		return Summary{}, fmt.Errorf("sim: an expectation of program %s with a Vary of its own; it makes one of "+
			"Costs.Noise", p.Name)
	}
	if err := costs.Noise.check(); err != nil {
		return Summary{}, err
	}
	o.Vary = costs.Noise.Vary()
	_, sum, err := Run(p, costs, o)
	if err != nil || costs.Plays(p.Workers) == 1 {
		return sum, err
	}
	n := float64(p.Workers)
	sum.StepS, sum.EndS = 0, 0
	sum.BusyS, sum.TotalS = make([]float64, p.Workers), make([]float64, p.Workers)
	for behind := range p.Workers {
		o.Vary = costs.Noise.varyBehind(behind, p.Workers)
		_, paced, err := Run(p, costs, o)
		if err != nil {
			return sum, err
		}
		sum.StepS, sum.EndS = sum.StepS+paced.StepS/n, sum.EndS+paced.EndS/n
		for w := range p.Workers {
			sum.BusyS[w] += paced.BusyS[w] / n
			sum.TotalS[w] += paced.TotalS[w] / n
		}
	}
	sum.idle()
	return sum, nil
}

// Plays returns how many times Expect simulates a Program with this many workers.
func (c *Costs) Plays(workers int) int {
	if c.Noise.PaceSpread == 0 || workers < 2 || workers > mostPaced || len(c.Cores.Scarce(workers)) > 0 {
		return 1
	}
	return 1 + workers
}
