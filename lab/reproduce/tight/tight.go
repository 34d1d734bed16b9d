// Package tight measures how far the plans of tune are above the bounds of plan/bound, and which of the two is loose.
//
// Input: the models that the papers plan for, a cluster, a batch. Output for each case: the step of the search's plan,
// the bound, and the argument that gives the bound. If the gap is large, it adds the same for a shrunken case, and the
// best plan found there. Only layouts that no lower bound rules out are simulated, and at most a fixed number of plans
// (see Small). Errors: unknown models and clusters, and batches that no plan divides.
//
// A shrunken case has fewer layers, devices or samples (see `sizes`). If these cases decide nothing, `narrowed` makes
// others. A case counts only if its own gap is at least half of the large case's gap. All its layouts are listed. Each
// layout is simulated, unless its own lower bound shows that it is too slow to matter. The results divide the gap, on a
// logarithmic scale. If two thirds of the gap are proven to lie below every plan, the proof is loose. If two thirds lie
// above the best plan, the search's plan is loose. If each part is at least a third, both are loose. Otherwise the case
// is undecided. Without a complete list of layouts, nothing is proven, so only the search's plan can be found loose.
package tight

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan/bound"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune"
)

// Workloads lists the models that PipeDream, DAPPLE and BaPipe plan for.
var Workloads = []string{"alexnet", "vgg16", "vgg19", "resnet50", "amoebanet-36", "gnmt-8", "gnmt-16", "awd-lm", "s2vt",
	"bert-48", "bert-large", "xlnet-36"}

// Clusters lists the papers' clusters of 16 devices.
var Clusters = []string{"pipedream-a", "pipedream-b", "dapple-a", "dapple-b", "dapple-c"}

// Large is the gap above which a shrunken case is added.
const Large = 0.10

// Results is the content of the file of a complete benchmark run.
type Results struct {
	record.Head
	Batch   int     `json:"batch"`
	Cases   []Case  `json:"cases"`
	MeanGap float64 `json:"mean_gap"`
	Above   int     `json:"above"` // cases with a gap over Large
}

// Case holds the results for one model on one cluster.
type Case struct {
	Workload string `json:"workload"`
	Cluster  string `json:"cluster"`
	Layers   int    `json:"layers"`
	Devices  int    `json:"devices"`

	Plan     string  `json:"plan"` // layout of the plan
	Schedule string  `json:"schedule"`
	StepS    float64 `json:"step_s"`
	Tried    int     `json:"plans_simulated"`
	SearchS  float64 `json:"search_s"`

	BoundS float64    `json:"bound_s"`
	Term   bound.Term `json:"term"` // the argument that gives the bound
	// Rest describes the stages that the proof cannot exclude for a step slightly longer than the bound. It is empty if
	// the only argument for the bound is work.
	Rest string  `json:"rest,omitempty"`
	Gap  float64 `json:"gap"`

	Small *Small `json:"shrunken,omitempty"` // only if the gap is large
}

// Kind returns "bound", the Head's Bench.
func (r *Results) Kind() string { return "bound" }

// Recount returns an error if the gaps, their mean, or the number of large gaps do not follow from the steps.
func (r *Results) Recount() (wrong error) {
	for _, c := range r.Cases {
		name := c.Workload + " on " + c.Cluster
		wrong = errors.Join(wrong, r.Value(name+": gap", c.Gap, c.StepS/c.BoundS-1))
		if s := c.Small; s != nil {
			wrong = errors.Join(wrong, r.Value(name+": small gap", s.Gap, s.StepS/s.BoundS-1))
		}
	}
	mean, above := summary(r.Cases)
	return errors.Join(wrong, r.Value("mean_gap", r.MeanGap, mean), r.Value("above", float64(r.Above), float64(above)))
}

func summary(cases []Case) (mean float64, above int) {
	for _, c := range cases {
		mean += c.Gap / float64(len(cases))
		if c.Gap > Large {
			above++
		}
	}
	return mean, above
}

// End marks the results as complete.
func (r *Results) End() {
	r.MeanGap, r.Above = summary(r.Cases)
	r.Head.End()
}

// Header is the head of a table of cases.
const Header = "| model | cluster | step ms | bound ms | gap | argument | plan | search s | " +
	"small: auto's and best plan over bound, loose |\n" +
	"|---|---|---:|---:|---:|---|---|---:|---|"

