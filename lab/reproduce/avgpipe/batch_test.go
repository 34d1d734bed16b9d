package avgpipe

import (
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/lab/reproduce/tabletest"
)

// Held to GPipe's memory AvgPipe is faster at every batch, as in Figure 15; and more of the devices' time
// goes to computing than under the baselines of Figure 16.
func TestAvgPipeOverBatchSizes(t *testing.T) {
	value := func(r table.Row) float64 {
		x, err := strconv.ParseFloat(strings.TrimRight(r.Ours, " x%"), 64)
		if err != nil {
			t.Fatalf("%s: %q is no number", r.What, r.Ours)
		}
		return x
	}
	faster := 0
	for _, r := range tabletest.Run(t, "avgpipe-fig15").Rows {
		if strings.Contains(r.What, "AvgPipe over GPipe") {
			faster++
			if value(r) < 1 {
				t.Errorf("%s: %s; it can take GPipe's own setting", r.What, r.Ours)
			}
		}
	}
	if faster != 3 {
		t.Errorf("%d batch sizes compared, want 3", faster)
	}
	computing := map[string]float64{}
	for _, r := range tabletest.Run(t, "avgpipe-fig16").Rows {
		if name, ok := strings.CutSuffix(r.What, ", time computing"); ok {
			computing[strings.Fields(name)[0]] = value(r)
		}
	}
	if a := computing["AvgPipe(2BW)"]; len(computing) != 3 || a < computing["GPipe"] || a < computing["PipeDream-2BW"] {
		t.Errorf("computing: %v; want the most under AvgPipe", computing)
	}
}
