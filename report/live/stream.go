package live

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// epoch distinguishes the cursors of this process from the cursors of other processes.
var epoch = strconv.FormatUint(rand.Uint64(), 36)

// cursor records which data a page already has: of the list of all runs, and of the runs that it draws.
type cursor struct {
	round int // the page has all changes up to this round of the Shelf
	of    map[string]has
}

// has records, for each part of a run's data, the version that was last sent to a page; 0: none.
type has struct {
	replaced                              int // the Follower's field `replaced`
	each, whole, rows                     int // sizes of the series of steps, see series.ends
	heldEach, heldWhole, heldRows         int
	details, numbers, predicted, measured int
}

func (h *has) fields() []*int {
	return []*int{&h.replaced, &h.each, &h.whole, &h.rows, &h.heldEach, &h.heldWhole, &h.heldRows,
		&h.details, &h.numbers, &h.predicted, &h.measured}
}

// text returns a cursor as the ID of an event.
func (c cursor) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.%d", epoch, c.round)
	for _, id := range sortedNames(c.of) {
		h := c.of[id]
		b.WriteString(" " + id)
		for _, f := range h.fields() {
			b.WriteString("." + strconv.Itoa(*f))
		}
	}
	return b.String()
}

// parseCursor reads an ID. If the ID is invalid, or another process made it, the cursor is empty, so that the page is
// sent everything.
func parseCursor(text string) cursor {
	none := cursor{of: map[string]has{}}
	words := strings.Split(text, " ")
	mine, round, _ := strings.Cut(words[0], ".")
	c := cursor{of: map[string]has{}}
	var err error
	if c.round, err = strconv.Atoi(round); mine != epoch || err != nil || c.round < 0 || len(words) > mostRuns {
		return none
	}
	for _, word := range words[1:] {
		numbers := strings.Split(word, ".")
		var h has
		fields := h.fields()
		if len(numbers) != 1+len(fields) {
			return none
		}
		for i, f := range fields {
			if *f, err = strconv.Atoi(numbers[1+i]); err != nil || *f < 0 {
				return none
			}
		}
		c.of[numbers[0]] = h
	}
	return c
}

// news is the content of one event.
type news struct {
	NowS    float64   `json:"now"` // Unix time in seconds, by the clock that the events use
	Runs    []summary `json:"runs,omitempty"`
	All     bool      `json:"all,omitempty"`  // Runs has all runs
	Full    int       `json:"full,omitempty"` // number of runs shown, if there are more
	Drawn   []drawn   `json:"drawn,omitempty"`
	Details []details `json:"details,omitempty"`
}

// drawn is what is new in a run's curves and steps.
type drawn struct {
	ID        string          `json:"id"`
	Fresh     bool            `json:"fresh,omitempty"` // the page must discard what it has, if anything
	Steps     json.RawMessage `json:"steps,omitempty"` // see series.appendJSON
	Held      json.RawMessage `json:"held,omitempty"`  // the same for the series of evaluations
	Now       *now            `json:"last,omitempty"`
	Numbers   *shownNumbers   `json:"numbers,omitempty"`
	Predicted json.RawMessage `json:"predicted,omitempty"` // see report.StepData
	Measured  json.RawMessage `json:"measured,omitempty"`
}

// since returns what is new to a page since a cursor, and the next cursor. It returns false if nothing is new. `draw`
// lists the runs whose curves the page draws. `show` is the run that the page shows with steps.
func (s *Shelf) since(c cursor, draw []string, show string, at time.Time) (news, cursor, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, next := news{NowS: float64(at.UnixMilli()) / 1000}, cursor{round: s.rounds, of: map[string]has{}}
	any := c.round == 0 && s.rounds > 0
	n.All = c.round == 0 || c.round < s.removed
	for _, r := range ordered(s.runs) {
		if r.round > c.round || n.All && r.round > 0 {
			n.Runs = append(n.Runs, r.told)
		}
	}
	if s.full {
		n.Full = len(s.runs)
	}
	any = any || n.All && c.round > 0 || len(n.Runs) > 0
	for _, id := range draw {
		r := s.byID[id]
		if r == nil || r.round == 0 {
			continue
		}
		before, known := c.of[id]
		d, about, h := r.follower.since(before, known, id == show)
		next.of[id] = h
		if d != nil {
			d.ID = id
			n.Drawn, any = append(n.Drawn, *d), true
		}
		if about {
			n.Details, any = append(n.Details, r.follower.detail(id)), true
		}
	}
	return n, next, any
}

