package trace_test

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

// timeline returns a Timeline with the events on two workers; times are in seconds.
func timeline(events ...trace.Event) *trace.Timeline {
	for i := range events {
		f, _ := trace.ParseFields(events[i].Instruction)
		events[i].Kind = f.Kind
		events[i].Lane = trace.Comm
		if trace.IsBusy(f.Kind) {
			events[i].Lane = trace.Compute
		}
	}
	return &trace.Timeline{Version: 1, Workers: 2, Stages: 2, Events: events}
}

// at returns an event with the given ready, start and end times.
func at(worker int, instruction string, ready, start, end float64, blockedBy string) trace.Event {
	return trace.Event{Worker: worker, Instruction: instruction, ReadyS: ready, StartS: start, EndS: end,
		BlockedBy: blockedBy}
}

func TestWhyAGapExists(t *testing.T) {
	for _, c := range []struct {
		name    string
		t       *trace.Timeline
		worker  int
		cause   trace.Cause
		blocker string
		says    []string
	}{
		{"the stage before was computing",
			timeline(at(0, "0F0", 0, 0, 4, ""), at(0, "0SF0", 4, 4, 4.5, ""), at(1, "1RF0", 0, 4.5, 4.5, "0SF0"),
				at(1, "1F0", 4.5, 4.5, 6, "")),
			1, trace.WaitInput, "0F0", []string{
				"1F0 waited 4.50 s for the activations of micro-batch 0 from stage 0 (worker 0)", "computed 0F0 until 4.00 s"}},
		{"the message was on its way",
			timeline(at(0, "0F0", 0, 0, 1, ""), at(0, "0SF0", 1, 1, 9, ""), at(1, "1RF0", 0, 9, 9, "0SF0"),
				at(1, "1F0", 9, 9, 10, "")),
			1, trace.WaitTransfer, "0SF0", []string{"0F0 was done at 1.00 s", "transfer took 8.00 s"}},
		{"the stage after was computing",
			timeline(at(0, "0F0", 0, 0, 1, ""), at(1, "1B0", 0, 0, 5, ""), at(1, "1SB0", 5, 5, 5.1, ""),
				at(0, "0RB0", 1, 5.1, 5.1, "1SB0"), at(0, "0B0", 5.1, 5.1, 6, "")),
			0, trace.WaitGradient, "1B0", []string{
				"0B0 waited 4.10 s for the gradients of micro-batch 0 from stage 1 (worker 1)", "until 5.00 s"}},
		{"the wait is written on the forward itself",
			timeline(at(0, "0F0", 0, 0, 4, ""), at(1, "1F0", 0, 4, 6, "0F0")),
			1, trace.WaitInput, "0F0", []string{"1F0 waited 4.00 s", "computed 0F0 until 4.00 s"}},
		{"a core",
			timeline(at(0, "0F0", 0, 0, 3, ""), at(1, "1F0", 0, 3, 5, "core")),
			1, trace.WaitCore, "0F0", []string{"1F0 waited 3.00 s for a core", "held by worker 0 with 0F0"}},
		{"the link",
			timeline(at(0, "0F0", 0, 0, 5, ""), at(1, "1RF0", 0, 3, 3, "link"), at(1, "1F0", 3, 3, 5, "")),
			1, trace.WaitTransfer, "", []string{"another transfer was on the link"}},
		{"a collective",
			timeline(at(0, "0B0", 0, 0, 1, ""), at(0, "0AR0", 1, 1, 3, ""), at(0, "0U0", 1, 3, 4, "0AR0")),
			0, trace.WaitReduce, "0AR0", []string{"0U0 waited 2.00 s for the all-reduce 0AR0, which ended at 3.00 s"}},
		{"a drain",
			timeline(at(0, "0B0", 0, 0, 1, ""), at(0, "0DR0", 1, 3, 3, "drain"), at(0, "0F1", 3, 3, 4, "")),
			0, trace.WaitDrain, "", []string{"0DR0 waited 2.00 s until every worker"}},
		{"a checkpoint",
			timeline(at(0, "0U0", 0, 0, 1, ""), at(0, "0CK0", 1, 1, 3, ""), at(0, "0F1", 3, 3, 4, "")),
			0, trace.Saving, "0CK0", []string{"writing the checkpoint 0CK0 for 2.00 s"}},
		{"nothing recorded",
			timeline(at(0, "0F0", 0, 0, 1, ""), at(0, "0F1", 1, 1.5, 2, "")),
			0, trace.Between, "", []string{"nothing is recorded"}},
		{"a message whose sender is not recorded",
			timeline(at(1, "1F5", 0, 0, 1, ""), at(1, "1RF0", 1, 2, 2, "0SF0"), at(1, "1F0", 2, 2, 4, "")),
			1, trace.WaitInput, "0SF0", []string{"activations of micro-batch 0 from stage 0"}},
		{"a send that waits holds up nobody",
			timeline(at(0, "0F0", 0, 0, 1, ""), at(0, "0SF0", 1, 1.5, 2, "link"), at(0, "0F1", 1, 1.5, 2, "")),
			0, trace.Between, "", []string{"nothing is recorded"}},
	} {
		gaps := trace.AllGaps(c.t)[c.worker]
		if len(gaps) == 0 {
			t.Errorf("%s: no gap", c.name)
			continue
		}
		g := gaps[0]
		if g.Cause != c.cause || g.Blocker != c.blocker {
			t.Errorf("%s: cause %s by %q, want %s by %q (%s)", c.name, g.Cause, g.Blocker, c.cause, c.blocker, g.Why)
		}
		for _, s := range c.says {
			if !strings.Contains(g.Why, s) {
				t.Errorf("%s: says %q, want it to say %q", c.name, g.Why, s)
			}
		}
	}
}

