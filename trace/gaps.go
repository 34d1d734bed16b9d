package trace

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/kind"
	"github.com/millrace-ml/millrace/internal/terminal"
)

// Cause is the kind of reason why a worker did not compute.
type Cause string

// The causes of a gap, in the order in which reports list them.
const (
	WaitInput    Cause = "input"    // an earlier stage had not computed the input yet
	WaitGradient Cause = "gradient" // a later stage had not computed its backward yet
	WaitTransfer Cause = "transfer" // the message was on its way, or the link was taken; also a wait for a server
	WaitMessage  Cause = "message"  // one of the three above; the clocks of two processes cannot tell which
	WaitReduce   Cause = "reduce"   // a collective: gradients of replicas, tied gradients, the norm
	WaitCore     Cause = "core"     // other workers held every core
	WaitDrain    Cause = "drain"    // not all workers had reached the drain yet
	Saving       Cause = "saving"   // the worker wrote a checkpoint
	Between      Cause = "between"  // nothing was recorded between two instructions
	Finished     Cause = "finished" // the worker had done all its work; others had not
)

// Causes lists every cause, in the order of reports.
var Causes = []Cause{WaitInput, WaitGradient, WaitTransfer, WaitMessage, WaitReduce, WaitCore, WaitDrain, Saving,
	Between, Finished}

// Label describes the cause in a few words.
func (c Cause) Label() string {
	switch c {
	case WaitInput:
		return "waiting for activations"
	case WaitGradient:
		return "waiting for gradients"
	case WaitTransfer:
		return "waiting for a transfer"
	case WaitMessage:
		return "waiting for a message, made or sent late"
	case WaitReduce:
		return "waiting for a collective"
	case WaitCore:
		return "waiting for a core"
	case WaitDrain:
		return "waiting at a drain"
	case Saving:
		return "writing a checkpoint"
	case Finished:
		return "done, others still working"
	}
	return "between instructions"
}

// Gap is a period in which a worker did not compute.
type Gap struct {
	Worker int     `json:"worker"`
	StartS float64 `json:"start_s"`
	EndS   float64 `json:"end_s"`
	Before string  `json:"before,omitempty"` // the instruction that ended the gap; empty if none followed
	Cause  Cause   `json:"cause"`
	// Blocker is the instruction for which the worker waited, or its own checkpoint if it was writing one. It is "" if
	// there is neither. BlockerWorker is the worker of that instruction, or -1 if that is not recorded.
	Blocker       string `json:"blocker,omitempty"`
	BlockerWorker int    `json:"blocker_worker"`
	Why           string `json:"why"` // a sentence that explains the gap, with names and times
}

// AllGaps returns, by worker, every gap of the Timeline with its reason. The reason comes from the longest recorded
// wait inside the gap. AllGaps looks up the instruction that the worker waited for. So the sentence can say whether
// another stage was still computing or a message was on its way. For the gaps of one step, use Step or Window first.
func AllGaps(t *Timeline) [][]Gap {
	r := newResolver(t)
	all := make([][]Gap, t.Workers)
	for w := range all {
		all[w] = r.gaps(w)
	}
	return all
}

// resolver finds events by instruction.
type resolver struct {
	t            *Timeline
	startS, endS float64
	last         *Event              // the first of the events with the latest end; nil without events
	own          [][]*Event          // by worker: all of its events, by start
	byText       map[string][]*Event // events by the text of their instruction
}

func newResolver(t *Timeline) *resolver {
	r := &resolver{t: t, own: make([][]*Event, t.Workers), byText: make(map[string][]*Event, len(t.Events))}
	r.startS, r.endS = t.Extent()
	for i := range t.Events {
		e := &t.Events[i]
		r.own[e.Worker] = append(r.own[e.Worker], e)
		r.byText[e.Instruction] = append(r.byText[e.Instruction], e)
		if r.last == nil || e.EndS > r.last.EndS {
			r.last = e
		}
	}
	for _, events := range r.own {
		slices.SortStableFunc(events, func(a, b *Event) int {
			if a.StartS != b.StartS {
				return compare(a.StartS, b.StartS)
			}
			return compare(a.EndS, b.EndS)
		})
	}
	return r
}

