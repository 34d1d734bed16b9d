// Package bapipe is BaPipe's exploration (§3).
//
// For each micro-batch size, order of the devices along the chain, and schedule that suits them, it finds a balanced
// partition. It returns the partition whose mini-batch takes the least time by Tables I and II. Errors: settings that
// allow no partition, more than mostLayers layers, and a plan.MemoryError if nothing fits.
//
// Notation, as in the paper: F and B are the times of a forward and a backward, and SR is the time of a transfer. N is
// the number of stages and M the number of micro-batches. T_n is the time of the whole model on device n.
//
// Balanced partition (Fig. 2, §3.3): first, each device gets layers that take about T = 1/sum(1/T_n). If a transfer
// there and back takes longer than the longest stage computes, cuts are allowed only where the features are at most a
// threshold a_th. Otherwise boundary layers are divided between neighbours. Stages must always fit their weights,
// gradients and features in memory.
//
// The paper leaves some details open. Here the partition of the first step is the one whose longest stage is shortest,
// found by dynamic programming. a_th is the bytes that the chain's slowest link carries there and back within T,
// raised until some partition fits. The stages' times may differ, so in the tables F + B is the time of the longest
// stage, and SR the time of the longest transfer. Beyond the range of 1F1B-SO's formula (2 SR <= F + B), and for links
// below Table I's bandwidth, transfers set the pace instead of F + B. Cuts by a_th and a divided layer are kept only
// if the formula then gives less time. Dividing a layer sends its input and a part of its output. Plain data
// parallelism is compared with all of these plans (Table III's ResNet-50), unless dp=off.
//
// The paper's chain is "orthogonal to data parallelism" (§2.3). So plans of d chains side by side are compared, for
// every possible d up to half the devices. A d is possible if it divides the number of devices of each type. If the
// number of stages is set, a d is possible if it leaves each chain enough devices. Each chain has its share of the
// micro-batches, and the same types in the same order. After a chain's mini-batch, the gradients of each stage are
// summed over its d devices. The time of the longest such sum is added.
//
// On boards, F and B are a stage's times when each runs separately. FBP-AS's pace is the time of both at once (package
// profile/board). On the last stage, M-1 pairs of a forward and a backward run at once, after N forwards that fill the
// pipeline and before N backwards that empty it. If a pair takes F + B, the
// mini-batch takes Table I's time.
package bapipe

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
)

func init() {
	plan.RegisterPlanner(plan.Planner{
		Name: "bapipe", Paper: "BaPipe: Exploration of Balanced Pipeline Parallelism for DNN Training (Zhao et al., " +
			"2020)",
		Settings: settings, Plan: find,
	})
}

var settings = []plan.Setting{
	{Name: "schedule", Default: "auto", Values: "auto, 1F1B-AS, FBP-AS, 1F1B-SNO, 1F1B-SO",
		Doc: "one schedule in place of all that suit the devices (Tables I and II)"},
	{Name: "order", Default: "search", Values: "search, given",
		Doc: "whether device types change places along the chain"},
	{Name: "fractions", Default: "on", Values: "on, features, off",
		Doc: "whether boundary layers are divided (section 3.3.2); features: as train can, which is the default for " +
			"this machine: dense and convolutional layers by whole output features"},
	{Name: "a_th", Default: "auto", Values: "auto, or bytes like 4MiB",
		Doc: "feature threshold of the coarse-grained partition (section 3.3.3)"},
	{Name: "stages", Default: "all", Values: "all, or a number",
		Doc: "accelerators in the chain"},
	{Name: "chains", Default: "auto", Values: "auto, or a number",
		Doc: "whole chains side by side, whose gradients are summed (section 2.3)"},
	{Name: "dp", Default: "on", Values: "on, off",
		Doc: "whether data parallelism may win"},
}

// options holds the settings after parsing.
type options struct {
	schedules      []string // families of package schedule
	search, divide bool
	features       bool // divide layers only by whole features
	dataParallel   bool
	threshold      int64 // bytes; 0 means auto
	stages         int
	exactly        bool // exactly as many stages as the field `stages` says, not fewer
	chains         int  // 0 means auto
}

