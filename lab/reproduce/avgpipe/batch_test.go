package avgpipe

import (
	"testing"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

// At the smallest batch of Figures 15 and 16, AvgPipe with GPipe's memory is faster than GPipe. The ratio of the two
// speeds is within 10 % of the text's. AvgPipe's peak utilisation is above the baselines' only under two assumptions
// together: the GPUs are not full, and they run the kernels of several pipelines side by side.
func TestOneBatchAsTheTextHasIt(t *testing.T) {
	var paper batches
	if err := table.Read(files, "fig15", &paper); err != nil {
		t.Fatal(err)
	}
	smallest := paper.Batches[0]
	c, err := paper.at(t.Context(), world{}, smallest.Batch)
	if err != nil {
		t.Fatal(err)
	}
	if got := named(c.rows, "GPipe").Speedup(); got < smallest.Faster*.9 || got > smallest.Faster*1.1 {
		t.Errorf("at batch %d AvgPipe is %.2f times as fast as GPipe; the text has %.1f", smallest.Batch, got,
			smallest.Faster)
	}
	if higher, at, err := c.peaks(false); err != nil || higher > 1 {
		t.Errorf("one computation at a time: a peak %.2f times as high at %s (%v)", higher, at, err)
	}
	if c, err = paper.at(t.Context(), world{beside: true, fill: peak}, smallest.Batch); err != nil {
		t.Fatal(err)
	}
	if higher, at, err := c.peaks(true); err != nil || higher <= 1 {
		t.Errorf("side by side on GPUs that are not full: a peak %.2f times as high at %s (%v)", higher, at, err)
	}
}
