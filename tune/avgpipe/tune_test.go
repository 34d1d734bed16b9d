package avgpipe

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune/predict"
)

// overheads returns eight equal layers. A layer's forward takes 0.2 s plus 0.1 s for each sample. So small
// micro-batches waste time, and large ones make bubbles, as on any device.
func overheads() *profile.Profile {
	p := plantest.Chain(8, 1, 2, 4, 8, 16)
	for i := range p.Layers {
		p.Layers[i].UpdateS = 0.01
		for j := range p.Layers[i].Costs {
			c := &p.Layers[i].Costs[j]
			c.ForwardS = 0.2 + 0.1*float64(c.MicroBatch)
			c.BackwardS = 2 * c.ForwardS
			c.ForwardPeakBytes, c.BackwardPeakBytes = c.SavedBytes, c.SavedBytes
		}
	}
	return p
}

func workload() *Workload {
	return &Workload{
		Profile: overheads(), Cluster: cluster.Local("cpu", 2, 0, 0, 1e-3, 1e3, 1e3), Batch: 16,
		Base: &plan.Plan{
			Replication: "round_robin", Model: "chain",
			Stages: []plan.Stage{{FirstLayer: 0, LastLayer: 3, Devices: []int{0}},
				{FirstLayer: 4, LastLayer: 7, Devices: []int{1}}},
		},
	}
}

// TestTuneDegreesOfSeveralPipelines: two pipelines fill each other's bubbles, and hold twice as many models.
// TestTheSettingOfADepth: the number of forwards in advance that is printed gives the same depths where it is fixed. It
// is the smallest such number. A first stage of eight micro-batches cannot show more than four in advance.
func TestTheSettingOfADepth(t *testing.T) {
	w := &Workload{Base: &plan.Plan{Stages: make([]plan.Stage, 4)}, Batch: 8}
	at, before := Degrees{MicroBatches: 8, Pipelines: 2}, -1
	for x := range 9 {
		p := &Pipelined{Scored: Scored{At: at}, Plan: w.plan(at, x)}
		got, ok := p.Setting()
		again := w.plan(at, got)
		if !ok || got > x || got < before || !slices.EqualFunc(p.Plan.Stages, again.Stages,
			func(a, b plan.Stage) bool { return a.Warmup == b.Warmup }) || p.Advance() > 4 {
			t.Errorf("%d forwards in advance: the setting is %d, %v, the first stage shows %d", x, got, ok, p.Advance())
		}
		before = got
	}
	if got, ok := (&Pipelined{Scored: Scored{At: at}, Plan: w.plan(at, 2)}).Setting(); !ok || got != 2 {
		t.Errorf("2 forwards in advance: the setting is %d, %v", got, ok)
	}
}

func TestTuneDegreesOfSeveralPipelines(t *testing.T) {
	w := workload()
	free, err := Tune(t.Context(), request(w, 3))
	if err != nil {
		t.Fatal(err)
	}
	if len(free.Grid) != 15 || free.Best.At.Pipelines == 1 {
		t.Fatalf("of %d settings the best is %v", len(free.Grid), free.Best.At)
	}
	by := map[Degrees]Cell{}
	for _, c := range free.Grid {
		by[c.At] = c
		if one, ok := by[Degrees{c.At.MicroBatches, 1}]; ok && c.At.Pipelines > 1 {
			if c.Measured.StepS > one.Measured.StepS*(1+1e-9) || c.Measured.Peak() <= one.Measured.Peak() {
				t.Errorf("%s: %v s and %d bytes; one pipeline %v s and %d", c.At, c.Measured.StepS, c.Measured.Peak(),
					one.Measured.StepS, one.Measured.Peak())
			}
		}
	}
	for _, e := range free.Errors {
		if e.Method == ByAdjusted && e.MeanStep > 0.25 || e.Method == BySimulator && e.MeanStep > 0.02 {
			t.Errorf("off what was measured: %+v", e)
		}
	}
	traversal := free.Choices[3]
	if off := free.Choices[0].Measured.StepS/traversal.Measured.StepS - 1; traversal.Method != ByTraversal || off > 0.05 {
		t.Errorf("the simulator's choice is %.1f %% over %s", 100*off, traversal.Method)
	}
	w.LimitBytes = by[Degrees{2, 1}].Measured.Peak()
	held, err := Tune(t.Context(), request(w, 3))
	if err != nil {
		t.Fatal(err)
	}
	if held.Best.Peak() > w.LimitBytes {
		t.Errorf("%v holds %d of %d bytes", held.Best.At, held.Best.Peak(), w.LimitBytes)
	}
}

