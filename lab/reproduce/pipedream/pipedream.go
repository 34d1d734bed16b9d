// Package pipedream registers the experiments of PipeDream's tables and figures.
//
// Input: an experiment's Options. Output: its Table. Errors: the planners' errors.
package pipedream

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

func init() {
	table.Register("pipedream-fig1", "PipeDream Figure 1: share of a step that data parallelism stalls",
		table.Uses{Profiles: true}, pipedreamFigure1)
	table.Register("pipedream-fig15",
		"PipeDream Figure 15, predicted half: VGG-16 on 16 workers, throughput by configuration",
		table.Uses{Profiles: true}, pipedreamFigure15)
}

// stallsWith lists the workloads of Figure 1 with their batches per GPU, from section 5.1.
var stallsWith = []struct {
	name  string
	batch int
}{{"vgg16", 64}, {"resnet50", 128}, {"alexnet", 256}, {"gnmt-8", 64}, {"awd-lm", 80}}

// stalls has the percentage of a step in which data parallelism waits, by workload and preset, and by number of GPUs.
type stalls map[string]map[int]float64

// figure1Servers lists Figure 1's presets, and the number of GPUs in each preset's servers.
var figure1Servers = []struct {
	preset string
	gpus   int
}{{"pipedream-1080ti:4x8", 8}, {"pipedream-a:8x4", 4}, {"pipedream-b:4x8", 8}}

// stallsOf computes Figure 1 with all-reduces that reach the given fraction of the wires' rate. 0 means the whole rate.
func stallsOf(ctx context.Context, o table.Options, part float64) (stalls, error) {
	at := stalls{}
	for _, s := range figure1Servers {
		for _, w := range stallsWith {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			b, err := bench.New(o, w.name, nil, s.preset)
			if err != nil {
				return nil, err
			}
			percent := map[int]float64{}
			for n := 1; n <= 32; n *= 2 {
				step, compute, err := b.Reaching(part).WaitFree(n, w.batch)
				if err != nil {
					return nil, err
				}
				percent[n] = 100 * (1 - compute/step)
			}
			at[w.name+" "+s.preset] = percent
		}
	}
	return at, nil
}

// statement is a statement of section 2.1 on Figure 1.
type statement struct {
	what  string
	holds func(stalls) bool
}

// figure1Says returns the four kinds of takeaways of section 2.1, for every preset or workload.
func figure1Says() (all []statement) {
	for _, server := range figure1Servers {
		all = append(all, statement{server.preset + ": stalls never shrink as GPUs are added", func(at stalls) bool {
			for _, w := range stallsWith {
				for n := 2; n <= 32; n *= 2 {
					if s := at[w.name+" "+server.preset]; s[n] < s[n/2] {
						return false
					}
				}
			}
			return true
		}})
		// If a doubling of the GPUs adds at least 10 points, it must not add more than the doubling from one server to
		// two.
		all = append(all, statement{server.preset + ": they spike at the second server, then level off",
			func(at stalls) bool {
				for _, w := range stallsWith {
					s := at[w.name+" "+server.preset]
					spike := s[2*server.gpus] - s[server.gpus]
					for n := 2; n <= 32; n *= 2 {
						if added := s[n] - s[n/2]; added >= 10 && added > spike {
							return false
						}
					}
				}
				return true
			}})
		all = append(all, statement{server.preset + ": ResNet-50 stalls least at 32 GPUs", func(at stalls) bool {
			for _, w := range stallsWith {
				if at[w.name+" "+server.preset][32] < at["resnet50 "+server.preset][32] {
					return false
				}
			}
			return true
		}})
	}
	for _, w := range stallsWith {
		all = append(all, statement{w.name + " stalls more on V100 than on 1080 Ti, 32 GPUs over 25 Gbit/s",
			func(at stalls) bool {
				return at[w.name+" "+figure1Servers[2].preset][32] >= at[w.name+" "+figure1Servers[0].preset][32]
			}})
	}
	return all
}

// highest returns the largest stall at 32 GPUs, in percent.
func (at stalls) highest() float64 {
	most := 0.0
	for _, percent := range at {
		most = max(most, percent[32])
	}
	return most
}

