package sim

import (
	"cmp"
	"fmt"

	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
)

// Noise holds the effects that change computation times on a real machine.
//
// The code that makes Costs from a profile fills it in. Run does not read it; Vary turns all but PaceSpread into
// Options.Vary. Expect applies PaceSpread too. A field is kept only as long as it changes which plan is fastest. Its
// comment names a case in which it does, as TestNoiseMovesABestPlan in tune shows.
//
// The time that a host spends on sends and receives is not here but in Costs (SendS, ReceiveS), since it belongs to
// instructions of the Program.
type Noise struct {
	// DispatchS is the time, in seconds, that the runtime adds to each computation except updates. It matters for plans
	// with different numbers of computations. With it, convnet with batch 16 on two workers is fastest as dp; without
	// it, as dp-overlap.
	DispatchS float64
	// Spread is the interquartile range of a computation's time divided by its median, by stage and replica. Replicas
	// after the last given one have the same spread as that one. A stage that is not given does not vary. It matters for
	// plans that differ in how often workers wait for the slowest. With it, convnet with batch 16 on two workers is
	// fastest as dp; without it, as dp-overlap.
	Spread [][]float64
	// PaceSpread is how much slower than the workers' mean one worker is, as a fraction. One worker stays slow for
	// longer than a step. Only Expect applies it, since it takes one run for each worker. It matters for plans that
	// differ in how much a step waits for one worker. With it, convnet with batch 16 on two workers is fastest as dp;
	// without it, as dp-overlap.
	PaceSpread float64
}

// NoiseOf returns a profile's noise, except Spread, which differs by stage. On devices of several types each value is
// the mean over the devices.
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

// mean returns a function that averages a value of the profile's machines over devices. For devices of a single type
// it is exactly that type's value.
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

// Usual returns the time of a computation when nothing varies.
func (n *Noise) Usual(takesS float64) float64 { return takesS + n.DispatchS }

// Varies reports whether some computation has a spread.
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

// SpreadOf returns the Spread of a replica of a stage.
func (n *Noise) SpreadOf(stage, replica int) float64 {
	if stage >= len(n.Spread) || len(n.Spread[stage]) == 0 {
		return 0
	}
	replicas := n.Spread[stage]
	return replicas[min(replica, len(replicas)-1)]
}

// Vary returns a function that adds dispatch time and spread to computations, with all workers at the same pace. It
// returns nil if there is no dispatch time and no spread.
func (n *Noise) Vary() Vary {
	if n.DispatchS == 0 && !n.Varies() {
		return nil
	}
	return func(_ int, in schedule.Instruction, takesS float64) float64 { return n.takes(in, takesS, 1) }
}

// varyBehind returns Vary with one worker slower by PaceSpread. The others are faster, so that the mean pace is the
// same.
func (n *Noise) varyBehind(behind, workers int) Vary {
	others := float64(workers - 1)
	spread := min(n.PaceSpread, others) // no computation takes negative time
	return func(w int, in schedule.Instruction, takesS float64) float64 {
		pace := 1 - spread/others
		if w == behind {
			pace = 1 + spread
		}
		return n.takes(in, takesS, pace)
	}
}

// takes returns the time of a computation on a worker that needs the usual time multiplied by `pace`.
func (n *Noise) takes(in schedule.Instruction, takesS, pace float64) float64 {
	varied := takesS * jitter(in, n.SpreadOf(int(in.Stage), int(in.Replica))/quartiles)
	return n.Usual(varied * pace)
}

// check refuses values that are not valid times.
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

// varied returns the time of a computation after Options.Vary. A result that is not a valid time ends the
// simulation.
func (s *state) varied(w int, in schedule.Instruction, takes float64) float64 {
	if s.o.Vary == nil {
		return takes
	}
	varied := s.o.Vary(w, in, takes)
	if bad(varied) {
		s.fault = cmp.Or(s.fault, fmt.Errorf("sim: %v on worker %d costs %v s and is varied to %v; it must be a number, "+
			"0 or more", in, w, takes, varied))
		return takes
	}
	return varied
}
