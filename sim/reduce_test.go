package sim

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// TestSumsBeginInTheBackward: two replicas with two micro-batches each, F = 1, B = 6 and U = 0.5. The last backward is
// from 8 to 14. Half of the gradients are ready after a third of it, at 10. A further quarter is ready at its end, and
// so is the rest. The steps are worked out by hand.
func TestSumsBeginInTheBackward(t *testing.T) {
	p := replicas(t, "dp", 2, 4)
	for _, c := range []struct{ R, want float64 }{
		{0, 14.5},
		{4, 14.5 + 2},   // the first half is summed at 8 + 2 + 2, the rest takes 2 after 14
		{16, 14.5 + 12}, // the first half is summed at 8 + 2 + 8 = 18, the rest at 26
	} {
		costs := Uniform(1, 1, 6, 0)
		k := &costs.Stages[0][0]
		k.AllReduceS, k.UpdateS = c.R, 0.5
		k.Shares = []Share{{At: 1.0 / 3, Part: 0.5}, {At: 1, Part: 0.25}}
		tl, sum, err := Run(p, costs, Options{Record: true})
		if err != nil {
			t.Fatal(err)
		}
		exactly(t, sum.StepS, c.want, "an all-reduce of %v", c.R)
		if err := tl.Validate(); err != nil {
			t.Error(err)
		}
		for _, e := range tl.Events {
			if e.Kind == "AR" && c.R > 0 && e.StartS != 10 {
				t.Errorf("%s begins at %v; half of the gradients are there at 10", e.Instruction, e.StartS)
			}
		}
	}
}

func replicas(t testing.TB, order string, n, micros int) *schedule.Program {
	t.Helper()
	p, err := family.Generate(order, schedule.Settings{Placement: schedule.Replicated(1, n), MicroBatches: micros})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSumsBesideGainAtMostTheBackward: a sum during the backward is never slower than a sum after it. It saves at most
// the time of the backward, and at most the time of the sum.
func TestSumsBesideGainAtMostTheBackward(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 4).Draw(t, "replicas")
		seconds := rapid.Float64Range(0, 5)
		costs := Uniform(1, seconds.Draw(t, "f"), seconds.Draw(t, "b"), 0)
		k := &costs.Stages[0][0]
		k.AllReduceS, k.UpdateS = seconds.Draw(t, "r"), 1
		p, err := family.Generate("dp", schedule.Settings{Placement: schedule.Replicated(1, n),
			MicroBatches: rapid.IntRange(1, 9).Draw(t, "m"), Repeat: 3})
		if err == nil {
			p, err = lower.Lower(p, lower.Options{})
		}
		if err != nil {
			t.Fatal(err)
		}
		_, behind, err := Run(p, costs, Options{})
		if err != nil {
			t.Fatal(err)
		}
		took, bytes := make([]float64, 5), make([]int64, 5)
		for i := range took {
			took[i], bytes[i] = rapid.Float64Range(0, 1).Draw(t, "layer"), int64(rapid.IntRange(0, 3<<20).Draw(t, "bytes"))
		}
		k.Shares = layerwise{took, bytes}.buckets(schedule.BucketBytes)
		_, beside, err := Run(p, costs, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if gain := behind.StepS - beside.StepS; gain < -1e-9 || gain > min(k.BackwardS, k.AllReduceS)+1e-9 {
			t.Fatalf("%v behind the backward, %v beside it", behind.StepS, beside.StepS)
		}
	})
}

// TestBuckets: layers are summed from the last to the first, at least a mebibyte at once. Layers at the end that do
// not fill a bucket are in no Share.
func TestBuckets(t *testing.T) {
	got := layerwise{[]float64{2, 1, 2, 3}, []int64{1 << 19, 2 << 20, 1 << 19, 3 << 18}}.buckets(1 << 20)
	want := []Share{{At: 5.0 / 8, Part: 1.25 / 3.75}, {At: 6.0 / 8, Part: 2 / 3.75}}
	near := func(a, b Share) bool { return math.Abs(a.At-b.At) < 1e-12 && math.Abs(a.Part-b.Part) < 1e-12 }
	if !slices.EqualFunc(got, want, near) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got = (layerwise{[]float64{1, 1}, []int64{1 << 19, 1 << 18}}).buckets(1 << 20); got != nil {
		t.Errorf("%+v of less than a bucket", got)
	}
}

