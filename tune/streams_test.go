package tune

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// TestFreeStreamsAreAsFastAsFixedOnes: a search with streams finds a plan at least as fast as one that fixes a stream's
// schedule, and as the planner whose plans are streams. The cut that is best with a flush need not be best without.
func TestFreeStreamsAreAsFastAsFixedOnes(t *testing.T) {
	t.Parallel()
	for _, r := range []Request{
		onTwoNodes(t, 64),
		planned(t, "gpt", map[string]any{"layers": 3}, "dapple-a:2x2", 16),
	} {
		r.Async = true
		free, err := Search(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, schedule := range []string{"1f1b-rr", "dp-async"} {
			fixed := r
			fixed.Fix.Schedule = schedule
			own, err := Search(t.Context(), fixed)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := free.Best.Predicted.StepS, own.Best.Predicted.StepS; a > 1.01*b {
				t.Errorf("%s on %s: %v s, with %s fixed %v", r.Profile.Model, r.Cluster.Name, a, schedule, b)
			}
		}
		for _, rival := range free.Rivals {
			if strings.HasSuffix(rival.Kind, " async") {
				own := planOf(t, strings.TrimSuffix(rival.Kind, " async"), r)
				if other := len(own.Stages) != len(rival.Plan.Stages) || own.MicroBatch != rival.Plan.MicroBatch; other &&
					own.Batch() == r.Batch {
					t.Errorf("%s: the rival is %+v, the planner's own plan %+v", rival.Kind, rival.Plan, own)
				}
			}
		}
	}
}

// onTwoNodes returns a request for gpt on the cluster of README, with costs from kernels.
func onTwoNodes(t *testing.T, batch int) Request {
	t.Helper()
	m, err := model.Build("gpt", nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Read("../examples/two-nodes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Analyze(m, c.DeviceTypes, profile.Analysis{Sizes: []int{1, 2, 4, 8, 16, 32, 64}, Optimizer: "adamw",
		States: 2})
	if err != nil {
		t.Fatal(err)
	}
	return Request{Profile: p, Cluster: c, Batch: batch}
}

func planOf(t *testing.T, planner string, r Request) *plan.Plan {
	t.Helper()
	for _, p := range plan.Planners() {
		if p.Name == planner {
			pl, err := p.Plan(t.Context(), plan.Request{Profile: r.Profile, Cluster: r.Cluster, Batch: r.Batch})
			if err != nil {
				t.Fatal(err)
			}
			return pl
		}
	}
	t.Fatalf("no planner %s", planner)
	return nil
}

// TestTwiceTheDevicesAreSearched: the advice of twice as many devices is about what a search on these devices finds,
// also if other families than that of the present plan are the best there.
func TestTwiceTheDevicesAreSearched(t *testing.T) {
	t.Parallel()
	for _, r := range []Request{onTwoNodes(t, 64), planned(t, "convnet", nil, "dapple-a:2x2", 16)} {
		found, err := Search(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		e, err := found.Explain(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		more := r
		more.Cluster = doubled(r.Cluster)
		there, err := Search(t.Context(), more)
		if err != nil {
			t.Fatal(err)
		}
		said := found.Best.Predicted.StepS
		for _, l := range e.Levers {
			if strings.HasPrefix(l.Change, "twice as many devices (") {
				said = l.StepS
			}
		}
		if stepS := there.Best.Predicted.StepS; said > 1.03*stepS {
			t.Errorf("%s: %v s are advised with twice the devices, and a search there finds %v (%s)", r.Profile.Model, said,
				stepS, there.Best.Schedule)
		}
	}
}

// TestPlannersAreAskedWithinOtherLimits: a planner's plan may fit although the planner, which counts memory in its own
// way, gives it only for another limit. So a larger limit never loses a plan that fits a smaller one.
func TestPlannersAreAskedWithinOtherLimits(t *testing.T) {
	t.Parallel()
	m, err := model.Build("vgg16", nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Preset("dgx-h100")
	if err != nil {
		t.Fatal(err)
	}
	if c, err = c.First(4); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Analyze(m, c.DeviceTypes, profile.Analysis{Sizes: []int{2, 4, 8, 16, 32, 64, 128},
		Optimizer: "adamw", States: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, gib := range []float64{1.5, 1.6, 1.75, 1.9} {
		limit := int64(gib * (1 << 30))
		found, err := Search(t.Context(), Request{Profile: p, Cluster: c.Limited(limit), Batch: 128})
		if err != nil {
			t.Errorf("%v GiB: %v", gib, err)
			continue
		}
		if q := found.Best.Predicted; slices.Max(q.Needs()) > limit {
			t.Errorf("%v GiB: the plan needs %v bytes", gib, q.Needs())
		}
	}
}