func read(r plan.Request) (o options, err error) {
	s := plan.ReadSettings("bapipe", settings, false, r)
	o.search = s.Choice("order") == "search"
	fractions := s.Choice("fractions")
	if _, asked := r.Set["fractions"]; r.Runnable && !asked {
		fractions = "features"
	}
	o.divide, o.features = fractions != "off", fractions == "features"
	o.dataParallel = s.Choice("dp") == "on"
	if s.Text("a_th") != "auto" {
		o.threshold = int64(s.Bytes("a_th"))
	}
	o.stages = min(len(r.Cluster.Devices), len(r.Profile.Layers))
	if text := s.Text("stages"); text != "all" {
		n, e := strconv.Atoi(text)
		if e != nil || n < 1 || n > o.stages {
			s.Fail("plan: bapipe: stages is %q; it is all, or 1 to %d: %s has %d layers, cluster %s %d devices",
				text, o.stages, r.Profile.Model, len(r.Profile.Layers), r.Cluster.Name, len(r.Cluster.Devices))
		}
		o.stages, o.exactly = n, true
	}
	if text := s.Text("chains"); text != "auto" {
		n, e := strconv.Atoi(text)
		if e != nil || n < 1 || n > len(r.Cluster.Devices) {
			s.Fail("plan: bapipe: chains is %q; it is auto, or 1 to %d, the devices of cluster %s", text,
				len(r.Cluster.Devices), r.Cluster.Name)
		}
		o.chains = n
	}
	// FPGA boards transfer while they compute. GPUs cannot do that, and cannot run FP and BP at once (§3.2).
	o.schedules = []string{"1f1b", "so"}
	if !slices.ContainsFunc(r.Cluster.Devices, func(d string) bool { return r.Cluster.DeviceTypes[d].FPGA == nil }) {
		o.schedules = []string{"1f1b-as", "fbp-as"}
	}
	if name := s.Text("schedule"); name != "auto" {
		family, ok := families[strings.ToUpper(name)]
		switch {
		case !ok:
			s.Wrong("schedule")
		case (family == "fbp-as" || family == "1f1b-as") && o.schedules[0] == "1f1b":
			s.Fail("plan: bapipe: schedule %s needs devices that transfer while they compute, FPGA boards; cluster "+
				"%s has others", name, r.Cluster.Name)
		}
		o.schedules = []string{family}
	}
	return o, s.Done()
}

// mostLayers limits the layers, because the search's time grows with their square: at this limit it takes seconds.
const mostLayers = 10000

func find(ctx context.Context, r plan.Request) (*plan.Plan, error) {
	if len(r.Profile.Layers) == 0 || len(r.Cluster.Devices) == 0 {
		return nil, fmt.Errorf("plan: bapipe: %d layers and %d devices; both must be 1 at least", len(r.Profile.Layers),
			len(r.Cluster.Devices))
	}
	if n := len(r.Profile.Layers); n > mostLayers {
		return nil, fmt.Errorf("plan: bapipe: %s has %d layers; it searches up to %d. Merge layers in the profile, "+
			"or ask planner pipedream or dapple", r.Profile.Model, n, mostLayers)
	}
	o, err := read(r)
	if err != nil {
		return nil, err
	}
	sizes, err := sizesOf(r)
	if err != nil {
		return nil, err
	}
	x := &exploration{r: r, o: o}
	numbers, orders, all := chainsOf(r.Cluster, o), [][][]int(nil), true
	for _, chains := range numbers {
		more, whole := ordersOf(r.Cluster, o, chains)
		orders, all = append(orders, more...), all && whole
	}
	if len(orders[0]) == 0 {
		return nil, fmt.Errorf("plan: bapipe: chains is %d; cluster %s has too few devices of a type for as many",
			o.chains, r.Cluster.Name)
	}
	for _, size := range sizes {
		for _, places := range orders {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := x.try(places, size); err != nil {
				return nil, err
			}
		}
		if o.dataParallel {
			if err := x.tryDataParallel(size); err != nil {
				return nil, err
			}
		}
	}
	if x.best == nil && x.least == nil {
		return nil, fmt.Errorf("plan: bapipe: %s side by side need as many micro-batches; a batch of %d in micro-batches "+
			"of %v has fewer", terminal.Count(numbers[0], "chain"), r.Batch, sizes)
	}
	if x.best == nil {
		return nil, x.least
	}
	beside := ""
	if len(numbers) > 1 || numbers[0] > 1 {
		beside = fmt.Sprintf("%v chains side by side, ", numbers)
	}
	x.best.Why = append(x.best.Why, fmt.Sprintf("%s compared by BaPipe's Tables I and II: micro-batches "+
		"of %v samples, %s of devices, %sschedules %v", terminal.Count(x.tried, "partition"), sizes,
		terminal.Count(len(orders), "order"), beside, o.schedules))
	if !all {
		x.best.Why = append(x.best.Why, fmt.Sprintf("devices have over %d orders along the chain; only those that "+
			"keep each type together were tried, and the given one", maxOrders))
	}
	return x.best, nil
}