// negligible is the longest time, in seconds, that counts as rounding and not as a gap. Clocks count nanoseconds.
const negligible = 2e-9

func (r *resolver) gaps(worker int) []Gap {
	var out []Gap
	events := r.own[worker]
	from, waits := r.startS, 0
	for _, e := range events {
		if e.Lane != Compute || !IsBusy(e.Kind) || e.EndS <= e.StartS {
			continue
		}
		if e.StartS-from > negligible {
			// Events before this gap cannot explain later gaps either, so the index `waits` only moves forward.
			for waits < len(events) && events[waits].StartS < from {
				waits++
			}
			out = append(out, r.explain(worker, from, e.StartS, e, events[waits:]))
		}
		from = max(from, e.EndS)
	}
	if r.endS-from > negligible {
		for waits < len(events) && events[waits].StartS < from {
			waits++
		}
		out = append(out, r.explain(worker, from, r.endS, nil, events[waits:]))
	}
	return out
}

// explain says why a worker computed nothing from `start` to `end`. `next` is the event that ended the gap, or nil.
// `later` holds the worker's events that start in the gap or after it.
func (r *resolver) explain(worker int, start, end float64, next *Event, later []*Event) Gap {
	g := Gap{Worker: worker, StartS: start, EndS: end, Cause: Between, BlockerWorker: -1}
	if next != nil {
		g.Before = next.Instruction
	} else {
		g.Cause = Finished
	}
	var wait *Event
	longest := negligible
	for _, e := range later {
		if e.StartS > end {
			break
		}
		// A transfer waits on its own lane while the worker goes on, so it does not explain the gap.
		if e.BlockedBy != "" && !kind.Of(e.Kind).Issued() {
			if d := min(e.StartS, end) - max(e.ReadyS, start); d > longest {
				longest, wait = d, e
			}
		}
		if d := min(e.EndS, end) - max(e.StartS, start); e.Kind == "CK" && d > longest {
			longest, wait = d, e
		}
	}
	switch {
	case wait != nil && wait.Kind == "CK" && wait.EndS-wait.StartS >= longest && wait.StartS >= start:
		g.Cause, g.Blocker, g.BlockerWorker = Saving, wait.Instruction, worker
		g.Why = fmt.Sprintf("it was writing the checkpoint %s for %s", wait.Instruction,
			terminal.Duration(wait.EndS-wait.StartS))
	case wait != nil:
		r.resolve(&g, wait)
	case g.Cause == Finished:
		g.Why = r.finished(worker, start)
	case start <= r.startS+negligible && next.ReadyS >= next.StartS-negligible:
		g.Why = fmt.Sprintf("the worker had not reached %s yet when the recording began", next.Instruction)
	default:
		g.Why = "nothing is recorded between these two instructions: the time the worker needs to go from one to the next"
	}
	return g
}

// finished returns a sentence about a worker that had done all its work. If another worker ended later, it names the
// worker that ended last.
func (r *resolver) finished(worker int, start float64) string {
	if r.last == nil || r.last.EndS <= start+negligible+r.t.WithinS(worker, r.last.Worker) {
		return "the worker had done all it had to"
	}
	return fmt.Sprintf("the worker had done all it had to; worker %d was still at %s", r.last.Worker, r.last.Instruction)
}

