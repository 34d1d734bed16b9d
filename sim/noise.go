package sim

import (
	"fmt"

	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
)

// Noise is what makes computations take other times on a machine than their own.
//
// Whoever makes Costs of a profile fills it in. Run does not read it: Vary turns it into Options.Vary, and
// nothing else applies it. Expect predicts with all of it. A term is kept only while it changes which plan is
// fastest. Each comment names a plan that it changes, as TestNoiseMovesABestPlan in tune shows.
//
// What a host spends on sends and receives is in Costs (SendS, ReceiveS): it is the cost of instructions that a
// Program has. No shipped model is known whose fastest plan it decides.
type Noise struct {
	// DispatchS is what the runtime adds to each computation, an update excepted. It tells plans apart by how
	// many computations they have: convnet, batch 16, on two workers is fastest as dp, without it as dp-overlap.
	DispatchS float64
	// Spread is the distance of the quartiles of a computation's time over its median, by stage and replica. The
	// last replica given stands for those after it; a stage not given does not vary. It tells plans apart by how
	// often workers wait for whoever was slow: convnet, batch 16, on two workers is fastest as dp, without it as
	// dp-overlap.
	Spread [][]float64
	// PaceSpread is by what part of the workers' mean one of them is behind it at a time, for longer than a
	// step. Only Expect plays it, as it takes a run for each worker. It tells plans apart by how much a step
	// waits for one worker: convnet, batch 16, on two workers is fastest as dp, without it as dp-overlap.
	PaceSpread float64
}

// NoiseOf is what a profile says of every computation, whichever stage it is of: there is no Spread in it. On
// devices of several types it is the mean over the devices.
func NoiseOf(p *profile.Profile, devices ...string) Noise {
	n := Noise{}
	of := mean(p, devices)
	n.PaceSpread = of(func(m *profile.Machine) float64 { return m.PaceSpread })
	n.DispatchS = of(func(m *profile.Machine) float64 { return transferOf(m).DispatchS })
	return n
}

func transferOf(m *profile.Machine) profile.Transfer {
	if m.Transfer == nil {
		return profile.Transfer{}
	}
	return *m.Transfer
}

// mean averages values of a profile's machines over devices. Devices of a single type have exactly that type's value.
func mean(p *profile.Profile, devices []string) (of func(func(m *profile.Machine) float64) float64) {
	count := map[string]int{}
	var machines []profile.Machine
	for _, d := range devices {
		if count[d]++; count[d] == 1 {
			machines = append(machines, p.On(d))
		}
	}
	return func(get func(m *profile.Machine) float64) float64 {
		if len(machines) == 1 {
			return get(&machines[0])
		}
		sum := 0.0
		for i := range machines {
			sum += float64(count[machines[i].Device]) * get(&machines[i])
		}
		return sum / float64(len(devices))
	}
}

// Usual is what a computation takes where nothing varies.
func (n *Noise) Usual(takesS float64) float64 { return takesS + n.DispatchS }

// Varies says whether some computation has a spread.
func (n *Noise) Varies() bool {
	for _, replicas := range n.Spread {
		for _, spread := range replicas {
			if spread > 0 {
				return true
			}
		}
	}
	return false
}

// SpreadOf is Spread of a replica of a stage.
func (n *Noise) SpreadOf(stage, replica int) float64 {
	if stage >= len(n.Spread) || len(n.Spread[stage]) == 0 {
		return 0
	}
	replicas := n.Spread[stage]
	return replicas[min(replica, len(replicas)-1)]
}

// Vary adds dispatch and spread to computations of workers that all keep one pace; nil where there is neither.
func (n *Noise) Vary() Vary {
	if n.DispatchS == 0 && !n.Varies() {
		return nil
	}
	return func(_ int, in schedule.Instruction, takesS float64) float64 { return n.takes(in, takesS, 1) }
}

// varyBehind is Vary where one of so many workers is behind by PaceSpread, and the others as much ahead in all.
func (n *Noise) varyBehind(behind, workers int) Vary {
	others := float64(workers - 1)
	spread := min(n.PaceSpread, others) // nobody computes in less than no time
	return func(w int, in schedule.Instruction, takesS float64) float64 {
		pace := 1 - spread/others
		if w == behind {
			pace = 1 + spread
		}
		return n.takes(in, takesS, pace)
	}
}

// takes is what a computation takes on a worker who needs pace times as long as usual.
func (n *Noise) takes(in schedule.Instruction, takesS, pace float64) float64 {
	varied := takesS * jitter(in, n.SpreadOf(int(in.Stage), int(in.Replica))/quartiles)
	return n.Usual(varied * pace)
}

// check refuses terms that do not give a time.
func (n *Noise) check() error {
	if bad(n.DispatchS) {
		return fmt.Errorf("sim: dispatch is %v; it must be a number, 0 or more", n.DispatchS)
	}
	if bad(n.PaceSpread) {
		return fmt.Errorf("sim: the slowest worker behind the mean is %v; it must be a number, 0 or more", n.PaceSpread)
	}
	for s, replicas := range n.Spread {
		for r, spread := range replicas {
			if bad(spread) {
				return &CostError{Stage: s, Replica: r, Field: "spread", Value: spread}
			}
		}
	}
	return nil
}
