package prepare

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/run"
)

// If no value nearby helps, a refusal says what would be right.
func TestRowsForWhichNoValueIsNear(t *testing.T) {
	for most, want := range map[int]string{
		4096: "evaluate or save at least every 4096 steps, and let each row, and the last, have as many as big trains",
		0:    "evaluate and save after as many steps, or at the end alone, and let the last row have as many",
	} {
		wrong := &run.RowError{Schedule: "big", Done: 4096, To: 5000, InARow: "3000 or more", Most: most}
		if got := RowsNamed(&job.Job{}, wrong).Error(); !strings.HasSuffix(got, "; "+want) {
			t.Errorf("most %d: %q, want %q", most, got, want)
		}
	}
}
