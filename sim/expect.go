package sim

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// mostPaced is the most workers for which Expect plays the Program once with each of them slow: playing each takes
// long.
const mostPaced = 16

// Expect is what Run's Summary comes to on workers that do not keep one pace.
//
// Its times are the means of runs in each of which another worker is behind by Noise.PaceSpread, and the rest so
// much ahead that all together compute what they usually do.
//
// Which core is slow changes within seconds, and a step takes milliseconds: within a step one of them is. A step
// is convex in what computations take, as long as their order stays, so that it comes out no shorter than at
// one pace; how much longer depends on how often the schedule has workers wait for each other, and on nothing
// else that a plan could choose. Workers that take turns on fewer cores are not slow themselves: whoever is free
// goes on, and the mean pace is all that counts.
//
// All of Costs.Noise is in it; Options.Vary is Expect's to make, and one that is given already is refused.
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

// Plays is how many times Expect plays a Program of so many workers.
func (c *Costs) Plays(workers int) int {
	if c.Noise.PaceSpread == 0 || workers < 2 || workers > mostPaced || len(c.Cores.Scarce(workers)) > 0 {
		return 1
	}
	return 1 + workers
}
