package pipedream

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// everyPlan computes the least time over all partitions of a chain, numbers of replicas and idle workers. It goes
// level by level and handles every setting of the planner, straight from the definitions.
type everyPlan struct {
	p                          *profile.Profile
	sizes                      []int
	bandwidths                 []float64
	overlap, volume, transfer  string
	ratio, memory              float64
	division, fewer, straight  bool
	compute, parameters, saved []float64
	known                      map[[4]int]float64
}

// stage returns the time of layers i to j as one stage on m workers of a level. `behind` is the number of workers of
// the level's later stages.
func (e *everyPlan) stage(level, i, j, m, behind int, first bool) float64 {
	compute, weights, saved := 0.0, 0.0, 0.0
	for k := i; k <= j; k++ {
		compute, weights, saved = compute+e.compute[k], weights+e.parameters[k], saved+e.saved[k]
	}
	if level > 0 {
		compute = e.best(level-1, i, j, e.sizes[level-1])
	}
	if held := (behind + m - 1) / m; e.memory > 0 && float64(held)*(weights+saved) > e.memory {
		return math.Inf(1)
	}
	bytes := map[string]float64{"paper": 2 * float64(m-1), "prose": 2 * float64(m-1) / float64(m),
		"code": 4 * float64(m-1) / float64(m)}[e.volume] * weights
	sync := bytes / e.bandwidths[level]
	if e.division && first && level > 0 {
		sync /= float64(e.sizes[level-1])
	}
	if e.overlap == "sum" {
		return (compute + sync) / float64(m)
	}
	return max(compute, sync) / float64(m)
}

// best returns the least time of layers i to j on m workers of a level.
func (e *everyPlan) best(level, i, j, m int) float64 {
	key := [4]int{level, i, j, m}
	if v, ok := e.known[key]; ok {
		return v
	}
	least := math.Inf(1)
	if m == 1 || !e.straight {
		least = e.stage(level, i, j, m, e.sizes[level]-m, true)
	}
	if e.fewer && m > 1 {
		least = min(least, e.best(level, i, j, m-1))
	}
	for k := i; k < j; k++ {
		for q := 1; q < m && (q == 1 || !e.straight); q++ {
			send := func(k, to int) float64 {
				t := 2 * float64(e.p.Layers[k].Costs[0].OutputBytes) / e.bandwidths[level] / e.ratio
				switch e.transfer {
				case "none":
					return 0
				case "code":
					return t / float64(to)
				}
				return t
			}
			v := max(e.best(level, i, k, m-q), send(k, q), e.stage(level, k+1, j, q, e.sizes[level]-m, false))
			if e.transfer == "code" && j < len(e.compute)-1 {
				v = max(v, send(j, q))
			}
			least = min(least, v)
		}
	}
	e.known[key] = least
	return least
}

// drawLayers draws a chain of layers. It returns the total bytes of their parameters and saved activations.
func (e *everyPlan) drawLayers(rng *rand.Rand, n int) (bytes float64) {
	for i := range n {
		f, b, w, out := rng.Float64(), 2*rng.Float64(), rng.Int64N(1e8), rng.Int64N(1e9)
		if rng.IntN(5) == 0 {
			f, b = 0, 0
		}
		e.compute = append(e.compute, f+b)
		e.parameters, e.saved = append(e.parameters, float64(w)), append(e.saved, float64(out/2))
		bytes += float64(w) + float64(out/2)
		e.p.Layers = append(e.p.Layers, profile.Layer{Name: fmt.Sprint("layer", i), Kind: "linear",
			From: []int{i - 1}, TiedTo: -1, ParameterBytes: w,
			Costs: []profile.Cost{{Device: "gpu", MicroBatch: 4, ForwardS: f, BackwardS: b, OutputBytes: out,
				SavedBytes: out / 2}}})
	}
	return bytes
}

