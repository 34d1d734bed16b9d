package avgpipe

import (
	"context"
	"fmt"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

func init() {
	table.Register("avgpipe-fig17", "AvgPipe Figure 17: time, idle time and memory under 1F1B, advance and AFAB",
		table.Uses{}, figure17)
}

// scheduled is a training with section 7.2's statements on its schedules. A number that the paper does not print is 0.
type scheduled struct {
	Training      training `yaml:",inline"`
	MicroBatches  int      `yaml:"micro_batches"` // micro-batches of the baselines
	At            []int    `yaml:"at"`            // numbers of micro-batches and of pipelines, under all schedules
	AFABFaster    float64  `yaml:"afab_faster"`
	AFABMemory    float64  `yaml:"afab_memory"`
	AdvanceFaster float64  `yaml:"advance_faster"`
	AdvanceMemory float64  `yaml:"advance_memory"`
	AdvanceOfAFAB float64  `yaml:"advance_of_afab"` // advance's speed divided by AFAB's
	KeptFirst     float64  `yaml:"kept_first"`      // advance's memory divided by AFAB's, on the first GPU
	KeptLast      float64  `yaml:"kept_last"`       // advance's memory divided by AFAB's, on the last GPU
}

// schedules holds one setting under three schedules: `one` is under 1F1B, `advance` under advance, and `all` under
// AFAB.
type schedules struct{ one, advance, all *avgpipe.Pipelined }

func (w scheduled) in(ctx context.Context, x world) (s schedules, err error) {
	load, _, err := x.load(ctx, w.Training, w.MicroBatches)
	if err != nil {
		return s, err
	}
	s.one, s.advance, s.all, err = load.Schedules(ctx, avgpipe.Degrees{MicroBatches: w.At[0], Pipelines: w.At[1]})
	return s, err
}

func figure17(ctx context.Context, _ table.Options, t *table.Table) error {
	trainings, err := ofTrainings[scheduled](t, "fig17")
	if err != nil {
		return err
	}
	all := table.Combine(world{}, switches, 3)
	table.Tries(t, all)
	for _, w := range trainings {
		s, err := w.in(ctx, world{})
		if err != nil {
			return err
		}
		found := make([]schedules, len(all))
		err = atOnce(len(all), func(i int) (err error) {
			found[i], err = w.in(ctx, all[i].Assumed)
			return err
		})
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%s at %s, ", w.Training.Name, s.one.At)
		for _, r := range []struct {
			what    string
			paper   float64
			is      func(schedules) float64
			isSpeed bool
		}{
			{"AFAB over 1F1B, speed", w.AFABFaster, func(s schedules) float64 { return s.one.StepS / s.all.StepS }, true},
			{"advance over 1F1B, speed", w.AdvanceFaster, func(s schedules) float64 { return s.one.StepS / s.advance.StepS },
				true},
			{"advance over AFAB, speed", w.AdvanceOfAFAB, func(s schedules) float64 { return s.all.StepS / s.advance.StepS },
				true},
			{"AFAB over 1F1B, memory", w.AFABMemory, func(s schedules) float64 { return memoryOver(s.all, s.one) }, false},
			{"advance over 1F1B, memory", w.AdvanceMemory, func(s schedules) float64 { return memoryOver(s.advance, s.one) },
				false},
			{"advance over AFAB, memory of the first GPU", w.KeptFirst,
				func(s schedules) float64 { return onGPU(s.advance, s.all, 0) }, false},
			{"advance over AFAB, memory of the last GPU", w.KeptLast,
				func(s schedules) float64 { return onGPU(s.advance, s.all, len(s.all.MemoryBytes)-1) }, false},
		} {
			row := t.Number(name+r.what, r.paper, r.is(s), "%.2fx", "")
			if r.isSpeed {
				row.Ratio().In(w.Training.Name + ", speed")
			} else {
				row.In(w.Training.Name + ", memory")
			}
			if r.paper == 0 {
				continue
			}
			for i, x := range all {
				row.Ablate(x.What, r.is(found[i]), "%.2fx")
			}
		}
		for _, by := range []struct {
			name string
			of   *avgpipe.Pipelined
		}{{"1F1B", s.one}, {fmt.Sprintf("advance (%d more on GPU 1)", s.advance.Advance()), s.advance}, {"AFAB", s.all}} {
			t.Number(name+by.name+", a batch", 0, 1e3*by.of.StepS, "%.0f ms", "")
			for gpu, bytes := range by.of.MemoryBytes {
				t.Number(fmt.Sprintf("%s%s, GPU %d, idle for a batch", name, by.name, gpu+1), 0, 1e3*by.of.IdleS[gpu],
					"%.0f ms", "")
				t.Number(fmt.Sprintf("%s%s, GPU %d, memory", name, by.name, gpu+1), 0, gib(bytes), "%.2f GiB", "")
			}
		}
		if s.one.At.MicroBatches > 1 {
			t.Charts = append(t.Charts, s.byGPU(name+"idle", "ms for a batch",
				func(p *avgpipe.Pipelined, gpu int) float64 { return 1e3 * p.IdleS[gpu] }),
				s.byGPU(name+"memory", "GiB", func(p *avgpipe.Pipelined, gpu int) float64 { return gib(p.MemoryBytes[gpu]) }))
		}
		last := len(s.one.IdleS) - 1
		idle := func(s schedules) string {
			if s.one.IdleS[last] > s.all.IdleS[last]*1.001 {
				return "more than under AFAB"
			}
			return "no more than under AFAB"
		}
		if w.AFABFaster > 1 {
			row := t.Word(name+"the last GPU's idle time under 1F1B", "more than under AFAB", idle(s), "")
			for i, x := range all {
				if other := idle(found[i]); other != row.Ours {
					row.AblateWord(x.What, other)
				}
			}
		}
	}
	t.Notes = append(t.Notes, "memory is that of all GPUs together where no GPU is named; advance is the depth that is "+
		"fastest, as Algorithm 1 looks for it, with no limit but the GPUs' memory. AFAB's is among the depths tried, "+
		"so that advance is never slower here than AFAB; the text's 0.95 and 0.975 are of "+
		"a search that stopped before that, at a memory that it does not give")
	return nil
}

// memoryOver returns a's memory divided by b's, each summed over all devices.
func memoryOver(a, b *avgpipe.Pipelined) float64 {
	return float64(a.Together()) / float64(b.Together())
}

// onGPU returns a's memory divided by b's, on one GPU.
func onGPU(a, b *avgpipe.Pipelined, gpu int) float64 {
	return float64(a.MemoryBytes[gpu]) / float64(b.MemoryBytes[gpu])
}
