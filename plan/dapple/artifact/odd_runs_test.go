package artifact

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan/plantest"
)

// TestOddRuns compares the published search with its literal twins on new inputs. Each profile gets random times,
// batch, servers and bandwidths. The test covers straight plans over all devices, straight plans of two stages, and
// plans cut in two. It uses only the first layers of the largest profiles.
func TestOddRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 27))
	runs := 0
	for _, of := range []struct {
		file         string
		size, layers int
	}{
		{"dapple-vgg-19-pbs-32", 32, 0}, {"dapple-xlnet-36-pbs-1", 1, 0},
		{"dapple-amoeba-36-pbs-1", 1, 0},
		{"dapple-gnmt-16-pbs-64", 64, 20}, {"dapple-bert-48-pbs-2", 2, 0},
		{"hpgo-bert_large", 6, 0},
		{"pipedream-gnmt", 32, 24}, {"pipedream-inception_v3", 128, 24},
		{"pipedream-alexnet", 256, 0}, {"pipedream-vgg16", 128, 0},
	} {
		p := plantest.ReadProfile(t, of.file+".txt", of.size)
		if of.layers > 0 {
			p.Layers = p.Layers[:of.layers]
		}
		for range 4 {
			for l := range p.Layers {
				p.Layers[l].Costs[0].ForwardS *= 0.9 + 0.2*r.Float64()
				p.Layers[l].Costs[0].BackwardS *= 0.9 + 0.2*r.Float64()
			}
			servers := [][2]int{{2, 4}, {4, 2}, {8, 1}, {1, 8}, {3, 4}, {5, 2}, {2, 2}, {6, 1}}[r.IntN(8)]
			G := servers[0] * servers[1]
			k := Constants{
				MinMicroBatch: 1 + r.IntN(2*of.size), OptimizerMemoryScaling: float64(1 + r.IntN(4)),
				GPUMemory: 16e9 * (0.2 + r.Float64()), Server: servers[1],
				NVLink: 5e9 + 95e9*r.Float64(), EthernetP2P: 1e8 + 4e9*r.Float64(), EthernetNCCL: 1e8 + 4e9*r.Float64(),
			}
			batch := of.size * (2 + r.IntN(60))
			c := cluster.Local("cpu", G, 0, 0, 0, 1e9, 0)
			a, _, err := newInput(p, c, batch, k)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Search(t.Context(), p, c, batch, k)
			if err != nil {
				t.Fatal(err)
			}
			run := fmt.Sprintf("%s, %d servers of %d, batch %d, %+v", of.file, servers[0], servers[1], batch, k)
			runs++
			at := G - 1 // index after the candidates of one stage
			straight := []int{G}
			if G > 2 && G%2 == 0 {
				straight = []int{2, G}
			}
			for _, stages := range straight {
				want, ok := literalPlanFor(a, stages, true)
				if !ok {
					continue
				}
				if have := got.Candidates[at]; !plantest.Close(have.Block, want.Block) ||
					len(have.Stages) != len(want.Stages) {
					t.Errorf("%s: %d stages: %g, literally %g", run, stages, have.Block, want.Block)
				}
				at++
			}
			two, best := got.Candidates[len(got.Candidates)-1], literalBipartition(a, G)
			if !plantest.Close(two.Speedup, best) {
				t.Errorf("%s: cut in two: %g, literally %g", run, two.Speedup, best)
			}
			best = 0
			for _, one := range got.Candidates {
				best = max(best, one.Speedup)
			}
			if have := got.Candidates[got.Best].Speedup; have < best {
				t.Errorf("%s: the best of all candidates is %g, the answer %g", run, best, have)
			}
		}
	}
	if runs < 40 {
		t.Errorf("%d runs", runs)
	}
}
