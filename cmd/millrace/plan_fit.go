package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/tune"
)

// overLimit is the device that a plan fills the furthest beyond its memory; nil where it
// fits them all.
func overLimit(memory []tune.MemorySplit) *tune.MemorySplit {
	var worst *tune.MemorySplit
	for i, m := range memory {
		over := m.PeakBytes - m.LimitBytes
		if m.LimitBytes > 0 && over > 0 && (worst == nil || over > worst.PeakBytes-worst.LimitBytes) {
			worst = &memory[i]
		}
	}
	return worst
}

// doesNotFit says of a planner's plan where it holds too much, by how much, and what would fit.
func (f *planFlags) doesNotFit(c *cobra.Command, p *planned, m *tune.MemorySplit) {
	out := c.OutOrStdout()
	fmt.Fprintf(out, "does not fit: worker %d (stage %s) would hold %s, %s more than its %s\n", m.Device, numbers(m.Stages),
		cluster.FormatBytes(m.PeakBytes), cluster.FormatBytes(m.PeakBytes-m.LimitBytes), cluster.FormatBytes(m.LimitBytes))
	remedies := append([]string{fmt.Sprintf("devices of %s (%d bytes): this plan", cluster.FormatBytes(m.PeakBytes), m.PeakBytes)}, f.remedies(c, p)...)
	fmt.Fprintf(out, "what would fit:\n  %s\n", strings.Join(remedies, "\n  "))
}

// remedies is plans that fit, or the least that would make one.
func (f *planFlags) remedies(c *cobra.Command, p *planned) []string {
	r := f.request(p)
	found, err := tune.Search(c.Context(), r)
	var memory *tune.MemoryError
	switch {
	case errors.As(err, &memory):
		return tune.Remedies(c.Context(), r, memory)
	case err != nil:
		return nil
	}
	best := found.Best
	return []string{fmt.Sprintf("these devices, by planner auto: %s, %s, %.4g ms a step", best.Schedule, shapeOf(best), 1e3*best.Predicted.StepS)}
}

// remedied adds to a plan that does not fit what would make it.
func (f *planFlags) remedied(c *cobra.Command, p *planned, err error) error {
	var memory *tune.MemoryError
	var remedies []string
	switch {
	case p == nil || f.asJSON:
	case errors.As(err, &memory):
		remedies = tune.Remedies(c.Context(), f.request(p), memory)
	case errors.Is(err, plan.ErrMemory):
		remedies = f.remedies(c, p)
	}
	if len(remedies) == 0 {
		return err
	}
	return fmt.Errorf("%w\nwhat would fit:\n  %s", err, strings.Join(remedies, "\n  "))
}
