package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// A visit continues until its steps are done, even if updates are taken back or Programs must be short. It is answered
// once.
func TestAVisitIsAllItsSteps(t *testing.T) {
	var asked []int
	var out bytes.Buffer
	stopped := false
	v := &visits{
		stop:     func() { stopped = true },
		requests: bufio.NewScanner(strings.NewReader("step 6\nstep 2\n")), out: json.NewEncoder(&out), batch: 10,
		program: func(_ trace.Timeline, steps int) (*schedule.Program, error) {
			asked = append(asked, steps)
			return nil, nil
		},
	}
	so := trace.Timeline{Workers: 1}
	for _, run := range []struct{ most, done int }{
		{4, 3},   // visit 1: a Program of 4 steps, of which 3 are done
		{4, 3},   // visit 1: its other 3 steps
		{100, 2}, // visit 2: its 2 steps
	} {
		if _, err := v.next(so, run.most); err != nil {
			t.Fatal(err)
		}
		for range run.done {
			n := float64(len(so.Steps))
			so.Steps = append(so.Steps, trace.StepMark{Step: len(so.Steps), StartS: n, EndS: n + 1})
		}
	}
	if stopped {
		t.Error("the training ends before the last request")
	}
	if _, err := v.next(so, 100); err != nil || !stopped {
		t.Errorf("after the last request: %v; the training ends: %v", err, stopped)
	}
	if want := []int{4, 3, 2, 1}; !slices.Equal(asked, want) {
		t.Errorf("Programs of %v steps, want %v", asked, want)
	}
	var samples, back []int
	var last float64
	for lines := json.NewDecoder(&out); lines.More(); {
		var a struct {
			Samples   int     `json:"samples"`
			TakenBack int     `json:"taken_back"`
			StepS     float64 `json:"step_s"`
		}
		if err := lines.Decode(&a); err != nil {
			t.Fatal(err)
		}
		samples, back, last = append(samples, a.Samples), append(back, a.TakenBack), a.StepS
	}
	if !slices.Equal(samples, []int{0, 60, 20}) || !slices.Equal(back, []int{0, 1, 0}) || last != 1 {
		t.Errorf("visits of %v samples, updates taken back %v times, a step of %v s; want the description, 60 and "+
			"20; 0, 1 and 0; 1", samples, back, last)
	}
}
