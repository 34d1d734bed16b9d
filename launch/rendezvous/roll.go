package rendezvous

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// phase is the progress of a meeting.
type phase int

const (
	gathering phase = iota
	sharing         // all processes are here and are sent the table
	going           // all processes have the table
	failed
)

// roll records which processes have come, and decides what follows. It reads no clock and knows no connections. Rank
// 0 reports each event to it and asks it what to send.
type roll struct {
	own      Hello
	maxClock time.Duration

	phase   phase
	hellos  []*Hello // by rank; nil: the process has not come yet
	clocks  []*Clock // by rank; nil: not measured yet
	ready   []bool   // by rank: whether the process has the table
	clocked int      // number of measured clocks
	have    int      // number of ready processes

	reasons []string
	retry   bool // another try may help: no contradiction was found, but a process is lost or late
}

func newRoll(own Hello, maxClock time.Duration) *roll {
	r := &roll{own: own, maxClock: maxClock, hellos: make([]*Hello, own.Size), clocks: make([]*Clock, own.Size),
		ready: make([]bool, own.Size), retry: true}
	r.hellos[0], r.clocks[0], r.ready[0] = &own, &Clock{}, true
	r.clocked, r.have = 1, 1
	r.forward()
	return r
}

// add admits a process, or records a reason to end the meeting. If the meeting has already failed, it may do neither. A
// returned error is for a stranger, which is refused without ending the meeting.
func (r *roll) add(h Hello) (entered bool, err error) {
	switch {
	case h.Run != r.own.Run:
		return false, fmt.Errorf("this is the meeting of run %q, not of %q", r.own.Run, h.Run)
	case h.Restart != r.own.Restart:
		return false, fmt.Errorf("this is start %d of the run, not %d", r.own.Restart, h.Restart)
	case r.phase == going:
		return false, errors.New("all processes of the run have met already")
	}
	switch {
	case h.Version != r.own.Version:
		r.fail(false, "%s speaks version %d of the rendezvous, %s version %d: use one millrace everywhere", who(&h),
			h.Version, who(&r.own), r.own.Version)
	case h.Size != r.own.Size:
		r.fail(false, "%s says that there are %d processes, %s says %d", who(&h), h.Size, who(&r.own), r.own.Size)
	case r.hellos[h.Rank] != nil:
		r.fail(false, "rank %d is there twice: process %d on host %s and process %d on host %s", h.Rank, r.hellos[h.Rank].PID,
			r.hellos[h.Rank].Host, h.PID, h.Host)
	case r.phase == gathering:
		r.hellos[h.Rank] = &h
		r.compare(&h)
		return true, nil
	}
	return false, nil
}

// clock records the clock of an admitted process.
func (r *roll) clock(rank int, c Clock) {
	if r.phase != gathering {
		return
	}
	r.clocks[rank] = &c
	r.clocked++
	if most := r.maxClock.Seconds(); c.OffsetS-c.ErrorS > most || c.OffsetS+c.ErrorS < -most {
		r.fail(false, "the clock of %s is %v from that of %s; at most %v: set the hosts' clocks (NTP)", who(r.hellos[rank]),
			seconds(c.OffsetS), who(&r.own), r.maxClock)
	}
	r.forward()
}

func seconds(s float64) time.Duration {
	return time.Duration(max(s, -s) * float64(time.Second)).Round(time.Millisecond)
}

// took records that a process has the table.
func (r *roll) took(rank int) {
	if !r.ready[rank] {
		r.ready[rank] = true
		r.have++
		r.forward()
	}
}

// lost records that a process which had come is gone.
func (r *roll) lost(rank int, err error) {
	r.fail(true, "%s was lost before all had met: %v", who(r.hellos[rank]), err)
}

// late ends a meeting whose time is over.
func (r *roll) late(waited time.Duration) {
	if r.phase == gathering && len(r.reasons) == 0 || r.phase == sharing {
		r.fail(true, "%s within %v (here: %s)", r.awaited(), waited, r.present())
	}
	r.end()
}

// end ends the wait for more processes. If there are reasons to fail, the meeting fails.
func (r *roll) end() {
	if len(r.reasons) > 0 {
		r.phase = failed
	}
}

// forward goes to the next phase as soon as all processes have done what the phase waits for. If there are reasons to
// fail, the next phase is `failed`.
func (r *roll) forward() {
	switch {
	case len(r.reasons) > 0 && r.clocked == r.own.Size:
		r.phase = failed
	case len(r.reasons) > 0:
	case r.phase == gathering && r.clocked == r.own.Size:
		r.phase = sharing
		r.forward()
	case r.phase == sharing && r.have == r.own.Size:
		r.phase = going
	}
}

// maxReasons limits the reasons that are reported; further ones say nothing new.
const maxReasons = 16

// fail records a reason why the meeting fails. If all processes are here already, the meeting ends at once. Otherwise
// it ends later, so that other processes can add their reasons. retry is false for a contradiction, because another try
// would not help.
func (r *roll) fail(retry bool, format string, args ...any) {
	if r.phase == going || r.phase == failed {
		return
	}
	r.retry = r.retry && retry
	if reason := clip(fmt.Sprintf(format, args...)); len(r.reasons) < maxReasons && !slices.Contains(r.reasons, reason) {
		r.reasons = append(r.reasons, reason)
	}
	if r.phase == sharing {
		r.phase = failed
	}
}

