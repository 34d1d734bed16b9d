package run

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/run/pace"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire/pipe"
)

// pacedEngine has devices with their own clock. A computation takes a millisecond times the device's pace in the step,
// independent of this machine's load. The engine counts the backwards of each device to know the step.
type pacedEngine struct {
	engine.Engine
	counted, step []int
	pace          func(step int) int
}

func (e pacedEngine) Open(worker, threads int) (engine.Device, error) {
	d, err := e.Engine.Open(worker, threads)
	return &pacedDevice{Device: d, of: e, at: worker, now: time.Now()}, err
}

type pacedDevice struct {
	engine.Device
	of  pacedEngine
	at  int // the device's number
	now time.Time
}

func (d *pacedDevice) Record() engine.Event {
	d.now = d.now.Add(time.Duration(d.of.pace(d.of.counted[d.at]/d.of.step[d.at])) * time.Millisecond)
	return engine.Past(d.now)
}

func (d *pacedDevice) Backward(outputs, grads []engine.Tensor) error {
	d.of.counted[d.at]++
	return d.Device.Backward(outputs, grads)
}

// Workers that compute slower than their profiles for a while are reported with their place. If all workers are slower
// by the same factor, this is reported once, and no worker is reported. Evaluations and checkpoints between steps do
// not count.
func TestStragglersAreNamed(t *testing.T) {
	const steps, from, to = 66, 5, 36
	c := small(t, 3, steps)
	c.Data.Test, c.Train.EvalRows, c.Train.EvalEvery, c.Checkpoint.Every = c.Data.Train, 7, 7, 9
	w := worlds{of: []int{0, 1, 1}, carriers: pipe.New}
	step, counted := [2][]int{{1000, 1000}, {1000, 1000}}, [2][]int{}
	of := func(slow func(process, step int) bool) func(int, *Config) {
		return func(p int, c *Config) {
			counted[p] = make([]int, 2)
			c.Engine = pacedEngine{c.Engine, counted[p], step[p], func(step int) int {
				if slow(p, step) {
					return 3
				}
				return 2
			}}
		}
	}
	short := c
	short.Train.Steps, short.Train.EvalEvery, short.Checkpoint.Every = 1, 0, 0
	w.change = of(func(int, int) bool { return false })
	c.Watch.ProfileS = w.train(t.Context(), t, short).whole(t).Timeline.Computed[0].BusyS
	step = counted
	for name, slow := range map[string]func(process, step int) bool{
		"one process for some steps": func(p, step int) bool { return p == 1 && step >= from && step < to },
		"all":                        func(int, int) bool { return true },
		"nobody":                     func(int, int) bool { return false },
	} {
		var said []Pace
		c.Checkpoint.Dir = t.TempDir()
		c.Hooks.OnPace = func(p Pace) {
			if !p.Still {
				said = append(said, p)
			}
		}
		w.change = of(slow)
		got := w.train(t.Context(), t, c).whole(t).Timeline.Stragglers
		var texts []string
		for _, s := range said {
			texts = append(texts, s.Text)
		}
		var want []trace.Straggler
		var says []string
		switch name {
		case "all":
			says = []string{"3 of 3 workers are about equally slow: they compute 1.50 times as long as profiled"}
		case "one process for some steps":
			want = []trace.Straggler{{Worker: 1, From: from, To: to - 1, Times: 1.5, Others: 1},
				{Worker: 2, From: from, To: to - 1, Times: 1.5, Others: 1}}
			says = []string{"worker 1 (rank 1 on host host1; stage 1) is a straggler: for 20 steps it has computed 1.50",
				"worker 2 (rank 1 on host host1; stage 2) is a straggler: for 20 steps", "worker 1 (rank 1 on host host1; " +
					"stage 1) is a straggler no more: for 20 steps it has computed 1.00 times as long", "worker 2 "}
		}
		same := func(a, b trace.Straggler) bool {
			near := math.Abs(a.Times-b.Times)+math.Abs(a.Others-b.Others) < 1e-9
			a.Times, a.Others, a.LastTimes = b.Times, b.Others, b.LastTimes
			return near && a == b
		}
		if !slices.EqualFunc(got, want, same) || !slices.EqualFunc(texts, says, strings.HasPrefix) {
			t.Errorf("%s: stragglers %+v, want %+v; said %q, want %q", name, got, want, texts, says)
		}
		for _, s := range said {
			if (s.Worker == pace.All) != (name == "all") {
				t.Errorf("%s: %+v", name, s)
			}
		}
	}
}
