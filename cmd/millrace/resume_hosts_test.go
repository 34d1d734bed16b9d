package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Hosts with folders of their own resume a run by --resume alone, whichever of them is rank 0. The run takes the job of
// its latest start, which only the host that led this start has. Processes without any job, or with other flags, are
// refused, and no process keeps waiting.
func TestHostsResumeWithoutAJobOfTheirOwn(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	const line = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --eval-rows 8 " +
		"--split 1 --schedule 1f1b --save-every 2 --out r --steps "
	end(t, hostsOf(t, p, []string{"a", "b"}, line+"2"), 0, 0)
	keeps := func(host string) string {
		text, err := os.ReadFile(filepath.Join(p.Dir, host, "r/job.yaml"))
		if err != nil {
			return ""
		}
		return regexp.MustCompile(`"keep": \d+`).FindString(string(text))
	}
	if keeps("a") == "" || keeps("b") != "" {
		t.Fatalf("a keeps %q, b keeps %q; want a job on host a alone", keeps("a"), keeps("b"))
	}
	const moved = "the job is in r/job.yaml of rank 1 on host "
	for _, c := range []struct {
		dirs []string
		with string
		from string // what rank 0 prints about where the job is; empty: nothing
		keep string // the setting "keep" of the job in rank 0's folder
	}{
		{[]string{"a", "b"}, "--steps 4", "", keeps("a")},
		{[]string{"b", "a"}, "--steps 6 --keep 7", moved, `"keep": 7`},
		{[]string{"a", "b"}, "--steps 8", moved, `"keep": 7`}, // host a has an older job than host b
		{[]string{"a", "b", "new"}, "--steps 10", "", `"keep": 7`},
		{[]string{"newer", "a", "b"}, "--steps 12", moved, `"keep": 7`},
	} {
		all := hostsOf(t, p, c.dirs, "train --resume r "+c.with)
		end(t, all, make([]int, len(all))...)
		said := all[0].said.String()
		if strings.Contains(said, "the job is in ") != (c.from != "") || !strings.Contains(said, c.from) {
			t.Errorf("%v: no %q in\n%s", c.dirs, c.from, said)
		}
		if got := keeps(c.dirs[0]); got != c.keep {
			t.Errorf("%v: rank 0 keeps %q; want %q", c.dirs, got, c.keep)
		}
	}
	for _, c := range []struct {
		dirs  []string
		lines [2]string // by rank: the arguments after "train"
		says  string
	}{
		{[]string{"x", "y"}, [2]string{"--resume r", "--resume r"},
			"--resume r: there is no such run and no such checkpoint"},
		{[]string{"a", "y"}, [2]string{"--resume r --steps 14", "--resume r --steps 16"}, " is 14 for rank 0 on host "},
		{[]string{"a", "y"}, [2]string{"r/job.yaml --resume r --workers 2", "--resume r"},
			"--resume r: there is no such run and no such checkpoint"},
	} {
		began := time.Now()
		all := hostsOf(t, p, c.dirs, "train", func(rank int, h *exec.Cmd) {
			h.Args, h.Env = append(h.Args, strings.Fields(c.lines[rank])...), append(h.Env, "MILLRACE_WAIT=20")
		})
		end(t, all, 2, 2)
		for rank, h := range all {
			if said := h.said.String(); !strings.Contains(said, c.says) {
				t.Errorf("%v, rank %d: no %q in\n%s", c.dirs, rank, c.says, said)
			}
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%v: it took %v", c.dirs, took)
		}
	}
}
