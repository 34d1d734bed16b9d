package bapipe

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/split"
	"github.com/millrace-ml/millrace/profile"
)

// giant holds what is assumed about the training of Table IV's models where the paper says nothing.
type giant struct {
	positions int  // positions of a sentence
	samples   int  // samples of a pipeline's micro-batch
	even      bool // stages compute equally long; otherwise they need equal memory
	// rest sets a GPU's memory to one byte less than data parallelism needs for 34 layers by our count, so that 32
	// layers fit. The framework is assumed to use the rest of the 16 GB.
	rest bool
}

var plain = giant{positions: 50, samples: 16}

var otherGiants = []struct {
	what string
	to   func(*giant)
}{
	{"stages compute as long as each other, whatever they hold", func(g *giant) { g.even = true }},
	{"a GPU holds what data parallelism's 32 layers hold, the framework the rest", func(g *giant) { g.rest = true }},
	{"both", func(g *giant) { g.even, g.rest = true, true }},
	{"micro-batches of 32", func(g *giant) { g.samples = 32 }},
	{"both, and micro-batches of 32", func(g *giant) { g.even, g.rest, g.samples = true, true, 32 }},
	{"sentences of 100 positions", func(g *giant) { g.positions = 100 }},
}

// paperLayers is the paper's number of layers under data parallelism.
const paperLayers = 32

func bapipeTable4(ctx context.Context, _ table.Options, t *table.Table) error {
	var paper struct {
		Source  string `yaml:"source"`
		Devices []int  `yaml:"devices"`
		DP      []int  `yaml:"dp"`
		GPipe   []int  `yaml:"gpipe"`
		BaPipe  []int  `yaml:"bapipe"`
		Models  []struct {
			Layers     int     `yaml:"layers"`
			Parameters float64 `yaml:"parameters"`
		} `yaml:"models"`
	}
	if err := table.Read(files, "table4", &paper); err != nil {
		return err
	}
	t.Source = paper.Source
	t.Notes = append(t.Notes, "batch 32 a GPU, M = 2 N, so micro-batches of 16; Adam, sentences of 50 positions, no "+
		"recompute; stages whose fullest is emptiest; PipeDream's row is data parallelism's in the paper")
	f := fitting{ctx: ctx, known: map[giantSize]*profile.Profile{}, benches: map[giantSize]*bench.Bench{}}
	for _, m := range paper.Models {
		p, err := f.profile(plain, m.Layers, plain.samples)
		if err != nil {
			return err
		}
		t.Number(fmt.Sprintf("parameters of %d layers, millions", m.Layers), m.Parameters,
			float64(bench.ParameterBytes(p))/4e6, "%.0f", "")
	}
	var all []giant
	for _, o := range otherGiants {
		g := plain
		o.to(&g)
		all = append(all, g)
	}
	all = append(all, plain)
	most := make([]map[string][]int, len(all)) // numbers of layers, by system and number of GPUs
	for i, g := range all {
		var err error
		if most[i], err = f.most(g, paper.Devices); err != nil {
			return err
		}
	}
	ours := most[len(all)-1]
	for i, n := range paper.Devices {
		for _, s := range []struct {
			name  string
			paper []int
		}{{"DP", paper.DP}, {"GPipe", paper.GPipe}, {"BaPipe", paper.BaPipe}} {
			row := t.Number(fmt.Sprintf("%s on %d V100, layers", s.name, n), float64(s.paper[i]),
				float64(ours[s.name][i]), "%.0f", "").In("layers")
			for k, o := range otherGiants {
				row.Ablate(o.what, float64(most[k][s.name][i]), "%.0f")
			}
		}
	}
	return nil
}

// fitting finds how many layers fit, and keeps profiles and benches for reuse.
type fitting struct {
	ctx     context.Context
	known   map[giantSize]*profile.Profile
	benches map[giantSize]*bench.Bench // benches for any micro-batch size
}

type giantSize struct {
	layers, positions, samples int
}

