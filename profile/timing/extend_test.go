package timing

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
)

// clockedTimer is a simulated machine with its own clock, on which a pass over a sample takes a fixed time. A third of
// this time is the forward. clockedTimer also counts the requests.
type clockedTimer struct {
	evenTimer
	at      time.Time
	sampleS float64
	pace    float64
	sizes   []int // in the order of the visits
	seen    map[int]bool
	updates int
	wires   int
	reduces []int
	stopAt  int // number of visits after which it fails; 0 means never
}

func newClocked(sampleS float64) *clockedTimer {
	return &clockedTimer{at: time.Unix(1e9, 0), sampleS: sampleS, pace: 1, seen: map[int]bool{}}
}

func (c *clockedTimer) now() time.Time { return c.at }

func (c *clockedTimer) passes(n float64, size int) {
	c.at = c.at.Add(time.Duration(n * c.sampleS * c.pace * float64(size) * float64(time.Second)))
}

var errStopped = errors.New("stopped")

func (c *clockedTimer) Crew(context.Context, Request) (Crew, error) {
	c.seen = map[int]bool{}
	return c, nil
}

func (c *clockedTimer) Layers(_ context.Context, r Request) ([]LayerTiming, error) {
	if c.stopAt > 0 && len(c.sizes) == c.stopAt {
		return nil, errStopped
	}
	c.sizes = append(c.sizes, r.MicroBatch)
	if !c.seen[r.MicroBatch] {
		c.passes(3, r.MicroBatch)
	}
	c.seen[r.MicroBatch] = true
	c.passes(2, r.MicroBatch)
	s := c.sampleS * c.pace * float64(r.MicroBatch) / float64(len(r.Model.Layers))
	out := make([]LayerTiming, len(r.Model.Layers))
	for l := range out {
		out[l] = LayerTiming{ForwardS: []float64{s / 3}, BackwardS: []float64{s * 2 / 3}, OutputBytes: int64(r.MicroBatch)}
	}
	return out, nil
}

func (c *clockedTimer) Updates(ctx context.Context, r Request) ([]profile.UpdateTimes, string, int, error) {
	c.updates++
	c.passes(3*float64(r.Warmup+r.Passes), r.MicroBatch)
	return c.evenTimer.Updates(ctx, r)
}

func (c *clockedTimer) Transfer(ctx context.Context) (*profile.Transfer, error) {
	c.wires++
	return c.evenTimer.Transfer(ctx)
}

func (c *clockedTimer) AllReduce(ctx context.Context, workers int, told func(Summing)) (float64, error) {
	c.reduces = append(c.reduces, workers)
	return c.evenTimer.AllReduce(ctx, workers, told)
}