// since returns the data of a run that a page lacks, or nil if it lacks nothing. `c` says what the page has; it is
// ignored unless `known` is set. `next` says what the page has once it has received `d`. `about` reports whether the
// run's details have changed too. If `shown` is set, the page shows only this run, and also needs its numbers and the
// drawn steps.
func (f *Follower) since(c has, known, shown bool) (d *drawn, about bool, next has) {
	d = &drawn{Fresh: !known || c.replaced != f.replaced}
	if d.Fresh {
		c = has{replaced: f.replaced} // the page discards all that it has of the run
	}
	next = c
	from := func(s *series, each, whole int) int {
		if each != s.each || whole > len(s.parts) {
			return 0
		}
		return whole
	}
	any := d.Fresh
	next.each, next.whole, next.rows = f.steps.ends()
	if d.Fresh || c.each != next.each || c.whole != next.whole || c.rows != next.rows {
		d.Steps, d.Now, any = f.steps.appendJSON(nil, from(f.steps, c.each, c.whole)), new(f.now), true
	}
	next.heldEach, next.heldWhole, next.heldRows = f.evaluations.ends()
	if d.Fresh || c.heldEach != next.heldEach || c.heldWhole != next.heldWhole || c.heldRows != next.heldRows {
		d.Held, any = f.evaluations.appendJSON(nil, from(f.evaluations, c.heldEach, c.heldWhole)), true
	}
	if about = d.Fresh || c.details != f.details; about {
		next.details = f.details
	}
	if shown {
		if c.numbers != f.news {
			d.Numbers, next.numbers, any = f.measured().shown(), f.news, true
		}
		if c.predicted != f.drawn[0].shown {
			d.Predicted, next.predicted, any = orNull(f.drawn[0].json), f.drawn[0].shown, true
		}
		if c.measured != f.drawn[1].shown {
			d.Measured, next.measured, any = orNull(f.drawn[1].json), f.drawn[1].shown, true
		}
	}
	if !any {
		return nil, about, next
	}
	return d, about, next
}

func orNull(text []byte) json.RawMessage {
	if text == nil {
		return json.RawMessage("null")
	}
	return text
}

// Limits of a stream.
const (
	takesWithin = 10 * time.Second // a page must take an event within this time
	stillThere  = 15 * time.Second // time after which something is sent even if nothing is new
	leastApart  = 300 * time.Millisecond
	mostDrawn   = 24 // largest number of runs that a page draws
	mostIDBytes = 1 << 13
)

// stream sends a page each change, until the page is closed or no longer reads.
func (s *Shelf) stream(w http.ResponseWriter, r *http.Request) {
	draw := strings.FieldsFunc(r.FormValue("draw"), func(c rune) bool { return c == ',' })
	show := r.FormValue("show")
	if show != "" && !slices.Contains(draw, show) {
		draw = append(draw, show)
	}
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		id = r.FormValue("have")
	}
	if len(draw) > mostDrawn || len(id) > mostIDBytes {
		http.Error(w, fmt.Sprintf("a page draws %d runs at most", mostDrawn), http.StatusBadRequest)
		return
	}
	c := parseCursor(id)
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // nothing more is read, so the page must not time out
	out := newSender(w, r, control, s.patience)
	defer s.leave(s.enter(draw, show))
	if c.round == 0 { // the page has nothing yet; if its first event had only one run, it would show that run alone
		s.lookAnew()
	}
	for {
		s.mu.Lock()
		wake := s.wake
		s.mu.Unlock()
		n, next, any := s.since(c, draw, show, time.Now())
		if any {
			text, err := json.Marshal(n)
			if err != nil || out.send(next.text(), text) != nil {
				return
			}
			c = next
		}
		select {
		case <-wake:
		case <-time.After(stillThere):
			if out.remark() != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-s.closed:
			_ = out.end()
			return
		}
		select { // waits, so that the next event combines several changes
		case <-time.After(leastApart):
		case <-r.Context().Done():
			return
		case <-s.closed:
		}
	}
}

// enter records which runs a page draws, so that their files are read often.
func (s *Shelf) enter(draw []string, show string) []*run {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*run
	for _, id := range draw {
		if r := s.byID[id]; r != nil {
			if r.wanted++; id == show {
				r.drawn++
				r.wanted--
			}
			all = append(all, r)
			r.seen = time.Time{}
		}
	}
	s.looking.Add(1)
	select {
	case s.awake <- struct{}{}:
	default:
	}
	return slices.Concat(all, []*run{s.byID[show]})
}

// leave reverts enter. `entered` has the runs that the page drew, and at the end the run that it showed.
func (s *Shelf) leave(entered []*run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(entered) - 1
	for _, r := range entered[:last] {
		if r == entered[last] {
			r.drawn--
		} else {
			r.wanted--
		}
	}
	s.looking.Add(-1)
}

type sender struct {
	to      io.Writer
	pack    *gzip.Writer // nil: no compression
	control *http.ResponseController
	within  time.Duration
}

func newSender(w http.ResponseWriter, r *http.Request, control *http.ResponseController,
	within time.Duration) *sender {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	out := &sender{to: w, control: control, within: within}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		out.pack, _ = gzip.NewWriterLevel(w, gzip.BestSpeed)
		out.to = out.pack
	}
	return out
}

// send sends an event, which the client must take in time.
func (o *sender) send(id string, text []byte) error {
	return o.write("id: " + id + "\ndata: " + string(text) + "\n\n")
}

// remark sends a comment, which pages ignore, so that both ends notice a lost connection.
func (o *sender) remark() error { return o.write(":\n\n") }

// end tells the page that there will be no more events.
func (o *sender) end() error { return o.write("event: end\ndata: \n\n") }

func (o *sender) write(text string) error {
	if err := o.control.SetWriteDeadline(time.Now().Add(o.within)); err != nil {
		return err
	}
	if _, err := io.WriteString(o.to, text); err != nil {
		return err
	}
	if o.pack != nil {
		if err := o.pack.Flush(); err != nil {
			return err
		}
	}
	return o.control.Flush()
}
