package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/trace"
)

// chromeEvent is one entry of Chrome's Trace Event Format. Times are in microseconds.
type chromeEvent struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	TimeUS   json.Number    `json:"ts,omitempty"`
	LengthUS json.Number    `json:"dur,omitempty"`
	ID       string         `json:"id,omitempty"`
	Bind     string         `json:"bp,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// ChromeJSON writes the Timeline in Chrome's Trace Event Format, which chrome://tracing, Perfetto and speedscope
// read. It has a process for each worker, or for each process of the run if there were several. A track is a thread,
// memory is a counter, and arrows lead from sends to receives.
func ChromeJSON(w io.Writer, t *trace.Timeline) error {
	if err := t.Validate(); err != nil {
		return fmt.Errorf("report: chrome: %w", err)
	}
	t = fromZero(t)
	c := &chrome{w: bufio.NewWriter(w)}
	c.raw(`{"displayTimeUnit":"ms","traceEvents":[`)
	homes := homes(t)
	for _, process := range slices.Sorted(maps.Keys(homes)) {
		c.write(chromeEvent{Name: "process_name", Phase: "M", Process: process,
			Args: map[string]any{"name": homes[process]}})
		c.write(chromeEvent{Name: "process_sort_index", Phase: "M", Process: process,
			Args: map[string]any{"sort_index": process}})
	}
	for i, tr := range tracksOf(t) {
		process, _, prefix := home(t, tr.worker)
		c.write(chromeEvent{Name: "thread_name", Phase: "M", Process: process, Thread: i + 1,
			Args: map[string]any{"name": prefix + tr.name}})
		c.write(chromeEvent{Name: "thread_sort_index", Phase: "M", Process: process, Thread: i + 1,
			Args: map[string]any{"sort_index": i + 1}})
		for k := range tr.slices {
			c.slice(process, i+1, &tr.slices[k])
		}
	}
	for _, m := range t.Memory {
		process, _, prefix := home(t, m.Worker)
		c.write(chromeEvent{Name: prefix + "memory", Phase: "C", Process: process, TimeUS: microseconds(nanoseconds(m.AtS)),
			Args: map[string]any{"bytes": m.Bytes}})
	}
	c.raw("\n]}\n")
	if c.err == nil {
		c.err = c.w.Flush()
	}
	if c.err != nil {
		return fmt.Errorf("report: chrome: %w", c.err)
	}
	return nil
}

type chrome struct {
	w    *bufio.Writer
	some bool
	err  error
}

func (c *chrome) raw(s string) {
	if c.err == nil {
		_, c.err = c.w.WriteString(s)
	}
}

func (c *chrome) write(e chromeEvent) {
	if c.some {
		c.raw(",")
	}
	c.some = true
	b, err := json.Marshal(e)
	if err != nil && c.err == nil {
		c.err = err
	}
	c.raw("\n" + string(b))
}

func (c *chrome) slice(process, thread int, s *slice) {
	e := chromeEvent{Name: s.name, Category: s.kind, Phase: "X", Process: process, Thread: thread,
		TimeUS: microseconds(s.startNS), LengthUS: microseconds(s.endNS - s.startNS)}
	if s.why != "" {
		e.Args = map[string]any{"why": s.why}
	} else {
		e.Args = map[string]any{"what": trace.Plain(s.kind), "step": s.step}
		if s.bytes > 0 {
			e.Args["bytes"] = s.bytes
		}
		if s.note != "" {
			e.Args["clocks"] = s.note
		}
	}
	c.write(e)
	// An arrow starts and ends inside the boxes that it connects.
	if s.flowOut != "" {
		c.write(chromeEvent{Name: "message", Category: "flow", Phase: "s", Process: process, Thread: thread,
			TimeUS: microseconds(s.startNS), ID: s.flowOut})
	}
	if s.hasFlowStart {
		c.write(chromeEvent{Name: "message", Category: "flow", Phase: "f", Bind: "e", Process: process, Thread: thread,
			TimeUS: microseconds(s.startNS), ID: s.flowIn})
	}
}

// microseconds returns a time in nanoseconds as microseconds with three decimals, which is exact. A float would move
// ends of boxes past the starts of the next ones.
func microseconds(ns int64) json.Number {
	sign := ""
	if ns < 0 {
		sign, ns = "-", -ns
	}
	return json.Number(fmt.Sprintf("%s%d.%03d", sign, ns/1000, ns%1000))
}