// resolve sets the cause, the blocker and the sentence, from the event that waited.
func (r *resolver) resolve(g *Gap, wait *Event) {
	waited := terminal.Duration(min(wait.StartS, g.EndS) - max(wait.ReadyS, g.StartS))
	switch wait.BlockedBy {
	case ByCore:
		g.Cause = WaitCore
		g.Why = fmt.Sprintf("%s waited %s for a core%s", wait.Instruction, waited, r.holders(g, wait))
		return
	case ByLink:
		g.Cause = WaitTransfer
		g.Why = fmt.Sprintf("%s waited %s: another transfer was on the link", wait.Instruction, waited)
		return
	case ByDrain:
		g.Cause = WaitDrain
		g.Why = fmt.Sprintf("%s waited %s until every worker was at the drain and nothing was on its way", wait.Instruction,
			waited)
		return
	}
	g.Blocker = wait.BlockedBy
	f, ok := ParseFields(wait.BlockedBy)
	if !ok {
		g.Why = fmt.Sprintf("%s waited %s for %s", wait.Instruction, waited, wait.BlockedBy)
		return
	}
	blocker := r.find(wait.BlockedBy, wait)
	if blocker != nil {
		g.BlockerWorker = blocker.Worker
	}
	who := wait.Instruction
	if f.Kind == "SW" {
		r.weights(g, wait, blocker, waited)
		return
	}
	if kind.Of(f.Kind).Sends || f.Kind == "F" || f.Kind == "B" || f.Kind == "I" || f.Kind == "EV" {
		r.message(g, wait, f, blocker, waited)
		return
	}
	g.Cause = WaitReduce
	g.Why = fmt.Sprintf("%s waited %s for the %s %s", who, waited, Plain(f.Kind), wait.BlockedBy)
	if blocker != nil {
		g.Why += fmt.Sprintf(", which ended at %s", terminal.Duration(blocker.EndS-r.startS))
	}
}

// weights explains a wait for the newest weights. In that time the gradients were on their way to the server, the
// server was using them, or the new weights were on their way back.
func (r *resolver) weights(g *Gap, wait *Event, blocker *Event, waited string) {
	g.Cause = WaitTransfer
	g.Why = fmt.Sprintf("%s waited %s for the newest weights", reader(g, wait), waited)
	if blocker != nil {
		g.Why += fmt.Sprintf(" from worker %d, which were under way from %s to %s", blocker.Worker,
			terminal.Duration(blocker.StartS-r.startS), terminal.Duration(blocker.EndS-r.startS))
	}
}

// message explains a wait for activations or gradients. The sending stage was still computing, or the message was on
// its way, or the clocks cannot tell which.
func (r *resolver) message(g *Gap, wait *Event, f Fields, blocker *Event, waited string) {
	what := "activations"
	g.Cause = WaitInput
	if f.Kind == "SB" || f.Kind == "SG" || f.Kind == "B" || f.Kind == "I" {
		what, g.Cause = "gradients", WaitGradient
	}
	source := blocker
	if kind.Of(f.Kind).Sends {
		if made := r.maker(wait.BlockedBy, f); made != nil {
			source = made
		}
	}
	from := fmt.Sprintf("stage %d", f.Stage)
	if source != nil {
		from += fmt.Sprintf(" (worker %d)", source.Worker)
	}
	g.Why = fmt.Sprintf("%s waited %s for the %s of micro-batch %d from %s", reader(g, wait), waited, what, f.Micro, from)
	if source == nil {
		return
	}
	begin := max(wait.ReadyS, g.StartS)
	arrived := min(wait.StartS, g.EndS)
	half, within := begin+0.5*(arrived-begin), r.t.WithinS(source.Worker, g.Worker)
	if math.Abs(source.EndS-half) < within {
		g.Cause, g.Blocker, g.BlockerWorker = WaitMessage, source.Instruction, source.Worker
		g.Why += fmt.Sprintf(": whether %s was being computed for most of that, or was on its way, clocks that agree within "+
			"±%s cannot tell", source.Instruction, terminal.Duration(within))
		return
	}
	if source.EndS > begin && source.EndS >= half {
		g.Blocker, g.BlockerWorker = source.Instruction, source.Worker
		g.Why += fmt.Sprintf(", which computed %s until %s", source.Instruction, terminal.Duration(source.EndS-r.startS))
		return
	}
	g.Cause = WaitTransfer
	if blocker != nil && blocker != source {
		g.Why += fmt.Sprintf(": %s was done at %s and its transfer took %s", source.Instruction,
			terminal.Duration(source.EndS-r.startS), terminal.Duration(blocker.EndS-blocker.StartS))
		return
	}
	g.Why += fmt.Sprintf(": %s was done at %s", source.Instruction, terminal.Duration(source.EndS-r.startS))
}

