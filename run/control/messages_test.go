package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/trace"
)

// oneOfEach returns a message of every kind, with most fields set.
func oneOfEach() []Message {
	in := schedule.Instruction{Stage: 2, Kind: schedule.RB, Micro: 7, Replica: 1, Pipeline: 3}
	bodies := []Body{
		Load{Program: "millrace program 1\nname \"x\"", Base: 3}, Evaluate{Program: "p", Base: 4}, Save{Program: "p",
			Base: 5, Draft: "a b\u2028"},
		Mark{Draft: "d"}, Look{Draft: "e"}, Commit{Draft: "f", Manifest: "{\n}", Others: true}, Prune{}, Done{Keeper: 3},
		Stop{}, Begun{Minibatch: -1}, Limit{Minibatches: 9}, Reached{Drain: 1, Workers: 2}, Release{Drain: 1},
		Step{
			Step: 8, StartS: 0.1, EndS: 1e-300, Norm: 1.0 / 3, Workers: []Did{
				{BusyS: math.Nextafter(0.3, 1), PeakBytes: 1 << 60, LiveBytes: 3, SentBytes: 5, ReceivedBytes: 6},
				{BusyS: math.MaxFloat64, PeakBytes: 2, LiveBytes: 4, SentBytes: 1 << 62, ReceivedBytes: 7}},
			Losses: []Loss{{Index: 3, Value: -math.SmallestNonzeroFloat64}},
		},
		Result{Parts: []Tested{{Index: 1, Rows: 2, Loss: 1.0 / 3, Correct: new(2.0),
			Reported: []*float64{new(0.5), nil}}}, Apart: 0.1},
		Saved{Files: []File{{Name: "stage-000.safetensors", Bytes: 9, CRC32C: "00ff00ff", Tensors: 3}},
			Updates: map[string]int{"dense": 4}},
		Ended{Minibatches: 4, Refused: &Failed{Process: 1, Text: "norm", Class: "not finite"}, PeakBytes: []int64{5}},
		Ready{}, Beat{},
		Needs{
			AtS: 1.0 / 7, QuietS: 0.25, Running: true, Ended: true, Stuck: true,
			Waits: []Wait{{Worker: 1, At: in, Lack: machine.Message, For: "p3/1SB7@r1", Peer: 2, Waited: time.Second,
				Since: time.Minute}},
		},
		Failed{Process: 2, Text: "line\nline", Class: "c"}, Leave{Stopped: true, Draft: "g"},
		Ask{Name: "open", With: json.RawMessage(`{"a":[1,"\u2028"]}`)}, Answer{With: json.RawMessage("3"), Failed: &Failed{Text: "no"}},
		Show{Step: 6, Around: true}, Shown{Step: 6, Timeline: &trace.Timeline{Version: 1, Events: []trace.Event{}}},
		Begin{}, Dismiss{Failed: &Failed{Process: 1, Text: "wrong"}},
		Record{Timeline: &trace.Timeline{Version: 1, Source: "run", Events: []trace.Event{}}},
		Left{Leaked: 1, Failed: &Failed{Text: "late", Lost: &LostError{Process: 3, Name: "process 3", Why: "silent"}}},
	}
	var all []Message
	for i, b := range bodies {
		all = append(all, Message{N: uint64(i + 1), From: i % 3, Epoch: uint32(i), Body: b})
	}
	return all
}

// An encoded message has one line and is decoded to the same bits. All kinds of messages are tested.
func TestMessagesAreReadBack(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range oneOfEach() {
		text, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(text, '\n') != len(text)-1 {
			t.Errorf("%s is not one line: %q", m.Body.kind(), text)
		}
		back, err := Decode(text[:len(text)-1])
		if err != nil || !reflect.DeepEqual(back, m) {
			t.Errorf("%q was read back as %+v, %v", text, back, err)
		}
		seen[m.Body.kind()] = true
	}
	if len(seen) != len(readers) {
		t.Errorf("%d kinds are tried of %d", len(seen), len(readers))
	}
	if _, err := Encode(Message{Body: Step{StartS: math.NaN()}}); err == nil {
		t.Error("a time that is no number was written")
	}
	if _, err := Encode(Message{Body: Load{Program: strings.Repeat("x", MaxLine)}}); err == nil {
		t.Error("a message over the limit was written")
	}
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	for text, says := range map[string]string{
		``:                                       "a message of 0 bytes",
		`null`:                                   `of kind ""`,
		`{}`:                                     `of kind ""`,
		`[1]`:                                    "cannot unmarshal",
		`{"n":1,"from":0,"kind":"stop"}{} {}`:    "more behind it",
		`{"n":1,"from":0,"kind":"stop","x":1}{}`: `unknown field "x"`,
		`{"n":1,"from":0,"kind":"stop"}{"x":1}`:  `process 0, stop: json: unknown field "x"`,
		`{"n":1,"from":0,"kind":"stop"}`:         "EOF",
		`{"n":1,"from":-1,"kind":"stop"}{}`:      "from process -1",
		`{"n":-1,"from":0,"kind":"stop"}{}`:      "cannot unmarshal",
		`{"n":1,"from":0,"kind":"dance"}{}`:      `of kind "dance"`,
		`{"n":1,"from":0,"kind":"begun"}{"minibatch":1.5}`:       "cannot unmarshal",
		`{"n":1,"from":0,"kind":"needs"}{"waits":[{"at":"F0"}]}`: "no stage number",
	} {
		if m, err := Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %+v, %v; want something about %q", text, m, err, says)
		}
	}
}

