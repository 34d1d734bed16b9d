package run

import (
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/trace"
)

// brittleGate panics in the n-th call of one of its methods.
type brittleGate struct {
	process.Gate
	method string
	left   atomic.Int64
}

func (g *brittleGate) called(method string) {
	if method == g.method && g.left.Add(-1) == 0 {
		panic("the gate fell off")
	}
}

func (g *brittleGate) Poll(w int) machine.Need {
	g.called("Poll")
	return g.Gate.Poll(w)
}

func (g *brittleGate) Start(w int) {
	g.called("Start")
	g.Gate.Start(w)
}

func (g *brittleGate) Issued(w int, done bool) []int {
	g.called("Issued")
	return g.Gate.Issued(w, done)
}

func (g *brittleGate) Done(w int, in schedule.Instruction) []int {
	g.called("Done")
	return g.Gate.Done(w, in)
}

func (g *brittleGate) Arrive(to int, in schedule.Instruction) []int {
	g.called("Arrive")
	return g.Gate.Arrive(to, in)
}

func (g *brittleGate) Load(p *schedule.Program) error {
	g.called("Load")
	return g.Gate.Load(p)
}

// A panic on any goroutine of a run becomes the run's error, with its stack. If the gate panics, the error names the
// worker and the instruction. No worker waits indefinitely.
func TestAPanicBetweenInstructionsEndsTheRun(t *testing.T) {
	for _, method := range []string{"Poll", "Start", "Issued", "Arrive"} {
		for _, after := range []int64{1, 30, 200} {
			c := small(t, 3, 20)
			c.decide = func(p *schedule.Program, workers []int, o machine.Options) (process.Gate, error) {
				m, err := machine.NewProcess(p, workers, o)
				g := &brittleGate{Gate: m, method: method}
				g.left.Store(after)
				return g, err
			}
			_, err := Train(t.Context(), c)
			var p *crash.Panic
			said := regexp.MustCompile(`^run: worker [0-2]: (in front of its first instruction|[0-2][A-Z]+[0-9]*): ` +
				`panic: the gate fell off$`)
			if !errors.As(err, &p) || !strings.Contains(string(p.Stack), "brittleGate") ||
				!said.MatchString(err.Error()) {
				t.Errorf("call %d of %s: %v", after, method, err)
			}
		}
	}
	for name, spoil := range map[string]func(c *Config){
		"a hook": func(c *Config) { c.Hooks.OnStep = func(StepReport) { panic("unhooked") } },
		"next": func(c *Config) {
			c.Next = func(trace.Timeline, int) (*schedule.Program, error) { panic("nothing is next") }
		},
		"load": func(c *Config) {
			c.Train.EvalEvery, c.Data.Test = 2, noise{model: c.Model, classes: 4, rows: 8, seed: 3}
			c.decide = func(p *schedule.Program, workers []int, o machine.Options) (process.Gate, error) {
				m, err := machine.NewProcess(p, workers, o)
				g := &brittleGate{Gate: m, method: "Load"}
				g.left.Store(1)
				return g, err
			}
		},
	} {
		c := small(t, 3, 20)
		spoil(&c)
		var p *crash.Panic
		if _, err := Train(t.Context(), c); !errors.As(err, &p) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A Program that a run cannot execute is refused before anything is executed. The error names the worker and the
// instruction.
func TestWhatCannotBeExecutedIsRefusedFirst(t *testing.T) {
	for want, spoil := range map[string]func(p *schedule.Program){
		"worker 0: 0CK0: a run saves and evaluates between two Programs by itself": func(p *schedule.Program) {
			for w := range p.Body {
				p.Body[w] = append(p.Body[w], schedule.Instruction{Stage: int32(w), Kind: schedule.CK})
			}
		},
		"worker 0: 0EV0: a run saves and evaluates between two Programs by itself": func(p *schedule.Program) {
			evaluates, err := programs.Evaluation(p.Placement[0], p.MicroBatches)
			if err != nil {
				t.Fatal(err)
			}
			clip := p.Clip
			*p = *evaluates
			p.Clip = clip
		},
		"worker 0: 1RF0: the plan does not put this stage on this worker": func(p *schedule.Program) {
			p.Placement[0][0], p.Placement[0][1] = []int{1}, []int{0}
			p.Body[0], p.Body[1] = p.Body[1], p.Body[0]
		},
	} {
		c := small(t, 2, 4)
		p, err := programs.Build(c.Plan, c.Model.TiedLayers(), true, 4)
		if err != nil {
			t.Fatal(err)
		}
		spoil(p)
		if err := c.runnable(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
		c.Next = func(trace.Timeline, int) (*schedule.Program, error) { return p, nil }
		res, err := Train(t.Context(), c)
		var panicked *crash.Panic
		if err == nil || errors.As(err, &panicked) || len(res.Timeline.Events) != 0 {
			t.Errorf("want %q: %v, and %d events", want, err, len(res.Timeline.Events))
		}
	}
}
