package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace-ml/millrace/run/checkpoint"
)

// names checks that the output of a process names the lost process. The output of the lost process itself may name any
// process.
func (t *try) names(rank int, said string) {
	want := fmt.Sprintf("%d on host %s", t.victim, t.host(t.victim))
	if rank != t.victim && !strings.Contains(said, want) || !strings.Contains(said, " is lost: ") {
		t.named = false
		t.says("rank %d says %q; want something about %q", rank, said, want)
	}
}

// nothingLeft checks that no process is left after all members have ended.
func (t *try) nothingLeft(g *gang) error {
	left, err := g.left()
	if len(left) > 0 {
		t.clean = false
		t.says("processes are left on the hosts: %s", strings.Join(left, ", "))
	}
	return err
}

// written checks the error file in the run's folder of a process.
func (t *try) written(w way, rank int) {
	text, err := os.ReadFile(filepath.Join(t.out(rank), "error.json"))
	if err == nil {
		err = t.nameIn(text, w.runs)
	}
	if err != nil {
		t.named = false
		t.says("error.json of %s says %s (%v)", t.host(rank), text, err)
	}
}

// nameIn returns what is wrong with the text of an error.json. A process other than the lost one must have written the
// text, and the text must name the lost process. If the lost process still runs, it may also have written the text
// itself. Then the text names a process that the lost process can no longer reach.
func (t *try) nameIn(text []byte, runs bool) error {
	var f struct {
		Rank     *int
		ExitCode int `json:"exit_code"`
		Retry    bool
		Lost     *struct {
			Rank *int
			Name string
		}
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	if f.Rank == nil || f.Lost == nil || f.Lost.Rank == nil || f.ExitCode != 3 || !f.Retry {
		return errors.New("want who says so, who is lost, exit code 3, and that another start may help")
	}
	of := t.victim
	if runs && *f.Rank == t.victim && *f.Lost.Rank != t.victim {
		of = *f.Lost.Rank
	}
	if name := fmt.Sprintf("%d on host %s", of, t.host(of)); *f.Lost.Rank != of || *f.Rank == of ||
		!strings.Contains(f.Lost.Name, name) {
		return fmt.Errorf("want another one's word that %s is lost", name)
	}
	return nil
}

// judge checks the results of a training that was resumed to its end.
func (t *try) judge(c *campaign, w way, g *gang) error {
	if err := t.nothingLeft(g); err != nil {
		return err
	}
	for rank := range processes {
		if err := tidy(t.out(rank)); err != nil {
			t.clean = false
			t.says("%s, %v", t.again, err)
		}
	}
	if err := t.gather(); err != nil {
		return err
	}
	whole := filepath.Join(c.scratch, w.whole(), "checkpoints")
	if err := same(whole, filepath.Join(t.out(0), "checkpoints")); err != nil {
		t.says("%s, %v", t.again, err)
		return nil
	}
	t.right = true
	return nil
}

// gather moves the files of the last checkpoint from other hosts to the first, if each host has its own folder.
func (t *try) gather() error {
	for rank := 1; t.own && rank < processes; rank++ {
		paths, err := filepath.Glob(filepath.Join(t.out(rank), "checkpoints", fmt.Sprintf("step-%08d", steps), "*"))
		if err != nil {
			return err
		}
		for _, path := range paths {
			to := filepath.Join(t.out(0), "checkpoints", filepath.Base(filepath.Dir(path)), filepath.Base(path))
			if err := os.Rename(path, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// tidy returns an error if a run that ended well has left an error.json or half-written checkpoints.
func tidy(out string) error {
	if _, err := os.Stat(filepath.Join(out, "error.json")); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("error.json is left (%v)", err)
	}
	half, err := filepath.Glob(filepath.Join(out, "checkpoints", "*.partial"))
	if err == nil && len(half) > 0 {
		err = fmt.Errorf("half-written checkpoints are left: %v", half)
	}
	return err
}

// same compares the last checkpoints of two folders bit by bit.
func same(a, b string) (err error) {
	var of [2]*checkpoint.Checkpoint
	for i, path := range []string{a, b} {
		if of[i], err = checkpoint.Open(path); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, of[i].Close()) }()
	}
	if x, y := of[0].Manifest.Steps, of[1].Manifest.Steps; x != y {
		return fmt.Errorf("%d steps are done; want %d", y, x)
	}
	for _, name := range of[0].Names() {
		x, err := of[0].Tensor(name)
		if err != nil {
			return err
		}
		if y, err := of[1].Tensor(name); err != nil || !bytes.Equal(x.Data, y.Data) {
			return fmt.Errorf("the weights are not those of a training that nobody has disturbed: %s (%v)", name, err)
		}
	}
	return nil
}