// String returns a case's row.
func (c Case) String() string {
	small := ""
	if s := c.Small; s != nil {
		small = fmt.Sprintf("%.1f %%, %.1f %%: %s", 100*s.Gap, 100*(s.BestS/s.BoundS-1), s.Loose)
	}
	return fmt.Sprintf("| %s | %s | %.4g | %.4g | %.1f %% | %s | %s | %.1f | %s |", c.Workload, c.Cluster, 1e3*c.StepS,
		1e3*c.BoundS, 100*c.Gap, c.Term, c.Plan, c.SearchS, small)
}

// All computes the case of every model on every cluster, several at once. It calls `tell` with each case in order. The
// results do not depend on how many are computed at once.
func All(ctx context.Context, workloads, clusters []string, batch int, longest time.Duration,
	tell func(Case)) ([]Case, error) {
	type answer struct {
		is  Case
		err error
	}
	type question struct {
		workload, on string
		to           chan answer
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var questions []question
	for _, w := range workloads {
		for _, on := range clusters {
			questions = append(questions, question{w, on, make(chan answer, 1)})
		}
	}
	open := make(chan question, len(questions))
	for _, q := range questions {
		open <- q
	}
	close(open)
	for range runtime.GOMAXPROCS(0) {
		crash.Go(func() {
			for q := range open {
				is, err := Ask(ctx, q.workload, q.on, batch, longest)
				q.to <- answer{is, err}
			}
		})
	}
	var all []Case
	for _, q := range questions {
		a := <-q.to
		if a.err != nil {
			return nil, a.err
		}
		all = append(all, a.is)
		tell(a.is)
	}
	return all, nil
}

// Ask searches for a plan and proves a bound. The search does a fixed amount of work, but ends after the time `longest`
// at the latest.
func Ask(ctx context.Context, workload, preset string, batch int, longest time.Duration) (Case, error) {
	c, err := cluster.Preset(preset)
	if err != nil {
		return Case{}, err
	}
	p, err := roofline(workload, c, batch)
	if err != nil {
		return Case{}, err
	}
	began := time.Now()
	found, err := tune.Search(ctx, tune.Request{Profile: p, Cluster: c, Batch: batch, Longest: longest})
	if err != nil {
		return Case{}, fmt.Errorf("bound: %s on %s: %w", workload, preset, err)
	}
	pl := found.Best
	if found.LowestS <= 0 {
		return Case{}, fmt.Errorf("bound: %s on %s: nothing is proven of plans like %s", workload, preset, pl.Layout())
	}
	proof := found.Proof
	out := Case{Workload: workload, Cluster: preset, Layers: len(p.Layers), Devices: len(c.Devices), Plan: pl.Layout(),
		Schedule: pl.Schedule, StepS: pl.Predicted.StepS, Tried: found.Tried, SearchS: time.Since(began).Seconds(),
		BoundS: proof.StepS, Term: proof.Term, Rest: rest(proof), Gap: pl.Predicted.StepS/proof.StepS - 1}
	if out.Gap > Large {
		l := &large{p: p, c: c, batch: batch, found: found, gap: out.Gap, longest: longest}
		out.Small, err = l.shrunken(ctx)
	}
	return out, err
}

// roofline returns a model's costs for micro-batches of one sample, of the whole batch, and of its halves, quarters
// and so on.
func roofline(workload string, c *cluster.Cluster, batch int) (*profile.Profile, error) {
	m, err := model.Build(workload, nil)
	if err != nil {
		return nil, fmt.Errorf("bound: %w", err)
	}
	sizes := []int{1, batch}
	for n := batch; n%2 == 0; n /= 2 {
		sizes = append(sizes, n/2)
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	p, err := profile.Analytic(m, c.DeviceTypes, sizes, "sgd", 0)
	if err != nil {
		return nil, fmt.Errorf("bound: %w", err)
	}
	return p, nil
}

// rest describes stages briefly: "0-37 on 8*, 38-88 on 8"; * marks a stage in several groups.
func rest(p bound.Proof) string {
	var parts []string
	for _, r := range p.Path {
		mark := ""
		if r.Spread {
			mark = "*"
		}
		parts = append(parts, fmt.Sprintf("%d-%d on %d%s", r.FirstLayer, r.LastLayer, r.Devices, mark))
	}
	if parts == nil {
		return ""
	}
	way := "in turn"
	if p.Split {
		way = "split"
	}
	return fmt.Sprintf("%s; micro-batches of %d, %s", strings.Join(parts, ", "), p.MicroBatch, way)
}
