package dapple

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

// Each device of Config-B has a link of 25 Gbit/s. Sending 12.5 MB from one device to another takes 12.5e6*8/25e9 s = 4
// ms. Sending as many bytes in all from eight devices to eight others takes an eighth of this time. On Config-A, the
// eight devices of a server share a network card of 25 Gbit/s. So sending these bytes from one server to another takes
// 4 ms again.
func TestCrossing(t *testing.T) {
	const bytes, latency = 12.5e6, 30e-6
	whole := bytes * 8 / 25e9
	devices := func(first, n int) (all []int) {
		for i := range n {
			all = append(all, first+i)
		}
		return all
	}
	for _, c := range []struct {
		preset   string
		from, to []int
		want     float64
	}{
		{"dapple-b", devices(0, 1), devices(1, 1), whole},
		{"dapple-b", devices(0, 8), devices(8, 8), whole / 8},
		{"dapple-a", devices(0, 8), devices(8, 8), whole},
		{"dapple-a", devices(8, 8), devices(0, 8), whole},
	} {
		b, err := bench.New(table.Options{}, "vgg19", nil, c.preset)
		if err != nil {
			t.Fatal(err)
		}
		if got := crossing(b, c.from, c.to, bytes) - latency; math.Abs(got-c.want) > 1e-3*c.want {
			t.Errorf("%s, %d to %d devices: %v s behind the latency; want %v", c.preset, len(c.from), len(c.to), got, c.want)
		}
	}
}

// The function `printed` splits a plan where the paper splits it. The paper counts only convolutions and fully
// connected layers.
func TestPrintedPlansSplitWhereThePaperSays(t *testing.T) {
	b, err := bench.New(table.Options{}, "vgg19", nil, "dapple-c")
	if err != nil {
		t.Fatal(err)
	}
	counts := regexp.MustCompile("^(conv|fc)")
	pl, err := printed(b, "15:1", "13:6", counts, 32, 64)
	if err != nil {
		t.Fatal(err)
	}
	if last := b.M.Layers[pl.Stages[0].LastLayer].Name; last != "conv5_1" || len(pl.Stages[0].Devices) != 15 {
		t.Errorf("%d devices up to %s; the thirteenth convolution is conv5_1", len(pl.Stages[0].Devices), last)
	}
	if got := splitOf(b, pl, counts); got != "13:6" {
		t.Errorf("split %s", got)
	}
	for _, wrong := range []string{"13:5", "13", ""} {
		if _, err := printed(b, "15:1", wrong, counts, 32, 64); err == nil || !strings.Contains(err.Error(), "reproduce: ") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// Here the activation communication ratio of a straight pipeline is computed for 25 Gbit/s (Config-B) and for 10 Gbit/s
// (Config-C). The latencies are the same. So the ratio on Config-C is nearly 2.5 times that on Config-B. In Table 4 it
// is 2.5 times (BERT-48: 1.25 and 0.50).
func TestRatioOfBandwidths(t *testing.T) {
	var ratio [2]float64
	for i, preset := range []string{"dapple-b", "dapple-c"} {
		b, err := bench.New(table.Options{}, "bert-48", nil, preset)
		if err != nil {
			t.Fatal(err)
		}
		pl, err := b.Straight(16, 2, 32)
		if err != nil {
			t.Fatal(err)
		}
		if ratio[i], err = acr(b, pl, true); err != nil {
			t.Fatal(err)
		}
	}
	if by := ratio[1] / ratio[0]; by < 2.3 || by > 2.5 { // less than 2.5, because both have the same latencies
		t.Errorf("ratios %v, the second %.3g times the first; Table 4 has 2.5 times", ratio, by)
	}
}
