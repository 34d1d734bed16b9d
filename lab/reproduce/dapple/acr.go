package dapple

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/sim"
)

// splitOf returns the number of counted layers in each stage, such as "13:6" for two stages. It returns "-" for data
// parallelism and for a straight pipeline, whose splits the paper does not print.
func splitOf(b *bench.Bench, pl *plan.Plan, counts *regexp.Regexp) string {
	if name := colons(pl); name == "DP" || strings.EqualFold(name, "straight") {
		return "-"
	}
	var parts []string
	for _, s := range pl.Stages {
		n := 0
		for _, l := range b.M.Layers[s.FirstLayer : s.LastLayer+1] {
			if counts.MatchString(l.Name) {
				n++
			}
		}
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ":")
}

// printed returns the two-stage plan that the paper prints. `devices` has the number of devices of each stage, such as
// "15:1". `layers` has the number of counted layers of each stage, such as "13:6". The second stage begins with a
// counted layer. So uncounted layers right before that layer belong to the first stage.
func printed(b *bench.Bench, devices, layers string, counts *regexp.Regexp, microBatch, microBatches int) (*plan.Plan,
	error) {
	var replicas [2]int
	var first, second int
	_, err := fmt.Sscanf(devices, "%d:%d", &replicas[0], &replicas[1])
	if err == nil {
		_, err = fmt.Sscanf(layers, "%d:%d", &first, &second)
	}
	if err != nil {
		return nil, fmt.Errorf("reproduce: %q on %q are no two stages: %w", layers, devices, err)
	}
	n, end := 0, -1
	for i, l := range b.M.Layers {
		if !counts.MatchString(l.Name) {
			continue
		}
		if n == first {
			end = i - 1
		}
		n++
	}
	if n != first+second || end < 0 {
		return nil, fmt.Errorf("reproduce: %s has %d layers of those that the paper counts; it has %s", b.M.Name, n, layers)
	}
	return b.Stages([]int{end, len(b.M.Layers) - 1}, replicas[:], microBatch, microBatches)
}

// acr returns a pipeline's activation communication ratio (DAPPLE, section 6.2). It is the mean time that a
// micro-batch's activations and gradients take at a cut, divided by the mean time that a stage computes. Two replicas
// exchange only the samples that both of them process, and messages queue for shared links. The micro-batch is enlarged
// until every stage's replicas get equally many samples. If `context` is false, only the part of a cut's bytes that
// withoutContext returns is sent.
func acr(b *bench.Bench, pl *plan.Plan, context bool) (float64, error) {
	even := *pl
	for _, s := range pl.Stages {
		for n := even.MicroBatch; even.MicroBatch%len(s.Devices) != 0; {
			even.MicroBatch += n
		}
	}
	pl = &even
	sizes := []int{pl.MicroBatch}
	for _, s := range pl.Stages {
		sizes = append(sizes, pl.MicroBatch/len(s.Devices))
	}
	p, err := b.Profile(sizes...)
	if err != nil {
		return 0, err
	}
	costs, err := sim.CostsOf(p, b.C, pl)
	if err != nil {
		return 0, err
	}
	whole, _, err := p.At(b.C.Devices[0], pl.MicroBatch)
	if err != nil {
		return 0, err
	}
	between, computing := 0.0, 0.0
	for i, s := range pl.Stages {
		own := costs.Stages[i][0]
		computing += own.ForwardS + own.BackwardS
		if i+1 == len(pl.Stages) {
			break
		}
		next, behind := pl.Stages[i+1], costs.Stages[i+1][0]
		part := 1.0
		if !context {
			part = withoutContext(b, whole, p, s.LastLayer)
		}
		between += crossing(b, s.Devices, next.Devices, part*float64(own.ActivationBytes)*float64(len(s.Devices)))
		between += crossing(b, next.Devices, s.Devices, part*float64(behind.GradientBytes)*float64(len(next.Devices)))
	}
	n := float64(len(pl.Stages))
	if n < 2 || computing == 0 {
		return 0, nil
	}
	return between / (n - 1) / (computing / n), nil
}

// crossing returns how many seconds it takes to send this many bytes from some devices to other devices. Each side
// divides the samples of a micro-batch evenly.
func crossing(b *bench.Bench, from, to []int, bytes float64) float64 {
	busy, latency := map[[2]int]float64{}, 0.0
	for i, s := range from {
		for j, r := range to {
			lo := max(float64(i)/float64(len(from)), float64(j)/float64(len(to)))
			hi := min(float64(i+1)/float64(len(from)), float64(j+1)/float64(len(to)))
			if hi <= lo {
				continue
			}
			wait, takes := b.C.Transfer(s, r, int64(bytes*(hi-lo)))
			latency = max(latency, wait)
			for _, link := range b.C.Links(s, r) {
				busy[link] += takes
			}
		}
	}
	most := 0.0
	for _, s := range busy {
		most = max(most, s)
	}
	return latency + most
}

