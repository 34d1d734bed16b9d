package sim

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/trace"
	"pgregory.net/rapid"
)

// longest is a second implementation of Run, without a Machine and without a clock. An instruction starts at the
// length of the longest path to it in the dependency graph, which is found by recursion over whole lists. Transfers
// take only latency and each worker has its own core, so nothing queues and the answer is a path.
type longest struct {
	p     *schedule.Program
	c     Costs
	lists []schedule.List
	where map[schedule.Instruction][2]int // worker and position
	ends  map[[2]int]float64
	begun map[[2]int]float64
}

func longestOf(p *schedule.Program, c Costs) *longest {
	l := &longest{p: p, c: c, where: map[schedule.Instruction][2]int{}, ends: map[[2]int]float64{},
		begun: map[[2]int]float64{}}
	for w := range p.Workers {
		var list schedule.List
		p.Walk(w, func(in schedule.Instruction) bool {
			if in.Kind != schedule.DR {
				l.where[in] = [2]int{w, len(list)}
			}
			list = append(list, in)
			return true
		})
		l.lists = append(l.lists, list)
	}
	return l
}

func (l *longest) takes(in schedule.Instruction) float64 {
	c := l.c.of(int(in.Stage), int(in.Replica))
	if l.p.Served() && in.Pipeline == 1 { // the server: its costs follow those of the trainers
		c = l.c.of(0, len(l.p.Placement[0][0]))
	}
	switch in.Kind {
	case schedule.F:
		return c.ForwardS + l.c.Noise.DispatchS
	case schedule.B:
		return c.BackwardS + l.c.Noise.DispatchS
	case schedule.I:
		return c.InputS + l.c.Noise.DispatchS
	case schedule.W:
		return c.WeightS + l.c.Noise.DispatchS
	case schedule.EV:
		return c.EvaluateS + l.c.Noise.DispatchS
	case schedule.U:
		return c.UpdateS
	}
	return 0
}

// passes returns how long the worker itself is busy with a send or a receive, in seconds.
func (l *longest) passes(w, i int) float64 {
	switch in := l.lists[w][i]; in.Kind {
	case schedule.SF, schedule.SB, schedule.SG, schedule.SW:
		return l.c.SendS
	case schedule.RF, schedule.RB, schedule.RG, schedule.RW:
		return l.c.ReceiveS
	}
	return 0
}

func (l *longest) start(w, i int) float64 {
	at := [2]int{w, i}
	if s, ok := l.begun[at]; ok {
		return s
	}
	s := 0.0
	if i > 0 {
		s = l.end(w, i-1)
	}
	in := l.lists[w][i]
	switch in.Kind {
	case schedule.RF, schedule.RB, schedule.RG, schedule.RW:
		for from, list := range l.lists {
			if from == w {
				continue // what the worker makes for itself is not a message
			}
			for j, sent := range list {
				if l.feeds(sent, in) {
					latency, _ := l.c.Transfer(from, w, 0)
					s = max(s, l.start(from, j)+latency)
				}
			}
		}
	case schedule.AR, schedule.TG, schedule.GN, schedule.U:
		for j, before := range l.lists[w][:i] {
			if before.Stage == in.Stage && before.Pipeline == in.Pipeline &&
				(in.Kind != schedule.U || before.Micro <= in.Micro) &&
				(before.Kind == schedule.AR || before.Kind == schedule.TG || before.Kind == schedule.GN) {
				s = max(s, l.complete(w, j))
			}
		}
	case schedule.DR:
		s = max(s, l.drained(w, i))
	}
	l.begun[at] = s
	return s
}

func (l *longest) end(w, i int) float64 {
	return l.start(w, i) + l.takes(l.lists[w][i]) + l.passes(w, i)
}