func mlp(t *testing.T) *model.Model {
	t.Helper()
	m, err := model.Build("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// extend extends a Record and returns the sizes that were visited.
func extend(t *testing.T, r *Record, m *model.Model, c *clockedTimer, o Options) []int {
	t.Helper()
	c.sizes, o.now = nil, c.now
	if err := r.Extend(t.Context(), m, c, o); err != nil {
		t.Fatal(err)
	}
	if r.Lacks(o) {
		t.Errorf("something of %+v is missing behind it", o)
	}
	return c.sizes
}

func distinct(sizes []int) []int { return slices.Compact(slices.Sorted(slices.Values(sizes))) }

var powers = []int{1, 2, 4, 8, 16, 32}

// TestWhatIsThereIsNotMeasuredAgain: for a model as slow as gpt, a quick sitting measures only the sizes whose first
// visits end within seconds. A later sitting measures only what is missing, and one size that is already known.
func TestWhatIsThereIsNotMeasuredAgain(t *testing.T) {
	m, c := mlp(t), newClocked(0.097)
	r := NewRecord(m, "x", Load{Concurrency: 2})
	quick := Options{MicroBatches: powers, Quick: true, Optimizer: "adam"}
	began := c.at
	first := extend(t, r, m, c, quick)
	if got := distinct(first); !slices.Equal(got, []int{1, 2, 4}) && !slices.Equal(got, []int{1, 2, 4, 8}) {
		t.Errorf("it visited %v", first)
	}
	if took := c.at.Sub(began).Seconds(); took > 12 {
		t.Errorf("it took %v s", took)
	}
	if again := extend(t, r, m, c, quick); len(again) > 0 || c.updates != 1 {
		t.Errorf("the same again visited %v; updates were measured %d times", again, c.updates)
	}
	sgd := quick
	sgd.Optimizer = "sgd"
	if again := extend(t, r, m, c, sgd); len(again) > 0 || c.updates != 2 {
		t.Errorf("another optimizer visited %v; updates were measured %d times", again, c.updates)
	}
	odd := quick
	odd.MicroBatches = []int{1, 2, 3, 5, 6, 10, 15, 30}
	again := distinct(extend(t, r, m, c, odd))
	if !slices.Contains(again, 3) || slices.Contains(again, 1) == slices.Contains(again, 4) || len(again) > 5 {
		t.Errorf("a batch of 30 visited %v", again)
	}
	all := Options{MicroBatches: []int{16, 32}, Quick: true, Every: true, Optimizer: "adam"}
	if again := distinct(extend(t, r, m, c, all)); !slices.Contains(again, 16) || !slices.Contains(again, 32) {
		t.Errorf("sizes that must be measured: visited %v", again)
	}
}

// TestThoroughGoesOnFromQuick: thorough rounds continue after a quick sitting, until every size has had enough visits.
func TestThoroughGoesOnFromQuick(t *testing.T) {
	m, c := mlp(t), newClocked(0.097)
	r := NewRecord(m, "x", Load{})
	extend(t, r, m, c, Options{MicroBatches: powers, Quick: true})
	_, before := r.Sizes()
	extend(t, r, m, c, Options{MicroBatches: powers})
	sizes, visits := r.Sizes()
	if !slices.Equal(sizes, powers) || slices.Min(visits) < leastRounds || visits[5] != leastRounds ||
		visits[0] <= before[0] {
		t.Errorf("sizes %v were visited %v times, before that %v", sizes, visits, before)
	}
	if u := r.updates(""); u.Passes != leastPasses || c.updates != 2 {
		t.Errorf("updates in %d passes, measured %d times", u.Passes, c.updates)
	}
	if again := extend(t, r, m, c, Options{MicroBatches: powers}); len(again) > 0 {
		t.Errorf("the same again visited %v", again)
	}
	if quick := r.Chosen(Options{MicroBatches: powers, Quick: true}); !slices.Equal(quick, powers) {
		t.Errorf("a quick sitting takes %v of what was measured", quick)
	}
}

// TestQuickOfASmallModel: all sizes of a small model are measured in the same few seconds, in the largest number of
// rounds.
func TestQuickOfASmallModel(t *testing.T) {
	m, c := mlp(t), newClocked(0.001)
	r := NewRecord(m, "x", Load{})
	extend(t, r, m, c, Options{MicroBatches: powers, Quick: true})
	sizes, visits := r.Sizes()
	if !slices.Equal(sizes, powers) || slices.Min(visits) != mostRounds {
		t.Errorf("sizes %v, %v times", sizes, visits)
	}
}

// TestMissingSizesAreMeasuredAtTheUsualPace: measurements made while the machine is slow are scaled to the pace of
// earlier measurements. So the profile has the costs at the usual pace.
func TestMissingSizesAreMeasuredAtTheUsualPace(t *testing.T) {
	m, c := mlp(t), newClocked(0.01)
	r := NewRecord(m, "x", Load{})
	extend(t, r, m, c, Options{MicroBatches: []int{2, 4, 8}, Quick: true})
	c.pace = 1.7
	extend(t, r, m, c, Options{MicroBatches: []int{3, 6}, Quick: true, Every: true})
	c.pace = 1
	extend(t, r, m, c, Options{MicroBatches: []int{12}, Quick: true, Every: true})
	p, err := r.Profile(m, []int{2, 3, 4, 6, 8, 12}, "")
	if err != nil {
		t.Fatal(err)
	}
	one := p.Layers[0].Costs[0].ForwardS / 2
	for _, cost := range p.Layers[0].Costs {
		if got := cost.ForwardS / float64(cost.MicroBatch) / one; math.Abs(got-1) > 1e-6 {
			t.Errorf("micro-batch %d costs %v times as much a sample", cost.MicroBatch, got)
		}
	}
}

// TestAStoppedSittingKeepsWhatItHas: measurements are kept when a sitting is stopped, and the next sitting continues
// from them.
func TestAStoppedSittingKeepsWhatItHas(t *testing.T) {
	m, c := mlp(t), newClocked(0.097)
	r := NewRecord(m, "x", Load{})
	var kept Record
	o := Options{MicroBatches: powers, Quick: true, now: c.now, Keep: func() error { kept = *r; return nil }}
	c.stopAt = 2
	if err := r.Extend(t.Context(), m, c, o); !errors.Is(err, errStopped) {
		t.Fatal(err)
	}
	if sizes, _ := kept.Sizes(); !slices.Equal(sizes, []int{1, 2}) || !kept.Lacks(o) {
		t.Fatalf("it kept %v", sizes)
	}
	c.stopAt = 0
	if more := distinct(extend(t, r, m, c, o)); slices.Contains(more, 1) && slices.Contains(more, 2) || c.updates != 1 {
		t.Errorf("the next sitting visited %v", more)
	}
	c.stopAt = 1
	empty := NewRecord(m, "x", Load{})
	c.sizes, c.stopAt = []int{0}, 1
	if err := empty.Extend(t.Context(), m, c, o); !errors.Is(err, errStopped) || len(empty.Sittings) > 0 {
		t.Errorf("%v, and it kept %+v", err, empty.Sittings)
	}
}

// TestRecordsMerge: if two processes write a record, the sittings of both are kept, whichever writes last.
func TestRecordsMerge(t *testing.T) {
	m := mlp(t)
	one, two := NewRecord(m, "x", Load{}), NewRecord(m, "x", Load{})
	c := newClocked(0.01)
	extend(t, one, m, c, Options{MicroBatches: []int{1, 2}, Quick: true, Optimizer: "a"})
	extend(t, two, m, c, Options{MicroBatches: []int{4, 8}, Quick: true, Optimizer: "b"})
	merged := *one
	merged.Merge(two)
	merged.Merge(one)
	if sizes, _ := merged.Sizes(); !slices.Equal(sizes, []int{1, 2, 4, 8}) || len(merged.Sittings) != 2 ||
		merged.updates("a") == nil || merged.updates("b") == nil || len(one.Sittings) != 1 {
		t.Errorf("sizes %v in %d sittings", sizes, len(merged.Sittings))
	}
	other := NewRecord(m, "y", Load{})
	if one.Same(other) || !one.Same(two) {
		t.Error("records of two machines are of one")
	}
}

// TestRecordsLast: a Record is the same after it is written and read. A damaged Record is refused.
func TestRecordsLast(t *testing.T) {
	m, c := mlp(t), newClocked(0.01)
	r := NewRecord(m, "x", Load{Concurrency: 2})
	extend(t, r, m, c, Options{MicroBatches: powers, Quick: true})
	path := filepath.Join(t.TempDir(), "r.json")
	if err := r.Write(path); err != nil {
		t.Fatal(err)
	}
	back, err := ReadRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := r.Profile(m, powers, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := back.Profile(m, powers, ""); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%+v\n%+v", err, got, want)
	}
	if p := want.PassSpread; p == nil || p.Passes < fewestPasses || p.Below != 0 || p.Above != 0 {
		t.Errorf("passes that take as long are apart by %+v", p)
	}
	for _, damage := range []func(){
		func() { r.Version = 2 },
		func() { r.Sittings[0].Rounds[0][0].TookS = -1 },
		func() { r.Sittings[0].Rounds[0][0].Layers[0].ForwardS = math.NaN() },
		func() { r.Sittings[0].Rounds[0][0].Layers = nil },
		func() { r.Sittings[0].Rounds[0][0].MicroBatch = 0 },
		func() { r.Updates[0].Layers = r.Updates[0].Layers[1:] },
		func() { r.Updates[0].Layers[0].UpdateS = -1 },
		func() { r.Threads = 0 },
	} {
		r, err = ReadRecord(path)
		if err != nil {
			t.Fatal(err)
		}
		damage()
		if err := r.validate(); err == nil && r.Version == Version {
			t.Errorf("%+v is taken", r.Sittings[0].Rounds[0][0])
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	if _, err := ReadRecord(none); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
	other, err := model.Build("mlp", map[string]any{"hidden": []int{7}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := back.Profile(other, powers, ""); err == nil || !strings.Contains(err.Error(), "says nothing of") {
		t.Error(err)
	}
	if _, err := back.Profile(m, []int{7}, ""); err == nil || !strings.Contains(err.Error(), "not been measured") {
		t.Error(err)
	}
}

// TestLinksLast: transfers are measured once for a machine. For another number of workers only the all-reduce is
// measured.
func TestLinksLast(t *testing.T) {
	c, l := newClocked(0.01), &Links{Version: Version}
	var did []string
	for _, workers := range []int{1, 2, 4, 2} {
		if err := l.Measure(t.Context(), c, workers, func(what string) { did = append(did, what) }); err != nil {
			t.Fatal(err)
		}
	}
	if c.wires != 1 || !slices.Equal(c.reduces, []int{2, 4}) {
		t.Errorf("the wire was measured %d times, all-reduces of %v", c.wires, c.reduces)
	}
	want := []string{"messages between workers", "all-reduce 1 of 2, 0 of 12 pairs of workers",
		"all-reduce 1 of 2, 1,200 of 2,400 pairs of workers", "all-reduce 2 of 2, spreading the sums"}
	want = append(want, want...) // the same lines for 2 workers and for 4
	if !slices.Equal(did, want) {
		t.Errorf("said %q, want %q", did, want)
	}
	if got := l.Between(4); got == nil || got.AllReduceWorkers != 4 || got.AllReduceBytesPerSecond != 0.25e9 {
		t.Errorf("%+v", got)
	}
	if l.Between(3) != nil {
		t.Error("three workers were not measured")
	}
	path := filepath.Join(t.TempDir(), "l.json")
	if err := l.Write(path); err != nil {
		t.Fatal(err)
	}
	if back, err := ReadLinks(path); err != nil || !reflect.DeepEqual(back, l) {
		t.Errorf("%v: %+v", err, back)
	}
	l.AllReduce[0].Workers = 1
	if err := l.Write(path); err == nil {
		t.Error("one worker sums with nobody")
	}
}
