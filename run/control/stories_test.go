package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace-ml/millrace/internal/storytest"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// TestStories runs the stories in testdata about the protocol between the processes of a run.
func TestStories(t *testing.T) {
	storytest.Tell(t, "testdata/stories", func() storytest.World { return &talk{} })
}

// talk is a leader and followers, and their messages. Every Message is encoded as on a Link. Process i has worker i.
// A message of the leader reaches all processes at once, except those whose Link has ended.
type talk struct {
	leader    *Leader
	progress  *Progress
	followers []*Follower
	dead      []bool
	told      strings.Builder
}

// Do implements storytest.World.
//
//	processes n=N      N processes, none ready
//	talk               a line each: "leader KIND {BODY}", "N KIND {BODY}", "link of N ends: WHY", "N is lost"
//	stalled after=S    what a leader that looks for a stall finds
//	outcome            what the last Program has done
//
// The story shows only lines that have a consequence, with the consequence.
func (w *talk) Do(t *testing.T, d *datadriven.TestData) (string, error) {
	w.told.Reset()
	switch d.Cmd {
	case "processes":
		var n int
		d.ScanArgs(t, "n", &n)
		w.leader, w.followers, w.dead = NewLeader(n, n), nil, make([]bool, n)
		of := make([][]int, n)
		for p := range n {
			w.followers = append(w.followers, NewFollower(p, 1))
			of[p] = []int{p}
		}
		w.progress = NewProgress(of, 2) // two micro-batches per step
	case "talk":
		for line := range strings.Lines(d.Input) {
			line = strings.TrimSpace(line)
			before := w.told.Len()
			if err := w.line(line); err != nil {
				fmt.Fprintf(&w.told, "  refused: %v\n", err)
			}
			if told := w.told.String(); len(told) > before { // lines without a consequence are not shown
				said, _, _ := strings.Cut(line, "{")
				w.told.Reset()
				fmt.Fprintf(&w.told, "%s%s\n%s", told[:before], strings.TrimSpace(said), told[before:])
			}
		}
	case "stalled":
		var after float64
		d.ScanArgs(t, "after", &after)
		quiet, waits, stalled := w.leader.Stalled(after)
		if !stalled {
			return "no\n", nil
		}
		fmt.Fprintf(&w.told, "yes, for %g s:\n", quiet)
		for _, wait := range waits {
			of, err := schedule.ParseInstruction(wait.For)
			if err != nil {
				return "", err
			}
			need := machine.Need{Worker: wait.Worker, At: wait.At, Lack: wait.Lack, For: of, Peer: wait.Peer}
			fmt.Fprintf(&w.told, "  %v\n", need)
		}
	case "outcome":
		minibatches, refused := w.leader.Outcome()
		fmt.Fprintf(&w.told, "%d minibatches are done\n", minibatches)
		if refused != nil {
			fmt.Fprintf(&w.told, "the last update was taken back: %v\n", refused)
		}
	default:
		return "", fmt.Errorf("no command %q", d.Cmd)
	}
	return w.told.String(), nil
}

// line carries out one event.
func (w *talk) line(line string) error {
	who, rest, _ := strings.Cut(line, " ")
	if who == "link" {
		name, why, _ := strings.Cut(strings.TrimPrefix(rest, "of "), " ends: ")
		return w.ends(name, why)
	}
	kind, text, _ := strings.Cut(rest, " ")
	process, err := strconv.Atoi(who)
	if err == nil && kind == "is" {
		if w.leader.Lose(process); w.leader.Gone() {
			fmt.Fprintln(&w.told, "  all have left")
		}
		return nil
	}
	if text == "" {
		text = "{}"
	}
	read, known := readers[kind]
	if !known || err != nil && who != "leader" {
		return fmt.Errorf("the story has a line %q", line)
	}
	body, wrong := read([]byte(text))
	if wrong != nil {
		return wrong
	}
	if who == "leader" {
		return w.send(w.says(body))
	}
	if process >= len(w.followers) { // an unknown process
		return w.hears(Message{N: 1, From: process, Body: body})
	}
	m, useful := w.followers[process].Say(body)
	if !useful {
		fmt.Fprintln(&w.told, "  is not said: it is of no use to anybody")
		return nil
	}
	return w.hears(m)
}

// says returns the leader's messages for a body.
func (w *talk) says(body Body) []Message {
	switch body := body.(type) {
	case Load, Evaluate, Save:
		return w.leader.Begin(body, 2) // an update of every stage covers two minibatches
	case Mark, Look, Commit, Prune:
		return w.leader.Order(body)
	case Stop:
		return w.leader.Stop()
	case Beat:
		return w.leader.Beat()
	case Failed:
		return w.leader.Fail(body)
	case Leave:
		return w.leader.Leave(body)
	}
	return nil
}

// ends ends a process's Link, which fails the run.
func (w *talk) ends(name, why string) error {
	process, err := strconv.Atoi(name)
	if err != nil {
		return err
	}
	w.dead[process] = true
	lost := NewLost(process, "process "+name, errors.New(why))
	return w.send(w.leader.Fail(Failed{Process: 0, Text: lost.Error(), Lost: lost}))
}

// hears passes a Message to the leader and sends its answers.
func (w *talk) hears(m Message) error {
	m, err := carried(m)
	if err != nil {
		return err
	}
	all, err := w.leader.Receive(m)
	if err != nil {
		return err
	}
	if part, is := m.Body.(Step); is {
		f, whole, err := w.progress.Add(m.From, part, 0)
		if err != nil {
			return err
		}
		if whole {
			fmt.Fprintf(&w.told, "  step %d is whole: loss %g, %g s\n", f.Step, f.Loss, f.TookS)
		}
	}
	if _, is := m.Body.(Done); is && !w.leader.Ordered() && w.leader.Failed() == nil {
		fmt.Fprintln(&w.told, "  the order is over")
		if why := w.leader.Refused(); why != nil {
			fmt.Fprintf(&w.told, "  and was not carried out: %v\n", why)
		}
	}
	if err := w.send(all); err != nil {
		return err
	}
	switch what, processes := w.leader.Owing(); {
	case w.leader.Gone():
		fmt.Fprintln(&w.told, "  all have left")
	case len(processes) > 0:
		fmt.Fprintf(&w.told, "  has not %s yet: %v\n", what, processes)
	}
	return nil
}

// send passes messages to all processes, and records what each has to do.
func (w *talk) send(all []Message) error {
	for _, m := range all {
		m, err := carried(m)
		if err != nil {
			return err
		}
		text, err := json.Marshal(m.Body)
		if err != nil {
			return err
		}
		fmt.Fprintf(&w.told, "  all are told: %s %s of program %d\n", m.Body.kind(), text, m.Epoch)
		for p, f := range w.followers {
			if w.dead[p] {
				fmt.Fprintf(&w.told, "    process %d does not hear it\n", p)
				continue
			}
			do, err := f.Receive(m)
			if err != nil {
				return err
			}
			if do == nil {
				fmt.Fprintf(&w.told, "    process %d has nothing to do about it\n", p)
			}
		}
	}
	return nil
}

// carried returns a Message after encoding and decoding.
func carried(m Message) (Message, error) {
	line, err := Encode(m)
	if err != nil {
		return Message{}, err
	}
	return Decode(line[:len(line)-1])
}