func TestTheLastGapNamesWhoWasStillWorking(t *testing.T) {
	gaps := trace.AllGaps(tracetest.TwoStages().Timeline())[1]
	last := gaps[len(gaps)-1]
	if last.Cause != trace.Finished || last.Before != "" || !strings.Contains(last.Why, "worker 0 was still at 0U0") {
		t.Errorf("last gap of stage 1: %+v", last)
	}
}

// TestUnderstoodBubble: in 1F1B with free transfers, a worker idles only while it waits for another stage or after its
// last instruction. The times of Idle add up to the bubble.
func TestUnderstoodBubble(t *testing.T) {
	p := tracetest.FourStages()
	p.TransferS = 0
	tl := p.Timeline()
	start, end := tl.Extent()
	sum := 0.0
	for w, gaps := range trace.AllGaps(tl) {
		for cause, s := range trace.Idle(gaps) {
			if cause != trace.WaitInput && cause != trace.WaitGradient && cause != trace.Finished {
				t.Errorf("worker %d idles %v s because of %s", w, s, cause)
			}
			sum += s
		}
	}
	if got, want := sum/(float64(tl.Workers)*(end-start)), tl.Bubble(start, end); got < want-1e-9 || got > want+1e-9 {
		t.Errorf("gaps are %v of the time, the bubble %v", got, want)
	}
}

// TestAGapAcrossClocks: the order of two processes' events is unknown if they are closer than the clocks' precision.
func TestAGapAcrossClocks(t *testing.T) {
	for _, c := range []struct {
		name    string
		doneS   float64 // when worker 0 had computed the input that worker 1 waited for from 0 to 4 s
		withinS float64
		cause   trace.Cause
		says    string
	}{
		{"far later", 3.5, 1, trace.WaitInput, "which computed 0F0 until 3.50 s"},
		{"far sooner", 0.5, 1, trace.WaitTransfer, "0F0 was done at 500 ms and its transfer took"},
		{"a little later than half of it", 2.4, 1, trace.WaitMessage, "whether 0F0 was being computed for most of " +
			"that, or was on its way, clocks that agree within ±1.00 s cannot tell"},
		{"a little sooner", 1.6, 1, trace.WaitMessage, "cannot tell"},
		{"a little later on one clock", 2.4, 0, trace.WaitInput, "computed 0F0 until 2.40 s"},
		{"a little sooner on one clock", 1.6, 0, trace.WaitTransfer, "0F0 was done at 1.60 s"},
		{"behind its arrival", 4.5, 3, trace.WaitMessage, "cannot tell"},
	} {
		tl := timeline(at(0, "0F0", 0, 0, c.doneS, ""), at(0, "0SF0", c.doneS, c.doneS, c.doneS+0.1, ""),
			at(1, "1RF0", 0, 4, 4, "0SF0"), at(1, "1F0", 4, 4, 6, ""))
		if c.withinS > 0 {
			tl.Processes = []trace.Process{{Host: "a"}, {Host: "b", ErrorS: c.withinS}}
			tl.Places = []trace.Place{{}, {Process: 1}}
		}
		g := trace.AllGaps(tl)[1][0]
		if g.Cause != c.cause || g.Blocker != map[bool]string{true: "0F0", false: "0SF0"}[c.cause != trace.WaitTransfer] ||
			!strings.Contains(g.Why, c.says) {
			t.Errorf("%s: %s by %q: %q; want %s and something about %q", c.name, g.Cause, g.Blocker, g.Why, c.cause, c.says)
		}
	}
}
