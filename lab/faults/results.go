package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/document"
)

const version = 1

// results is what a campaign came to.
type results struct {
	Version   int       `json:"version"`
	Seed      uint64    `json:"seed"`
	Processes int       `json:"processes"`
	Ways      []summary `json:"ways"`
}

// summary is what the tries of one way came to.
type summary struct {
	Way           string   `json:"way"`
	What          string   `json:"what"`
	Tries         int      `json:"tries"`
	WorstEndS     float64  `json:"worst_end_s"`   // from the fault to the end of the last process that could run
	Named         int      `json:"named"`         // tries in which every process named the lost one
	WeightsRight  int      `json:"weights_right"` // in which the weights at the end were right
	NothingIsLeft int      `json:"nothing_left"`  // and nothing was left running, or half-written
	Fewer         int      `json:"fewer"`         // that went on in fewer processes
	ByLaunch      int      `json:"by_launch"`     // that millrace launch started again by itself
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

// wrong is how much went wrong.
func (r *results) wrong() (n int) {
	for _, w := range r.Ways {
		n += len(w.Found)
	}
	return n
}

func (r *results) print(out io.Writer) {
	fmt.Fprintf(out, "%-14s  tries  worst end  all named  weights right  nothing left  in fewer processes  by launch  "+
		"found\n", "")
	for _, w := range r.Ways {
		fmt.Fprintf(out, "%-14s  %5d  %7.2f s  %9d  %13d  %12d  %18d  %9d  %5d\n", w.Way, w.Tries, w.WorstEndS, w.Named,
			w.WeightsRight, w.NothingIsLeft, w.Fewer, w.ByLaunch, len(w.Found))
	}
}

// write writes what went as it should; of a campaign in which anything did not there are no results.
func (r *results) write(path string) error {
	if n := r.wrong(); n > 0 {
		return fmt.Errorf("%d went wrong; %s is not written", n, path)
	}
	return document.WriteJSON(path, r)
}

// found is what went wrong in a try, as lines below its own.
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
