package trace

import (
	"bytes"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/internal/stats"
)

// In a stream, the time of a step is the time that one more step adds to the run.
func TestStepTimes(t *testing.T) {
	tl := &Timeline{Steps: []StepMark{
		{Step: 0, StartS: 0, EndS: 3}, {Step: 1, StartS: 2, EndS: 5}, {Step: 2, StartS: 4, EndS: 6},
	}}
	for _, c := range []struct {
		stream bool
		n      int
		want   []float64
	}{
		{false, 3, []float64{3, 3, 2}}, {false, 1, []float64{2}},
		{true, 3, []float64{2, 1}}, {true, 9, []float64{2, 1}}, {true, 1, []float64{2}}, {true, 0, nil},
	} {
		tl.Stream = c.stream
		if got := tl.StepTimes(c.n); !slices.Equal(got, c.want) {
			t.Errorf("stream %v, the last %d: %v, want %v", c.stream, c.n, got, c.want)
		}
	}
}

// A pause between two steps, such as an evaluation, is not part of either step's time. Without a pause, a step's time
// is from the end of the step before it to its own end.
func TestStepTimeAndPeriod(t *testing.T) {
	apart := &Timeline{Steps: []StepMark{{0, 0, 9}, {1, 9, 11}, {2, 18, 20}, {3, 20.05, 22.05}, {4, 30, 32}}}
	stream := &Timeline{Stream: true, Steps: []StepMark{{0, 0, 9}, {1, 1, 11}, {2, 3, 13}, {3, 5, 15}}}
	for _, c := range []struct {
		what         string
		t            *Timeline
		skip         int
		step, period float64
	}{
		{"nothing", &Timeline{}, 0, 0, 0},
		{"one step", &Timeline{Steps: []StepMark{{0, 1, 4}}}, 0, 3, 3},
		{"one step of a stream", &Timeline{Stream: true, Steps: []StepMark{{0, 1, 4}}}, 0, 3, 3},
		{"evaluations between steps", apart, 1, 2, 2.05},
		{"evaluations between all steps", &Timeline{Steps: []StepMark{{0, 0, 2}, {1, 7, 9}}}, 0, 2, 2},
		{"a stream", stream, 1, 2, 2},
	} {
		step, period := stats.Median(c.t.Took(c.skip)), c.t.Period(c.skip)
		if math.Abs(step-c.step) > 1e-9 || math.Abs(period-c.period) > 1e-9 {
			t.Errorf("%s: a step takes %v and adds %v; want %v and %v", c.what, step, period, c.step, c.period)
		}
	}
}

// TestSteadyIsItsWindows: Steady equals the means over the windows between ends of consecutive steps: their mean
// length, and the mean time that each worker computes in them.
func TestSteadyIsItsWindows(t *testing.T) {
	tl := &Timeline{Workers: 2, Stream: true}
	g := rand.New(rand.NewPCG(1, 2))
	for step := range 40 {
		from, end := float64(2*step), float64(2*step)+3+g.Float64()
		if step%7 == 6 {
			continue // its events were not kept
		}
		tl.Steps = append(tl.Steps, StepMark{step, from, end})
		for w := range 2 {
			s := from + float64(w)
			tl.Events = append(tl.Events, Event{Worker: w, Lane: Compute, Kind: "F", Step: step, StartS: s,
				EndS: s + g.Float64()})
		}
	}
	steps, stepS, busyS := tl.Steady(3)
	var length, busy [3]float64
	n := 0.0
	for k := 4; k < len(tl.Steps); k++ {
		from, to := tl.Steps[k-1], tl.Steps[k]
		if to.Step != from.Step+1 {
			continue
		}
		n++
		length[2] += to.EndS - from.EndS
		for _, e := range tl.Events {
			busy[e.Worker] += max(0, min(e.EndS, to.EndS)-max(e.StartS, from.EndS))
		}
	}
	if float64(len(steps)) != n || math.Abs(stepS-length[2]/n) > 1e-12 || math.Abs(busyS[0]-busy[0]/n) > 1e-12 ||
		math.Abs(busyS[1]-busy[1]/n) > 1e-12 {
		t.Errorf("%d steps of %v s, busy %v; want %v of %v, %v", len(steps), stepS, busyS, n, length[2]/n, busy)
	}
}

// TestLongTimelines: AllGaps and Steady are fast with 20,000 steps or workers. Neither reads all events again for each
// step or worker.
func TestLongTimelines(t *testing.T) {
	const n = 20_000
	tl := &Timeline{Version: Version, Workers: n, Stream: true}
	for k := range n {
		at := float64(k)
		tl.Steps = append(tl.Steps, StepMark{k, at, at + 1})
		tl.Events = append(tl.Events, Event{Worker: k, Lane: Compute, Kind: "F", Step: k, StartS: at, EndS: at + 1})
	}
	began := time.Now()
	AllGaps(tl)
	tl.Workers = 1
	for k := range tl.Events {
		tl.Events[k].Worker = 0
	}
	tl.Steady(0)
	if took := time.Since(began); took > time.Second {
		t.Errorf("%v", took)
	}
}

// A Timeline that Read would refuse is not written.
func TestTooLargeToRead(t *testing.T) {
	tl := &Timeline{Version: Version, Workers: 1, Memory: make([]MemorySample, maxRows)}
	if err := tl.Write(io.Discard); err == nil || !strings.Contains(err.Error(), "keep fewer steps") {
		t.Errorf("%d samples: %v", len(tl.Memory), err)
	}
	// Besides the samples there are the Timeline, its three lists, and the nine objects in Seen: 13, one too many.
	tl.Memory, tl.Stages = tl.Memory[:maxRows-12], 1
	tl.Seen = make([]Seen, 9)
	if err := tl.Write(io.Discard); err == nil || !strings.Contains(err.Error(), "keep fewer steps") {
		t.Errorf("%d samples and %d objects: %v", len(tl.Memory), len(tl.Seen), err)
	}
	var b bytes.Buffer
	r := &room{to: &b, left: 5}
	if _, err := r.Write([]byte("12345")); err != nil || b.String() != "12345" {
		t.Errorf("%q, %v", b.String(), err)
	}
	if _, err := r.Write([]byte("6")); err == nil || b.Len() != 5 {
		t.Errorf("%q, %v", b.String(), err)
	}
}
