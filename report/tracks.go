package report

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/trace"
)

// track is a line of slices that do not overlap, as viewers require.
type track struct {
	worker int
	name   string
	slices []slice
}

// slice is a box on a track. Times are in nanoseconds on the Timeline's clock.
type slice struct {
	name, kind   string
	startNS      int64
	endNS        int64
	step         int // its StepNumber
	bytes        int64
	why          string // reason of a wait
	note         string // remark on the precision of clocks
	flowOut      string // the message it sends, or empty
	flowIn       string // the message it receives, or empty
	hasFlowStart bool
}

// tracksOf lays out a Timeline. Each worker has a track for computations, a track for waits with their reasons, and as
// many tracks for transfers as transfers run at once. A reference beside a worker has a track too.
func tracksOf(t *trace.Timeline) []track {
	var out []track
	compute := make([][]slice, t.Workers)
	comm, beside := make([][]slice, t.Workers), make([][]slice, t.Workers)
	sent := map[string]bool{}
	early := early(t)
	for i := range t.Events {
		e := &t.Events[i]
		s := slice{name: e.Instruction, kind: e.Kind, startNS: nanoseconds(e.StartS), endNS: nanoseconds(e.EndS),
			step: trace.StepNumber(e.Step), bytes: e.Bytes}
		s.flowOut, s.flowIn = flow(e)
		if s.flowOut != "" {
			sent[s.flowOut] = true
		}
		if beyond, is := early[e]; is {
			s.note, s.flowIn = tooEarly(beyond), "" // an arrow would go back in time
		}
		switch e.Lane {
		case trace.Compute:
			compute[e.Worker] = append(compute[e.Worker], s)
		case trace.Beside:
			beside[e.Worker] = append(beside[e.Worker], s)
		default:
			comm[e.Worker] = append(comm[e.Worker], s)
		}
	}
	gaps := trace.AllGaps(t)
	for w := range t.Workers {
		out = append(out, fit(w, "compute", compute[w])...)
		var waits []slice
		for _, g := range gaps[w] {
			waits = append(waits, slice{name: g.Cause.Label(), kind: "wait", startNS: nanoseconds(g.StartS),
				endNS: nanoseconds(g.EndS), why: g.Why})
		}
		out = append(out, fit(w, "waiting", waits)...)
		out = append(out, fit(w, "transfers", comm[w])...)
		out = append(out, fit(w, "reference", beside[w])...)
	}
	for i := range out {
		for k := range out[i].slices {
			s := &out[i].slices[k]
			s.hasFlowStart = s.flowIn != "" && sent[s.flowIn]
		}
	}
	return out
}

// tooEarly returns a remark on a message that was received before it was sent.
func tooEarly(beyondS float64) string {
	if beyondS <= 0 {
		return "by the clocks it came before it left, which is within their error"
	}
	return "by the clocks it came before it left, by " + terminal.Duration(beyondS) + " more than their error"
}

// home returns the viewer's process for a worker's tracks, with the process's name, and a prefix for the tracks' names.
// Each worker has its own process, or if the run had several processes, the one in which it ran.
func home(t *trace.Timeline, worker int) (process int, name, prefix string) {
	if len(t.Processes) < 2 {
		return worker, fmt.Sprintf("worker %d", worker), ""
	}
	p := t.Places[worker].Process
	return p, t.NameOf(p), fmt.Sprintf("worker %d: ", worker)
}

// homes returns the processes of a viewer, by number, with their names.
func homes(t *trace.Timeline) map[int]string {
	all := map[int]string{}
	for w := range t.Workers {
		process, name, _ := home(t, w)
		all[process] = name
	}
	return all
}

// fit puts each slice on the first track that is free when the slice starts.
func fit(worker int, name string, all []slice) []track {
	slices.SortStableFunc(all, func(a, b slice) int {
		if a.startNS != b.startNS {
			return int(min(1, max(-1, a.startNS-b.startNS)))
		}
		return int(min(1, max(-1, a.endNS-b.endNS)))
	})
	var out []track
	for _, s := range all {
		k := slices.IndexFunc(out, func(t track) bool { return t.slices[len(t.slices)-1].endNS <= s.startNS })
		if k < 0 {
			k = len(out)
			title := name
			if k > 0 {
				title = fmt.Sprintf("%s %d", name, k+1)
			}
			out = append(out, track{worker: worker, name: title})
		}
		out[k].slices = append(out[k].slices, s)
	}
	return out
}

// flow returns the message that an event sends or receives. Between stages, a message carries a micro-batch over a
// boundary in one direction. Boundary b is between stages b and b+1.
func flow(e *trace.Event) (out, in string) {
	f, ok := trace.ParseFields(e.Instruction)
	if !ok {
		return "", ""
	}
	id := func(direction string, boundary int) string {
		return fmt.Sprintf("p%d %s micro %d boundary %d", f.Pipeline, direction, f.Micro, boundary)
	}
	switch e.Kind {
	case "SF":
		return id("forward", f.Stage), ""
	case "RF":
		return "", id("forward", f.Stage-1)
	case "SB":
		return id("backward", f.Stage-1), ""
	case "RB":
		return "", id("backward", f.Stage)
	case "SG": // messages to and from the worker that holds the weights
		return fmt.Sprintf("gradients of %d", f.Micro), ""
	case "RG":
		return "", fmt.Sprintf("gradients of %d", f.Micro)
	case "SW":
		return fmt.Sprintf("weights for %d", f.Micro), ""
	case "RW":
		return "", fmt.Sprintf("weights for %d", f.Micro)
	}
	return "", ""
}

func nanoseconds(s float64) int64 {
	if s < 0 {
		return int64(s*1e9 - .5)
	}
	return int64(s*1e9 + .5)
}

// fromZero shifts a Timeline that begins before 0 so that it begins at 0, because viewers accept no negative times.
func fromZero(t *trace.Timeline) *trace.Timeline {
	start, end := t.Extent()
	for _, m := range t.Memory {
		start, end = min(start, m.AtS), max(end, m.AtS)
	}
	if start >= 0 {
		return t
	}
	return t.Window(start, end)
}
