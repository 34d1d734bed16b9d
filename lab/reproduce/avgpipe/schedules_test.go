package avgpipe

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/lab/reproduce/tabletest"
)

// As in section 7.2, AFAB and advance are faster than 1F1B, and the last GPU idles more under 1F1B than under AFAB.
// With one micro-batch in a batch, all schedules are the same. The memory is within 15 % of what the text prints.
func TestSchedulesAsTheTextHasThem(t *testing.T) {
	found := tabletest.Run(t, "avgpipe-fig17")
	compared := 0
	for _, r := range found.Rows {
		v := r.Values
		switch {
		case v == nil:
		case strings.HasPrefix(r.What, "awd-lm"):
			if v.Ours < .999 || v.Ours > 1.001 {
				t.Errorf("%s: %s, of one micro-batch", r.What, r.Ours)
			}
		case strings.Contains(r.What, "over 1F1B, speed"):
			compared++
			if v.Ours <= 1.01 {
				t.Errorf("%s: %s", r.What, r.Ours)
			}
		case strings.Contains(r.What, "memory"):
			compared++
			if v.Ours/v.Paper < .85 || v.Ours/v.Paper > 1.15 {
				t.Errorf("%s: %s, the text has %s", r.What, r.Ours, r.Paper)
			}
		}
	}
	if compared != 10 {
		t.Errorf("%d values compared, the text prints 4 of speed and 6 of memory", compared)
	}
	if v := found.Verdict(); v.Order.Same < 13 || v.Then.Same < 15 || v.Order.Of != 17 {
		t.Errorf("%+v", v)
	}
	if a := found.Agreement(); a.Words != (table.Count{Same: 2, Of: 2}) {
		t.Errorf("the last GPU idles more under 1F1B than under AFAB: %+v", a.Words)
	}
}
