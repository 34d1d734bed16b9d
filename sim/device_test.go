package sim

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/trace"
	"pgregory.net/rapid"
)

// spans returns the start and the end of each instruction of a Timeline.
func spans(tl *trace.Timeline) map[string][2]float64 {
	out := map[string][2]float64{}
	for _, e := range tl.Events {
		out[e.Instruction] = [2]float64{e.StartS, e.EndS}
	}
	return out
}

// TestADeviceBehindItsHost checks by hand when instructions run on a device whose host issues them. Issuing takes 0.25,
// a forward 1, a backward 2, and a message 0.5.
func TestADeviceBehindItsHost(t *testing.T) {
	for ahead, want := range []map[string][2]float64{
		{ // each computation is issued when the one before it is done
			"0F0": {0.25, 1.25}, "0SF0": {1.25, 1.75}, "0F1": {1.5, 2.5}, "0SF1": {2.5, 3}, "1F0": {2, 3},
			"1F1": {3.25, 4.25},
			"1B0": {4.5, 6.5}, "1SB0": {6.5, 7}, "1B1": {6.75, 8.75}, "0B0": {7.25, 9.25}, "1SB1": {8.75, 9.25},
			"0B1": {9.5, 11.5},
		},
		{ // one computation is issued while the one before it computes, so no computation waits for its issue
			"0F0": {0.25, 1.25}, "0SF0": {1.25, 1.75}, "0F1": {1.25, 2.25}, "0SF1": {2.25, 2.75}, "1F0": {2, 3},
			"1F1": {3, 4},
			"1B0": {4, 6}, "1SB0": {6, 6.5}, "1B1": {6, 8}, "0B0": {6.75, 8.75}, "1SB1": {8, 8.5}, "0B1": {8.75,
				10.75},
		},
	} {
		c := Uniform(2, 1, 2, 0.5)
		c.IssueS = 0.25
		tl, sum, err := Run(program(t, "afab", 2, 2, 1), c, Options{Record: true, Ahead: ahead})
		if err != nil {
			t.Fatal(err)
		}
		if err := tl.Validate(); err != nil {
			t.Error(err)
		}
		got := spans(tl)
		for in, w := range want {
			if g := got[in]; math.Abs(g[0]-w[0]) > 1e-12 || math.Abs(g[1]-w[1]) > 1e-12 {
				t.Errorf("%d ahead: %s from %v to %v, want from %v to %v", ahead, in, g[0], g[1], w[0], w[1])
			}
		}
		if sum.BusyS[0] != 6 || sum.BusyS[1] != 6 {
			t.Errorf("%d ahead: busy %v, want 6 each", ahead, sum.BusyS)
		}
	}
}

// TestIssuingAhead: if issuing is free, a device with computations issued ahead finishes at the same time as a worker
// without a host. If issuing costs time, it never finishes sooner. With more computations issued ahead, it never
// finishes later than with fewer.
func TestIssuingAhead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, c := randomCase(t)
		c.Occupies, c.Streams, c.Cores = nil, nil, nil
		c.SendS, c.ReceiveS = 0, 0 // a host spends these times while its device computes
		vary := c.Noise.Vary()
		_, alone, err := Run(p, c, Options{Vary: vary})
		if err != nil {
			t.Fatal(err)
		}
		_, free, err := Run(p, c, Options{Ahead: rapid.IntRange(1, 1000).Draw(t, "ahead"), Vary: vary})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(alone.EndS-free.EndS) > 1e-9*alone.EndS {
			t.Fatalf("ends at %v, issued ahead at %v\n%s", alone.EndS, free.EndS, p.Text())
		}
		c.IssueS = 0.25
		last := math.Inf(1)
		for _, ahead := range []int{0, 1, 4} {
			_, sum, err := Run(p, c, Options{Ahead: ahead, Vary: vary})
			if err != nil {
				t.Fatal(err)
			}
			if sum.EndS > last+1e-9 || sum.EndS < alone.EndS-1e-9 {
				t.Fatalf("%d ahead ends at %v, fewer at %v, and at no cost at %v\n%s", ahead, sum.EndS, last,
					alone.EndS, p.Text())
			}
			last = sum.EndS
		}
	})
}

