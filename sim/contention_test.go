package sim

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// ported returns a port in each direction for every worker. A message takes the whole rate of its sender's and its
// receiver's port. A sum takes a part of the rate of the ports of its stage's replicas.
func ported(p *schedule.Program, part float64) *Ports {
	out := &Ports{Message: func(from, to int, _ int64, _ float64) []cluster.Load {
		return []cluster.Load{{Port: cluster.Port{Number: from}, Part: 1},
			{Port: cluster.Port{Number: to, Back: true}, Part: 1}}
	}}
	for _, on := range p.Placement[0] {
		var loads []cluster.Load
		for _, w := range on {
			loads = append(loads, cluster.Load{Port: cluster.Port{Number: w}, Part: part},
				cluster.Load{Port: cluster.Port{Number: w, Back: true}, Part: part})
		}
		out.Sums = append(out.Sums, loads)
	}
	return out
}

// The times of two messages and an all-reduce at shared ports are worked out by hand. The first stage is on worker 0,
// the second on workers 1 and 2. There is one micro-batch, half of it on each replica. F = 1 and B = 3. By itself, a
// message takes 4 s and the all-reduce 6 s.
//
// Both messages forward leave worker 0's port. Each has half of the port's rate, and takes from 1 to 9. Both backwards
// run from 10 to 13. Then both messages back enter worker 0's port, and at the ports of workers 1 and 2 each meets the
// all-reduce. Each of the three has half of a port's rate, so the messages end at 21. By then 4 s of the all-reduce's 6
// s are done, and the rest takes 2 s.
//
// If the all-reduce takes only a quarter of a port's rate, it gets this quarter beside a message, and takes its 6 s.
//
// If half of the gradients are ready after two thirds of the backward, the all-reduce begins at 12. It is then 1 s
// ahead when the messages begin.
func TestMessagesAndAnAllReduceAtOnePort(t *testing.T) {
	p, err := family.Generate("1f1b", schedule.Settings{
		Placement: [][]int{{0}, {1, 2}}, MicroBatches: 1, Replication: schedule.Split,
	})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	costs := func(shares ...Share) Costs {
		c := Uniform(2, 1, 3, 0)
		c.Transfer = func(int, int, int64) (float64, float64) { return 0, 4 }
		c.Stages[1][0].AllReduceS, c.Stages[1][0].Shares = 6, shares
		return c
	}
	for _, of := range []struct {
		what  string
		costs Costs
		ports *Ports
		want  map[string][2]float64
	}{
		{"no ports", costs(), nil, map[string][2]float64{"0SF0": {1, 5}, "1B0": {6, 9}, "1SB0": {9, 13}, "1AR0": {9, 15},
			"0B0": {13, 16}}},
		{"ports", costs(), ported(p, 1), map[string][2]float64{"0SF0": {1, 9}, "1B0": {10, 13}, "1SB0": {13, 21},
			"1SB0@r1": {13, 21}, "1AR0": {13, 23}, "1AR0@r1": {13, 23}, "0B0": {21, 24}}},
		{"a small part", costs(), ported(p, 0.25), map[string][2]float64{"1SB0": {13, 21}, "1AR0": {13, 19},
			"0B0": {21, 24}}},
		{"begun before", costs(Share{At: 2. / 3, Part: 0.5}), ported(p, 1), map[string][2]float64{"1SB0": {13, 21},
			"1AR0": {12, 22}, "0B0": {21, 24}}},
	} {
		of.costs.Ports = of.ports
		tl, _, err := Run(p, of.costs, Options{Record: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := tl.Validate(); err != nil {
			t.Errorf("%s: %v", of.what, err)
		}
		at := spans(tl)
		for in, want := range of.want {
			exactly(t, at[in][0], want[0], "%s: begin of %s", of.what, in)
			exactly(t, at[in][1], want[1], "%s: end of %s", of.what, in)
		}
	}
}

// TestContention draws pipelines, some with replicas. While they run, the flows at a port never take more than its
// rate. Contention never makes a run shorter. If no two transfers share a port, all times are the same bit for bit as
// without ports.
func TestContention(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedule.Settings{MicroBatches: 2 * rapid.IntRange(1, 4).Draw(t, "m"), Repeat: rapid.IntRange(1, 2).Draw(t, "n")}
		s.Placement = schedule.Replicated(rapid.IntRange(1, 3).Draw(t, "stages"), rapid.IntRange(1, 2).Draw(t, "replicas"))
		s.Replication = rapid.SampledFrom([]schedule.Replication{schedule.Split, schedule.RoundRobin}).Draw(t, "replication")
		p, err := family.Generate(rapid.SampledFrom([]string{"1f1b", "afab", "zb-h1"}).Draw(t, "family"), s)
		if err != nil {
			return // a shape that the family does not take
		}
		if p, err = lower.Lower(p, lower.Options{}); err != nil {
			t.Fatal(err)
		}
		c := randomCosts(t, p)
		takes := make([]float64, p.Workers*p.Workers)
		for i := range takes {
			takes[i] = rapid.Float64Range(0, 3).Draw(t, "message")
		}
		c.Transfer = func(from, to int, _ int64) (float64, float64) { return 0.1, takes[from*p.Workers+to] }
		for s := range c.Stages {
			for r := range c.Stages[s] {
				c.Stages[s][r].Shares = []Share{{0.25, 0.25}, {0.75, 0.5}}
			}
		}
		alone, before, err := Run(p, c, Options{Record: true})
		if err != nil {
			t.Fatal(err)
		}
		own := func(from, to int, _ int64, _ float64) []cluster.Load { // each link has a port of its own
			return []cluster.Load{{Port: cluster.Port{Level: from, Number: to}, Part: 1}}
		}
		c.Ports = &Ports{Sums: make([][]cluster.Load, p.Stages), Message: own}
		apart, _, err := Run(p, c, Options{Record: true})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(spans(alone), spans(apart)); d != "" {
			t.Fatalf("no port is shared, and the times differ: %s", d)
		}
		c.Ports = ported(p, rapid.Float64Range(0.1, 1).Draw(t, "part"))
		_, after, err := Run(p, c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if after.EndS < before.EndS-1e-9 {
			t.Fatalf("contention makes %v s of %v", after.EndS, before.EndS)
		}
		withinRates(t, p, c)
	})
}

// withinRates plays a Program event by event. At each event, it adds up the part of each port that flows take.
func withinRates(t *rapid.T, p *schedule.Program, c Costs) {
	t.Helper()
	gate, err := machine.New(p, machine.Options{Cores: c.Cores.Scarce(p.Workers)})
	if err != nil {
		t.Fatal(err)
	}
	s := newState(p, c, Options{Gate: gate})
	for w := range p.Workers {
		s.advance(w)
	}
	for len(s.queue.events) > 0 {
		e := s.queue.pop()
		if s.traffic.stale(e) {
			continue
		}
		s.queue.now = e.at
		s.happen(e)
		of := map[cluster.Port]float64{}
		for _, f := range s.traffic.flows {
			if f == nil {
				continue
			}
			for _, l := range f.loads {
				of[l.Port] += l.Part * f.rate
			}
		}
		for port, taken := range of {
			if taken > 1+1e-9 {
				t.Fatalf("at %v flows take %v of port %v", s.queue.now, taken, port)
			}
		}
	}
	for key, line := range s.traffic.lines {
		if len(line) > 0 {
			t.Fatalf("%d messages are left on link %v", len(line), key)
		}
	}
}

// A plan's ports are those of its cluster's levels with contention. Here the cluster has two servers of two devices,
// and the plan has two stages. If each stage is inside a server, only messages cross the network, and no port is
// shared. If a stage's replicas are on both servers, its sum crosses too, and shares each server's port with messages.
func TestPortsOfPlans(t *testing.T) {
	c := &cluster.Cluster{Name: "c", DeviceTypes: map[string]cluster.DeviceType{"cpu": {}},
		Devices: []string{"cpu", "cpu", "cpu", "cpu"}, Levels: []cluster.Level{
			{Name: "server", Size: 2, BandwidthBytesPerSecond: 1000, FullDuplex: true},
			{Name: "net", Size: 2, BandwidthBytesPerSecond: 10, FullDuplex: true, Uplinks: true, Contention: true}}}
	for _, of := range []struct {
		stages [2][]int
		shared bool
	}{{[2][]int{{0, 1}, {2, 3}}, false}, {[2][]int{{0, 2}, {1, 3}}, true}, {[2][]int{{0, 1, 2}, {3}}, true}} {
		pl := twoStages()
		pl.Stages[0].Devices, pl.Stages[1].Devices = of.stages[0], of.stages[1]
		costs, err := CostsOf(chain(), c, pl)
		if err != nil {
			t.Fatal(err)
		}
		if got := costs.Ports != nil; got != of.shared {
			t.Errorf("%v: shared ports %v, want %v", of.stages, got, of.shared)
		}
		without := *c
		without.Levels = []cluster.Level{c.Levels[0], c.Levels[1]}
		without.Levels[1].Contention = false
		if costs, err = CostsOf(chain(), &without, pl); err != nil || costs.Ports != nil {
			t.Errorf("%v without contention: %v, %v", of.stages, costs.Ports, err)
		}
	}
	// By hand: the sum of a stage sends 20 bytes through each server's port, each way, in 2 s. That is all that the
	// port can carry. A message of 10 bytes in 2 s takes half of a port of each server.
	pl := twoStages()
	pl.Stages[0].Devices, pl.Stages[1].Devices, pl.Shard = []int{0, 2}, []int{1, 3}, plan.ShardNothing
	costs, err := CostsOf(chain(), c, pl)
	if err != nil {
		t.Fatal(err)
	}
	port := func(n int, back bool, part float64) cluster.Load {
		return cluster.Load{Port: cluster.Port{Level: 1, Number: n, Back: back}, Part: part}
	}
	want := []cluster.Load{port(0, false, 1), port(0, true, 1), port(1, false, 1), port(1, true, 1)}
	if d := cmp.Diff(want, costs.Ports.Sums[0]); d != "" {
		t.Error(d)
	}
	// Under zero3 there is no sum outside of computations, and the messages are sent one after the other.
	pl.Shard = plan.ZeRO3
	if divided, err := CostsOf(chain(), c, pl); err != nil || divided.Ports != nil {
		t.Errorf("%+v, %v", divided.Ports, err)
	}
	if d := cmp.Diff([]cluster.Load{port(0, false, 0.5), port(1, true, 0.5)}, costs.Ports.Message(0, 3, 10, 2)); d != "" {
		t.Error(d) // workers 0 and 3 are devices 0 and 3
	}
}

// Ports that cannot be simulated are refused, and the error says why.
func TestRefusedPorts(t *testing.T) {
	p := replicas(t, "dp", 2, 2)
	message := func(int, int, int64, float64) []cluster.Load { return nil }
	for want, ports := range map[string]*Ports{
		"sim: ports have the loads of messages: false, and of the sums of 1 stages; give both, of 1 stages": {
			Sums: make([][]cluster.Load, 1)},
		"sim: ports have the loads of messages: true, and of the sums of 2 stages; give both, of 1 stages": {
			Message: message, Sums: make([][]cluster.Load, 2)},
		"sim: a collective of stage 0 takes 1.5 of port {0 1 false}; a part is over 0 and up to 1": {
			Message: message, Sums: [][]cluster.Load{{{Port: cluster.Port{Number: 1}, Part: 1.5}}}},
	} {
		c := Uniform(1, 1, 1, 0)
		c.Ports = ports
		if _, _, err := Run(p, c, Options{}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	pair, err := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 2})
	if err == nil {
		pair, err = lower.Lower(pair, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []float64{0, -1, 2, math.NaN()} {
		c := Uniform(2, 1, 1, 0)
		c.Transfer = func(int, int, int64) (float64, float64) { return 0, 1 }
		c.Ports = &Ports{Sums: make([][]cluster.Load, 2), Message: func(int, int, int64, float64) []cluster.Load {
			return []cluster.Load{{Port: cluster.Port{Number: 1}, Part: part}}
		}}
		want := fmt.Sprintf("sim: a message of 0 bytes from worker 0 to worker 1 takes %v of port {0 1 false}; a part is "+
			"over 0 and up to 1", part)
		if _, _, err := Run(pair, c, Options{}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	c := Streaming(Uniform(1, 1, 1, 0), 1)
	c.Ports = ported(p, 1)
	if _, _, err := Run(p, c, Options{}); err == nil {
		t.Error("devices that stream share ports")
	}
}