// TestEverySetting checks that the search is exact under random settings, with and without the coarser searches that
// give it limits. Chains have up to 9 layers and clusters up to three levels.
func TestEverySetting(t *testing.T) {
	defer func(was []int) { coarser = was }(coarser)
	rng := rand.New(rand.NewPCG(17, 4))
	shapes := [][]int{{1}, {4}, {7}, {2, 2}, {3, 2}, {2, 4}, {1, 3}, {3, 1}, {2, 2, 2}, {2, 1, 3}}
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	yes := func(b bool) string { return map[bool]string{true: "on", false: "off"}[b] }
	refused, bounded := 0, 0
	for range 4000 {
		coarser = [][]int{nil, {1}, {2, 3}, {1, 2, 4}}[rng.IntN(4)]
		n, sizes := 1+rng.IntN(9), shapes[rng.IntN(len(shapes))]
		e := &everyPlan{
			sizes: sizes, overlap: pick("max", "sum"), volume: pick("paper", "prose", "code"),
			transfer: pick("paper", "code", "none"), ratio: 0.5 + rng.Float64(),
			division: rng.IntN(2) == 0, fewer: rng.IntN(2) == 0, straight: rng.IntN(4) == 0,
			known: map[[4]int]float64{},
			p:     &profile.Profile{Version: profile.Version, Model: "chain", Source: "measured"},
		}
		network := math.Pow(10, 7.5+3*rng.Float64()) // transfers range from decisive to negligible
		total := e.drawLayers(rng, n)
		c := &cluster.Cluster{Name: "small", DeviceTypes: map[string]cluster.DeviceType{"gpu": {}}}
		devices := 1
		var links []string
		for i, size := range sizes {
			e.bandwidths = append(e.bandwidths, network*(0.1+rng.Float64())/float64(1+i))
			links = append(links, fmt.Sprint(e.bandwidths[i]))
			c.Levels = append(c.Levels, cluster.Level{Size: size, BandwidthBytesPerSecond: e.bandwidths[i]})
			devices *= size
		}
		for range devices {
			c.Devices = append(c.Devices, "gpu")
		}
		set := map[string]string{
			"overlap": e.overlap, "volume": e.volume, "transfer": e.transfer,
			"activation_compression_ratio": fmt.Sprint(e.ratio), "memory": "off",
			"inner_division": yes(e.division), "use_fewer_machines": yes(e.fewer), "straight_pipeline": yes(e.straight),
			"bandwidths": strings.Join(links, ","),
		}
		if rng.IntN(2) == 0 {
			e.memory = math.Floor(1 + total*2*rng.Float64())
			set["memory"] = fmt.Sprintf("%.0f", e.memory)
		}
		r := plan.Request{Profile: e.p, Cluster: c, Batch: 4, Set: set}
		want := e.best(len(sizes)-1, 0, n-1, sizes[len(sizes)-1])
		pl, err := find(t.Context(), r)
		if math.IsInf(want, 1) {
			if refused++; err == nil {
				t.Fatalf("%d layers on %v, %v: %.12g, and there is no plan", n, sizes, set, pl.Objective.Value)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%d layers on %v, %v: %v, and there is a plan that takes %.12g", n, sizes, set, err, want)
		}
		if math.Abs(pl.Objective.Value-want) > 1e-9*want {
			t.Fatalf("%d layers on %v, coarser %v, %v: %.12g, every plan's least is %.12g", n, sizes, coarser, set,
				pl.Objective.Value, want)
		}
		if n < 4 || e.memory > 0 {
			continue
		}
		set["states"] = fmt.Sprint(1 + rng.IntN(n-1)) // a beam search, whose plan may be worse but not better
		few, err := find(t.Context(), r)
		if err == nil && few.Objective.Value < want*(1-1e-9) {
			t.Fatalf("%d layers on %v, %v: the beam's %.12g is below the least %.12g", n, sizes, set,
				few.Objective.Value, want)
		}
		if err == nil {
			bounded++
			even := 0.0
			for _, s := range e.compute {
				even += s
			}
			if !strings.Contains(strings.Join(few.Why, "\n"),
				fmt.Sprintf("no plan takes less than %.6g s", even/float64(devices))) ||
				even/float64(devices) > want*(1+1e-9) {
				t.Fatalf("%d layers on %v: the least is %.12g, compute shared evenly %.12g, and the plan says %v", n,
					sizes, want, even/float64(devices), few.Why)
			}
		}
	}
	if refused == 0 || bounded == 0 {
		t.Errorf("%d cases without a plan and %d beams tried; there should be some of each", refused, bounded)
	}
}