// feeds reports whether a send makes a message that a receive takes.
func (l *longest) feeds(sent, in schedule.Instruction) bool {
	if in.Kind == schedule.RG && sent.Kind == schedule.SG || in.Kind == schedule.RW && sent.Kind == schedule.SW {
		return sent.Micro == in.Micro
	}
	if sent.Micro != in.Micro || sent.Pipeline != in.Pipeline {
		return false
	}
	if !(in.Kind == schedule.RF && sent.Kind == schedule.SF && sent.Stage == in.Stage-1) &&
		!(in.Kind == schedule.RB && sent.Kind == schedule.SB && sent.Stage == in.Stage+1) {
		return false
	}
	here, there := len(l.p.Placement[in.Pipeline][in.Stage]), len(l.p.Placement[in.Pipeline][sent.Stage])
	if l.p.Replication == schedule.Split { // do both replicas have rows in common?
		a, b := int(in.Replica), int(sent.Replica)
		return a*there < (b+1)*here && b*here < (a+1)*there
	}
	return true // only one replica sends a micro-batch
}

// complete returns when the collective that a worker issued at position i is complete. This is the latest start of its
// members plus the longest time of a member.
func (l *longest) complete(w, i int) float64 {
	in := l.lists[w][i]
	last, takes := 0.0, 0.0
	for s, on := range l.p.Placement[in.Pipeline] {
		for r := range on {
			member := in
			member.Stage, member.Replica = int32(s), int16(r)
			at, there := l.where[member]
			if !there || in.Kind == schedule.AR && s != int(in.Stage) {
				continue
			}
			c := l.c.of(s, r)
			last = max(last, l.start(at[0], at[1]))
			takes = max(takes, map[schedule.Kind]float64{schedule.AR: c.AllReduceS, schedule.TG: c.TiedS,
				schedule.GN: c.NormS}[in.Kind])
		}
	}
	return last + takes
}

// drained returns when everything before the same drain, on every worker, has ended and arrived.
func (l *longest) drained(w, i int) float64 {
	nth := 0
	for _, in := range l.lists[w][:i] {
		if in.Kind == schedule.DR {
			nth++
		}
	}
	at := 0.0
	for other, list := range l.lists {
		seen := 0
		for j, in := range list {
			if in.Kind == schedule.DR {
				if seen == nth {
					break
				}
				seen++
			}
			at = max(at, l.end(other, j))
			for _, to := range l.p.Receivers(in) {
				latency, _ := l.c.Transfer(other, to, 0)
				at = max(at, l.start(other, j)+latency)
			}
		}
	}
	return at
}

// randomCase returns a random Program in 1F1B order, or an evaluation, with random costs.
func randomCase(t *rapid.T) (*schedule.Program, Costs) {
	stages := rapid.IntRange(1, 5).Draw(t, "stages")
	m := rapid.IntRange(1, 7).Draw(t, "m")
	s := schedule.Settings{MicroBatches: m, Repeat: rapid.IntRange(1, 3).Draw(t, "repeat")}
	s.Replication = rapid.SampledFrom([]schedule.Replication{schedule.Split, schedule.RoundRobin}).Draw(t, "replication")
	n, next, k := rapid.IntRange(1, 3).Draw(t, "replicas"), 0, m
	for range stages {
		var on []int
		for range n {
			on = append(on, next)
			next++
		}
		s.Placement = append(s.Placement, on)
		if s.Replication == schedule.Split {
			n = rapid.IntRange(1, 3).Draw(t, "replicas")
		}
		k = rapid.IntRange(1, k).Draw(t, "k")
		s.Warmup = append(s.Warmup, k)
	}
	p, err := family.Generate("1f1b", s)
	if err != nil {
		t.Fatal(err)
	}
	o := lower.Options{Clip: rapid.Bool().Draw(t, "clip")}
	if stages > 1 && rapid.Bool().Draw(t, "tied") {
		o.Tied = [][]int{{0, stages - 1}}
	}
	if rapid.IntRange(0, 5).Draw(t, "what") == 0 {
		p, err = programs.Evaluation(straight(stages), m)
		next = stages
	} else {
		p, err = lower.Lower(p, o)
	}
	if err != nil {
		t.Fatal(err)
	}
	seconds := rapid.Float64Range(0, 3)
	latency := make([]float64, next*next)
	for i := range latency {
		latency[i] = seconds.Draw(t, "latency")
	}
	c := Costs{
		Noise:    Noise{DispatchS: rapid.SampledFrom([]float64{0, 0.25}).Draw(t, "dispatch")},
		Transfer: func(from, to int, _ int64) (float64, float64) { return latency[from*next+to], 0 },
	}
	drawBesides(t, &c)
	for _, on := range p.Placement[0] {
		var replicas []StageCost
		for range on {
			replicas = append(replicas, StageCost{
				ForwardS: seconds.Draw(t, "f"), BackwardS: seconds.Draw(t, "b"),
				UpdateTimes: profile.UpdateTimes{UpdateS: seconds.Draw(t, "u")}, EvaluateS: seconds.Draw(t, "ev"),
				AllReduceS: seconds.Draw(t, "ar"), TiedS: seconds.Draw(t, "tg"), NormS: seconds.Draw(t, "gn"),
			})
		}
		c.Stages = append(c.Stages, replicas)
	}
	return p, c
}