// maxReason is the largest size of a reason in bytes.
const maxReason = 2048

func clip(text string) string {
	if len(text) > maxReason {
		return text[:maxReason] + "..."
	}
	return text
}

// compare records the facts of a process that must equal those of rank 0 but differ.
func (r *roll) compare(h *Hello) {
	for _, f := range h.Facts {
		i := slices.IndexFunc(r.own.Facts, func(own Fact) bool { return own.Name == f.Name })
		if i < 0 || !f.Must || f.Value == "" || r.own.Facts[i].Value == "" || r.own.Facts[i].Value == f.Value {
			continue
		}
		r.fail(false, "the %s of %s is %s, that of %s is %s", f.Name, who(h), f.Value, who(&r.own), r.own.Facts[i].Value)
	}
}

// differences lists the facts that may differ and that do differ, with the ranks that have each value.
func (r *roll) differences() []string {
	var all []string
	for _, own := range r.own.Facts {
		ranks := map[string][]int{}
		var values []string
		for rank, h := range r.hellos {
			for _, f := range h.Facts {
				if f.Name == own.Name && f.Value != "" && !f.Must {
					if ranks[f.Value] == nil {
						values = append(values, f.Value)
					}
					ranks[f.Value] = append(ranks[f.Value], rank)
				}
			}
		}
		if len(values) < 2 {
			continue
		}
		var said []string
		for _, v := range values {
			said = append(said, fmt.Sprintf("%s on %s", v, Ranks(ranks[v])))
		}
		all = append(all, clip(fmt.Sprintf("%s differs: %s", own.Name, strings.Join(said, "; "))))
	}
	return all
}

// word returns the next message to a process that has come.
func (r *roll) word(rank int) word {
	switch r.phase {
	case failed:
		return r.refusal()
	case going:
		return word{Kind: goAhead}
	case sharing:
		if !r.ready[rank] {
			return word{Kind: table, Clock: r.clocks[rank]}
		}
	}
	return word{Kind: beat, Reasons: []string{r.awaited()}}
}

// refusal returns the message to all processes when the meeting has failed.
func (r *roll) refusal() word { return word{Kind: refused, Reasons: r.reasons, Retry: r.retry} }

// awaited names the processes that are waited for: those that have not come, do not answer, or have not taken the
// table.
func (r *roll) awaited() string {
	if r.phase == sharing {
		return Ranks(r.which(func(rank int) bool { return !r.ready[rank] })) + " did not take the table of all"
	}
	var said []string
	if missing := r.which(func(rank int) bool { return r.hellos[rank] == nil }); len(missing) > 0 {
		said = append(said, fmt.Sprintf("%s of %d did not come", Ranks(missing), r.own.Size))
	}
	silent := r.which(func(rank int) bool { return r.hellos[rank] != nil && r.clocks[rank] == nil })
	if len(silent) > 0 {
		said = append(said, Ranks(silent)+" came and said no more")
	}
	return strings.Join(said, " and ")
}

// present lists the processes that have come, in words.
func (r *roll) present() string {
	return Ranks(r.which(func(rank int) bool { return r.hellos[rank] != nil }))
}

// which lists the ranks for which a condition holds.
func (r *roll) which(so func(rank int) bool) []int {
	var ranks []int
	for rank := range r.hellos {
		if so(rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// pack returns the table of all processes. Machines with the same name are different hosts: all but the first get a
// name with a number.
func (r *roll) pack() packed {
	t := packed{At: make([]int, r.own.Size), Addresses: make([][]byte, r.own.Size), Differ: r.differences()}
	type host struct{ name, machine string }
	at, called := map[host]int{}, map[string]int{}
	for rank, h := range r.hellos {
		of := host{h.Host, h.Machine}
		if _, known := at[of]; !known {
			at[of] = len(t.Hosts)
			name := h.Host
			for called[name] > 0 {
				called[h.Host]++
				name = fmt.Sprintf("%s#%d", h.Host, called[h.Host])
			}
			called[name]++
			t.Hosts = append(t.Hosts, name)
		}
		t.At[rank], t.Addresses[rank] = at[of], h.Address
	}
	return t
}

// who describes a process.
func who(h *Hello) string {
	return fmt.Sprintf("rank %d (process %d on host %s)", h.Rank, h.PID, h.Host)
}

// maxRuns limits the ranges of ranks that are listed.
const maxRuns = 32

// Ranks returns a list of ranks in words: "rank 3", "ranks 0, 4-7".
func Ranks(ranks []int) string {
	var runs []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		switch {
		case len(runs) == maxRuns:
			runs = append(runs, fmt.Sprintf("and %d more", len(ranks)-i))
			j = len(ranks) - 1
		case i == j:
			runs = append(runs, fmt.Sprint(ranks[i]))
		default:
			runs = append(runs, fmt.Sprintf("%d-%d", ranks[i], ranks[j]))
		}
		i = j + 1
	}
	switch len(ranks) {
	case 0:
		return "no ranks"
	case 1:
		return "rank " + runs[0]
	}
	return "ranks " + strings.Join(runs, ", ")
}
