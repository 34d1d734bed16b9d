package sim

import "github.com/millrace-ml/millrace/schedule"

// A sum takes cores and memory bandwidth from what its device computes at the same time, of any stage (Unhidden). What
// that loses does not move the sums and backwards that go on: it is paid by the next computation that begins with no
// sum under way, and by the next update. So layers take the same in one stage as cut into several on the same devices.

// interval is a time from and to which something goes on.
type interval struct{ from, to float64 }

// both is how long two go on at once.
func (i interval) both(j interval) float64 { return max(0, min(i.to, j.to)-max(i.from, j.from)) }

// slowing is a time in which gradients are on their way, and the part of a computation beside it that is lost.
type slowing struct {
	interval
	part float64
}

// slowed is what sums take from a worker's computations.
type slowed struct {
	open     int        // sums that it has come to and that are not over
	sums     []slowing  // those that a computation may still end in or behind
	computed []interval // while sums were open
	lostS    float64    // and not paid
}

// comes notes that the worker has come to a sum, and over that one is over.
func (d *slowed) comes() { d.open++ }
func (d *slowed) over()  { d.open-- }

// pays is what a computation that begins takes longer.
func (d *slowed) pays(in schedule.Instruction) (longerS float64) {
	if d.open > 0 && in.Kind != schedule.U {
		return 0
	}
	longerS, d.lostS = d.lostS, 0
	return longerS
}

// computes notes that a computation has ended.
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

// sum notes when gradients are on their way. Those of the last backward, closing, may have been beside that, and
// beside what the worker has computed behind it.
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