// TestSimulateElasticPlans: a plan of several pipelines has the same prediction as its setting. A step of the plan is
// an iteration: one batch of each pipeline.
func TestSimulateElasticPlans(t *testing.T) {
	w := workload()
	for _, at := range []Degrees{{4, 1}, {4, 2}, {2, 3}} {
		p, err := w.Predict(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		got, err := predict.Plan(w.Profile, w.Cluster, p.Plan, w.Clip)
		if err != nil {
			t.Fatal(err)
		}
		n := float64(at.Pipelines)
		if !near(got.StepS, n*p.StepS) || !near(got.SamplesPerSecond, float64(w.Batch)/p.StepS) ||
			slices.Max(got.MemoryBytes) != p.Peak() {
			t.Errorf("%s: %v s a step, %v samples/s, %v bytes; as a setting %v s a batch, %d bytes", at, got.StepS,
				got.SamplesPerSecond, got.MemoryBytes, p.StepS, p.Peak())
		}
	}
}

// TestObserveSeveralPipelines: the curve of two pipelines on a worker is for one batch, and never above 1.
func TestObserveSeveralPipelines(t *testing.T) {
	w := workload()
	at := Degrees{4, 2}
	p, err := w.Predict(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	trial, err := w.Simulated()(t.Context(), p, Iterations(at, ProfileBatches), true)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(trial.Timeline.Steps); n != 10 {
		t.Errorf("%d iterations of two batches for %d batches", n, ProfileBatches)
	}
	o, err := Observe(trial.Timeline, Observing{At: at, Skip: 1})
	if err != nil {
		t.Fatal(err)
	}
	for k, d := range o.Devices {
		// A batch has four micro-batches of 4 samples, and each of the four layers takes 3 x 0.6 s for a micro-batch: 4
		// x 4 x 1.8 = 28.8 s. To this are added the updates of the four layers, and half of the reference's update.
		if want := 28.8 + 4*0.01*1.5; !near(d.Utilisation.Length(), want) || d.Utilisation.Mean() != 1 {
			t.Errorf("device %d computes %v s for a batch, want %v", k, d.Utilisation.Length(), want)
		}
		if !near(d.Utilisation.Length()+d.BlockedS+d.BubbleS, o.StepS) &&
			d.Utilisation.Length()+d.BlockedS+d.BubbleS > o.StepS*1.1 {
			t.Errorf("device %d: %v + %v + %v s of a batch of %v", k, d.Utilisation.Length(), d.BlockedS, d.BubbleS, o.StepS)
		}
	}
}

func request(w *Workload, pipelines int) Request {
	return Request{Workload: w, Sizes: w.Profile.Sizes("cpu"), Pipelines: pipelines, Machine: w.Simulated(), Rivals: true}
}

// TestTuneDegreesFindsTheMiddle works out by hand: a stage of four layers takes 3 x 4 x (0.2 + 0.1 b) s for a
// micro-batch of b = 16/M samples. A batch takes M + 1 times that, plus the update. The least is 36.06 s, for M = 2 and
// also for M = 4. The equations are exact at the profiled M = 8, and where devices are full. For other M they are up to
// a quarter too fast or a third too slow.
func TestTuneDegreesFindsTheMiddle(t *testing.T) {
	w := workload()
	var tried []Degrees
	r := request(w, 1)
	machine := r.Machine
	r.Machine = func(ctx context.Context, p *Pipelined, batches int, record bool) (*Trial, error) {
		tried = append(tried, p.At)
		return machine(ctx, p, batches, record)
	}
	r.Progress = &progress.Work{}
	out, err := Tune(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Progress.At(time.Now()); s != (progress.State{}) {
		t.Errorf("behind it %+v is left", s)
	}
	if len(tried) != 6 || tried[0] != (Degrees{8, 1}) {
		t.Errorf("tried %v; want M=8 first, to profile, then the five of the grid", tried)
	}
	by := map[Method]Choice{}
	for _, c := range out.Choices {
		if c.Refused != "" {
			t.Errorf("%s chose nothing: %s", c.Method, c.Refused)
		}
		by[c.Method] = c
	}
	best := by[ByTraversal]
	// Both settings take 36.06 s, and the simulator chooses the one that needs less memory.
	if by[BySimulator].At != (Degrees{4, 1}) || best.At != (Degrees{2, 1}) && best.At != (Degrees{4, 1}) {
		t.Errorf("traversal finds %v, the simulator %v", best.At, by[BySimulator].At)
	}
	if off := by[ByAdjusted].Measured.StepS/best.Measured.StepS - 1; off > 0.05 {
		t.Errorf("the adjusted equations choose %v, %.1f %% over traversal's %v", by[ByAdjusted].At, 100*off, best.At)
	}
	if by[ByMaxNum].At != (Degrees{16, 1}) || by[ByMaxSize].At != (Degrees{1, 1}) || by[ByMaxNum].TuningS != 0 {
		t.Errorf("the guidelines chose %v and %v", by[ByMaxNum], by[ByMaxSize])
	}
	if by[ByTraversal].Tried != 5 || by[ByTraversal].TuningS < 2*by[ByPrinted].TuningS {
		t.Errorf("traversal took %v s, profiling %v s", by[ByTraversal].TuningS, by[ByPrinted].TuningS)
	}
	for _, e := range out.Errors {
		switch {
		case e.Settings != 5:
			t.Errorf("%s: errors over %d settings of 5", e.Method, e.Settings)
		// In a trial of several batches, a worker may hold one message less than in the prediction.
		case e.Method == BySimulator && (e.WorstStep > 1e-9 || e.WorstMemory > 0.01):
			t.Errorf("the simulator is off the simulator: %+v", e)
		case e.Method == ByAdjusted && e.MeanStep > 0.15:
			t.Errorf("equations on constant times: %+v", e)
		}
	}
}

func TestTuneDegreesKeepsToTheLimit(t *testing.T) {
	w := workload()
	free, err := Tune(t.Context(), request(w, 1))
	if err != nil {
		t.Fatal(err)
	}
	least, most := free.Grid[0].Measured.Peak(), int64(0)
	for _, c := range free.Grid {
		least, most = min(least, c.Measured.Peak()), max(most, c.Measured.Peak())
	}
	w.LimitBytes = (least + most) / 2
	held, err := Tune(t.Context(), request(w, 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range held.Choices {
		if c.Refused == "" && c.Method != ByPrinted && c.Method != ByAdjusted && c.Measured.Peak() > w.LimitBytes {
			t.Errorf("%s chose %s, which holds %d of %d bytes", c.Method, c.At, c.Measured.Peak(), w.LimitBytes)
		}
	}
	w.LimitBytes = least - 1
	refused := request(w, 1)
	refused.Machine = func(context.Context, *Pipelined, int, bool) (*Trial, error) {
		t.Error("something was run where nothing fits")
		return nil, nil
	}
	_, err = Tune(t.Context(), refused)
	var over *LimitError
	if !errors.As(err, &over) || over.SmallestBytes < least || over.SmallestBytes > least+least/100 {
		t.Fatalf("got %v, want %d bytes named, or a message more", err, least)
	}
	w.LimitBytes = over.SmallestBytes
	if _, err := Tune(t.Context(), request(w, 1)); err != nil {
		t.Errorf("under the limit that the refusal names: %v", err)
	}
}

func TestTuneDegreesRefuses(t *testing.T) {
	for want, spoil := range map[string]func(*Request){
		"0 pipelines":             func(r *Request) { r.Pipelines = 0 },
		"none of the micro-batch": func(r *Request) { r.Sizes = []int{5} },
		"does not divide into 3":  func(r *Request) { r.ProfileAt = Degrees{3, 1} },
		"profiling M=8 N=1: no power": func(r *Request) {
			r.Machine = func(context.Context, *Pipelined, int, bool) (*Trial, error) { return nil, errors.New("no power") }
		},
	} {
		r := request(workload(), 1)
		spoil(&r)
		if _, err := Tune(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}
