package bapipe

import (
	"context"
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/board"
)

func bapipeTable5(_ context.Context, _ table.Options, t *table.Table) error {
	type row struct {
		Board   string  `yaml:"board"`
		Cluster string  `yaml:"cluster"`
		Slices  float64 `yaml:"dsp_slices"`
		OnChip  float64 `yaml:"on_chip_mb"`
		GTY     float64 `yaml:"gty"`
		GTM     float64 `yaml:"gtm"`
		DDR     float64 `yaml:"ddr_gb_per_s"`
	}
	rows, err := table.Rows[row](files, "table5", t)
	if err != nil {
		return err
	}
	for _, r := range rows {
		c, err := cluster.Preset(r.Cluster)
		if err != nil {
			return err
		}
		d, ok := c.DeviceTypes[r.Board]
		if !ok || d.FPGA == nil {
			return fmt.Errorf("preset %s has no board %s", r.Cluster, r.Board)
		}
		lanes := map[string]float64{}
		for _, l := range d.FPGA.Transceivers {
			lanes[l.Name] += float64(l.Lanes)
		}
		for _, x := range []struct {
			what        string
			paper, ours float64
		}{
			{"DSP slices", r.Slices, float64(d.FPGA.DSPSlices)},
			{"on-chip RAM, Mb of 2^20 bits", r.OnChip, float64(d.FPGA.OnChipBytes) * 8 / (1 << 20)},
			{"GTY lanes", r.GTY, lanes["gty"]}, {"GTM lanes", r.GTM, lanes["gtm"]},
			{"DDR4, GB/s", r.DDR, d.MemoryBandwidthBytesPerSecond / 1e9},
		} {
			if x.paper == 0 { // Number takes 0 to mean that the paper does not print the value
				t.Word(r.Board+", "+x.what, "0", fmt.Sprintf("%g", x.ours), "")
				continue
			}
			t.Number(r.Board+", "+x.what, x.paper, x.ours, "%.6g", "")
		}
	}
	return nil
}

// assumed holds what is assumed about Table VI's simulator where the paper says nothing.
type assumed struct {
	// samples is the number of samples in data parallelism's micro-batch on a board.
	samples int
	// paired means that a board under data parallelism computes a forward and a backward at the same time, as FPDeep's
	// boards do.
	paired bool
	// even gives each board the same number of samples, whatever its speed.
	even bool
	// freely means that all-reduces take no time.
	freely bool
	// inMemory keeps the pipeline's weights in a board's memory, not on its chip. Data parallelism always keeps them in
	// memory.
	inMemory bool
	board    board.Settings
	roofline bool
	clock    float64 // factor on the clock rate of the preset's boards
	schedule string  // the pipeline's schedule; "" means the planner's best
}

// asPrinted has the paper's own assumptions: micro-batches of 1, and FPDeep's accelerator also under data parallelism.
var asPrinted = assumed{samples: 1, paired: true, clock: 1}

// switched lists changes of asPrinted. Each changes one assumption.
var switched = []struct {
	what string
	to   func(*assumed)
}{
	{"data parallelism in micro-batches of 2", func(a *assumed) { a.samples = 2 }},
	{"data parallelism in micro-batches of 32", func(a *assumed) { a.samples = 32 }},
	{"data parallelism computes forward and backward in turn", func(a *assumed) { a.paired = false }},
	{"data parallelism gives all boards as many samples", func(a *assumed) { a.even = true }},
	{"all-reduces cost nothing", func(a *assumed) { a.freely = true }},
	{"the pipeline's weights are in memory too", func(a *assumed) { a.inMemory = true }},
	{"features wait in memory, not on the chip", func(a *assumed) { a.board.Features = board.Memory }},
	{"engines go through the kernel: fewer lanes", func(a *assumed) { a.board.Lanes = board.Channels }},
	{"micro-batches of 1 fill all slices", func(a *assumed) { a.board.Lanes = board.All }},
	{"a roofline: each layer by itself, through memory", func(a *assumed) { a.roofline = true }},
	{"a clock of 200 MHz, not 300", func(a *assumed) { a.clock = 2. / 3 }},
	{"a clock of 400 MHz, not 300", func(a *assumed) { a.clock = 4. / 3 }},
}

const (
	boardsBatch   = 128 // BaPipe's mini-batch, §4.3
	boardsSamples = 1
)

