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

// message is a decoded protobuf message: the values of each field, in order.
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

func TestPerfettoSaysWhatTheTimelineSays(t *testing.T) {
	p := tracetest.FourStages()
	p.Steps = 2
	tl := p.Timeline()
	var b bytes.Buffer
	if err := Perfetto(&b, tl); err != nil {
		t.Fatal(err)
	}
	names, parents := map[uint64]string{}, map[uint64]uint64{}
	type box struct{ start, end uint64 }
	boxes := map[string]box{}
	open := map[uint64]string{}
	last := map[uint64]uint64{}
	flows := map[uint64][]string{}
	counters, waits := 0, 0
	var peak uint64
	for _, raw := range decode(t, b.Bytes())[1] {
		packet := decode(t, raw.([]byte))
		if packet.number(10) != 1 {
			t.Fatal("a packet without its sequence")
		}
		if d, ok := packet[60]; ok {
			track := decode(t, d[0].([]byte))
			if _, twice := names[track.number(1)]; twice {
				t.Errorf("track %d is described twice", track.number(1))
			}
			names[track.number(1)], parents[track.number(1)] = track.text(2), track.number(5)
			continue
		}
		at := packet.number(8)
		e := decode(t, packet[11][0].([]byte))
		track := e.number(11)
		if names[track] == "" {
			t.Fatalf("track %d is used before it is described", track)
		}
		switch e.number(9) {
		case 1:
			if open[track] != "" {
				t.Fatalf("%s begins inside %s on track %s", e.text(23), open[track], names[track])
			}
			if at < last[track] {
				t.Fatalf("%s begins before the one before it ended", e.text(23))
			}
			open[track] = e.text(23)
			if names[track] == "waiting" {
				waits++
				if a := decode(t, e[4][0].([]byte)); a.text(10) != "why" || a.text(6) == "" {
					t.Fatalf("the wait %s does not say why", e.text(23))
				}
			} else {
				boxes[e.text(23)] = box{start: at}
			}
			for _, id := range e[47] {
				flows[id.(uint64)] = append(flows[id.(uint64)], e.text(23))
			}
		case 2:
			if x, ok := boxes[open[track]]; ok {
				boxes[open[track]] = box{x.start, at}
			}
			open[track], last[track] = "", at
		case 4:
			counters++
			if names[track] == "memory" {
				peak = max(peak, e.number(30))
			}
		default:
			t.Fatalf("event type %d", e.number(9))
		}
	}
	for _, e := range tl.Events {
		if got := boxes[e.Instruction]; got.start != uint64(nanoseconds(e.StartS)) || got.end != uint64(nanoseconds(e.EndS)) {
			t.Errorf("%s is %v, want %d to %d", e.Instruction, got, nanoseconds(e.StartS), nanoseconds(e.EndS))
		}
	}
	if want := len(tl.Memory) + len(tl.Losses); counters != want {
		t.Errorf("%d counter values, want %d", counters, want)
	}
	if peak != uint64(tl.PeakBytes[0]) || waits == 0 {
		t.Errorf("peak %d, want %d; %d waits", peak, tl.PeakBytes[0], waits)
	}
	// 8 micro-batches x 2 steps cross 3 boundaries in 2 directions, each from a send to a receive.
	if len(flows) != 8*2*3*2 {
		t.Errorf("%d arrows, want %d", len(flows), 8*2*3*2)
	}
	for id, ends := range flows {
		if len(ends) != 2 {
			t.Errorf("arrow %d joins %v, want a send and a receive", id, ends)
		}
	}
	for id, name := range names {
		if p := parents[id]; p != 0 && !strings.HasPrefix(names[p], "worker ") {
			t.Errorf("track %s hangs below %q", name, names[p])
		}
	}
}

func TestChromeJSONIsValidAndNested(t *testing.T) {
	p := tracetest.TwoStages()
	p.TransferS = .2 // longer than a forward: transfers overlap
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
