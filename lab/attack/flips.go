package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/run/checkpoint"
)

// flipEvery is the distance, in bits, between flipped bits of a stage file. In other files every bit is flipped.
const flipEvery = 50

// attackFlips flips single bits of a checkpoint's files, and opens the checkpoint in this process after each flip.
func attackFlips(ctx context.Context, a *attack, _ int) (*tally, error) {
	dir := filepath.Join(a.scratch, "flips", "step-00000004")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(a.fixtures, "run", "checkpoints", "step-00000004"))); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	t := &tally{}
	if err := opens(dir); err != nil {
		return t, fmt.Errorf("a checkpoint that nothing was done to: %w", err)
	}
	for _, entry := range entries {
		every, name := 1, entry.Name()
		if strings.HasSuffix(name, ".safetensors") {
			every = flipEvery
		}
		every = int(float64(every) / a.share)
		flipped, opened, err := flipFile(ctx, filepath.Join(dir, name), every, int(a.seed%uint64(every)))
		if err != nil {
			return t, err
		}
		t.want += flipped
		t.done.Add(int64(flipped))
		t.say("%s: %d of its bits, %d opened", name, flipped, len(opened))
		if len(opened) > 0 {
			t.found = append(t.found, finding{
				name:   fmt.Sprintf("%s of a checkpoint", name),
				wrong:  []string{fmt.Sprintf("is opened with one of %d bits flipped, the first is %d", len(opened), opened[0])},
				repeat: "make attack ATTACK='--only flips'",
			})
		}
	}
	if ctx.Err() != nil {
		t.want++ // the result then shows that the last file was not finished
	}
	return t, nil
}

// flipFile flips the bit `first` of a file and every `every`-th bit after it. Only one bit is flipped at a time.
// flipFile returns the number of flipped bits, and the positions of the flips with which the checkpoint still opened.
func flipFile(ctx context.Context, path string, every, first int) (flipped int, opened []int, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, nil, err
	}
	for bit := first; bit < 8*len(text) && ctx.Err() == nil; bit += every {
		changed := slices.Clone(text)
		changed[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(path, changed, 0o644); err != nil {
			return flipped, opened, err
		}
		flipped++
		if opens(filepath.Dir(path)) == nil {
			opened = append(opened, bit)
		}
	}
	return flipped, opened, os.WriteFile(path, text, 0o644)
}

// opens returns why a checkpoint does not open; nil if it does.
func opens(dir string) error {
	c, err := checkpoint.Open(dir)
	if err != nil {
		return err
	}
	return c.Close()
}
