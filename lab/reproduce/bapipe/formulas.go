package bapipe

import (
	"context"
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
)

// The times of a stage's forward and backward, in seconds, that we use for Tables I and II.
const (
	forwardS, backwardS = 1., 2.
	passesS             = forwardS + backwardS
)

// played simulates a step of m micro-batches on n stages, under a schedule of the given family.
func played(order string, n, m int, costs sim.Costs) (sim.Summary, error) {
	s := schedule.Settings{MicroBatches: m}
	for w := range n {
		s.Placement = append(s.Placement, []int{w})
	}
	p, err := family.Generate(order, s)
	if err != nil {
		return sim.Summary{}, err
	}
	if p, err = lower.Lower(p, lower.Options{}); err != nil {
		return sim.Summary{}, err
	}
	_, sum, err := sim.Run(p, costs, sim.Options{})
	return sum, err
}

// boards returns the costs of uniform stages on devices that transfer while they compute. A message occupies its link
// for linkS seconds.
func boards(n int, linkS float64) sim.Costs {
	return sim.Streaming(sim.Uniform(n, forwardS, backwardS, 0), linkS)
}

// gpus returns the costs of uniform stages on devices that send after computing. A message takes transferS seconds.
func gpus(n int, transferS float64) sim.Costs { return sim.Uniform(n, forwardS, backwardS, transferS) }

func bapipeTable1(ctx context.Context, _ table.Options, t *table.Table) error {
	t.Source = "BaPipe, Table I, with F = 1 and B = 2"
	t.Notes = append(t.Notes, "features: never more than M micro-batches; bandwidth: the least with which a further "+
		"micro-batch takes F + B, for features of one byte; both directions of FBP-AS on one link")
	for _, order := range []string{"1f1b-as", "fbp-as"} {
		times := 1
		if order == "fbp-as" {
			times = 2
		}
		for _, n := range []int{2, 4, 8} {
			for _, m := range []int{n, 4 * n} {
				for _, sr := range []float64{0, .5} {
					if err := ctx.Err(); err != nil {
						return err
					}
					sum, err := played(order, n, m, boards(n, sr))
					if err != nil {
						return err
					}
					N, M := float64(n), float64(m)
					what := fmt.Sprintf("%s N=%d M=%d SR=%g ", order, n, m, sr)
					t.Number(what+"time", (M+N-1)*passesS, sum.StepS, "%.4g", "")
					t.Number(what+"bubble", (N-1)/(M+N-1), sum.Bubble, "%.4f", "")
					features(t, what, times, n, m, sum)
				}
			}
			if err := weights(ctx, t, order, n, true); err != nil {
				return err
			}
			link, err := slowest(order, n, func(s float64) sim.Costs {
				c := boards(n, s)
				if order == "fbp-as" {
					c.Links = func(from, to int) [][2]int { return [][2]int{{min(from, to), max(from, to)}} }
				}
				return c
			})
			if err != nil {
				return err
			}
			paper := 1 / forwardS
			if order == "fbp-as" {
				paper = 2 / passesS
			}
			t.Number(fmt.Sprintf("%s N=%d bandwidth, a/s", order, n), paper, 1/link, "%.4f", "")
		}
	}
	return nil
}

// features adds the activations that the first and the last of n accelerators hold. By the paper's formula, accelerator
// i holds min(times*(n-i+1), m) micro-batches of `a` bytes each.
func features(t *table.Table, what string, times, n, m int, sum sim.Summary) {
	for _, i := range []int{1, n} {
		t.Number(fmt.Sprintf("%sfeatures of accelerator %d, a", what, i), float64(min(times*(n-i+1), m)),
			float64(sum.PeakActivations[i-1]), "%g", "")
	}
}