// split adds a row that compares a plan's split with the paper's split. It adds none if neither the plan nor the paper
// has a split.
func split(t *table.Table, b *bench.Bench, r dappleRow, preset, what string, pl *plan.Plan) error {
	counts, err := regexp.Compile(r.Counts)
	if err != nil {
		return fmt.Errorf("reproduce: %s: %w", r.Workload, err)
	}
	paper, ours := r.Splits[preset], "-"
	if r.Counts != "" {
		ours = splitOf(b, pl, counts)
	}
	if paper == "" {
		paper = "-"
	}
	if paper != "-" || ours != "-" {
		t.Word(what+", split", paper, ours, "")
	}
	return nil
}

// messages holds assumptions about the messages between stages, and about the layers' computing.
type messages struct {
	ownPorts bool    // each replica has a network port of its own
	oneEach  bool    // the ratio counts only the first device of each stage
	part     float64 // fraction of the wires' rate that messages reach; 0 means all of it
	bySize   bool    // recurrent layers compute step by step, which is slower
	// noContext sends only the part of a boundary's bytes that withoutContext returns.
	noContext bool
}

// otherMessages lists the assumptions that are changed in every row. The published planner assumes messages at 1 GB/s
// (its ethernet_p2p), which is 0.32 of the wire's 25 Gbit/s. It does not model the ports of servers. The authors'
// profile of GNMT lists the computing times of LSTM layers.
var otherMessages = []table.Switch[messages]{
	{What: "replicas do not share their server's port", To: func(m *messages) { m.ownPorts = true }},
	{What: "of a micro-batch on one device of each stage", To: func(m *messages) { m.oneEach = true }},
	{What: "messages at 0.32 of the wires' rate, as the published planner has them",
		To: func(m *messages) { m.part = .32 }},
	{What: "recurrent layers slower, step by step", To: func(m *messages) { m.bySize = true }},
	{What: "attention's context is no part of messages", To: func(m *messages) { m.noContext = true }},
}

// on returns b under the assumptions of m.
func (m messages) on(b *bench.Bench) (*bench.Bench, error) {
	if m.ownPorts {
		b = b.OwnPorts()
	}
	if m.part > 0 {
		b = b.MessagesAt(m.part)
	}
	if m.bySize {
		return b.BySizeFor(bench.Recurrent)
	}
	return b, nil
}

// printedACR adds the ratio of the plan that the paper prints, computed from our costs. It also adds the fraction of
// the wires' rate at which messages would lead to the paper's ratio, under the assumptions `alike`.
func printedACR(t *table.Table, b *bench.Bench, r dappleRow, preset string, all []table.Switched[messages]) error {
	if r.ACR[preset] == 0 {
		return nil
	}
	var pl *plan.Plan
	var err error
	if r.Plans[preset] == "straight" {
		pl, err = b.Straight(len(b.C.Devices), r.MicroBatch, r.Batch/r.MicroBatch)
	} else {
		var counts *regexp.Regexp
		if counts, err = regexp.Compile(r.Counts); err == nil {
			pl, err = printed(b, r.Plans[preset], r.Splits[preset], counts, r.MicroBatch, r.Batch/r.MicroBatch)
		}
	}
	if err != nil {
		return fmt.Errorf("reproduce: %s on %s: %w", r.Workload, preset, err)
	}
	ratio, err := acr(b, pl, true)
	if err != nil {
		return err
	}
	row := t.Number(fmt.Sprintf("%s (%d) on %s, ACR of the paper's plan", r.Workload, r.Batch, preset), r.ACR[preset],
		ratio, "%.3f", "").In("ACR")
	left, alike := 0., messages{oneEach: true, bySize: true, noContext: true}
	for _, m := range all {
		on, err := m.Assumed.on(b)
		if err != nil {
			return err
		}
		of := pl
		if m.Assumed.oneEach {
			of = oneEach(pl)
		}
		if ratio, err = acr(on, of, !m.Assumed.noContext); err != nil {
			return err
		}
		row.Ablate(m.What, ratio, "%.3f")
		if m.Assumed == alike {
			left = ratio / r.ACR[preset]
		}
	}
	t.Number(fmt.Sprintf("%s (%d) on %s, part of the wires' rate that the paper's ratio leaves to messages", r.Workload,
		r.Batch, preset), 0, left, "%.2f", "")
	return nil
}

// oneEach returns a copy of a plan in which each stage keeps only its first device.
func oneEach(pl *plan.Plan) *plan.Plan {
	one := *pl
	one.Stages = slices.Clone(pl.Stages)
	for i := range one.Stages {
		one.Stages[i].Devices = one.Stages[i].Devices[:1]
	}
	return &one
}

// withoutContext returns the part of a cut's bytes, from 0 to 1, that is left if outputs of attention are not sent. The
// output of the layer right before the cut is always counted.
func withoutContext(b *bench.Bench, costs []profile.Cost, p *profile.Profile, cut int) float64 {
	all, context := p.CutBytes(costs, cut), int64(0)
	for i := range p.Layers[:cut] {
		reads := func(later profile.Layer) bool { return slices.Contains(later.From, i) }
		if b.M.Layers[i].Kind == "attention_to" && slices.ContainsFunc(p.Layers[cut+1:], reads) {
			context += costs[i].OutputBytes
		}
	}
	if all == 0 {
		return 1
	}
	return 1 - float64(context)/float64(all)
}
