package main

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine/torch"
)

// The short form of the attack finds nothing. It runs the bad inputs that are not slow, and a few attacks of every
// other kind except memory.
func TestAttackFindsNothing(t *testing.T) {
	if _, err := torch.Open(); err != nil {
		t.Skip("what is attacked trains, and libtorch is not installed: ", err)
	}
	native, _ := torch.Find()
	programs := t.TempDir()
	build := exec.Command("go", "build", "-trimpath", "-o", programs+"/", "../../cmd/millrace",
		"../../cmd/millrace-lab")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var said, errs strings.Builder
	args := []string{"--millrace", filepath.Join(programs, "millrace"), "--lab",
		filepath.Join(programs, "millrace-lab"), "--native", native, "--keep", "", "--share", "0.02"}
	if code := execute(args, &said, &errs); code != 0 {
		t.Errorf("it ends with %d\n%s%s", code, errs.String(), said.String())
	}
	t.Log(said.String())
}

// The table has at least 300 inputs, and at least one for each of the verbs below.
func TestTableIsWhole(t *testing.T) {
	table, err := fs.Sub(testdata, "testdata/inputs")
	if err != nil {
		t.Fatal(err)
	}
	all, err := readInputs(table)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 300 {
		t.Errorf("%d inputs", len(all))
	}
	verbs := "train plan profile schedule simulate report export import tune bench reproduce doctor"
	for _, verb := range strings.Fields(verbs) {
		if !slices.ContainsFunc(all, func(in input) bool { return slices.Contains(in.command, verb) }) {
			t.Errorf("none is of %s", verb)
		}
	}
	for _, in := range all {
		for _, f := range in.files {
			if f.maker != nil && makers[f.maker[0]] == nil {
				t.Errorf("%s: nothing makes %q", in.where, f.maker[0])
			}
		}
	}
}