// TestDevicesThatHaveNoHost: Options.Ahead is refused if workers share too few cores, or if transfers occupy devices
// (BaPipe's boards).
func TestDevicesThatHaveNoHost(t *testing.T) {
	p, c := program(t, "1f1b", 2, 2, 1), Uniform(2, 1, 1, 0)
	c.Cores = machine.Share(1)
	if _, _, err := Run(p, c, Options{Ahead: 1}); err == nil || !strings.Contains(err.Error(),
		"1 shared cores and devices") {
		t.Error(err)
	}
	c.Cores = machine.Share(2)
	if _, _, err := Run(p, c, Options{Ahead: 1}); err != nil {
		t.Errorf("a core each: %v", err)
	}
	c.Occupies = func(int, int) bool { return true }
	if _, _, err := Run(p, c, Options{Ahead: 1}); err == nil || !strings.Contains(err.Error(),
		"transfers that take part") {
		t.Error(err)
	}
}

// TestSlotsArePlayed: with one slot, a send waits until the previous message has been received and its slot has come
// back. The expected times are computed by hand.
func TestSlotsArePlayed(t *testing.T) {
	c := Uniform(2, 1, 1, 0.5)
	c.Stages[1][0].ForwardS = 4
	p := program(t, "afab", 2, 3, 1)
	for slots, want := range map[int]float64{
		0: 3, // 0F2 ends, and its message leaves
		1: 6, // 1F0 runs from 1.5 to 5.5; then 1RF1 is taken, and its slot comes back at 6
		2: 3, // the first message was received at 1.5
	} {
		tl, _, err := Run(p, c, Options{Record: true, Slots: slots})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range tl.Events {
			if e.Instruction == "0SF2" && (e.StartS != want || e.EndS != want+0.5) {
				t.Errorf("%d slots: 0SF2 from %v to %v, want from %v", slots, e.StartS, e.EndS, want)
			}
		}
	}
	if p, err := family.Generate("bfs", schedule.Settings{Placement: schedule.Wrap(2, 2),
		MicroBatches: 8}); err != nil {
		t.Fatal(err)
	} else if p, err = lower.Lower(p, lower.Options{}); err != nil {
		t.Fatal(err)
	} else {
		var stall *machine.StallError
		if _, _, err := Run(p, Uniform(4, 1, 1, 0), Options{Slots: 3}); !errors.As(err, &stall) {
			t.Errorf("3 slots of 4: %v", err)
		}
		if _, _, err := Run(p, Uniform(4, 1, 1, 0), Options{Slots: 4}); err != nil {
			t.Error(err)
		}
	}
}

// TestCreditsThatTakeNoTimeOfAClock: a slot whose return takes an invalid time is refused, like a message that takes an
// invalid time.
func TestCreditsThatTakeNoTimeOfAClock(t *testing.T) {
	c := Uniform(2, 1, 1, 0.5)
	for s := range c.Stages {
		c.Stages[s][0].ActivationBytes, c.Stages[s][0].GradientBytes = 1, 1
	}
	c.Transfer = func(_, _ int, bytes int64) (float64, float64) {
		if bytes == 0 {
			return math.NaN(), 0
		}
		return 0.5, 0
	}
	_, _, err := Run(program(t, "afab", 2, 3, 1), c, Options{Slots: 1})
	if err == nil || !strings.Contains(err.Error(), "NaN") {
		t.Error(err)
	}
}

// TestASendToNobody: a send without a receiver is complete at once, so a drain that waits for the send does not block
// for ever.
func TestASendToNobody(t *testing.T) {
	p, err := schedule.ParseText(strings.NewReader(`millrace program 1
name a send to nobody
stages 1
workers 1
micro_batches 1
period 1
repeat 1
weights sync
replication round_robin
lowered true
place p0/0: 0
body
0: 0EV0 0SF0 0DR0
`))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Run(p, Uniform(1, 1, 1, 0), Options{}); err != nil {
		t.Error(err)
	}
}
