package artifact

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan/dapple/servers"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
)

// literalCell is an entry of the published table for one occupancy of the servers.
type literalCell struct {
	block   float64
	k, m    int // the entry before this one in the table; k is -1 if there is none
	from    string
	devices []int
	mp      int
}

// literalPlanFor is plan_for(i, straight) as published, written again without its shortcuts: it tries every split of
// devices. Of all placements that lead to the same occupancy of the servers, it keeps one entry.
func literalPlanFor(a *input, i int, straight bool) (Candidate, bool) {
	G, N := len(a.at.Of), len(a.compute)
	rp := G / i
	table := make([][]map[string]literalCell, N)
	best := func(cells map[string]literalCell) (key string) {
		least := math.Inf(1)
		for _, k := range slices.Sorted(maps.Keys(cells)) {
			if cells[k].block < least*(1-sameBlock) {
				least, key = cells[k].block, k
			}
		}
		return key
	}
	for j := range N {
		table[j] = make([]map[string]literalCell, i)
		for m := range i {
			table[j][m] = map[string]literalCell{}
			if m == 0 || !straight {
				after := a.at.Place(a.at.None(), (m+1)*rp)[0]
				table[j][m][after.Key()] = literalCell{a.compute[j] / float64(m+1) / float64(rp), -1, 0, "",
					a.at.Between(a.at.None(), after), m + 1}
			}
		}
	}
	occupancy := func(key string) servers.Taken {
		t := a.at.None()
		for s := range t {
			t[s] = binary.BigEndian.Uint32([]byte(key[4*s:]))
		}
		return t
	}
	for m := 1; m < i; m++ {
		for j := 1; j < N; j++ {
			for k := len(a.compute) - 1; k >= 0; k-- {
				if a.before[j][k/64]>>(k%64)&1 == 0 {
					continue
				}
				for mp := 1; mp <= m && (mp < 2 || !straight); mp++ {
					for _, key := range slices.Sorted(maps.Keys(table[k][m-mp])) {
						c := table[k][m-mp][key]
						before := occupancy(key)
						for _, after := range a.at.PlaceEach(before, mp, rp) {
							to := a.at.Between(before, after)
							block := max(c.block, (a.compute[j]-a.compute[k])/float64(mp*rp),
								a.transferS(c.devices, to, 2*a.output[k]))
							if old, ok := table[j][m][after.Key()]; !ok || block < old.block*(1-sameBlock) {
								table[j][m][after.Key()] = literalCell{block, k, m - mp, key, to, mp}
							}
						}
					}
				}
			}
		}
	}
	key := best(table[N-1][i-1])
	if key == "" {
		return Candidate{}, false
	}
	out := Candidate{Pipelines: rp, Block: table[N-1][i-1][key].block}
	end, j, m := N-1, N-1, i-1
	for {
		c := table[j][m][key]
		out.Stages = append([]Stage{{c.k + 1, end, c.devices}}, out.Stages...)
		if c.k < 0 {
			break
		}
		end, j, m, key = c.k+1, c.k, c.m, c.from
	}
	out.Speedup = a.speedup(out)
	return out, true
}