// TestCrowdedWorkersSumBehind: if workers are threads that share too few cores, sums run after the backward. Sums
// during the backward would take cores from it.
func TestCrowdedWorkersSumBehind(t *testing.T) {
	p := chain()
	for l := range p.Layers {
		p.Layers[l].ParameterBytes = 2 << 20
	}
	for _, c := range []struct {
		cores int
		want  bool
	}{{0, true}, {2, false}, {4, true}} {
		pl := twoStages()
		pl.Stages[0].Devices = []int{0, 1}
		pl.Stages[1].Devices = []int{2}
		costs, err := CostsOf(p, cluster.Local("cpu", 3, c.cores, 0, 0, 1e9, 1e9), pl)
		if err != nil {
			t.Fatal(err)
		}
		if got := costs.Stages[0][0].Shares != nil; got != c.want {
			t.Errorf("%d cores: sums beside the backward: %v, want %v", c.cores, got, c.want)
		}
	}
}

// TestBucketsOfOptions: a layer of two mebibytes fills a bucket of two mebibytes or less, and three layers fill one
// of five. No layers fill a bucket of a tebibyte, so everything is summed after the backward.
func TestBucketsOfOptions(t *testing.T) {
	p := chain()
	for l := range p.Layers {
		p.Layers[l].ParameterBytes, p.Layers[l].TiedBytes = 2<<20, 0
	}
	pl := twoStages()
	pl.Stages[0].Devices, pl.Stages[1].Devices = []int{0, 1}, []int{2}
	costs, err := CostsOf(p, cluster.Local("cpu", 3, 0, 0, 0, 1e9, 1e9), pl)
	if err != nil {
		t.Fatal(err)
	}
	n := pl.Stages[0].LastLayer - pl.Stages[0].FirstLayer + 1
	for bytes, want := range map[int64]int{1: n, 2 << 20: n, 5 << 20: n / 3, 1 << 40: 0} {
		if got := costs.inBuckets(bytes).Stages[0][0].Shares; len(got) != want {
			t.Errorf("buckets of %d bytes: %d, want %d of %d layers", bytes, len(got), want, n)
		}
	}
	program, err := programs.Build(pl, nil, false, 2)
	if err != nil {
		t.Fatal(err)
	}
	took := func(costs Costs, o Options) float64 {
		_, sum, err := Run(program, costs, o)
		if err != nil {
			t.Fatal(err)
		}
		return sum.EndS
	}
	behind := costs.inBuckets(1 << 40)
	if got, want := took(costs, Options{BucketBytes: 1 << 40}), took(behind, Options{}); got != want ||
		got <= took(costs, Options{}) {
		t.Errorf("summed behind the backward it takes %v, want %v and more than %v", got, want, took(costs, Options{}))
	}
	if _, _, err := Run(program, costs, Options{BucketBytes: -1}); err == nil {
		t.Error("buckets of -1 bytes are accepted")
	}
}

// TestSumsAndTransfersDoNotQueue: an all-reduce never waits for a link, whichever numbers name the links.
// Two replicas of the second stage end their backwards together and send gradients for 4 s; they begin to sum at
// once.
func TestSumsAndTransfersDoNotQueue(t *testing.T) {
	p, err := family.Generate("1f1b", schedule.Settings{
		Placement: [][]int{{0}, {1, 2}}, MicroBatches: 1, Replication: schedule.Split,
	})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	costs := Uniform(2, 1, 3, 0)
	costs.Transfer = func(int, int, int64) (float64, float64) { return 0, 4 }
	costs.Links = func(from, to int) [][2]int { return [][2]int{{-1, max(from, to)}} }
	costs.Stages[1][0].AllReduceS = 1
	tl, _, err := Run(p, costs, Options{Record: true})
	if err != nil {
		t.Fatal(err)
	}
	at := spans(tl)
	for _, in := range []string{"1AR0", "1AR0@r1"} {
		if begun, back := at[in][0], at["1B0"][1]; begun != back {
			t.Errorf("%s begins at %v; the backwards end at %v", in, begun, back)
		}
	}
}
