package schedule

import "strings"

// Chain is a wait list put in order: each worker is followed by one that it waits for,
// until the chain bites its tail (closed) or comes to a worker that waits for nobody here,
// because the one it needs has ended or computes. It begins with the first worker of
// the first circle there is, or with the first in the list.
func Chain(p *Program, waits []Need) (chain []Need, closed bool) {
	byWorker := make(map[int]Need, len(waits))
	for _, n := range waits {
		byWorker[n.Worker] = n
	}
	for _, start := range waits {
		links, at := []Need{start}, map[int]int{start.Worker: 0}
		for {
			next, ok := waitedFor(p, byWorker, links[len(links)-1])
			if !ok {
				break
			}
			if first, seen := at[next.Worker]; seen {
				return links[first:], true
			}
			at[next.Worker] = len(links)
			links = append(links, next)
		}
		if chain == nil {
			chain = links
		}
	}
	return chain, false
}

// waitedFor is the wait of a worker that n waits for.
func waitedFor(p *Program, waits map[int]Need, n Need) (Need, bool) {
	switch n.Lack {
	case Message:
		next, ok := waits[n.From]
		return next, ok
	case Collective:
		_, workers := p.Group(n.For)
		for _, w := range workers {
			if next, ok := waits[w]; ok && w != n.Worker && (next.Lack != Collective || next.For.Kind != n.For.Kind) {
				return next, true
			}
		}
	case Drain:
		for w := range p.Workers {
			if next, ok := waits[w]; ok && next.Lack != Drain {
				return next, true
			}
		}
	}
	return Need{}, false
}

// Circle is a closed chain in one line: who waits for whom.
func Circle(chain []Need) string {
	var b strings.Builder
	for _, n := range chain {
		b.WriteString(n.At.String())
		b.WriteString(" needs ")
		b.WriteString(n.Blocker())
		b.WriteString("; ")
	}
	b.WriteString("and so on round")
	return b.String()
}