// drawBesides draws, in half of all cases, the times that instructions other than computations take.
func drawBesides(t *rapid.T, c *Costs) {
	if rapid.Bool().Draw(t, "besides") {
		some := rapid.SampledFrom([]float64{0, 0.0625, 0.75})
		c.SendS, c.ReceiveS = some.Draw(t, "send"), some.Draw(t, "receive")
	}
}

// TestRunIsTheLongestPath compares the start and the end of every computation. They are equal, except for rounding
// of sums in another order.
func TestRunIsTheLongestPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, c := randomCase(t)
		sameAsLongestPath(t, p, c)
	})
}

// sameAsLongestPath simulates a Program and compares it with the longest paths.
func sameAsLongestPath(t *rapid.T, p *schedule.Program, c Costs) Summary {
	t.Helper()
	tl, sum, err := Run(p, c, Options{Record: true, Vary: c.Noise.Vary()})
	if err != nil {
		t.Fatal(err)
	}
	if err := tl.Validate(); err != nil {
		t.Fatal(err)
	}
	l := longestOf(p, c)
	end := 0.0
	at := make([]int, p.Workers)
	perWorker := make([][]trace.Event, p.Workers)
	for _, e := range tl.Events {
		if e.Lane == trace.Compute {
			perWorker[e.Worker] = append(perWorker[e.Worker], e)
		}
	}
	for w, list := range l.lists {
		for i, in := range list {
			end = max(end, l.end(w, i))
			if !in.Kind.IsCompute() {
				continue
			}
			e := perWorker[w][at[w]]
			at[w]++
			if e.Instruction != in.String() {
				t.Fatalf("worker %d ran %s where its list has %v", w, e.Instruction, in)
			}
			if math.Abs(e.StartS-l.start(w, i)) > 1e-9 || math.Abs(e.EndS-l.end(w, i)) > 1e-9 {
				t.Fatalf("worker %d: %v runs from %v to %v, the longest path says %v to %v\n%s", w, in, e.StartS, e.EndS,
					l.start(w, i), l.end(w, i), p.Text())
			}
		}
	}
	for w := range l.lists {
		for i := range l.lists[w] {
			switch l.lists[w][i].Kind {
			case schedule.AR, schedule.TG, schedule.GN:
				end = max(end, l.complete(w, i))
			}
		}
	}
	if math.Abs(sum.EndS-end) > 1e-9 {
		t.Fatalf("ends at %v, the longest path is %v", sum.EndS, end)
	}
	var busy float64
	for _, b := range sum.BusyS {
		busy += b
	}
	if got := max(0, 1-busy/(float64(p.Workers)*sum.StepS)); sum.StepS > 0 && math.Abs(got-sum.Bubble) > 1e-9 {
		t.Fatalf("bubble %v, want %v", sum.Bubble, got)
	}
	return sum
}
