package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// seed is the seed of weights, masks and data order in every run.
const seed = "3"

// play trains a run on a side and returns the tensors of its last checkpoint.
func (s *side) play(ctx context.Context, r run) (tensors, error) {
	folder := filepath.Join(s.folder, r.Name)
	if err := os.Mkdir(folder, 0o755); err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	var left string
	for i, l := range r.legs() {
		args, workers, err := s.arguments(ctx, r, l, i)
		if err != nil {
			return nil, err
		}
		if left != "" {
			args = append(args, "--resume", left)
		}
		out, err := s.train(ctx, workers, args)
		if err != nil {
			return nil, err
		}
		var outcome struct {
			Checkpoint string `json:"checkpoint"`
			Steps      int    `json:"steps"`
		}
		if err := json.Unmarshal(out, &outcome); err != nil {
			return nil, fmt.Errorf("train --json: %w", err)
		}
		if outcome.Steps != l.Steps || outcome.Checkpoint == "" {
			return nil, fmt.Errorf("train --json says %d steps and checkpoint %q; %d steps were asked for",
				outcome.Steps, outcome.Checkpoint, l.Steps)
		}
		left = outcome.Checkpoint
	}
	if !filepath.IsAbs(left) {
		left = filepath.Join(s.folder, left)
	}
	return readCheckpoint(left)
}

// arguments returns the command line of one leg, and its number of workers. A resumed run writes into the folder of its
// first leg.
func (s *side) arguments(ctx context.Context, r run, l leg, number int) (args []string, workers int, err error) {
	sub := subjects[r.Subject]
	args = []string{"train", "--json", "--seed", seed, "--steps", strconv.Itoa(l.Steps),
		"--out", filepath.Join(r.Name, "out"), "--profile", r.Subject + ".profile.json",
		"--cores", "2", "--bind", "never", "--eval-rows", "4"}
	args = concatenate(args, sub.Model, sub.Optimizer, sub.Train, l.Flags)
	named := func(kind string) string { return filepath.Join(r.Name, fmt.Sprintf("%s-%d", kind, number)) }
	write := func(path string, content []byte) error {
		return os.WriteFile(filepath.Join(s.folder, path), content, 0o644)
	}
	switch {
	case l.Program != nil:
		text, err := s.millrace(ctx, concatenate([]string{"schedule"}, l.Program, []string{"--text"})...)
		if err == nil {
			workers, err = workersOf(args, string(text))
		}
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", r.Name, err)
		}
		return append(args, "--program", named("program")), workers, write(named("program"), text)
	case l.Schedule == "":
		workers, err = workersOf(args, "")
		return args, workers, err
	}
	plan, err := l.plan(sub, s.modelOf[r.Subject].Model, s.modelOf[r.Subject].ID)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", r.Name, err)
	}
	args = append(args, "--workers", strconv.Itoa(l.workers()), "--plan", named("plan"))
	return args, l.workers(), write(named("plan"), plan)
}