func bapipeTable2(ctx context.Context, _ table.Options, t *table.Table) error {
	t.Source = "BaPipe, Table II, with F = 1 and B = 2"
	t.Notes = append(t.Notes, "bandwidth: a/F is enough for 1F1B-SO, which needs no more than 2a/(F+B), as a further "+
		"micro-batch takes F + B while 2 SR <= F + B; 1F1B-SNO hides transfers at no bandwidth")
	for _, order := range []string{"1f1b", "so"} {
		times, label := 1, "1F1B-SNO"
		if order == "so" {
			times, label = 2, "1F1B-SO"
		}
		for _, n := range []int{2, 4, 8} {
			for _, m := range []int{n, 2*n + 1, 4 * n} {
				for _, sr := range []float64{0, .5} {
					if err := ctx.Err(); err != nil {
						return err
					}
					sum, err := played(order, n, m, gpus(n, sr))
					if err != nil {
						return err
					}
					N, M := float64(n), float64(m)
					paper := (M+N-1)*passesS + (N-1)*2*sr
					if order == "1f1b" {
						paper = (M+N-1)*passesS + (N+M-2-math.Ceil((M-1)/N))*2*sr
					}
					what := fmt.Sprintf("%s N=%d M=%d SR=%g ", label, n, m, sr)
					t.Number(what+"time", paper, sum.StepS, "%.4g", "")
					t.Number(what+"bubble", 1-M*passesS/paper, sum.Bubble, "%.4f", "")
					features(t, what, times, n, m, sum)
				}
			}
			if err := weights(ctx, t, order, n, false); err != nil {
				return err
			}
			if order == "1f1b" {
				continue
			}
			transfer, err := slowest(order, n, func(s float64) sim.Costs { return gpus(n, s) })
			if err != nil {
				return err
			}
			t.Bound(fmt.Sprintf("%s N=%d bandwidth, a/s", label, n), "at most", 1/forwardS, 1/transfer)
		}
	}
	return nil
}

// slowest returns the longest time of a transfer, in seconds, that does not slow down a stream of micro-batches. With
// such a transfer, each further micro-batch still lengthens the step by only one forward and one backward.
func slowest(order string, n int, of func(transferS float64) sim.Costs) (float64, error) {
	keeps := func(transferS float64) (bool, error) {
		few, err := played(order, n, 4*n, of(transferS))
		if err != nil {
			return false, err
		}
		more, err := played(order, n, 12*n, of(transferS))
		return more.StepS-few.StepS <= float64(8*n)*passesS*(1+1e-9), err
	}
	low, high := 0., 4*passesS
	for range 40 {
		mid := (low + high) / 2
		ok, err := keeps(mid)
		if err != nil {
			return 0, err
		}
		if ok {
			low = mid
		} else {
			high = mid
		}
	}
	return low, nil
}

// bapipesName maps a family to its name in BaPipe's paper.
var bapipesName = map[string]string{"1f1b-as": "1F1B-AS", "fbp-as": "FBP-AS", "1f1b": "1F1B-SNO", "so": "1F1B-SO"}

// weights adds the simulated memory of the first and the last of n stages under BaPipe's plan. Each stage has w bytes
// of weights and nothing else.
func weights(ctx context.Context, t *table.Table, order string, n int, streams bool) error {
	const w = 1000
	p := &profile.Profile{Version: profile.Version, Model: "uniform", ModelID: "uniform", Source: "roofline"}
	c := &cluster.Cluster{Name: "chain", DeviceTypes: map[string]cluster.DeviceType{"d": {}},
		Levels: []cluster.Level{{Name: "chain", Size: n, BandwidthBytesPerSecond: 1e9, FullDuplex: true}}}
	if streams {
		c.DeviceTypes["d"] = cluster.DeviceType{FPGA: &cluster.FPGA{DSPSlices: 1, ClockHz: 1, FLOPsPerSlice: 2}}
	}
	for i := range n {
		p.Layers = append(p.Layers, profile.Layer{Name: fmt.Sprintf("l%d", i), Kind: "dense", From: []int{i - 1},
			TiedTo: -1, ParameterBytes: w,
			Costs: []profile.Cost{{Device: "d", MicroBatch: 1, ForwardS: forwardS, BackwardS: backwardS}}})
		c.Devices = append(c.Devices, "d")
	}
	planner, err := plan.LookupPlanner("bapipe")
	if err != nil {
		return err
	}
	pl, err := planner.Plan(ctx, plan.Request{Profile: p, Cluster: c, Batch: 4 * n, MicroBatch: 1,
		Set: map[string]string{"schedule": bapipesName[order], "dp": "off", "chains": "1"}})
	if err != nil {
		return err
	}
	program, err := programs.Build(pl, nil, false, 1)
	if err != nil {
		return err
	}
	costs, err := sim.CostsOf(p, c, pl)
	if err != nil {
		return err
	}
	_, sum, err := sim.Run(program, costs, sim.Options{})
	if err != nil {
		return err
	}
	for _, i := range []int{1, n} {
		t.Number(fmt.Sprintf("%s N=%d weights of accelerator %d, w", bapipesName[order], n, i), 2,
			float64(sum.PeakBytes[i-1])/w, "%g", "")
	}
	return nil
}
