package bench

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

// The devices of a server share its port of 1.25 GB/s. The cluster has four servers of four devices. In the layout
// 15-1, the first stage has 15 workers, and the last stage has one worker. 12 of 15 minibatches reach the last stage
// from other servers, and cross the port of its server in both directions. So a byte takes 2*(12/15)/1.25e9 s. In the
// layout 4-4-4-4, a byte of each boundary takes 2/1.25e9 s at a port. The port of a server in the middle carries two
// boundaries, so a byte takes 4/1.25e9 s there.
func TestPortsAreShared(t *testing.T) {
	b, err := New(table.Options{}, "alexnet", nil, "pipedream-a:4x4")
	if err != nil {
		t.Fatal(err)
	}
	all := Firsts(16)
	if got, _ := b.crossing(all[:15], all[15:]); math.Abs(got*1.25e9/(2*12./15)-1) > 1e-9 {
		t.Errorf("15-1: %v s a byte", got)
	}
	before, portsBefore := b.crossing(all[:4], all[4:8])
	after, portsAfter := b.crossing(all[4:8], all[8:12])
	if math.Abs(before*1.25e9/2-1) > 1e-9 || math.Abs(after*1.25e9/2-1) > 1e-9 {
		t.Errorf("4-4-4-4: %v and %v s a byte", before, after)
	}
	most := 0.0
	for port, takes := range portsBefore {
		most = max(most, takes+portsAfter[port])
	}
	if math.Abs(most*1.25e9/4-1) > 1e-9 {
		t.Errorf("the port between is taken %v s for a byte of each boundary", most)
	}
	cut, err := b.BestSplit([]int{15, 1}, 256)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.Slowest(cut.Last, cut.Replicas, 256); err != nil || got != cut.SlowestS {
		t.Errorf("the cut takes %v, %v; its search has %v", got, err, cut.SlowestS)
	}
}

// BySizeFor(Recurrent) changes the times of recurrent layers, and of no others.
func TestBySizeForSomeKinds(t *testing.T) {
	b, err := New(table.Options{}, "gnmt-8", nil, "pipedream-a:1x4")
	if err != nil {
		t.Fatal(err)
	}
	some, err := b.BySizeFor(Recurrent)
	if err != nil {
		t.Fatal(err)
	}
	_, plain, err := b.Costs(64)
	if err != nil {
		t.Fatal(err)
	}
	_, costs, err := some.Costs(64)
	if err != nil {
		t.Fatal(err)
	}
	slower := 0
	for i, l := range b.M.Layers {
		switch {
		case l.Kind != "lstm" && costs[i].ForwardS != plain[i].ForwardS:
			t.Errorf("%s takes %v s, not %v", l.Name, costs[i].ForwardS, plain[i].ForwardS)
		case l.Kind == "lstm" && costs[i].ForwardS > plain[i].ForwardS:
			slower++
		}
	}
	if slower != 8 {
		t.Errorf("%d of 8 recurrent layers are slower", slower)
	}
}
