package sim

import "github.com/millrace-ml/millrace/schedule"

// A gradient sum takes cores and memory bandwidth from what its device computes at the same time (Unhidden), in any
// stage. The lost time does not delay the sums and backwards under way. It is added to the next computation that begins
// when no sum is under way, or to the next update. So layers take the same time in one stage as in several stages on
// the same devices.

// interval is a span of time, from start to end in seconds.
type interval struct{ from, to float64 }

// both returns how long the two intervals overlap.
func (i interval) both(j interval) float64 { return max(0, min(i.to, j.to)-max(i.from, j.from)) }

// slowing is a time in which gradients are summed, and the fraction of a computation beside it that is lost.
type slowing struct {
	interval
	part float64
}

// slowed holds the time that sums take from a worker's computations.
type slowed struct {
	open     int        // sums that the worker has joined and that have not ended
	sums     []slowing  // sums that may overlap with a computation that has not ended yet
	computed []interval // computations that ended while sums were open
	lostS    float64    // seconds lost and not yet added to a computation
}

// comes notes that the worker has joined a sum. The method `over` notes that a sum has ended.
func (d *slowed) comes() { d.open++ }
func (d *slowed) over()  { d.open-- }

// pays returns how much longer a computation that begins now takes, and clears the lost time that this pays for.
func (d *slowed) pays(in schedule.Instruction) (longerS float64) {
	if d.open > 0 && in.Kind != schedule.U {
		return 0
	}
	longerS, d.lostS = d.lostS, 0
	return longerS
}

// computes notes that a computation has ended, and adds the time that sums took from it.
func (d *slowed) computes(start, end float64) {
	c := interval{start, end}
	left := d.sums[:0]
	for _, s := range d.sums {
		d.lostS += s.part * c.both(s.interval)
		if s.to > end {
			left = append(left, s)
		}
	}
	d.sums = left
	if d.open == 0 {
		d.computed = d.computed[:0]
		return
	}
	d.computed = append(d.computed, c)
}

// sum notes the times `taken`, in which gradients are summed. The sums may overlap with the last backward (`closing`),
// and with what the worker has computed after it. `part` is the fraction of a computation that is lost meanwhile.
func (d *slowed) sum(taken []interval, closing interval, part float64) {
	if part == 0 {
		return
	}
	for _, t := range taken {
		d.lostS += part * t.both(closing)
		for _, c := range d.computed {
			if c.from >= closing.to {
				d.lostS += part * t.both(c)
			}
		}
		d.sums = append(d.sums, slowing{t, part})
	}
}
