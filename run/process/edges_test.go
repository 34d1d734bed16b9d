package process

import (
	"math/rand/v2"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/wire"
)

// Both ends of an edge give it the same number, however workers are distributed over processes. A process with all
// workers has as many edges as several processes with the same workers have together.
func TestBothEndsNumberAnEdgeAlike(t *testing.T) {
	tried := 0
	for seed := range uint64(150) {
		g := rand.New(rand.NewPCG(seed, 17))
		f := family.All()[g.IntN(len(family.All()))]
		var programs []*schedule.Program
		for range 2 { // the second program may need the same edges again, or other edges
			p, err := family.Generate(f.Name, schedule.Settings{Placement: f.Placement(2+g.IntN(2), 1+g.IntN(3)),
				MicroBatches: 6, Repeat: 2})
			if err != nil {
				continue
			}
			if p.Stages > 1 {
				p.Tied = [][]int{{0, p.Stages - 1}}
			}
			p.Clip = g.IntN(2) == 0
			if p, err = lower.Lower(p, lower.Options{}); err != nil {
				t.Fatal(err)
			}
			programs = append(programs, p)
		}
		workers := 0
		for _, p := range programs {
			workers = max(workers, p.Workers)
		}
		process := make([]int, workers)
		for w := range process {
			process[w] = g.IntN(3)
		}
		slots := g.IntN(3)
		named := func(mine func(int) bool) map[wire.Name]wire.Edge {
			var table wire.Table
			for _, p := range programs {
				if err := nameEdges(&table, p, mine, slots); err != nil {
					t.Fatal(err)
				}
			}
			all := map[wire.Name]wire.Edge{}
			for _, p := range programs {
				everyName(p, func(n wire.Name) {
					if e, known := table.Find(n); known {
						all[n] = e
					}
				})
			}
			return all
		}
		whole := named(func(int) bool { return true })
		some := map[wire.Name]wire.Edge{}
		for k := range 3 {
			here := func(w int) bool { return process[w] == k }
			for n, e := range named(here) {
				if !here(e.From) && !here(e.To) {
					t.Fatalf("seed %d: process %d has %v of others", seed, k, e)
				}
				if other, known := some[n]; known && other != e {
					t.Fatalf("seed %d: %s: %+v at one end, %+v at the other", seed, f.Name, other, e)
				}
				some[n] = e
				tried++
			}
		}
		if len(some) != len(whole) {
			t.Fatalf("seed %d: %s: %d edges in processes, %d in one", seed, f.Name, len(some), len(whole))
		}
	}
	if tried < 1000 {
		t.Errorf("%d edges", tried)
	}
}

// everyName calls yield with all possible names of a Program's edges.
func everyName(p *schedule.Program, yield func(wire.Name)) {
	for a := range p.Workers {
		for b := range p.Workers {
			yield(wire.Name{From: a, To: b})
		}
	}
	for pl, stages := range p.Placement {
		for s, ranks := range stages {
			at := schedule.Instruction{Pipeline: int16(pl), Stage: int32(s)}
			for i := range ranks {
				for j := range ranks {
					for k := range sumLanes {
						yield(wire.Name{From: ranks[i], To: ranks[j], Group: lane(asKind(at, schedule.AR), k),
							Pair: uint32(i)<<16 | uint32(j)})
					}
				}
			}
			for _, kind := range []schedule.Kind{schedule.TG, schedule.GN} {
				members, workers := p.Group(asKind(at, kind))
				for k, to := range members {
					for _, from := range ranks {
						yield(pairName(asKind(at, kind), from, to, workers[k]))
					}
				}
			}
		}
	}
}

// In data parallelism over any number of workers, a process with one worker names only this worker's edges.
func TestEdgesGrowWithTheWorkersPeers(t *testing.T) {
	of := func(stages, replicas int) int {
		p := &schedule.Program{Stages: stages, Workers: stages * replicas, Replication: schedule.Split,
			Placement: [][][]int{schedule.Replicated(stages, replicas)}}
		var table wire.Table
		if err := nameEdges(&table, p, func(w int) bool { return w == 5 }, 1); err != nil {
			t.Fatal(err)
		}
		return len(table.Edges())
	}
	// Each other replica of the stage adds 6 edges: in each direction, two lanes and one edge for credits. Only one
	// replica of the next stage shares rows with this worker. It adds 4 edges: in each direction, one for transfers and
	// one for credits.
	for _, replicas := range []int{8, 592, 2048} {
		if n, want := of(1, replicas), 6*(replicas-1); n != want {
			t.Errorf("%d replicas: %d edges; want %d", replicas, n, want)
		}
	}
	if n, want := of(4, 256), 6*255+4; n != want {
		t.Errorf("4 stages of 256 replicas: %d edges; want %d", n, want)
	}
}
