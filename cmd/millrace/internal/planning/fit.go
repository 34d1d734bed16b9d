package planning

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/tune"
)

// overLimit returns the device whose memory a plan exceeds most; nil if the plan fits all devices.
func overLimit(memory []tune.MemorySplit) *tune.MemorySplit {
	var worst *tune.MemorySplit
	for i, m := range memory {
		over := m.NeedsBytes - m.LimitBytes
		if m.LimitBytes > 0 && over > 0 && (worst == nil || over > worst.NeedsBytes-worst.LimitBytes) {
			worst = &memory[i]
		}
	}
	return worst
}

// doesNotFit prints which worker of a planner's plan needs too much memory, by how much, and what would fit.
func (f *planFlags) doesNotFit(c *cobra.Command, p *prepare.Prepared, m *tune.MemorySplit) {
	out := c.OutOrStdout()
	s := terminal.Of(out)
	fmt.Fprint(out, s.Wrap("", "  ", s.Paint(terminal.Red, "does not fit")+fmt.Sprintf(": worker %d (%s) would hold %s, "+
		"%s more than its %s", m.Device, terminal.Plural(len(m.Stages), "stage")+" "+list(m.Stages),
		terminal.Bytes(m.NeedsBytes), terminal.Bytes(m.NeedsBytes-m.LimitBytes),
		terminal.Bytes(m.LimitBytes))))
	remedies := []string{fmt.Sprintf("devices of %s (%dB): this plan", terminal.Bytes(m.NeedsBytes),
		m.NeedsBytes)}
	if limit, what := f.limit(c, p, m.NeedsBytes); limit > m.NeedsBytes {
		remedies[0] += "; asked for those, its planner takes another"
		remedies = append(remedies, what)
	}
	remedies = append(remedies, f.remedies(c, p)...)
	fmt.Fprintln(out, "what would fit:")
	for _, r := range remedies {
		fmt.Fprint(out, s.Wrap("  ", "    ", r))
	}
}

// limit searches for a memory limit at which the chosen planner finds a plan that fits; it returns 0 if there is none.
// The text `what` describes the limit. The search begins at `from`, in bytes.
func (f *planFlags) limit(c *cobra.Command, p *prepare.Prepared, from int64) (bytes int64, what string) {
	planner, err := plan.LookupPlanner(f.planner)
	if err != nil {
		return 0, ""
	}
	bytes, fits, err := tune.FittingLimit(c.Context(), planner, f.question(p), from)
	if err != nil {
		return 0, ""
	}
	return bytes, fmt.Sprintf("devices of %s (%dB), by planner %s: %s", terminal.Bytes(bytes), bytes,
		planner.Name, fits.Summary())
}

// remedies lists plans that fit, or the smallest changes that would give such a plan.
func (f *planFlags) remedies(c *cobra.Command, p *prepare.Prepared) []string {
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
	return []string{fmt.Sprintf("these devices, by planner auto: %s, %s a step", best.Summary(),
		terminal.Duration(best.Predicted.StepS))}
}

// remedied adds remedies to the error of a plan that does not fit.
func (f *planFlags) remedied(c *cobra.Command, p *prepare.Prepared, err error) error {
	var memory *tune.MemoryError
	var remedies []string
	switch {
	case p == nil || f.asJSON:
	case errors.As(err, &memory):
		remedies = tune.Remedies(c.Context(), f.request(p), memory)[1:] // the error already names the first remedy
	case errors.Is(err, plan.ErrMemory):
		from := int64(1)
		var own *plan.MemoryError
		if errors.As(err, &own) {
			from = own.SmallestBytes
		}
		if limit, what := f.limit(c, p, from); limit > 0 {
			remedies = append(remedies, what)
		}
		remedies = append(remedies, f.remedies(c, p)...)
	}
	if len(remedies) == 0 {
		return err
	}
	return fmt.Errorf("%w\nwhat would fit:\n  %s", err, strings.Join(remedies, "\n  "))
}
