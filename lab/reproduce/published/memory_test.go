package published

import (
	"slices"
	"strings"
	"testing"
)

// Under Qi et al.'s schedules, a device's memory is within a tenth of the peak that they measured (Table 4). ZB-2p has
// room for twice as many micro-batches as 1F1B. That room includes backwards whose weight gradients are still to be
// computed.
func TestZeroBubblesHoldWhatWasMeasured(t *testing.T) {
	entries, err := Entries()
	if err != nil {
		t.Fatal(err)
	}
	table, err := rows("zero_bubble_throughput")
	if err != nil {
		t.Fatal(err)
	}
	peak := map[string]float64{}
	for _, r := range table {
		peak[r["id"]] = r.number("peak_memory_gb")
	}
	b, seen := newLab(entries), 0
	for _, e := range entries {
		if !strings.HasPrefix(e.ID, "zb-T4-") || !strings.Contains(e.ID, "-ZB-") {
			continue
		}
		p, err := b.predict(t.Context(), &e)
		if err != nil {
			t.Fatal(err)
		}
		seen++
		held, measured := float64(slices.Max(p.MemoryBytes))/1e9, peak[e.ID]
		if off := held/measured - 1; off < -0.1 || off > 0.1 {
			t.Errorf("%s holds %.1f GB, measured %.0f", e.ID, held, measured)
		}
	}
	if seen < 20 {
		t.Errorf("only %d rows", seen)
	}
}