// A record of any length is sent in parts that are far below the limit, and is complete after them.
func TestARecordIsSentInParts(t *testing.T) {
	in := schedule.Instruction{Stage: math.MaxInt32, Kind: schedule.RB, Micro: math.MaxInt32, Replica: math.MaxInt16,
		Pipeline: math.MaxInt16}
	blocker := machine.Need{Worker: math.MaxInt32, At: in, Lack: machine.Message, For: in, Peer: math.MaxInt32}
	for _, c := range []struct{ events, samples, parts int }{
		{0, 0, 1}, {perRecord, 1, 1}, {perRecord + 1, 0, 2}, {0, 2*perRecord + 1, 3}, {2*perRecord + 5, perRecord + 3, 3},
	} {
		whole := &trace.Timeline{Version: trace.Version, Source: "run", Model: "m", Workers: 2, Stages: 2, Cores: 1,
			Stream: true, PeakBytes: []int64{0, 5}, PeakActivations: []int{0, 3}, Events: []trace.Event{}}
		for i := range c.events {
			whole.Events = append(whole.Events, trace.Event{
				Worker: 1, Lane: in.Kind.Lane(), Instruction: in.String(), Kind: in.Kind.String(), Step: math.MaxInt,
				ReadyS: 1e5 / 3, StartS: 1e5/3 + float64(i), EndS: 1e6 / 7, Bytes: math.MaxInt64, BlockedBy: blocker.Blocker(),
			})
		}
		for i := range c.samples {
			whole.Memory = append(whole.Memory, trace.MemorySample{Worker: 1, AtS: 1e5/3 + float64(i), Bytes: math.MaxInt64})
		}
		var back []*trace.Timeline
		for _, r := range RecordsOf(whole) {
			text, err := Encode(Message{N: math.MaxUint64, From: math.MaxInt, Epoch: math.MaxUint32, Body: r})
			if err != nil || len(text) > MaxLine/4 {
				t.Fatalf("%+v: a part has %d bytes: %v", c, len(text), err)
			}
			m, err := Decode(text[:len(text)-1])
			if err != nil {
				t.Fatal(err)
			}
			back = append(back, m.Body.(Record).Timeline)
		}
		merged, err := trace.Merge(back...)
		if err != nil || len(back) != c.parts || !reflect.DeepEqual(merged, whole) {
			t.Errorf("%+v: %d parts make %d events and %d samples, peaks %v and %v, %v", c, len(back), len(merged.Events),
				len(merged.Memory), merged.PeakBytes, merged.PeakActivations, err)
		}
	}
}

// numbers returns n numbers with a long text; nil for 0.
func numbers(n int) (all []*float64) {
	for range n {
		all = append(all, new(-1e300/3))
	}
	return all
}

// A long result of an evaluation is divided into parts too.
func TestAResultIsSentInParts(t *testing.T) {
	for _, c := range []struct{ micros, reported, parts int }{{0, 0, 1}, {1, 0, 1}, {perResult, 0, 1},
		{perResult + 1, 0, 2}, {3 * perResult, 0, 3}, {perResult, 1, 2}, {1, 2 * perResult, 1}, {2, 2 * perResult, 2}} {
		whole := Result{Apart: 0.5}
		for i := range c.micros {
			whole.Parts = append(whole.Parts, Tested{Index: math.MaxInt - i, Rows: math.MaxInt, Loss: 1e300 / 3,
				Correct: new(1e9 / 7), Reported: numbers(c.reported)})
		}
		parts := ResultsOf(whole)
		back := Result{}
		for i, r := range parts {
			text, err := Encode(Message{N: math.MaxUint64, From: math.MaxInt, Epoch: math.MaxUint32, Body: r})
			if err != nil || len(text) > MaxLine/4 {
				t.Fatalf("%+v: a part has %d bytes: %v", c, len(text), err)
			}
			if back.Parts = append(back.Parts, r.Parts...); i == 0 {
				back.Apart = r.Apart
			}
		}
		if len(parts) != c.parts || !reflect.DeepEqual(back, whole) {
			t.Errorf("%+v: %d parts make %d micro-batches", c, len(parts), len(back.Parts))
		}
	}
}

