package tune

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
)

// planned returns a search request for a built-in model on a preset. Costs come from the peaks of the devices.
func planned(t *testing.T, name string, set map[string]any, on string, batch int) Request {
	t.Helper()
	m, err := model.Build(name, set)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Preset(on)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Analytic(m, c.DeviceTypes, []int{1, 2, 4, 8}, "sgd", 0)
	if err != nil {
		t.Fatal(err)
	}
	return Request{Profile: p, Cluster: c, Batch: batch}
}

// TestFixedSettingsAreNoSlowerThanARival: a search that fixes a schedule, a number of stages, micro-batches, or several
// of these, finds a plan at least as fast as any rival of a free search that has these settings.
func TestFixedSettingsAreNoSlowerThanARival(t *testing.T) {
	t.Parallel()
	for _, r := range []Request{
		planned(t, "gpt", map[string]any{"layers": 3}, "dapple-a:1x2", 16),
		planned(t, "convnet", nil, "dapple-c:2", 16),
		planned(t, "lstm", nil, "dapple-b:4", 8),
	} {
		found, err := Search(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		done := map[string]bool{}
		for _, rival := range found.Rivals[:min(5, len(found.Rivals))] {
			pl := rival.Plan
			if pl == nil || !schedule.Policy(pl.Weights).Synchronous() {
				continue
			}
			for _, fix := range []Overrides{
				{Schedule: pl.Schedule},
				{Schedule: pl.Schedule, Stages: len(pl.Stages), MicroBatches: pl.MicroBatches, MicroBatch: pl.MicroBatch},
				{Stages: len(pl.Stages)},
				{MicroBatches: pl.MicroBatches, MicroBatch: pl.MicroBatch},
			} {
				if name := fmt.Sprint(fix); done[name] || fix.Schedule == "" && fix.Stages > len(r.Cluster.Devices) {
					continue // without the schedule, there may not be more stages than devices
				} else {
					done[name] = true
				}
				fixed := r
				fixed.Fix = fix
				own, err := Search(t.Context(), fixed)
				if err != nil {
					t.Fatal(err)
				}
				if fix.Schedule != "" && own.Best.Schedule != fix.Schedule {
					t.Errorf("%s: asked for %+v, got %s", r.Profile.Model, fix, own.Best.Schedule)
				}
				if a, b := own.Best.Predicted.StepS, rival.Predicted.StepS; a > b*(1+tie) {
					t.Errorf("%s: %s takes %v s with %+v, and %v s as a rival", r.Profile.Model, pl.Layout(), a, fix, b)
				}
			}
		}
	}
}

// TestAdviceIsOfWhatBinds: an Explanation advises twice the memory only if memory is the limit. Explaining never makes
// the best plan slower. If a what-if search finds a faster plan that this hardware can run too, that plan becomes the
// best.
func TestAdviceIsOfWhatBinds(t *testing.T) {
	t.Parallel()
	r := planned(t, "gpt", map[string]any{"layers": 3}, "dapple-a:1x2", 16)
	advised := func(e *Explanation) bool {
		return slices.ContainsFunc(e.Levers, func(l Lever) bool { return strings.Contains(l.Change, "memory") })
	}
	wide, err := Search(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	before := wide.Best.Predicted.StepS
	e, err := wide.Explain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if advised(e) {
		t.Errorf("memory of 16 GiB holds nothing back, and the advice is %+v", e.Levers)
	}
	if after := wide.Best.Predicted.StepS; after > before {
		t.Errorf("explaining made the plan slower: %v s, then %v s", before, after)
	}
	fullest, held := slices.Max(wide.Best.Predicted.Needs()), 0
	for _, tenths := range []int64{2, 3, 5} {
		r.Cluster = r.Cluster.WithMemory(func(int64) int64 { return fullest * tenths / 10 })
		tight, err := Search(t.Context(), r)
		var memory *MemoryError
		if errors.As(err, &memory) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, err = tight.Explain(t.Context()); err != nil {
			t.Fatal(err)
		}
		slower := tight.Best.Predicted.StepS/wide.Best.Predicted.StepS - 1
		if slower > 0.1 { // a faster plan needs more than this memory, and such a plan usually fits into twice this memory
			if held++; !advised(e) {
				t.Errorf("in %d/10 of the memory it is %.1f %% slower, and the advice is %+v", tenths, 100*slower, e.Levers)
			}
		}
		t.Logf("in %d/10 of the memory %.1f %% slower: %+v", tenths, 100*slower, e.Levers)
		for _, l := range e.Levers {
			if l.Gain < worthAdvising {
				t.Errorf("%+v is no advice", l)
			}
		}
	}
	if held == 0 {
		t.Error("no limit held the search back")
	}
}

// TestAdviceKeepsToADeadline: searches for better hardware share the time equally and stop at a deadline. So the
// explanation of a search with a time limit stays within the limit. It names the changes whose searches are left out.
// Everything else is always explained.
func TestAdviceKeepsToADeadline(t *testing.T) {
	t.Parallel()
	r := planned(t, "gpt", map[string]any{"layers": 3}, "dapple-a:1x2", 16)
	var asked []string
	r.Asked = func(change string) { asked = append(asked, change) }
	found, err := Search(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	e, err := found.Explain(over)
	if err != nil || asked != nil || e.Levers != nil || e.Bottleneck == "" || len(e.Memory) == 0 {
		t.Errorf("behind the deadline it asked %q and explained %+v (%v)", asked, e, err)
	}
	left, why := e.LeversLeft, e.LeversLeftWhy
	if e, err = found.Explain(t.Context()); err != nil || len(asked) < 3 || e.LeversLeft != nil {
		t.Errorf("with time it asked %q and left out %q (%v)", asked, e.LeversLeft, err)
	}
	if !slices.Equal(left, asked[:len(left)]) || len(left) < 3 || !strings.Contains(why, "time") {
		t.Errorf("behind the deadline it left out %q because %s; with time it asked %q", left, why, asked)
	}
}

// TestAdviceTakesNoLongerThanASearch: without a deadline, all searches for better hardware together may take as long as
// one search, and so may all searches for a model that fits nowhere. If a search may take no time, none of these
// begins.
func TestAdviceTakesNoLongerThanASearch(t *testing.T) {
	t.Parallel()
	r := planned(t, "gpt", map[string]any{"layers": 3}, "dapple-a:1x2", 16)
	r.Longest = time.Nanosecond
	var asked []string
	r.Asked = func(change string) { asked = append(asked, change) }
	found, err := Search(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	e, err := found.Explain(t.Context())
	if err != nil || asked != nil || len(e.LeversLeft) != len(betterHardware(r.Cluster, true)) {
		t.Errorf("it asked %q and left out %q (%v)", asked, e.LeversLeft, err)
	}
	if got := Remedies(t.Context(), r, &MemoryError{Plan: "a plan"}); len(got) != 1 {
		t.Errorf("remedies %q; only the first needs no search", got)
	}
}

// ending is a context whose deadline passes when `done` is closed.
type ending struct {
	context.Context
	done chan struct{}
}

func (e ending) Done() <-chan struct{} { return e.done }

func (e ending) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestAdviceKeepsWhatWasFound: if a search for better hardware finds a faster plan for this hardware, that plan is
// explained anew. If no time is left by then, the advice still has what the searches found. Here a slower plan is
// explained first, and the time ends during the last search.
func TestAdviceKeepsWhatWasFound(t *testing.T) {
	t.Parallel()
	r := planned(t, "gpt", map[string]any{"layers": 3}, "dapple-a:1x2", 16)
	better := betterHardware(r.Cluster, true)
	ctx := ending{t.Context(), make(chan struct{})}
	var asked []string
	r.Asked = func(change string) {
		if asked = append(asked, change); len(asked) == len(better) {
			close(ctx.done)
		}
	}
	found, err := Search(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	fastest := found.Best
	for _, rival := range found.Rivals {
		if rival.Plan != nil && rival.Plan != fastest && schedule.Policy(rival.Plan.Weights).Synchronous() {
			found.Best = rival.Plan
		}
	}
	if found.Best == fastest {
		t.Fatal("there is no rival")
	}
	e, err := found.Explain(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if found.Best.Predicted.StepS > fastest.Predicted.StepS || len(asked) != len(better) {
		t.Fatalf("a plan of %g s is explained after the searches %q; one of %g s is known", found.Best.Predicted.StepS,
			asked, fastest.Predicted.StepS)
	}
	if e.LeversLeft != nil {
		t.Errorf("the advice is %+v without %q, which searches were made for", e.Levers, e.LeversLeft)
	}
	// After the deadline, a change is still advised if an earlier search found its step time. The other changes are
	// left out.
	step, more := found.Best.Predicted.StepS/2, better[len(better)-1].change
	e, err = explain(ctx, found.search.Request, found.Best, found.search, map[string]float64{more: step})
	if err != nil || !slices.Equal(e.Levers, []Lever{{more, step, 1}}) || len(e.LeversLeft) != len(better)-1 ||
		slices.Contains(e.LeversLeft, more) {
		t.Errorf("known is that %s give %g s; the advice is %+v without %q (%v)", more, step, e.Levers, e.LeversLeft, err)
	}
}

// TestAdviceNamesWhatIsTooLargeToTry: no better hardware is tried for a plan whose prediction takes long.
func TestAdviceNamesWhatIsTooLargeToTry(t *testing.T) {
	r := planned(t, "gpt", nil, "dapple-a:1x2", 16)
	var e Explanation
	e.levers(t.Context(), r, &plan.Plan{MicroBatches: 1 << 30, Stages: make([]plan.Stage, 2)}, nil, nil)
	if want := []string{"twice the bandwidth of level server"}; !slices.Equal(e.LeversLeft, want) ||
		!strings.Contains(e.LeversLeftWhy, "predicting") {
		t.Errorf("left out %q because %s; the one level with two devices must be named", e.LeversLeft, e.LeversLeftWhy)
	}
}

// TestSlicesTakeTheirSharesOfALink: two replicas on the two sides of a cut may compute different slices of a
// micro-batch. They send each other only the rows that are in both slices. The shared links of the cut carry these rows
// for every such pair.
func TestSlicesTakeTheirSharesOfALink(t *testing.T) {
	c, err := cluster.Preset("dapple-a:4x6")
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Levels {
		c.Levels[i].Shared = true
	}
	s, err := newSearch(Request{Profile: imported(2, 8), Cluster: c, Batch: 64})
	if err != nil {
		t.Fatal(err)
	}
	s.estimator.m = 8
	h := &shape{cuts: []int{0, 1, 2}, size: 8, split: true, order: s.orders[0]}
	for senders := 1; senders < 24; senders++ {
		for receivers := 1; senders+receivers <= 24; receivers++ {
			h.counts = []int{senders, receivers}
			taken, busiest := map[[2]int]float64{}, 0.0
			for row := range senders * receivers { // rows so fine that each slice is a whole number of them
				from, to := h.order[row/receivers], h.order[senders+row/senders]
				for _, ends := range [][2]int{{from, to}, {to, from}} {
					part := 8 * 1024 / float64(senders*receivers) // bytes of one row, summed over 8 micro-batches of 1 KiB
					for _, link := range c.Links(ends[0], ends[1]) {
						taken[link] += part * c.ByteS(ends[0], ends[1])
						busiest = max(busiest, taken[link])
					}
				}
			}
			if got := s.estimator.shared(h, h.devices()); math.Abs(got-busiest) > 1e-9*busiest || busiest == 0 {
				t.Errorf("%d to %d replicas: %v s, want %v s", senders, receivers, got, busiest)
			}
		}
	}
}

// TestStagesOfMoreReplicasThanInstructionsName: an instruction can name at most 1023 replicas of a stage. A search on
// more devices cuts no stages with more replicas, and so finds a plan.
func TestStagesOfMoreReplicasThanInstructionsName(t *testing.T) {
	r := planned(t, "gpt", nil, "dapple-a:64x64", 4)
	r.Longest = time.Nanosecond
	if _, err := Search(t.Context(), r); err != nil {
		t.Error(err)
	}
	s, err := newSearch(r)
	if err != nil {
		t.Fatal(err)
	}
	widest := 0
	for _, w := range s.cut.wants(s.orders[0], 4, plan.KeepAll) {
		widest = max(widest, slices.Max(w.replicas))
	}
	if widest != 512 { // 4096 devices have 8 stages of 512 replicas; 2 or 4 stages would have 2048 or 1024 replicas each
		t.Errorf("stages with %d replicas", widest)
	}
}