func pipedreamFigure1(ctx context.Context, o table.Options, t *table.Table) error {
	t.Source = "PipeDream (SOSP'19), Figure 1 and section 2.1: drawn only; the text gives \"as high as 90 %\" at 32 GPUs"
	t.Notes = append(t.Notes, "wait-free back-propagation, each layer's gradient reduced as soon as it is there; "+
		"batches as in Table 1's rows")
	at, err := stallsOf(ctx, o, 0)
	if err != nil {
		return err
	}
	slower, err := stallsOf(ctx, o, .25)
	if err != nil {
		return err
	}
	for _, server := range figure1Servers {
		c := table.Chart{Title: server.preset, X: "GPUs", Y: "% of a step stalled", Log: true}
		for _, w := range stallsWith {
			line := table.Line{Name: w.name}
			var words []string
			for n := 1; n <= 32; n *= 2 {
				percent := at[w.name+" "+server.preset][n]
				words = append(words, fmt.Sprintf("%.0f", percent))
				line.X, line.Y = append(line.X, float64(n)), append(line.Y, percent)
			}
			c.Lines = append(c.Lines, line)
			t.Rows = append(t.Rows, table.Row{What: fmt.Sprintf("%s %s, %% stalled on 1 2 4 8 16 32", server.preset, w.name),
				Paper: "drawn", Ours: strings.Join(words, " "), Difference: "-"})
		}
		t.Charts = append(t.Charts, c)
	}
	const assumption = "all-reduces at 0.25 of the wires' rate"
	t.Number("highest at 32 GPUs, %", 90, at.highest(), "%.0f", "").Ablate(assumption, slower.highest(), "%.0f")
	for _, says := range figure1Says() {
		t.Says(says.what, says.holds(at)).SaysIf(assumption, says.holds(slower))
	}
	return nil
}

// rate is a configuration of Figure 15 with its predicted throughput.
type rate struct {
	name          string
	samplesPerSec float64
}

// figure15 returns the predicted throughputs of VGG-16's configurations on 16 workers, fastest first.
func figure15(ctx context.Context, b *bench.Bench) ([]rate, error) {
	const batch = 64
	step, _, err := b.WaitFree(16, batch)
	if err != nil {
		return nil, err
	}
	all := []rate{{"16 (DP)", 16 * batch / step}}
	for _, replicas := range [][]int{{15, 1}, {14, 2}, {14, 1, 1}, {12, 4}, {8, 8}, {8, 4, 4}, {4, 4, 4, 4},
		{2, 2, 2, 2, 2, 2, 2, 2}, bench.Ones(16)} {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, err := b.BestSplit(replicas, batch)
		if err != nil {
			return nil, err
		}
		name := "straight"
		if slices.Max(replicas) > 1 {
			name = strings.ReplaceAll(strings.Trim(fmt.Sprint(replicas), "[]"), " ", "-")
		}
		all = append(all, rate{name, batch / s.SlowestS})
	}
	slices.SortStableFunc(all, func(a, b rate) int { return cmp.Compare(b.samplesPerSec, a.samplesPerSec) })
	return all, nil
}

func pipedreamFigure15(ctx context.Context, o table.Options, t *table.Table) error {
	t.Source = "PipeDream (SOSP'19), Figure 15: drawn only, without names; the text says that the choice, 15-1, is the " +
		"best of those tested"
	b, err := bench.New(o, "vgg16", nil, "pipedream-a:4x4")
	if err != nil {
		return err
	}
	rates, err := figure15(ctx, b)
	if err != nil {
		return err
	}
	slower, err := figure15(ctx, b.Reaching(.25))
	if err != nil {
		return err
	}
	bars := table.Chart{Title: "Predicted throughput", X: "samples/s", Lines: []table.Line{{Name: "ours"}}}
	for _, r := range rates {
		t.Number(r.name+", samples/s", 0, r.samplesPerSec, "%.0f", "")
		bars.Bars, bars.Lines[0].Y = append(bars.Bars, r.name), append(bars.Lines[0].Y, r.samplesPerSec)
	}
	t.Charts = append(t.Charts, bars)
	t.Word("best configuration", "15-1", rates[0].name, "").
		AblateWord("all-reduces at 0.25 of the wires' rate", slower[0].name)
	return nil
}
