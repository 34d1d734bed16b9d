package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/trace"
)

// host is a host on which some of a Timeline's workers run.
type host struct {
	Name      string
	Processes []int
	Workers   []int // the workers of these processes, in order
}

// title returns the heading of a host, with the numbers of its processes.
func (h *host) title() string {
	word := "rank"
	if len(h.Processes) > 1 {
		word = "ranks"
	}
	if h.Name == "" {
		return word + " " + list(h.Processes)
	}
	return fmt.Sprintf("host %s, %s %s", h.Name, word, list(h.Processes))
}

// hostsOf returns the hosts of a Timeline's workers, in the order of their processes; nil for a single process.
func hostsOf(t *trace.Timeline) []host {
	if t == nil || len(t.Processes) < 2 {
		return nil
	}
	var all []host
	at, of := map[string]int{}, make([]int, len(t.Processes))
	for p, process := range t.Processes {
		i, known := at[process.Host]
		if !known {
			i = len(all)
			at[process.Host] = i
			all = append(all, host{Name: process.Host})
		}
		of[p] = i
		all[i].Processes = append(all[i].Processes, p)
	}
	for w, place := range t.Places {
		all[of[place.Process]].Workers = append(all[of[place.Process]].Workers, w)
	}
	return all
}

// groups returns the hosts by which workers are grouped. They are the hosts of the run, or if it has fewer than two
// processes, the hosts of its prediction. If neither has several processes, it returns one host without a name for all
// workers.
func (in Inputs) groups() []host {
	for _, t := range []*trace.Timeline{in.Measured, in.Simulated} {
		if all := hostsOf(t); all != nil {
			return all
		}
	}
	all := host{}
	for w := range in.workers() {
		all.Workers = append(all.Workers, w)
	}
	return []host{all}
}

// clocks returns sentences on how precisely times of different processes agree, and on messages that were received
// before they were sent. It returns nil for a single process.
func clocks(t *trace.Timeline) []string {
	if hostsOf(t) == nil {
		return nil
	}
	text := []string{fmt.Sprintf("Times of different processes agree within ±%s; of what is nearer no order is "+
		"known.", terminal.Duration(t.ErrorS()))}
	n, beyond, worst := 0, 0, 0.0
	for _, s := range early(t) {
		if n++; s > 0 {
			beyond++
		}
		worst = max(worst, s)
	}
	switch {
	case beyond > 0:
		text = append(text, fmt.Sprintf("By the clocks %s came before they left by more than that, up to %s more: a clock "+
			"was set, or did not keep its pace.", terminal.Count(beyond, "message"), terminal.Duration(worst)))
	case n > 0:
		text = append(text, fmt.Sprintf("By the clocks %s came before they left, which is within that.",
			terminal.Count(n, "message")))
	}
	return text
}

// early returns the messages between processes that were received before they were sent, by receive event. The value is
// the time, in seconds, by which the receive precedes the send, less the error of both clocks. If it is 0 or less, the
// error explains the order.
func early(t *trace.Timeline) map[*trace.Event]float64 {
	left := map[string]*trace.Event{}
	for i := range t.Events {
		if out, _ := flow(&t.Events[i]); out != "" {
			if first := left[out]; first == nil || t.Events[i].StartS < first.StartS {
				left[out] = &t.Events[i]
			}
		}
	}
	all := map[*trace.Event]float64{}
	for i := range t.Events {
		e := &t.Events[i]
		if _, in := flow(e); in != "" && left[in] != nil && e.StartS < left[in].StartS {
			if within := t.WithinS(e.Worker, left[in].Worker); within > 0 {
				all[e] = left[in].StartS - e.StartS - within
			}
		}
	}
	return all
}

// clockOf describes the clock of one of a Timeline's processes, which was 0 when the process began. A drift is left out
// if over the whole run it changes the time by less than the clock's error.
func clockOf(t *trace.Timeline, p *trace.Process) string {
	if p.OffsetS == 0 && p.Drift == 0 && p.ErrorS == 0 {
		return "is the one that times are on"
	}
	text := fmt.Sprintf("began %s behind rank 0's", terminal.Duration(p.OffsetS))
	if p.OffsetS < 0 {
		text = fmt.Sprintf("began %s before rank 0's", terminal.Duration(-p.OffsetS))
	}
	does := "loses"
	if p.Drift < 0 {
		does = "gains"
	}
	if start, end := t.Extent(); math.Abs(p.Drift)*(end-start) > p.ErrorS {
		text += fmt.Sprintf(", %s %.3g µs a second", does, math.Abs(p.Drift)*1e6)
	}
	return text + fmt.Sprintf(", known within ±%s", terminal.Duration(p.ErrorS))
}

// stragglers describes the workers that computed more slowly than their profile says, with a sentence for each.
func stragglers(in Inputs) []string {
	t := in.Measured
	if t == nil {
		return nil
	}
	var all []string
	for _, s := range t.Stragglers {
		where := ""
		if len(t.Processes) > 1 {
			where = t.Where(s.Worker)
		}
		from, to := terminal.Whole(trace.StepNumber(s.From)), terminal.Whole(trace.StepNumber(s.To))
		text := fmt.Sprintf("%s in steps %s to %s: at first %.2f times as long as by its profile, the others %.2f times",
			holder(s.Worker, in.stagesOf(s.Worker), where), from, to, s.Times, s.Others)
		if s.LastTimes > 0 {
			text += fmt.Sprintf("; at last %.2f times", s.LastTimes)
		}
		all = append(all, text)
	}
	return all
}

// heldBy lists the workers of a process, with the stages that they hold.
func (in Inputs) heldBy(t *trace.Timeline, process int) string {
	var all []string
	for w, at := range t.Places {
		if at.Process != process {
			continue
		}
		all = append(all, holder(w, in.stagesOf(w), ""))
	}
	if all == nil {
		return "none"
	}
	return strings.Join(all, ", ")
}

// holder names a worker with its place and the stages that it holds: "worker 0 (stages 0 and 1)".
func holder(worker int, held []int, where string) string {
	if len(held) > 0 {
		where += "; " + terminal.Plural(len(held), "stage") + " " + terminal.And(held)
	}
	if where = strings.TrimPrefix(where, "; "); where == "" {
		return fmt.Sprintf("worker %d", worker)
	}
	return fmt.Sprintf("worker %d (%s)", worker, where)
}
