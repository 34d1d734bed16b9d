package record

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/stats"
)

// times is the result of a benchmark: pairs of one comparison.
type times struct {
	Head
	Ratios   []float64      `json:"ratios"`
	Median   float64        `json:"median"`
	Interval stats.Interval `json:"interval,omitzero"`
}

func (t *times) Kind() string   { return "times" }
func (t *times) Recount() error { return t.Head.Median("median", t.Ratios, t.Median, t.Interval) }

const good = `{"version": 2, "bench": "times", "what": "x", "commit": "abc", "command": "bench times", "took_s": 1,
	"machine": {"processor": "p", "cores": 2, "kernel": "k", "load": "", "date": "2026-11-23"},
	"ratios": [6, 1, 2, 5, 3, 4], "median": 3.5, "interval": {"lo": 1, "hi": 6, "confidence": 0.96875}}`

func TestReadRefuses(t *testing.T) {
	carried := `"carried_over": "from a page", "ratios": [6, 1, 2, 5, 3, 4]`
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{`"ratios": [6, 1, 2, 5, 3, 4]`, `"carried_over": "from a page"`, ""},
		{`"ratios": [6, 1, 2, 5, 3, 4]`, carried, ""}, // measurements of a carried-over result are checked too
		{`"version": 2`, `"version": 1`, "version is 1; this millrace reads version 2"},
		{`"bench": "times"`, `"bench": "peers"`, `bench is "peers"; this is to be "times"`},
		{`"what"`, `"why"`, `unknown field "why"`},
		{`"commit": "abc"`, `"commit": ""`, `commit is empty; what is not known is "unknown"`},
		{`"command": "bench times"`, `"command": ""`, "command is empty"},
		{`2026-11-23`, `yesterday`, "a day like 2026-11-23 is right"},
		{`"took_s": 1`, `"took_s": -1`, "took_s -1"},
		{`"median": 3.5`, `"median": 3.6`, "median is 3.6; the median of its 6 measurements is 3.5"},
		{`"lo": 1`, `"lo": 2`, "has the interval 2 to 6; that of its 6 measurements is 1 to 6"},
		{`[6, 1, 2, 5, 3, 4]`, `[3, 4]`, "2 values are too few"},
		{`[6, 1, 2, 5, 3, 4], "median": 3.5, "interval": {"lo": 1, "hi": 6, "confidence": 0.96875}`,
			`[3], "median": 3`, ""}, // a single value has no interval
		{`[6, 1, 2, 5, 3, 4]`, `[]`, "has no single measurements; a file without them says in carried_over why"},
		{`"ratios": [6, 1, 2, 5, 3, 4], "median": 3.5`, `"carried_over": "from a page", "median": 7`,
			"median is 7, with an interval of 1 to 6; the median lies inside"},
	} {
		_, err := Decode[times]([]byte(strings.Replace(good, c.old, c.new, 1)))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s in the place of %s: %v, want %q", c.new, c.old, err, c.want)
		}
	}
}

// A new file says when, where and with which command this process measured, and can be read again.
func TestWhatIsWrittenIsRead(t *testing.T) {
	r := &times{Head: Begin("times", "a test"), Ratios: []float64{1, 2, 3, 4, 5, 6}, Median: 3.5}
	r.End()
	path := filepath.Join(t.TempDir(), "new", "times.json")
	if err := Write(path, r); err != nil {
		t.Fatal(err)
	}
	got, err := Read[times](path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Command != commandLine(os.Args) || got.TookS <= 0 || got.Machine.Cores < 1 || got.Median != 3.5 ||
		got.Carried() || got.Commit == "" {
		t.Errorf("read %+v", got)
	}
	if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), "interval") {
		t.Errorf("no interval is written as one: %s (%v)", text, err)
	}
	r.Median = 3
	if err := Write(path, r); err == nil || !strings.Contains(err.Error(), "is not written: median is 3") {
		t.Errorf("a wrong median: %v", err)
	}
	if err := Write("", r); err != nil {
		t.Errorf("no file: %v", err)
	}
	if _, err := Read[times](filepath.Join(t.TempDir(), "none.json")); err == nil {
		t.Error("a file that is not there is read")
	}
}

func TestCommandLine(t *testing.T) {
	for want, args := range map[string][]string{
		"bin/millrace-lab bench live -- --set layers=3": {"bin/millrace-lab", "bench", "live", "--", "--set", "layers=3"},
		`x --only 'gpt|llama' 'it'\''s' ''`:             {"x", "--only", "gpt|llama", "it's", ""},
	} {
		if got := commandLine(args); got != want {
			t.Errorf("%q is %s, want %s", args, got, want)
		}
	}
}

// The commit of a binary without build information is unknown outside any repository.
func TestCommitIsNotMadeUp(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(t.TempDir()))
	if got := commit(); got != Unknown {
		t.Errorf("the commit is %q, want %q", got, Unknown)
	}
}

// The commit of a checkout is used only if the checkout and the program belong to the same module.
func TestCommitIsOfItsOwnModule(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("go.mod", []byte("module example.org/other\n\ngo 1.26\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.org",
		"-c", "commit.gpgsign=false", "commit", "-qm", "first"}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %s", args, out)
		}
	}
	if got, _ := checkedOut("github.com/millrace-ml/millrace"); got != "" {
		t.Errorf("another module's commit %q is taken", got)
	}
	if got, changed := checkedOut("example.org/other"); len(got) < 40 || changed {
		t.Errorf("the module's own commit is %q, changed %v", got, changed)
	}
	if err := os.WriteFile("go.mod", []byte("module example.org/other\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, changed := checkedOut("example.org/other"); !changed {
		t.Error("a change is not noticed")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(strings.Replace(good, `"ratios": [6, 1, 2, 5, 3, 4]`, `"carried_over": "x"`, 1)))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Decode[times](text)
		if err != nil {
			return
		}
		first, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode[times](first)
		if err != nil {
			t.Fatalf("what was written is not read: %v", err)
		}
		second, err := json.Marshal(again)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%s, read again %s, %v", first, second, err)
		}
	})
}
