package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/millrace-ml/millrace/trace"
)

// chromeEvent is one entry of Chrome's Trace Event Format. Times are microseconds.
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

// ChromeJSON writes the Timeline in Chrome's Trace Event Format, which chrome://tracing,
// Perfetto and speedscope read: a process a worker, a thread a track, memory as counters,
// and flow arrows from sends to receives.
func ChromeJSON(w io.Writer, t *trace.Timeline) error {
	if err := t.Validate(); err != nil {
		return fmt.Errorf("report: chrome: %w", err)
	}
	t = fromZero(t)
	c := &chrome{w: bufio.NewWriter(w)}
	c.raw(`{"displayTimeUnit":"ms","traceEvents":[`)
	for worker := range t.Workers {
		c.write(chromeEvent{Name: "process_name", Phase: "M", Process: worker,
			Args: map[string]any{"name": "worker " + strconv.Itoa(worker)}})
		c.write(chromeEvent{Name: "process_sort_index", Phase: "M", Process: worker,
			Args: map[string]any{"sort_index": worker}})
	}
	for i, tr := range tracksOf(t) {
		c.write(chromeEvent{Name: "thread_name", Phase: "M", Process: tr.worker, Thread: i + 1,
			Args: map[string]any{"name": tr.name}})
		for k := range tr.slices {
			c.slice(tr.worker, i+1, &tr.slices[k])
		}
	}
	for _, m := range t.Memory {
		c.write(chromeEvent{Name: "memory", Phase: "C", Process: m.Worker, TimeUS: microseconds(nanoseconds(m.AtS)),
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

func (c *chrome) slice(worker, thread int, s *slice) {
	e := chromeEvent{Name: s.name, Category: s.kind, Phase: "X", Process: worker, Thread: thread,
		TimeUS: microseconds(s.startNS), LengthUS: microseconds(s.endNS - s.startNS)}
	if s.why != "" {
		e.Args = map[string]any{"why": s.why}
	} else {
		e.Args = map[string]any{"what": trace.Plain(s.kind), "step": s.step}
		if s.bytes > 0 {
			e.Args["bytes"] = s.bytes
		}
	}
	c.write(e)
	// An arrow starts and ends inside the boxes it joins.
	if s.flowOut != "" {
		c.write(chromeEvent{Name: "message", Category: "flow", Phase: "s", Process: worker, Thread: thread,
			TimeUS: microseconds(s.startNS), ID: s.flowOut})
	}
	if s.hasFlowStart {
		c.write(chromeEvent{Name: "message", Category: "flow", Phase: "f", Bind: "e", Process: worker, Thread: thread,
			TimeUS: microseconds(s.startNS), ID: s.flowIn})
	}
}

// microseconds writes nanoseconds exactly, with three decimals: a float would move ends
// of boxes past the starts of the next.
func microseconds(ns int64) json.Number {
	sign := ""
	if ns < 0 {
		sign, ns = "-", -ns
	}
	return json.Number(fmt.Sprintf("%s%d.%03d", sign, ns/1000, ns%1000))
}