// reader returns the instruction that the wait delayed. For a receive it is the computation that ended the gap.
func reader(g *Gap, wait *Event) string {
	if kind.Of(wait.Kind).Receives && g.Before != "" {
		return g.Before
	}
	return wait.Instruction
}

// maker returns the compute event whose result a send carries: 0SF3 carries the result of 0F3 (or 0EV3), 1SB2 carries
// the result of 1B2 (or 1I2).
func (r *resolver) maker(text string, f Fields) *Event {
	kinds := []string{"F", "EV"}
	if f.Kind == "SB" || f.Kind == "SG" {
		kinds = []string{"B", "I"}
	}
	for _, k := range kinds {
		if found := r.byText[strings.Replace(text, f.Kind, k, 1)]; len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return nil
}

// find returns an event with an instruction's text: the one that ended last before the wait was over. If none had ended
// by then, it returns the first of these events.
func (r *resolver) find(text string, wait *Event) *Event {
	var first, best *Event
	for _, e := range r.byText[text] {
		if first == nil {
			first = e
		}
		by := wait.StartS + negligible + r.t.WithinS(e.Worker, wait.Worker)
		if e.EndS <= by && (best == nil || e.EndS > best.EndS) {
			best = e
		}
	}
	return cmp.Or(best, first)
}

// poolOf returns the Pool of a worker, or nil.
func (t *Timeline) poolOf(worker int) *Pool {
	for i := range t.Pools {
		if slices.Contains(t.Pools[i].Workers, worker) {
			return &t.Pools[i]
		}
	}
	return nil
}

// holders names the workers that were computing at the middle of this worker's wait for a core. It makes the first of
// them the gap's blocker.
func (r *resolver) holders(g *Gap, wait *Event) string {
	at := (max(wait.ReadyS, g.StartS) + min(wait.StartS, g.EndS)) / 2
	var names []string
	pool := r.t.poolOf(g.Worker)
	for w, events := range r.own {
		if w == g.Worker || pool != nil && !slices.Contains(pool.Workers, w) {
			continue
		}
		// Look at the last 15 events that start before the middle of the wait (`at`), since transfers may be among
		// them.
		k, _ := slices.BinarySearchFunc(events, at, func(e *Event, at float64) int { return compare(e.StartS, at) })
		for i := k - 1; i >= 0 && i > k-16; i-- {
			if e := events[i]; e.Lane == Compute && IsBusy(e.Kind) && e.StartS <= at && e.EndS > at {
				names = append(names, fmt.Sprintf("worker %d with %s", w, e.Instruction))
				if g.Blocker == "" {
					g.Blocker, g.BlockerWorker = e.Instruction, w
				}
				break
			}
		}
	}
	cores := ""
	if pool != nil {
		cores = fmt.Sprintf(": %s share %d", terminal.Count(len(pool.Workers), "worker"), pool.Cores)
	} else if r.t.Cores > 0 {
		cores = fmt.Sprintf(": %s share %d", terminal.Count(r.t.Workers, "worker"), r.t.Cores)
	}
	const most = 4
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("%d more", len(names)-most))
	}
	if len(names) > 0 {
		cores += ", held by " + strings.Join(names, ", ")
	}
	return cores
}

// Idle returns the total length of one worker's gaps by cause, in seconds.
func Idle(gaps []Gap) map[Cause]float64 {
	idle := map[Cause]float64{}
	for _, g := range gaps {
		idle[g.Cause] += g.EndS - g.StartS
	}
	return idle
}