// TestArtifactAgainstALiteralTwin compares each candidate of the search with the published recursion without shortcuts,
// on random graphs and clusters. It also checks that plan_for returns a single stage if it is not straight.
func TestArtifactAgainstALiteralTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for n := range 1500 {
		p := &profile.Profile{Model: "graph"}
		for k := range 2 + r.IntN(7) {
			l := profile.Layer{Name: fmt.Sprint("n", k), Kind: fmt.Sprint("kind", r.IntN(3)), From: []int{k - 1},
				TiedTo: -1, ParameterBytes: r.Int64N(1e9)}
			if k > 1 && r.IntN(3) == 0 {
				l.From = append(l.From, r.IntN(k-1))
			}
			l.Costs = []profile.Cost{{Device: "x", MicroBatch: 4, ForwardS: r.Float64(), BackwardS: 2 * r.Float64(),
				OutputBytes: r.Int64N(1e9), SavedBytes: r.Int64N(1e8)}}
			p.Layers = append(p.Layers, l)
		}
		server, count := 1+r.IntN(3), 1+r.IntN(2)
		G := server * count
		c := cluster.Local("cpu", G, 0, 0, 0, 1e9, 0)
		for i := range c.Devices {
			c.Devices[i] = "x"
		}
		batch := 4 * (6 + r.IntN(10))
		k := Constants{MinMicroBatch: 1 + r.IntN(3), OptimizerMemoryScaling: 2, NVLink: 25e9, EthernetP2P: 1e9,
			EthernetNCCL: 3e9, GPUMemory: 16e9, Server: server}
		got, err := Search(context.Background(), p, c, batch, k)
		if err != nil {
			t.Fatal(err)
		}
		a, _, err := newInput(p, c, batch, k)
		if err != nil {
			t.Fatal(err)
		}
		if G == 1 {
			continue
		}
		at := 0
		for i := 2; i <= G; i++ {
			want, _ := literalPlanFor(a, i, false)
			if len(want.Stages) != 1 || !plantest.Close(got.Candidates[at].Speedup, want.Speedup) {
				t.Fatalf("case %d: plan_for(%d, false): %+v, literally %+v", n, i, got.Candidates[at], want)
			}
			at++
		}
		straight := []int{G}
		if G > 2 && G%2 == 0 {
			straight = []int{2, G}
		}
		for _, i := range straight {
			if want, ok := literalPlanFor(a, i, true); ok {
				if g := got.Candidates[at]; !plantest.Close(g.Block, want.Block) ||
					!plantest.Close(g.Speedup, want.Speedup) && fmt.Sprint(g.Stages) == fmt.Sprint(want.Stages) {
					t.Fatalf("case %d: plan_for(%d, true): %+v, literally %+v", n, i, g, want)
				}
				at++
			}
		}
		least := literalBipartition(a, G)
		if len(got.Candidates) != at+1 || !plantest.Close(got.Candidates[at].Speedup, least) {
			t.Fatalf("case %d: bipartition %+v, the best of all is %g", n, got.Candidates[at:], least)
		}
	}
}

// literalBipartition returns the best speedup of two stages. It tries every cut, every number of devices of the first
// stage, and every placement of both stages.
func literalBipartition(a *input, G int) float64 {
	best, states := 0.0, len(a.compute)
	for l := range states - 1 {
		for g := 1; g < G; g++ {
			for _, one := range a.at.Place(a.at.None(), g) {
				for _, two := range a.at.Place(one, G-g) {
					x, y := a.at.Between(a.at.None(), one), a.at.Between(one, two)
					c := Candidate{Pipelines: 1, Stages: []Stage{{0, l + 1, x}, {l + 1, states - 1, y}}}
					c.Block = max(a.compute[l]/float64(len(x)), (a.compute[states-1]-a.compute[l])/float64(len(y)),
						a.transferS(x, y, a.output[l]))
					best = max(best, a.speedup(c))
				}
			}
		}
	}
	return best
}

// TestArtifactOnPerturbedProfiles compares the search with the literal twins on published profiles whose times vary by
// up to a tenth, so that nothing ties. It covers straight plans over sixteen devices and plans cut in two.
func TestArtifactOnPerturbedProfiles(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for file, size := range map[string]int{
		"dapple-vgg-19-pbs-32": 32, "dapple-xlnet-36-pbs-1": 1, "dapple-amoeba-36-pbs-1": 1, "hpgo-bert_large": 6,
		"dapple-bert-48-pbs-2": 2, "dapple-bert-24-pbs-6": 6,
	} {
		p := plantest.ReadProfile(t, file+".txt", size)
		for _, server := range []int{8, 1} {
			for l := range p.Layers {
				p.Layers[l].Costs[0].ForwardS *= 0.9 + 0.2*r.Float64()
				p.Layers[l].Costs[0].BackwardS *= 0.9 + 0.2*r.Float64()
			}
			k := Constants{MinMicroBatch: size, OptimizerMemoryScaling: 2, NVLink: 25e9, EthernetP2P: 1e9,
				EthernetNCCL: 3e9, GPUMemory: 16e9, Server: server}
			c := cluster.Local("cpu", 16, 0, 0, 0, 1e9, 0)
			a, _, err := newInput(p, c, 32*size, k)
			if err != nil {
				t.Fatal(err)
			}
			searched, err := Search(t.Context(), p, c, 32*size, k)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := searched.Candidates[len(searched.Candidates)-1].Speedup, literalBipartition(a,
				16); !plantest.Close(got, want) {
				t.Errorf("%s, servers of %d, cut in two: %g, literally %g", file, server, got, want)
			}
			for _, stages := range []int{2, 16} {
				got, _, err := a.straight(context.Background(), stages)
				want, ok := literalPlanFor(a, stages, true)
				if err != nil || !ok || !plantest.Close(got.Block, want.Block) {
					t.Errorf("%s, servers of %d, %d stages: %g, literally %g (%v)", file, server, stages, got.Block,
						want.Block, err)
				}
			}
		}
	}
}