// profile returns a profile of GNMT with this many layers, at one micro-batch size.
func (f *fitting) profile(g giant, layers, samples int) (*profile.Profile, error) {
	size := giantSize{layers, g.positions, samples}
	if p := f.known[size]; p != nil {
		return p, nil
	}
	b, err := f.bench(g, layers)
	if err != nil {
		return nil, err
	}
	p, err := b.Profile(samples)
	f.known[size] = p
	return p, err
}

// bench returns a bench of GNMT with this many layers, trained with Adam.
func (f *fitting) bench(g giant, layers int) (*bench.Bench, error) {
	size := giantSize{layers, g.positions, 0}
	if b := f.benches[size]; b != nil {
		return b, nil
	}
	b, err := bench.New(table.Options{}, "gnmt", map[string]any{"layers": layers, "context": g.positions},
		"bapipe-8xv100")
	if err == nil {
		b.A.Optimizer, b.A.States = "adam", 2
		f.benches[size] = b
	}
	return b, err
}

// most returns, for each system, the largest number of layers that fits for each number of GPUs.
func (f *fitting) most(g giant, devices []int) (map[string][]int, error) {
	room := int64(0)
	if g.rest {
		over, err := f.needs(g, paperLayers+2)
		if err != nil {
			return nil, err
		}
		room = over - 1
	}
	alone := 0
	out := map[string][]int{}
	for _, n := range devices {
		for _, s := range []struct{ name, order string }{{"GPipe", "afab"}, {"BaPipe", "1f1b"}} {
			layers, err := bench.Largest(f.ctx, 2, func(layers int) (bool, error) {
				return f.fits(g, s.order, n, layers, room)
			})
			if err != nil {
				return nil, err
			}
			out[s.name] = append(out[s.name], layers)
			if n == 1 {
				alone = layers
			}
		}
		out["DP"] = append(out["DP"], alone)
	}
	return out, nil
}

// needs returns the bytes that one GPU needs for the whole model and a batch of 32.
func (f *fitting) needs(g giant, layers int) (int64, error) {
	b, p, err := f.within(g, layers, 32, 1)
	if err != nil {
		return 0, err
	}
	_, err = split.Pipeline(p, b.C, split.Limits{Stages: 1, MicroBatch: 32, MicroBatches: 1, Depths: []int{1}})
	var memory *plan.MemoryError
	if errors.As(err, &memory) {
		return memory.SmallestBytes, nil
	}
	return 0, fmt.Errorf("%d layers fit into a byte: %w", layers, err)
}

// within returns a bench whose GPUs have `room` bytes of memory (0 means as described), and its profile.
func (f *fitting) within(g giant, layers, samples int, room int64) (*bench.Bench, *profile.Profile, error) {
	p, err := f.profile(g, layers, samples)
	if err != nil {
		return nil, nil, err
	}
	known, err := f.bench(g, layers)
	if err != nil {
		return nil, nil, err
	}
	b, c := *known, *known.C
	b.C, b.Given = &c, p
	c.DeviceTypes = maps.Clone(c.DeviceTypes)
	for name, d := range c.DeviceTypes {
		if room > 0 {
			d.MemoryBytes = room
		}
		c.DeviceTypes[name] = d
	}
	return &b, p, nil
}

// fits says whether a model with this many layers fits on n GPUs. One GPU gets a batch of 32; several get 2 n
// micro-batches.
func (f *fitting) fits(g giant, order string, n, layers int, room int64) (bool, error) {
	samples, microBatches := g.samples, 2*n
	if n == 1 {
		samples, microBatches = 32, 1
	}
	b, _, err := f.within(g, layers, samples, room)
	if err != nil {
		return false, err
	}
	if !g.even || n == 1 {
		return b.Fits(order, n, samples, microBatches, false)
	}
	pl, err := b.Straight(n, samples, microBatches)
	if err != nil {
		return false, err
	}
	if err := bench.As(pl, order); err != nil {
		return false, err
	}
	sum, err := b.Run(pl)
	if err != nil {
		return false, err
	}
	for d, peak := range sum.PeakBytes {
		if peak > b.C.MemoryBytes(d) {
			return false, nil
		}
	}
	return true, nil
}