func TestInputsAreRead(t *testing.T) {
	got, err := parseInputs("t.txt", []byte("# remark\n[a name]\nm.yaml:\n    a: 1\n      b: 2\n"+
		"\"odd \\x1b\" = repeat \"[\" 3\n$ schedule --text\n> A=1 plan 'it is' \"\\n\"x\n2: one | two three\n"))
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	in := got[0]
	if string(in.files[0].text) != "a: 1\n  b: 2\n" || in.files[1].path != "odd \x1b" ||
		!slices.Equal(in.files[1].maker, []string{"repeat", "[", "3"}) {
		t.Errorf("files %+v", in.files)
	}
	if !slices.Equal(in.command, []string{"A=1", "plan", "it is", "\nx"}) || in.code != 2 ||
		!slices.Equal(in.says, []string{"one", "two three"}) || len(in.prepare) != 1 {
		t.Errorf("%+v", in)
	}
	for _, bad := range []string{
		"> plan\n2: x\n", "[a]\n> plan\n", "[a]\n> plan\n2:\n", "[a]\n2: x\n", "[a]\nnonsense\n> plan\n2: x\n",
		"[a]\n> plan 'x\n2: x\n", "[a]\n> plan\nx: y\n",
	} {
		if got, err := parseInputs("t.txt", []byte(bad)); err == nil {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}

// Faults are reported: a crash, a control character, a wrong exit code, a file left behind, a hang, and growth of
// memory.
func TestFaultsAreFound(t *testing.T) {
	dir := t.TempDir()
	a := &attack{millrace: "/bin/sh", scratch: dir, parallel: 1}
	for script, want := range map[string]string{
		"exit 0":                        "",
		"echo no >&2; exit 2":           "",
		"exit 2":                        "said nothing",
		"echo no >&2; exit 7":           "code 7",
		"kill -SEGV $$":                 "code 139",
		`printf 'a\033[31m'`:            "control character to stdout",
		`printf '\377' >&2`:             "control character to stderr",
		"echo 'panic: oh' >&2":          "crash",
		"sleep 60":                      "did not end",
		"x=1; while :; do x=$x$x; done": "memory",
	} {
		t.Run(script, func(t *testing.T) {
			l := limits{wall: time.Minute, resident: 128 << 20}
			if strings.HasPrefix(script, "sleep") {
				l.wall = time.Second
			}
			e, err := a.run(context.Background(), command{dir: dir, home: dir, args: []string{"-c", script}, limits: l})
			if err != nil {
				t.Fatal(err)
			}
			found := strings.Join(e.faults(l), "; ")
			if !strings.Contains(found, want) || (want == "") != (found == "") {
				t.Errorf("found %q, want %q", found, want)
			}
		})
	}
	for text, want := range map[string]string{
		"fatal error: runtime: out of memory\n\ngoroutine 1 [running]:\n": "",
		"panic: runtime error: index out of range\n\ngoroutine 1 [x]:\n":  "crash",
		"millrace: no memory is left\n":                                   "",
	} {
		e := &ended{code: 2, err: []byte(text)}
		if found := strings.Join(e.starved(usual), "; "); !strings.Contains(found, want) || (want == "") != (found == "") {
			t.Errorf("with little memory %q: found %q, want %q", text, found, want)
		}
	}
	before, err := treeOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x.partial"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	after, err := treeOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := after.halfWritten(before); len(got) != 1 || !strings.Contains(got[0], "x.partial") {
		t.Errorf("half-written: %q", got)
	}
}

// The copy of a finding's folder has everything that was in it: links, pipes and large files. Changes anywhere in a
// large file are noticed.
func TestCopiesAreWhole(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "kept", "copy")
	large := filepath.Join(from, "in", "large")
	for _, err := range []error{
		os.Mkdir(filepath.Join(from, "in"), 0o755),
		os.WriteFile(filepath.Join(from, "small"), []byte("text"), 0o644),
		os.WriteFile(large, []byte("begins"), 0o644), os.Truncate(large, digested+(1<<20)),
		os.Symlink(large, filepath.Join(from, "absolute")), os.Symlink("in/large", filepath.Join(from, "relative")),
		os.Symlink("/nowhere", filepath.Join(from, "away")), syscall.Mkfifo(filepath.Join(from, "pipe"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	before, err := treeOf(from)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string, at int64) {
		f, err := os.OpenFile(large, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte(text), at); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(20 * time.Millisecond) // file systems count time in ticks of a few milliseconds
	write("ends", digested+100)
	if err := copyTree(to, from); err != nil {
		t.Fatal(err)
	}
	after, err := treeOf(from)
	if err != nil {
		t.Fatal(err)
	}
	if got := after.changes(before, func(string) bool { return false }); len(got) != 1 ||
		!strings.Contains(got[0], "in/large") {
		t.Errorf("changes %q", got)
	}
	copied, err := treeOf(to)
	if err != nil {
		t.Fatal(err)
	}
	for name, is := range after {
		switch name {
		case "absolute":
			is = "link to " + filepath.Join(to, "in", "large")
		case "in/large":
			is, _, _ = strings.Cut(is, ", changed")
			copied[name], _, _ = strings.Cut(copied[name], ", changed")
		}
		if copied[name] != is {
			t.Errorf("the copy of %s is %q, want %q", name, copied[name], is)
		}
	}
	text, err := os.ReadFile(filepath.Join(to, "in", "large"))
	if err != nil || string(text[:6]) != "begins" || string(text[digested+100:digested+104]) != "ends" {
		t.Errorf("the large file was copied otherwise: %v", err)
	}
	info, err := os.Stat(filepath.Join(to, "in", "large"))
	if err != nil || info.Sys().(*syscall.Stat_t).Blocks*512 > 8<<20 {
		t.Errorf("zeros take room in the copy: %v", err)
	}
	if err := copyTree(to, from); err != nil {
		t.Errorf("over an old copy: %v", err)
	}
}

// A mutation depends only on its number and the seed.
func TestMutationsRepeat(t *testing.T) {
	text, err := fs.ReadFile(testdata, "testdata/fixtures/job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for n := range uint64(200) {
		first, how := mutate(text, seeded(7, n))
		again, also := mutate(text, seeded(7, n))
		if string(first) != string(again) || how != also {
			t.Fatalf("mutation %d: %q and %q", n, first, again)
		}
		seen[string(first)] = true
	}
	if len(seen) < 150 {
		t.Errorf("200 mutations are %d texts", len(seen))
	}
}

// A command that repeats a finding can be pasted into a shell.
func TestWordsAreQuoted(t *testing.T) {
	for word, want := range map[string]string{
		"a/b": "a/b", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "\x1b[": `$'\x1b['`,
	} {
		if got := shellWord(word); got != want {
			t.Errorf("%q is quoted %s", word, got)
		}
	}
}
