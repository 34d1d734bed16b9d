package report

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/trace/tracetest"
	"google.golang.org/protobuf/encoding/protowire"
)

// fields is a decoded protobuf message: the values of each field, in order.
type fields map[protowire.Number][]any

func decode(t *testing.T, b []byte) fields {
	t.Helper()
	out := fields{}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatalf("bad tag: %v", protowire.ParseError(n))
		}
		b = b[n:]
		var v any
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(b)
		case protowire.Fixed32Type:
			v, n = protowire.ConsumeFixed32(b)
		case protowire.BytesType:
			v, n = protowire.ConsumeBytes(b)
		default:
			t.Fatalf("field %d has wire type %d", number, kind)
		}
		if n < 0 {
			t.Fatalf("bad field %d: %v", number, protowire.ParseError(n))
		}
		b = b[n:]
		out[number] = append(out[number], v)
	}
	return out
}

func (f fields) number(n protowire.Number) uint64 {
	if v, ok := f[n]; ok {
		return v[0].(uint64)
	}
	return 0
}

func (f fields) text(n protowire.Number) string {
	if v, ok := f[n]; ok {
		return string(v[0].([]byte))
	}
	return ""
}

// viewed is the content of a trace's packets so far. Tracks are found by id, and boxes by their displayed name.
type viewed struct {
	*testing.T
	names           map[uint64]string
	parents         map[uint64]uint64
	boxes           map[string]spanned
	open            map[uint64]string // the unfinished box on a track; "": none
	last            map[uint64]uint64 // by track: the end of its last box
	flows           map[uint64][]string
	counters, waits int
	peak            uint64
}

// spanned is the start and the end of a box, in nanoseconds.
type spanned struct{ start, end uint64 }

// read processes a packet: the description of a track, or an event on a described track.
func (r *viewed) read(packet fields) {
	r.Helper()
	if packet.number(10) != 1 {
		r.Fatal("a packet without its sequence")
	}
	if d, ok := packet[60]; ok {
		track := decode(r.T, d[0].([]byte))
		if _, twice := r.names[track.number(1)]; twice {
			r.Errorf("track %d is described twice", track.number(1))
		}
		r.names[track.number(1)], r.parents[track.number(1)] = track.text(2), track.number(5)
		return
	}
	at := packet.number(8)
	e := decode(r.T, packet[11][0].([]byte))
	track := e.number(11)
	if r.names[track] == "" {
		r.Fatalf("track %d is used before it is described", track)
	}
	switch e.number(9) {
	case 1:
		r.begin(track, at, e)
	case 2:
		if x, ok := r.boxes[r.open[track]]; ok {
			r.boxes[r.open[track]] = spanned{x.start, at}
		}
		r.open[track], r.last[track] = "", at
	case 4:
		r.counters++
		if r.names[track] == "memory" {
			r.peak = max(r.peak, e.number(30))
		}
	default:
		r.Fatalf("event type %d", e.number(9))
	}
}

// begin processes the beginning of a box. The box must begin after the one before it has ended.
func (r *viewed) begin(track, at uint64, e fields) {
	r.Helper()
	if r.open[track] != "" {
		r.Fatalf("%s begins inside %s on track %s", e.text(23), r.open[track], r.names[track])
	}
	if at < r.last[track] {
		r.Fatalf("%s begins before the one before it ended", e.text(23))
	}
	r.open[track] = e.text(23)
	if r.names[track] == "waiting" {
		r.waits++
		if a := decode(r.T, e[4][0].([]byte)); a.text(10) != "why" || a.text(6) == "" {
			r.Fatalf("the wait %s does not say why", e.text(23))
		}
	} else {
		r.boxes[e.text(23)] = spanned{start: at}
	}
	for _, id := range e[47] {
		r.flows[id.(uint64)] = append(r.flows[id.(uint64)], e.text(23))
	}
}

