package trace_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

func TestFileRoundTrip(t *testing.T) {
	want := tracetest.FourStages().Timeline()
	want.Model = `odd "events":[] name </script>`
	want.Cores = 2
	for _, name := range []string{"t.json", "t.json.gz"} {
		path := filepath.Join(t.TempDir(), name)
		if err := want.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		got, err := trace.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s changed on its way through the file (-want +got):\n%s", name, d)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if zipped := raw[0] == 0x1f && raw[1] == 0x8b; zipped != strings.HasSuffix(name, ".gz") {
			t.Errorf("%s: gzip is %v", name, zipped)
		}
		var again bytes.Buffer
		if err := got.Write(&again); err != nil {
			t.Fatal(err)
		}
		if name == "t.json" && !bytes.Equal(raw, again.Bytes()) {
			t.Error("the same Timeline gave other bytes")
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

func TestFailedWriteKeepsTheOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.json")
	good := tracetest.TwoStages().Timeline()
	if err := good.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(path)
	bad := *good
	bad.Workers = 1
	if err := bad.WriteFile(path); err == nil {
		t.Fatal("a Timeline with a worker out of range was written")
	}
	after, _ := os.ReadFile(path)
	if !bytes.Equal(before, after) {
		t.Error("the old file changed")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRefusals(t *testing.T) {
	const head = `{"version":1,"source":"sim","workers":2,"stages":2,`
	for _, c := range []struct{ name, file, want string }{
		{"empty", "", "the file is empty"},
		{"cut short", head + "\n\"events\":[\n{\"worker\":0", "line 3: the file ends too early"},
		{"other version", `{"version":7,"workers":1,"events":[]}`, "version is 7, this millrace reads version 1"},
		{"no version", `{}`, "version is 0"},
		{"unknown field", head + `"evens":[]}`, `unknown field "evens"`},
		{"wrong type", head + "\n" + `"events":[{"worker":"zero"}]}`, "line 2: events.worker is a string, want int"},
		{"not json", "millrace program 1", "line 1"},
		{"two objects", head + `"events":[]}` + "\n{}", "line 2: something follows"},
		{"worker", head + `"events":[{"worker":2,"lane":"comm","kind":"F","instruction":"0F0"}]}`,
			"events[0] (0F0): worker is 2, want 0 to 1"},
		{"lane", head + `"events":[{"worker":1,"lane":"io","kind":"F"}]}`, `lane is "io", want "compute", "comm" or "reference"`},
		{"kind", head + `"events":[{"worker":1,"lane":"comm"}]}`, "kind is missing"},
		{"backwards", head + `"events":[{"worker":1,"lane":"comm","kind":"F","ready_s":1,"start_s":3,"end_s":2}]}`,
			"ends at 2 s, before it started at 3 s"},
		{"early", head + `"events":[{"worker":1,"lane":"comm","kind":"F","ready_s":4,"start_s":3,"end_s":5}]}`,
			"before it was ready"},
		{"bytes", head + `"events":[{"worker":1,"lane":"comm","kind":"F","bytes":-1}]}`, "bytes is -1"},
		{"workers", `{"version":1,"workers":2000000000,"events":[]}`, "workers is 2000000000"},
		{"memory", head + `"events":[],"memory":[{"worker":9}]}`, "memory[0]: worker is 9"},
		{"peaks", head + `"events":[],"peak_bytes":[1]}`, "peak_bytes has 1 entries"},
		{"step", head + `"events":[],"steps":[{"step":3,"start_s":2,"end_s":1}]}`, `steps[0] ("step": 3)`},
		{"evaluation", head + `"events":[],"evaluations":[{"step":3,"loss":1,"correct":3,"samples":2}]}`,
			"3 correct of 2 samples"},
		{"gzip", "\x1f\x8bnonsense that is no gzip at all", "gzip"},
	} {
		_, err := trace.Read(strings.NewReader(c.file))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "trace: ") {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	nan := tracetest.TwoStages().Timeline()
	nan.Events[3].EndS = math.NaN()
	if err := nan.Write(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "events[3]") {
		t.Errorf("NaN: error %v", err)
	}
	if _, err := trace.ReadFile(filepath.Join(t.TempDir(), "none.json")); err == nil ||
		!strings.Contains(err.Error(), "none.json") {
		t.Errorf("missing file: error %v", err)
	}
}

func FuzzRead(f *testing.F) {
	var small, zipped bytes.Buffer
	p := tracetest.TwoStages()
	p.MicroBatches = 1
	if err := p.Timeline().Write(&small); err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(f.TempDir(), "t.gz")
	if err := p.Timeline().WriteFile(path); err != nil {
		f.Fatal(err)
	}
	raw, _ := os.ReadFile(path)
	zipped.Write(raw)
	f.Add(small.Bytes())
	f.Add(zipped.Bytes())
	f.Add([]byte(`{"version":1,"workers":1,"events":[]}`))
	f.Add([]byte(`{"version":1,"workers":1,"events":null,"steps":[{}]}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		got, err := trace.Read(bytes.NewReader(file))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := got.Write(&b); err != nil {
			t.Fatalf("read but cannot be written: %v", err)
		}
		back, err := trace.Read(&b)
		if err != nil {
			t.Fatalf("written but cannot be read: %v", err)
		}
		if len(back.Events) != len(got.Events) || len(back.Memory) != len(got.Memory) {
			t.Fatal("events or memory samples were lost")
		}
		if got.Workers < 1000 {
			trace.AllGaps(got)
		}
	})
}

func FuzzParseFields(f *testing.F) {
	for _, s := range []string{"2F0", "p1/2B3@r1", "0EV12", "", "F", "2F", "F2", "p/1F1", "1F1@r", "1F+1", "00F0",
		"1FxF1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := trace.ParseFields(s)
		if ok && (got.Kind == "" || got.Stage < 0 || got.Micro < 0 || got.Pipeline < 0 || got.Replica < 0) {
			t.Errorf("%q became %+v", s, got)
		}
	})
}

func TestParseFields(t *testing.T) {
	got, ok := trace.ParseFields("p1/2SB30@r4")
	if want := (trace.Fields{Pipeline: 1, Stage: 2, Kind: "SB", Micro: 30, Replica: 4}); !ok || got != want {
		t.Errorf("p1/2SB30@r4 became %+v, %v", got, ok)
	}
	for _, s := range []string{"", "F0", "0F", "0f0", "0F0@r", "pF0", "p1", "0F-1", "0F+1", "core"} {
		if got, ok := trace.ParseFields(s); ok {
			t.Errorf("%q became %+v", s, got)
		}
	}
}