// Any decoded message encodes to a text that decodes to the same message.
func FuzzDecode(f *testing.F) {
	for _, m := range oneOfEach() {
		text, err := Encode(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text[:len(text)-1])
	}
	f.Add([]byte(`{"n":1,"from":0,"kind":"record"}{"timeline":{"events":[{"lane":9}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Decode(text)
		if err != nil {
			return
		}
		written, err := Encode(m)
		if err != nil {
			t.Fatalf("%+v was read and cannot be written: %v", m, err)
		}
		again, err := Decode(written[:len(written)-1])
		if err != nil {
			t.Fatalf("%q was written and cannot be read: %v", written, err)
		}
		one, _ := json.Marshal(m.Body)
		other, _ := json.Marshal(again.Body)
		if !bytes.Equal(one, other) || m.N != again.N || m.From != again.From || m.Epoch != again.Epoch {
			t.Fatalf("%+v was read again as %+v", m, again)
		}
	})
}

// ends are the two ends of a Link of each sort.
func ends() map[string]func() (a, b Link) {
	return map[string]func() (a, b Link){
		"pair": Pair,
		"stream": func() (a, b Link) {
			x, y := net.Pipe()
			return Over(x), Over(y)
		},
	}
}

// heard collects what comes over a Link.
type heard struct {
	mu   sync.Mutex
	all  []Message
	end  error
	done chan struct{}
}

func hear(l Link) *heard {
	h := &heard{done: make(chan struct{})}
	l.Start(func(m Message, err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err != nil {
			h.end = err
			close(h.done)
			return
		}
		h.all = append(h.all, m)
	})
	return h
}

func TestLinksKeepOrder(t *testing.T) {
	for name, make := range ends() {
		a, b := make()
		const n = 500
		early := Message{N: 1, Body: Stop{}}
		if err := a.Send(early); err != nil { // before the other end listens
			t.Fatal(name, err)
		}
		atA, atB := hear(a), hear(b)
		var sending sync.WaitGroup
		sending.Go(func() {
			for i := range n {
				if err := a.Send(Message{N: uint64(i + 2), Body: Begun{Minibatch: i}}); err != nil {
					t.Error(name, err)
				}
			}
		})
		for i := range n {
			if err := b.Send(Message{N: uint64(i + 1), From: 1, Body: Limit{Minibatches: i}}); err != nil {
				t.Error(name, err)
			}
		}
		sending.Wait()
		if err := a.Close(); err != nil { // messages that were sent before still arrive
			t.Error(name, err)
		}
		<-atB.done
		if err := b.Close(); err != nil {
			t.Error(name, err)
		}
		<-atA.done
		if len(atB.all) != n+1 || !errors.Is(atB.end, ErrClosed) || !errors.Is(atA.end, ErrClosed) {
			t.Fatalf("%s: %d messages of %d came, and then %v; %v", name, len(atB.all), n+1, atB.end, atA.end)
		}
		for i, m := range atB.all {
			if m.N != uint64(i+1) {
				t.Fatalf("%s: message %d came as number %d", name, m.N, i+1)
			}
		}
		if len(atA.all) != n {
			t.Errorf("%s: %d messages of %d came back", name, len(atA.all), n)
		}
		if err := a.Send(early); err != nil || len(atB.all) != n+1 {
			t.Errorf("%s: a message over a closed link: %v; %d came", name, err, len(atB.all))
		}
		if err := a.Close(); err != nil {
			t.Errorf("%s: closed twice: %v", name, err)
		}
	}
}

// A line that is not a message ends its Link with a description of the fault.
func TestABrokenLineEndsTheLink(t *testing.T) {
	x, y := net.Pipe()
	l := Over(x)
	h := hear(l)
	go io.WriteString(y, `{"n":1,"from":0,"kind":"stop"}{}`+"\nnonsense\n")
	<-h.done
	if len(h.all) != 1 || h.end == nil || !strings.Contains(h.end.Error(), "a message of 8 bytes") {
		t.Errorf("%v, and then %v", h.all, h.end)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	y.Close()
}

// Sending does not wait, even if the other end does not read or is gone.
func TestSendingDoesNotWait(t *testing.T) {
	x, y := net.Pipe()
	l := Over(x)
	h := hear(l)
	for i := range 1000 {
		if err := l.Send(Message{N: uint64(i + 1), Body: Load{Program: strings.Repeat("p", 1000)}}); err != nil {
			t.Fatal(err)
		}
	}
	y.Close()
	<-h.done
	if err := l.Send(Message{Body: Stop{}}); err != nil { // Send reports no error: only the reader learns of the loss
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