func TestPerfettoSaysWhatTheTimelineSays(t *testing.T) {
	p := tracetest.FourStages()
	p.Steps = 2
	tl := p.Timeline()
	var b bytes.Buffer
	if err := Perfetto(&b, tl); err != nil {
		t.Fatal(err)
	}
	r := &viewed{T: t, names: map[uint64]string{}, parents: map[uint64]uint64{}, boxes: map[string]spanned{},
		open: map[uint64]string{}, last: map[uint64]uint64{}, flows: map[uint64][]string{}}
	for _, raw := range decode(t, b.Bytes())[1] {
		r.read(decode(t, raw.([]byte)))
	}
	for _, e := range tl.Events {
		got := r.boxes[e.Instruction]
		if got.start != uint64(nanoseconds(e.StartS)) || got.end != uint64(nanoseconds(e.EndS)) {
			t.Errorf("%s is %v, want %d to %d", e.Instruction, got, nanoseconds(e.StartS), nanoseconds(e.EndS))
		}
	}
	if want := len(tl.Memory) + len(tl.Losses); r.counters != want {
		t.Errorf("%d counter values, want %d", r.counters, want)
	}
	if r.peak != uint64(tl.PeakBytes[0]) || r.waits == 0 {
		t.Errorf("peak %d, want %d; %d waits", r.peak, tl.PeakBytes[0], r.waits)
	}
	// 8 micro-batches in each of 2 steps cross 3 boundaries in 2 directions. Each crossing has an arrow from a send to
	// a receive.
	if len(r.flows) != 8*2*3*2 {
		t.Errorf("%d arrows, want %d", len(r.flows), 8*2*3*2)
	}
	for id, ends := range r.flows {
		if len(ends) != 2 {
			t.Errorf("arrow %d joins %v, want a send and a receive", id, ends)
		}
	}
	for id, name := range r.names {
		if p := r.parents[id]; p != 0 && !strings.HasPrefix(r.names[p], "worker ") {
			t.Errorf("track %s hangs below %q", name, r.names[p])
		}
	}
}

func TestChromeJSONIsValidAndNested(t *testing.T) {
	p := tracetest.TwoStages()
	p.TransferS = .2 // this is longer than a forward, so that transfers overlap
	tl := p.Timeline()
	for i := range tl.Events {
		tl.Events[i].StartS -= .5 // a Timeline may begin before its zero
		tl.Events[i].EndS -= .5
		tl.Events[i].ReadyS -= .5
	}
	var b bytes.Buffer
	if err := ChromeJSON(&b, tl); err != nil {
		t.Fatal(err)
	}
	var file struct {
		Unit   string `json:"displayTimeUnit"`
		Events []struct {
			Name, Ph, ID string
			Pid, Tid     int
			Ts, Dur      float64
			Args         map[string]any
		} `json:"traceEvents"`
	}
	if err := json.Unmarshal(b.Bytes(), &file); err != nil {
		t.Fatalf("not JSON: %v", err)
	}
	type thread struct{ pid, tid int }
	ends := map[thread]float64{}
	threads := map[thread]string{}
	starts, finishes, boxes := map[string]bool{}, 0, 0
	for _, e := range file.Events {
		th := thread{e.Pid, e.Tid}
		switch e.Ph {
		case "M":
			if e.Name == "thread_name" {
				threads[th] = e.Args["name"].(string)
			}
		case "X":
			if e.Ts < 0 || e.Dur < 0 {
				t.Errorf("%s is at %v for %v", e.Name, e.Ts, e.Dur)
			}
			if e.Ts < ends[th]-1e-6 {
				t.Errorf("%s overlaps the box before it on %s", e.Name, threads[th])
			}
			ends[th] = math.Max(ends[th], e.Ts+e.Dur)
			if threads[th] == "" {
				t.Errorf("%s is on a thread without a name", e.Name)
			}
			if threads[th] != "waiting" {
				boxes++
			}
		case "s":
			starts[e.ID] = true
		case "f":
			finishes++
			if !starts[e.ID] && !bytes.Contains(b.Bytes(), []byte(`"ph":"s"`)) {
				t.Errorf("arrow %q has no start", e.ID)
			}
		}
	}
	if boxes != len(tl.Events) {
		t.Errorf("%d boxes, want %d", boxes, len(tl.Events))
	}
	if len(starts) != 16 || finishes != 16 {
		t.Errorf("%d arrows start and %d end, want 16", len(starts), finishes)
	}
	found := false
	for _, name := range threads {
		found = found || name == "transfers 2"
	}
	if !found {
		t.Error("transfers that run at once share a thread")
	}
}

func TestViewersRefuseABadTimeline(t *testing.T) {
	bad := &trace.Timeline{Version: 1, Workers: 1, Events: []trace.Event{{Worker: 3}}}
	if err := Perfetto(&bytes.Buffer{}, bad); err == nil ||
		!strings.HasPrefix(err.Error(), "report: perfetto: trace: events[0]") {
		t.Errorf("perfetto: error %v", err)
	}
	if err := ChromeJSON(&bytes.Buffer{}, bad); err == nil ||
		!strings.HasPrefix(err.Error(), "report: chrome: trace: events[0]") {
		t.Errorf("chrome: error %v", err)
	}
}