func bapipeTable6(ctx context.Context, o table.Options, t *table.Table) error {
	type row struct {
		Cluster string  `yaml:"cluster"`
		Speedup float64 `yaml:"speedup"`
	}
	rows, err := table.Rows[row](files, "table6", t)
	if err != nil {
		return err
	}
	t.Notes = append(t.Notes,
		"fp16 (section 4.3): numbers have two bytes; both compute on FPDeep's accelerator (section 3.1, package "+
			"profile/board) with micro-batches of 1",
		"data parallelism: weights in memory, boards have samples by their speed, an all-reduce over the chain behind them",
		"BaPipe: 128 micro-batches, weights on the chip as far as they fit, one chain, the schedule and the partition "+
			"that its planner chooses, by its own formula")
	for _, r := range rows {
		speedup := func(a assumed) (value float64, schedule string, err error) {
			if err := ctx.Err(); err != nil {
				return 0, "", err
			}
			dp, err := boardsInParallel(r.Cluster, a)
			if err != nil {
				return 0, "", err
			}
			took, schedule, err := boardsInChain(ctx, o, r.Cluster, a)
			return dp / took, schedule, err
		}
		ours, schedule, err := speedup(asPrinted)
		if err != nil {
			return err
		}
		row := t.Number(r.Cluster, r.Speedup, ours, "%.2f", "").Ratio().In("boards")
		for _, s := range switched {
			a := asPrinted
			s.to(&a)
			value, _, err := speedup(a)
			if err != nil {
				return err
			}
			row.Ablate(s.what, value, "%.2f")
		}
		t.Word(r.Cluster+", schedule", "fbp-as", schedule, "")
		if err := schedulesApart(ctx, o, t, r.Cluster); err != nil {
			return err
		}
	}
	return nil
}

// schedulesApart adds a row with the speed of FBP-AS divided by the speed of 1F1B-AS. To this row it adds the same
// ratio under the assumption that micro-batches of 1 fill all slices.
func schedulesApart(ctx context.Context, o table.Options, t *table.Table, preset string) error {
	apart := func(a assumed) (float64, error) {
		a.schedule = "1F1B-AS"
		alone, _, err := boardsInChain(ctx, o, preset, a)
		if err != nil {
			return 0, err
		}
		a.schedule = "FBP-AS"
		together, _, err := boardsInChain(ctx, o, preset, a)
		return alone / together, err
	}
	ours, err := apart(asPrinted)
	if err != nil {
		return err
	}
	row := t.Number(preset+", FBP-AS over 1F1B-AS", 0, ours, "%.3f", "")
	a := asPrinted
	a.board.Lanes = board.All
	if ours, err = apart(a); err != nil {
		return err
	}
	row.Ablate("micro-batches of 1 fill all slices", ours, "%.3f")
	return nil
}

// onBoards returns ResNet-50 on boards under the assumptions. The boards compute with two-byte numbers.
func onBoards(preset string, a assumed) (*bench.Bench, error) {
	b, err := bench.New(table.Options{}, "resnet50", nil, preset)
	if err != nil {
		return nil, err
	}
	for name, d := range b.C.DeviceTypes { // profiles count four bytes for a number, so memory and bandwidth are doubled
		of := *d.FPGA
		of.OnChipBytes *= 2
		of.ClockHz *= a.clock
		d.MemoryBandwidthBytesPerSecond *= 2
		d.FPGA, d.PeakFLOPS = &of, of.PeakFLOPS()
		b.C.DeviceTypes[name] = d
	}
	for i := range b.C.Levels {
		b.C.Levels[i].BandwidthBytesPerSecond *= 2
	}
	b.A.Board, b.A.Roofline = a.board, a.roofline
	return b, nil
}

// boardsInChain returns how many seconds a mini-batch takes under BaPipe's plan. It also returns the plan's schedule.
func boardsInChain(ctx context.Context, o table.Options, preset string, a assumed) (float64, string, error) {
	b, err := onBoards(preset, a)
	if err != nil {
		return 0, "", err
	}
	b.A.OnChip = !a.inMemory
	if a.schedule != "" {
		o = o.With("schedule", a.schedule)
	}
	pl, _, err := explored(ctx, b, o, boardsBatch, boardsSamples, "off")
	if err != nil {
		return 0, "", err
	}
	return pl.Objective.Value, pl.Schedule, nil
}

// boardsInParallel returns how many seconds a mini-batch takes under data parallelism.
func boardsInParallel(preset string, a assumed) (float64, error) {
	b, err := onBoards(preset, a)
	if err != nil {
		return 0, err
	}
	p, err := b.Profile(a.samples)
	if err != nil {
		return 0, err
	}
	rate, slowest := 0.0, 0.0 // samples per second of all boards together; seconds per sample of the slowest board
	for _, d := range b.C.Devices {
		each, err := sampleS(p, b.C.DeviceTypes[d], d, a)
		if err != nil {
			return 0, err
		}
		rate, slowest = rate+1/each, max(slowest, each)
	}
	took := boardsBatch / rate
	if a.even {
		took = boardsBatch / float64(len(b.C.Devices)) * slowest
	}
	if a.freely {
		return took, nil
	}
	return took + b.C.AllReduceS(bench.Firsts(len(b.C.Devices)), bench.ParameterBytes(p)), nil
}

// sampleS returns how many seconds a board takes to run one sample through the whole model.
func sampleS(p *profile.Profile, d cluster.DeviceType, name string, a assumed) (float64, error) {
	costs, _, err := p.At(name, a.samples)
	if err != nil {
		return 0, err
	}
	var all board.Sum
	for l := range costs {
		all = all.Plus(p.OnBoard(costs, l), 1)
	}
	forward, backward, paired := all.Times(d)
	if a.paired {
		return paired / float64(a.samples), nil
	}
	return (forward + backward) / float64(a.samples), nil
}
