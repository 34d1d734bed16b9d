package runs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func one(v float32) outcome {
	return outcome{tensors: tensors{"a.weight": {"F32", []int64{1}, floats(v)}}}
}

// A difference counts as a failure unless the commit's exceptions name the run with that kind of difference.
func TestOnlyNamedDifferencesAreFine(t *testing.T) {
	failed := outcome{err: errors.New("it broke")}
	close, far := one(1+1e-6), one(1.5)
	named := []exception{
		{Run: "within", Within: 2e-6, Why: "w"}, {Run: "any", Why: "w"}, {Run: "failed", Fails: true, Why: "w"},
	}
	for _, c := range []struct {
		run         string
		here, there outcome
		word        string
		fine        bool
	}{
		{"x", one(1), one(1), same, true},
		{"x", close, one(1), differs, false},
		{"x", failed, one(1), failsHere, false},
		{"x", one(1), failed, failsThere, false},
		{"x", failed, failed, failsBoth, false},
		{"within", close, one(1), differs, true},
		{"within", far, one(1), differs, false},
		{"within", one(1), one(1), same, true}, // the remark says that a difference was expected
		{"within", failed, one(1), failsHere, false},
		{"any", far, one(1), differs, true},
		{"any", one(1), failed, failsThere, false},
		{"failed", one(1), failed, failsThere, true},
		{"failed", far, one(1), differs, false},
		{"failed", failed, failed, failsBoth, false},
	} {
		v := compare(c.here, c.there)
		fine, remark := judge(c.run, v, named)
		if v.Word != c.word || fine != c.fine || (remark == "") != (c.run == "x") {
			t.Errorf("%s: %+v, fine %v (%s); want %s, %v", c.run, v, fine, remark, c.word, c.fine)
		}
		if v.Word == same && c.run == "within" && !strings.Contains(remark, "expected to differ") {
			t.Errorf("%s does not differ, and nobody says so: %s", c.run, remark)
		}
	}
}

// Hashes are compared only with hashes of the same environment and the same list of runs.
func TestHashFilesAreRefusedElsewhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x"+Ending)
	at := environment{CPU: "c", BLAS: "b", CoreType: "t", Torch: "l"}
	want := &hashes{Commit: "0", Environment: at, List: "list", Runs: map[string]hashOf{"r": one(1).tensors.hashes()}}
	if err := want.write(path); err != nil {
		t.Fatal(err)
	}
	got, err := readHashes(path, at, "list")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		run  string
		here outcome
		word string
	}{
		{"r", one(1), same}, {"r", one(2), differs}, {"s", one(1), failsThere},
		{"r", outcome{err: errors.New("no")}, failsHere},
	} {
		if v := got.against(c.run, c.here); v.Word != c.word {
			t.Errorf("%s: %+v; want %s", c.run, v, c.word)
		}
	}
	for word, edit := range map[string]func(*environment){
		"processor": func(e *environment) { e.CPU = "x" }, "BLAS": func(e *environment) { e.BLAS = "x" },
		"OPENBLAS_CORETYPE": func(e *environment) { e.CoreType = "x" },
		"libtorch":          func(e *environment) { e.Torch = "x" },
	} {
		here := at
		edit(&here)
		if _, err := readHashes(path, here, "list"); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("another %s: %v", word, err)
		}
	}
	if _, err := readHashes(path, at, "another"); err == nil || !strings.Contains(err.Error(), "another list") {
		t.Errorf("another list: %v", err)
	}
	if err := os.WriteFile(path, []byte(`{"commit": "0", "unknown": 1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readHashes(path, at, "list"); err == nil {
		t.Error("a file that -o did not write is read")
	}
}

// A change of any run, model or input changes the digest of the list.
func TestTheDigestIsOfTheWholeList(t *testing.T) {
	want := digest(list, subjects)
	if digest(list, subjects) != want {
		t.Fatal("the digest of one list is not always the same")
	}
	changed := append([]run{}, list...)
	changed[0].Steps++
	if digest(changed, subjects) == want || digest(list[1:], subjects) == want {
		t.Error("another list has the same digest")
	}
	other := map[string]subject{}
	for name, s := range subjects {
		s.Batch++
		other[name] = s
	}
	if digest(list, other) == want {
		t.Error("other models have the same digest")
	}
}

// Contradicting options are refused before anything is built. So is an Output that git does not ignore.
func TestBadOptionsAreRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"--only: ":          {Only: "(", Jobs: 1},
		"no such run":       {Only: "no such run", Jobs: 1},
		"hashes.json":       {Output: "hashes.json", Jobs: 1},
		"-j 0":              {},
		"two things":        {Against: "HEAD", Check: "x.hashes", Jobs: 1},
		"the whole list":    {Output: "x.hashes", Only: "gpt", Jobs: 1},
		"--carrier post":    {Carrier: "post", Jobs: 1},
		"is of one process": {Carrier: "tcp", Processes: true, Jobs: 1},
	} {
		var out bytes.Buffer
		_, err := o.Run(t.Context(), &out)
		var refused Refusal
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%+v: %v, having printed %q; want a refusal with %q", o, err, &out, want)
		}
	}
	ignored, err := os.ReadFile("../../.gitignore")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(strings.Split(string(ignored), "\n"), "*"+Ending) {
		t.Errorf("git would take in x%s", Ending)
	}
}
