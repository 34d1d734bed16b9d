package machine

import (
	"strings"

	"github.com/millrace-ml/millrace/schedule"
)

// Chain orders Needs so that each worker waits for the next one.
//
// If workers wait for each other in a circle, the chain is this circle, and `closed` is true. Otherwise the chain
// begins with the first worker in the list. It ends at a worker that waits for none of the others, because the worker
// that it needs has ended or computes.
func Chain(p *schedule.Program, waits []Need) (chain []Need, closed bool) {
	byWorker := byWorker(waits)
	open := map[int]bool{} // workers known not to lie on a circle
	for _, start := range waits {
		links, at := []Need{start}, map[int]int{start.Worker: 0}
		for !open[start.Worker] {
			next, ok := waitedFor(p, byWorker, links[len(links)-1])
			if !ok || open[next.Worker] {
				break
			}
			if first, seen := at[next.Worker]; seen {
				return links[first:], true
			}
			at[next.Worker] = len(links)
			links = append(links, next)
		}
		for _, n := range links {
			open[n.Worker] = true
		}
		if chain == nil {
			chain = links
		}
	}
	return chain, false
}

// Circle returns the text of a closed chain in one line.
func Circle(chain []Need) string {
	var b strings.Builder
	for _, n := range chain {
		b.WriteString(n.At.String() + " needs " + n.Blocker() + "; ")
	}
	return b.String() + "and so on round"
}

// Order returns all Needs. If the worker of a Need waits for another worker, the other worker's Need comes next, unless
// it is in the result already.
func Order(p *schedule.Program, waits []Need) []Need {
	left := byWorker(waits)
	var ordered []Need
	for _, n := range waits {
		for more := true; more; {
			if _, more = left[n.Worker]; more {
				delete(left, n.Worker)
				ordered = append(ordered, n)
				n, more = waitedFor(p, left, n)
			}
		}
	}
	return ordered
}

func byWorker(waits []Need) map[int]Need {
	by := make(map[int]Need, len(waits))
	for _, n := range waits {
		by[n.Worker] = n
	}
	return by
}

// waitedFor returns the Need of a worker that n waits for. For a drain, that is a worker that does not wait at a drain.
// For a collective, that is a member that may not have joined it. If possible, it is a member that waits for something
// else, or for a sum of another kind.
func waitedFor(p *schedule.Program, waits map[int]Need, n Need) (Need, bool) {
	switch n.Lack {
	case Message, Slot, Ahead:
		next, ok := waits[n.Peer]
		return next, ok
	case Collective:
		_, workers := p.Group(n.For)
		var other Need
		found := false
		for _, w := range workers {
			next, ok := waits[w]
			switch {
			case !ok || w == n.Worker || next.Lack == Collective && p.Leader(next.For) == p.Leader(n.For):
			case next.Lack != Collective || next.For.Kind != n.For.Kind:
				return next, true
			case !found:
				other, found = next, true
			}
		}
		return other, found
	case Drain:
		for w := range p.Workers {
			if next, ok := waits[w]; ok && next.Lack != Drain {
				return next, true
			}
		}
	}
	return Need{}, false
}
