package plan

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
)

// pipedreamSettings: where the default is "formula", the paper's and the artifact's differ.
var pipedreamSettings = []Setting{
	{"overlap", "formula", "max, sum", "a replicated stage's compute and synchronisation overlap (paper, section 3.1), or follow each other (artifact)"},
	{"volume", "formula", "paper, prose, code", "bytes a stage of m replicas and W bytes of weights synchronises: 2(m-1)W (paper's formula), 2(m-1)/m W (paper's prose), 4(m-1)/m W (artifact)"},
	{"hierarchy", "hierarchical", "hierarchical, flat", "the cluster's levels, or one level of all devices at the slowest bandwidth"},
	{"transfer", "formula", "paper, code, none", "activations 2a/B (paper), divided by the stage's replicas and charged on both sides (artifact with a compression ratio), or free (artifact without)"},
	{"activation_compression_ratio", "formula", "none, or a number above 0", "what transfers are divided by; the artifact charges none without it. Default 1"},
	{"inner_division", "formula", "on, off", "an uncut stage's synchronisation is divided by the workers of the level inside (artifact)"},
	{"cuts", "formula", "nested, ancestors", "cuts must be nested inside a server too, or only come before the end of what they cut (artifact)"},
	{"memory", "formula", "auto, on, off, or bytes like 16GiB", "the limit of a device, by the published rule on weights and outputs alone: auto (paper) drops it where no plan keeps to it, off (artifact)"},
	{"use_fewer_machines", "off", "on, off", "devices may stay idle"},
	{"straight_pipeline", "off", "on, off", "no stage is replicated"},
	{"bandwidths", "cluster", "cluster, or bytes/s innermost first like 12e9,1.25e9", "in place of the cluster's"},
	{"states", "auto", "auto, or a number", "most states that are searched; past them a beam. Auto is 2600 with several levels, 20000 flat"},
}

// pipedreamOptions is the settings, read.
type pipedreamOptions struct {
	planner         string
	flush           bool   // AvgPipe: micro-batches, then an update
	sum             bool   // compute and synchronisation add up
	volume          string // paper, prose, code
	flat            bool
	transfer        string  // paper, code, none
	compression     float64 // transfers are divided by it
	innerDivision   bool
	nested          bool
	constrain       string  // auto, on, off
	memory          float64 // bytes; 0: the cluster's, or no limit
	fewer, straight bool
	bandwidths      []float64
	states          int // 0 is auto
}

func readPipeDream(name string, settings []Setting, r Request) (o pipedreamOptions, err error) {
	if r.Formula != "" && r.Formula != "paper" && r.Formula != "artifact" {
		return o, fmt.Errorf("plan: %s: formula is %q; it is paper or artifact", name, r.Formula)
	}
	if err := (Planner{Name: name, Settings: settings}).CheckSettings(r.Set); err != nil {
		return o, err
	}
	artifact := r.Formula == "artifact"
	read := func(key, paper, published string, allowed ...string) string {
		text := paper
		if artifact {
			text = published
		}
		if given, ok := r.Set[key]; ok && given != "formula" {
			text = given
		}
		if len(allowed) > 0 && !slices.Contains(allowed, text) && err == nil {
			err = fmt.Errorf("plan: %s: %s is %q; it is %s", name, key, text, strings.Join(allowed, " or "))
		}
		return text
	}
	wrong := func(key, text, right string) {
		if err == nil {
			err = fmt.Errorf("plan: %s: %s is %q; it is %s", name, key, text, right)
		}
	}
	o.planner, o.compression = name, 1
	o.sum = read("overlap", "max", "sum", "max", "sum") == "sum"
	o.volume = read("volume", "paper", "code", "paper", "prose", "code")
	o.flat = read("hierarchy", "hierarchical", "hierarchical", "hierarchical", "flat") == "flat"
	o.transfer = read("transfer", "paper", "code", "paper", "code", "none")
	switch text := read("activation_compression_ratio", "1", "1"); text {
	case "none":
		o.transfer = "none"
	default:
		x, e := strconv.ParseFloat(text, 64)
		if e != nil || !(x > 0) || math.IsInf(x, 1) {
			wrong("activation_compression_ratio", text, "none, or a number above 0")
		}
		o.compression = x
	}
	o.innerDivision = read("inner_division", "off", "on", "on", "off") == "on"
	o.nested = read("cuts", "nested", "ancestors", "nested", "ancestors") == "nested"
	o.constrain = read("memory", "auto", "off")
	if !slices.Contains([]string{"auto", "on", "off"}, o.constrain) {
		bytes, e := cluster.ParseBytes(o.constrain)
		x := float64(bytes)
		if e != nil {
			x, e = strconv.ParseFloat(o.constrain, 64) // as the artifact's -s 16e9
		}
		if e != nil || !(x >= 1) || math.IsInf(x, 1) {
			wrong("memory", o.constrain, "auto, on, off, or bytes like 16GiB")
		}
		o.memory, o.constrain = x, "on"
	}
	o.fewer = read("use_fewer_machines", "off", "off", "on", "off") == "on"
	o.straight = read("straight_pipeline", "off", "off", "on", "off") == "on"
	if text := read("bandwidths", "cluster", "cluster"); text != "cluster" {
		for part := range strings.SplitSeq(text, ",") {
			x, e := strconv.ParseFloat(strings.TrimSpace(part), 64)
			if e != nil || !(x > 0) || math.IsInf(x, 1) {
				wrong("bandwidths", text, "cluster, or bytes a second by level, innermost first, like 12e9,1.25e9")
			}
			o.bandwidths = append(o.bandwidths, x)
		}
		if n := len(r.Cluster.Levels); len(o.bandwidths) != n && !(o.flat && len(o.bandwidths) == 1) {
			wrong("bandwidths", text, fmt.Sprintf("one for each of the %d levels of cluster %s", n, r.Cluster.Name))
		}
	}
	if text := read("states", "auto", "auto"); text != "auto" {
		n, e := strconv.Atoi(text)
		if e != nil || n < 1 || n > 20000 {
			wrong("states", text, "auto, or 1 to 20000")
		}
		o.states = n
	}
	return o, err
}

// note says which formula the objective is by.
func (o pipedreamOptions) note() string {
	rule := "the larger of compute and synchronisation"
	if o.sum {
		rule = "compute plus synchronisation"
	}
	return fmt.Sprintf("a stage takes %s; volume %s, transfers %s", rule, o.volume, o.transfer)
}
