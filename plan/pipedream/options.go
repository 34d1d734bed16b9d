package pipedream

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/plan"
)

// Settings are PipeDream's settings; avgpipe uses them with other defaults.
var Settings = []plan.Setting{
	{Name: "overlap", Default: plan.DefaultByFormula, Values: "max, sum",
		Doc: "a replicated stage's compute and synchronisation overlap (paper, section 3.1), or follow each other " +
			"(artifact)"},
	{Name: "volume", Default: plan.DefaultByFormula, Values: "paper, prose, code",
		Doc: "bytes a stage of m replicas and W bytes of weights synchronises: 2(m-1)W (paper's formula), 2(m-1)/m W " +
			"(paper's prose), 4(m-1)/m W (artifact)"},
	{Name: "hierarchy", Default: "hierarchical", Values: "hierarchical, flat",
		Doc: "the cluster's levels, or one level of all devices at the slowest bandwidth"},
	{Name: "transfer", Default: plan.DefaultByFormula, Values: "paper, code, none",
		Doc: "activations 2a/B (paper), divided by the stage's replicas and charged on both sides (artifact with a " +
			"compression ratio), or free (artifact without)"},
	{Name: "activation_compression_ratio", Default: "1", Values: "none, or a number above 0",
		Doc: "what transfers are divided by; the artifact charges none without it"},
	{Name: "inner_division", Default: plan.DefaultByFormula, Values: "on, off",
		Doc: "an uncut stage's synchronisation is divided by the workers of the level inside (artifact)"},
	{Name: "cuts", Default: plan.DefaultByFormula, Values: "nested, ancestors",
		Doc: "cuts must be nested inside a server too, or only come before the end of what they cut (artifact)"},
	{Name: "memory", Default: plan.DefaultByFormula, Values: "auto, on, off, or bytes like 16GiB",
		Doc: "the limit of a device, by the published rule on weights and outputs alone: auto (paper) drops it where " +
			"no plan keeps to it, off (artifact)"},
	{Name: "use_fewer_machines", Default: "off", Values: "on, off",
		Doc: "devices may stay idle"},
	{Name: "straight_pipeline", Default: "off", Values: "on, off",
		Doc: "no stage is replicated"},
	{Name: "bandwidths", Default: "cluster", Values: "cluster, or bytes/s by level, innermost first, like 12e9,1.25e9",
		Doc: "in place of the cluster's"},
	{Name: "states", Default: "auto", Values: "auto, or 1 to 20000",
		Doc: "most states that are searched; past them a beam. Auto is 2600 with several levels, 20000 flat"},
}

// options holds the settings after parsing.
type options struct {
	planner         string
	flush           bool   // one update after all micro-batches, as in AvgPipe
	sum             bool   // compute and synchronisation are added, instead of taking the larger one
	volume          string // one of paper, prose, code
	flat            bool
	transfer        string  // one of paper, code, none
	compression     float64 // number by which transfers are divided
	innerDivision   bool
	nested          bool
	constrain       string  // one of auto, on, off
	memory          float64 // bytes; 0 means the limit of the cluster, if it has one
	fewer, straight bool
	bandwidths      []float64
	states          int // 0 means auto
}

func read(name string, settings []plan.Setting, r plan.Request) (o options, err error) {
	s := plan.ReadSettings(name, settings, true, r)
	o.planner, o.compression = name, 1
	o.sum = s.ChoiceByFormula("overlap", "max", "sum") == "sum"
	o.volume = s.ChoiceByFormula("volume", "paper", "code")
	o.flat = s.Choice("hierarchy") == "flat"
	o.transfer = s.ChoiceByFormula("transfer", "paper", "code")
	switch s.Text("activation_compression_ratio") {
	case "none":
		o.transfer = "none"
	default:
		o.compression = s.Positive("activation_compression_ratio")
	}
	o.innerDivision = s.ChoiceByFormula("inner_division", "off", "on") == "on"
	o.nested = s.ChoiceByFormula("cuts", "nested", "ancestors") == "nested"
	o.constrain = s.ByFormula("memory", "auto", "off")
	if !slices.Contains([]string{"auto", "on", "off"}, o.constrain) {
		o.memory, o.constrain = s.Bytes("memory"), "on"
	}
	o.fewer = s.Choice("use_fewer_machines") == "on"
	o.straight = s.Choice("straight_pipeline") == "on"
	if text := s.Text("bandwidths"); text != "cluster" {
		for part := range strings.SplitSeq(text, ",") {
			x, e := strconv.ParseFloat(strings.TrimSpace(part), 64)
			if e != nil || !(x > 0) || math.IsInf(x, 1) {
				s.Wrong("bandwidths")
			}
			o.bandwidths = append(o.bandwidths, x)
		}
		if n := len(r.Cluster.Levels); len(o.bandwidths) != n && !(o.flat && len(o.bandwidths) == 1) {
			s.Fail("plan: %s: bandwidths is %q; it is one for each of the %d levels of cluster %s", name, text, n,
				r.Cluster.Name)
		}
	}
	if s.Text("states") != "auto" {
		o.states = s.Count("states", 1, 20000)
	}
	return o, s.Done()
}

// note says which formula the objective uses.
func (o options) note() string {
	rule := "the larger of compute and synchronisation"
	if o.sum {
		rule = "compute plus synchronisation"
	}
	return fmt.Sprintf("a stage takes %s; volume %s, transfers %s", rule, o.volume, o.transfer)
}
