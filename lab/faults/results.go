package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/terminal"
)

const version = 1

type results struct {
	Version   int       `json:"version"`
	Seed      uint64    `json:"seed"`
	Processes int       `json:"processes"`
	Ways      []summary `json:"ways"`
}

// summary sums up the tries in which a process is lost in the same way.
type summary struct {
	Way           string   `json:"way"`
	What          string   `json:"what"`
	Tries         int      `json:"tries"`
	WorstEndS     float64  `json:"worst_end_s"`   // from the fault to the end of the last process that could run
	Named         int      `json:"named"`         // tries in which every process named the lost one
	WeightsRight  int      `json:"weights_right"` // tries with the right weights at the end
	NothingIsLeft int      `json:"nothing_left"`  // tries after which nothing was left running or half-written
	Fewer         int      `json:"fewer"`         // tries that continued with fewer processes
	ByLaunch      int      `json:"by_launch"`     // tries that millrace launch restarted by itself
	Found         []string `json:"-"`             // what went wrong
}

func (s *summary) add(t *try) {
	s.Tries++
	s.WorstEndS = max(s.WorstEndS, t.took.Round(time.Millisecond).Seconds())
	for _, c := range []struct {
		n  *int
		so bool
	}{{&s.Named, t.named}, {&s.WeightsRight, t.right}, {&s.NothingIsLeft, t.clean}, {&s.Fewer, t.fewer},
		{&s.ByLaunch, t.launched}} {
		if c.so {
			*c.n++
		}
	}
	for _, w := range t.wrong {
		s.Found = append(s.Found, fmt.Sprintf("try %d: %s", t.number, w))
	}
}

// wrong returns the number of failures.
func (r *results) wrong() (n int) {
	for _, w := range r.Ways {
		n += len(w.Found)
	}
	return n
}

func (r *results) print(out io.Writer) {
	t := terminal.Table{Columns: []terminal.Column{{Heading: "lost"}, {Heading: "tries", Number: true},
		{Heading: "worst end", Number: true}, {Heading: "named", Number: true}, {Heading: "weights right", Number: true},
		{Heading: "nothing left", Number: true}, {Heading: "fewer", Group: "went on by", Number: true},
		{Heading: "launch", Group: "went on by", Number: true}, {Heading: "found", Number: true}}}
	for _, w := range r.Ways {
		row := []string{w.Way, strconv.Itoa(w.Tries), terminal.Duration(w.WorstEndS)}
		for _, n := range []int{w.Named, w.WeightsRight, w.NothingIsLeft, w.Fewer, w.ByLaunch, len(w.Found)} {
			row = append(row, strconv.Itoa(n))
		}
		t.Add(row...)
	}
	_ = t.Write(out, terminal.Of(out)) // an error is ignored, as for the lines of the tries
}

// write writes the results of a campaign without failures; it refuses any other.
func (r *results) write(path string) error {
	if n := r.wrong(); n > 0 {
		return fmt.Errorf("%d went wrong; %s is not written", n, path)
	}
	return document.WriteJSON(path, r)
}

// found returns the failures of a try as further lines, indented.
func (t *try) found() string {
	if len(t.wrong) == 0 {
		return ""
	}
	text := "\n    FOUND " + strings.Join(t.wrong, "\n    FOUND ")
	if t.kept != "" {
		text += "\n    its folder: " + t.kept
	}
	return text
}
