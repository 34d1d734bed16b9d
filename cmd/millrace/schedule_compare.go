package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/tune/contest"
)

// contestFlags say what families are compared on: uniform stages, a profile on a cluster, or a model.
type contestFlags struct {
	shape
	of               prepare.JobFlags
	model            string // name of the model whose costs are measured or computed; "": none
	parameters       float64
	memory           string
	profile, cluster string
	microBatch       int
	only             []string
	asJSON, syncOnly bool
	most             int // maximal number of the cluster's devices to use; 0: all
}

func compareCommand() *cobra.Command {
	var s contestFlags
	c := &cobra.Command{
		Use: "compare", Short: "Rank every schedule and weight policy, with the reason why each loses",
		Long: `compare plays every family of schedules under every weight policy that it can keep, on the same
workers and micro-batches, and ranks their steady steps under a memory limit: on uniform stages, on a
model as profiled here (or computed for a --cluster), or on a profile and a cluster. Nothing is
searched; millrace plan does that. On uniform stages memory is counted in activations: what one
micro-batch leaves on a worker, in all of the worker's chunks. Weights and gradients count too: a
worker's share of the weights is as large as --parameters activations.`,
		Example: "  millrace schedule compare --workers 4 --micro-batches 8 --activation-limit 8\n" +
			"  millrace schedule compare --model convnet --micro-batch 16 --micro-batches 4\n" +
			"  millrace schedule compare --profile gpt.json --cluster cluster.yaml --micro-batch 4 --micro-batches 16 " +
			"--memory-limit 2GiB",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s.replicas = []int{1}
			if err := s.sized(c); err != nil {
				return cli.BadInput(err)
			}
			s.norms.clip = s.norms.clip || c.Flags().Changed("norm")
			for _, flag := range []string{"profile", "model", "job"} {
				if c.Flags().Changed(flag) && c.Flags().Changed("activation-limit") {
					return cli.BadInput(fmt.Errorf("--activation-limit is of uniform stages; with --%s give --memory-limit", flag))
				}
			}
			if c.Flags().Changed("workers") || c.Flags().Changed("stages") {
				s.most = s.workers
			}
			contest, err := s.contest(c)
			if err != nil {
				return cli.BadInput(err)
			}
			all, err := contest.Run(c.Context())
			if err != nil {
				return cli.BadInput(err)
			}
			if s.asJSON {
				return cli.WriteJSON(c.OutOrStdout(), all)
			}
			screen := terminal.Of(c.OutOrStdout())
			table := contestTable(all, s.time, s.size)
			if err := table.Write(c.OutOrStdout(), screen); err != nil {
				return err
			}
			shows := func(heading string) bool { return table.Shows(screen, heading) }
			_, err = fmt.Fprint(c.OutOrStdout(), "\n", screen.Wrap("", "", s.legend(all, shows)))
			return err
		},
	}
	s.addUniform(c, "")
	f := c.Flags()
	f.IntVar(&s.chunks, "chunks", 2, "stages on each worker, for schedules with a free choice")
	f.Float64Var(&s.times.allReduce, "all-reduce", 0, "time to sum one worker's share of the gradients over replicas")
	f.Float64Var(&s.parameters, "parameters", 1, "size of one worker's share of the parameters, in activations")
	f.StringVar(&s.memory, "activation-limit", "", "most memory of each worker, in activations, weights included")
	f.StringVar(&s.memory, "memory-limit", "", "memory of each worker, like 512MiB, with a profile")
	s.of.Add(c, job.ModelOptions)
	f.StringVar(&s.profile, "profile", "", "a profile's file instead of uniform stages")
	f.StringVar(&s.cluster, "cluster", "", "the profile's or model's cluster, or its first --workers devices")
	f.IntVar(&s.microBatch, "micro-batch", 0,
		"samples of a micro-batch (default: the profile's smallest, or by the batch)")
	s.addNorm(c, "with --norm: also orders that update before the norm is known")
	f.StringSliceVar(&s.only, "only", nil, "schedules to compare, with commas (default: all)")
	f.StringVar(&s.weights, "weights", "", "fix the weight policy: sync, stash, vertical, 2bw, latest, elastic")
	f.BoolVar(&s.syncOnly, "sync", false, "--weights sync")
	hide(c, "sync")
	f.BoolVar(&s.asJSON, "json", false, "print the result as JSON")
	return c
}

// mostParameters limits the size of a worker's share of the parameters, in units of an activation's size.
const mostParameters = 1e9

// contest returns the Rules that the flags ask for.
func (s *contestFlags) contest(c *cobra.Command) (contest.Rules, error) {
	if err := s.check(); err != nil {
		return contest.Rules{}, err
	}
	if err := s.times.check(); err != nil {
		return contest.Rules{}, err
	}
	for name, times := range map[string][]float64{"forward": s.times.forward, "backward": s.times.backward} {
		if len(times) > 1 {
			return contest.Rules{}, fmt.Errorf("schedule compare: --%s %s; stages are equal here, give one time", name,
				commas(times))
		}
	}
	if !(s.parameters >= 0 && s.parameters <= mostParameters) {
		return contest.Rules{}, fmt.Errorf("--parameters %v; give a size from 0 to %g, in activations",
			s.parameters, mostParameters)
	}
	policy := schedule.Policy(s.weights)
	if s.syncOnly {
		policy = schedule.Sync
	}
	if policy != "" && !slices.Contains(schedule.Policies(), policy) {
		return contest.Rules{}, fmt.Errorf("schedule compare: --weights %q; there are %s", s.weights,
			strings.Trim(strings.ReplaceAll(fmt.Sprint(schedule.Policies()), " ", ", "), "[]"))
	}
	out := contest.Rules{Workers: s.workers, MicroBatches: s.micros, Chunks: s.chunks, Only: s.only, Weights: policy,
		Clip: s.norms.clip, PostValidate: s.norms.later}
	if s.norms.later && !s.norms.clip {
		return out, fmt.Errorf("schedule compare: --post-validate: without --norm an update waits for nobody; give both")
	}
	modelled := c.Flags().Changed("model") || c.Flags().Changed("job")
	switch {
	case modelled && s.profile != "":
		return out, fmt.Errorf("schedule compare: --profile %s has a model's costs already; give it or a model, not both",
			s.profile)
	case modelled:
		return s.modelled(c, out)
	case (s.profile == "") != (s.cluster == ""):
		return out, fmt.Errorf("schedule compare: --profile and --cluster go together: the model's costs, and what they " +
			"are spread over; or give --model, with or without --cluster")
	}
	if s.profile != "" {
		return s.profiled(out)
	}
	weight := s.times.weight
	if weight == 0 {
		weight = s.times.backward[0] / 2
	}
	out.Stages = contest.Uniform{
		Workers: s.workers, ForwardS: s.times.forward[0], InputS: s.times.backward[0] - weight, WeightS: weight,
		UpdateS:    s.times.update,
		TransferS:  s.times.transfer,
		AllReduceS: s.times.allReduce, NormS: s.times.norm, Parameters: s.parameters, Streaming: s.times.streaming,
	}.Stages
	out.Bytes = contest.FormatActivations
	if s.memory != "" {
		limit, err := strconv.ParseFloat(s.memory, 64)
		if err != nil || !(limit > 0) || limit > 1<<32 {
			return out, fmt.Errorf("schedule compare: --activation-limit %q; on uniform stages memory is a number of "+
				"activations over 0", s.memory)
		}
		out.MemoryBytes = func(int) int64 { return int64(limit * contest.Activation) }
	}
	return out, nil
}

// modelled fills in the costs of a model: on this machine, as measured now or earlier, or on a described cluster.
func (s *contestFlags) modelled(c *cobra.Command, out contest.Rules) (contest.Rules, error) {
	s.of.Given = append(s.of.Given, func(j *job.Job) error {
		if j.Machine.Cluster = cmp.Or(s.cluster, j.Machine.Cluster); s.most > 0 {
			j.Machine.Workers = s.most
		}
		j.Plan.MicroBatch = cmp.Or(s.microBatch, max(1, j.Plan.Batch/s.micros))
		j.Plan.Batch, j.Plan.MicroBatches = s.micros*j.Plan.MicroBatch, 0
		return nil
	})
	if s.microBatch < 0 {
		return out, fmt.Errorf("schedule compare: --micro-batch %d; give 1 or more", s.microBatch)
	}
	j, err := s.of.Job()
	if err != nil {
		return out, err
	}
	p, err := prepare.PrepareHardware(c, j)
	if err != nil {
		return out, err
	}
	s.model, s.cluster, s.microBatch = p.Model.Name, j.Machine.Cluster, j.Plan.MicroBatch
	return s.on(out, p.Profile, p.Cluster)
}

// profiled reads the workers, their memory and the stages from files.
func (s *contestFlags) profiled(out contest.Rules) (contest.Rules, error) {
	p, err := profile.Read(s.profile)
	if err != nil {
		return out, err
	}
	c, err := cluster.Read(s.cluster)
	if err == nil && s.most > 0 {
		c, err = c.First(s.most)
	}
	if err != nil {
		return out, err
	}
	if sizes := p.Sizes(c.Devices[0]); s.microBatch == 0 && len(sizes) > 0 {
		s.microBatch = sizes[0]
	}
	return s.on(out, p, c)
}

// on fills in the workers and their memory from a cluster, and the stages from a profile.
func (s *contestFlags) on(out contest.Rules, p *profile.Profile, c *cluster.Cluster) (contest.Rules, error) {
	out.Workers, out.Bytes, out.MemoryBytes = len(c.Devices), terminal.Bytes[int64], c.MemoryBytes
	if s.memory != "" {
		limit, err := cluster.ParseBytes(s.memory)
		if err != nil {
			return out, fmt.Errorf("schedule compare: --memory-limit: %w", err)
		}
		out.MemoryBytes = func(int) int64 { return limit }
	}
	out.Stages = contest.ProfileStages{Profile: p, Cluster: c, MicroBatch: s.microBatch}.Stages
	return out, nil
}

// real reports whether the costs are those of a model: times in seconds and sizes in bytes. Uniform stages have other
// units.
func (s *contestFlags) real() bool { return s.profile != "" || s.model != "" }

// size formats bytes for the table.
func (s *contestFlags) size(n int64) string {
	if s.real() {
		return terminal.Bytes(n)
	}
	return fmt.Sprintf("%.4g", float64(n)/contest.Activation)
}

// time formats the length of a step for the table.
func (s *contestFlags) time(n float64) string {
	if s.real() {
		return terminal.Duration(n)
	}
	return fmt.Sprintf("%.4g", n)
}

// commas formats numbers as a flag accepts them.
func commas[T int | float64](numbers []T) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(numbers), "[]"), " ", ",")
}

// costsInWords says how long computations and transfers take.
func (s *shape) costsInWords(p *schedule.Program) string {
	text := fmt.Sprintf("On each worker a forward takes %.4g and a backward %.4g", s.times.forward[0], s.times.backward[0])
	if p.Stages == 1 && s.file == "" && s.workers > 1 {
		text += fmt.Sprintf(", whatever it holds (schedule compare gives all schedules one model; the whole of it takes "+
			"%s)", s.whole())
	}
	if len(s.times.forward)+len(s.times.backward) > 2 {
		text = fmt.Sprintf("By stage, a forward takes %s and a backward %s", commas(s.times.forward),
			commas(s.times.backward))
	}
	if s.times.transfer > 0 {
		text += fmt.Sprintf("; a transfer takes %.4g", s.times.transfer)
	}
	if s.times.onStreaming(p) {
		text += "; devices transfer while they compute"
	}
	return text
}

// whole returns the times of a forward and a backward on a worker that holds the whole model.
func (s *shape) whole() string {
	n := float64(s.workers)
	return fmt.Sprintf("%.4g and %.4g", n*s.times.forward[0], n*s.times.backward[0])
}

// legend explains the shown columns of the table and their units.
func (s *contestFlags) legend(all []contest.Entry, shows func(heading string) bool) string {
	units := "time: of"
	switch {
	case s.model != "" && s.cluster == "":
		units = fmt.Sprintf("%s in micro-batches of %d, as profiled on this machine with all workers at once; plan also "+
			"allows for workers that differ in pace.\ntime: of", s.model, s.microBatch)
	case s.model != "":
		units = fmt.Sprintf("%s in micro-batches of %d, computed for %s.\ntime: of", s.model, s.microBatch, s.cluster)
	case s.profile == "":
		share := ""
		if s.workers > 1 {
			share = fmt.Sprintf(" of its share, one of %d, of the model that all schedules train; a worker that holds the "+
				"whole model, as in dp and single, takes %s", s.workers, s.whole())
		}
		units = fmt.Sprintf("A worker's forward takes %.4g and its backward %.4g%s. Memory is in activations: what a "+
			"micro-batch leaves on a worker; its share of the weights is as large as %.4g, and so are its gradients.\ntime: in "+
			"these units, of", s.times.forward[0], s.times.backward[0], share, s.parameters)
	}
	text := units + " a step with others before and after it (a steady step); of elastic, of a batch: a step has one " +
		"for each pipeline. "
	if shows("behind") {
		text += "behind: how much more time than the fastest it takes. "
	}
	const ends = "goes, as fill and drain at the step's ends, and stall inside. "
	switch {
	case shows("bubble") && shows("why"):
		text += "bubble: the part of the workers' time in which they do not compute; why: where it " + ends
	case shows("bubble"):
		text += "bubble: the part of the workers' time in which they do not compute. "
	case shows("why"):
		text += "why: where the workers' time in which they do not compute " + ends
	}
	text = strings.TrimSpace(text) + "\n"
	if shows("memory") || shows("in flight") || shows("versions") {
		text += "at most: on the worker that has the most. "
	}
	if shows("in flight") {
		text += "in flight: micro-batches between forward and backward" + oneForEach + ". "
	}
	if shows("versions") {
		text += "versions: of weights, of all its stages. "
	}
	if alone := contest.UpdatedAlone(all); s.micros > 1 && len(alone) > 0 {
		text += "Micro-batches are minibatches with an update each under " + strings.Join(alone, ", ") + ". "
	}
	return text + "×2: each stage on 2 workers, as hybrid parallelism has them."
}

// contestTable makes a table with a row for each entry.
func contestTable(all []contest.Entry, time func(float64) string, size func(int64) string) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{{Number: true}, {Heading: "schedule"}, {Heading: "weights"},
		{Heading: "time", Group: "steady step", Number: true}, {Heading: "behind", Group: "steady step", Number: true},
		{Heading: "bubble", Group: "steady step", Number: true, Spare: 1},
		{Heading: "memory", Group: "at most", Number: true},
		{Heading: "in flight", Group: "at most", Number: true, Spare: 2},
		{Heading: "versions", Group: "at most", Number: true, Spare: 3}, {Heading: "why", Wraps: true}}}
	most := func(n []int) string {
		if len(n) == 0 {
			return ""
		}
		return strconv.Itoa(slices.Max(n))
	}
	place := 0
	for _, e := range all {
		row := []string{"", orderOf(e), weightsOf(e), "", "", "", "", "", "", e.Why}
		if e.Verdict != contest.Refused {
			row[3], row[5] = time(e.StepS), fmt.Sprintf("%.1f %%", 100*e.Bubble)
			row[6], row[7], row[8] = size(slices.Max(e.PeakBytes)), most(e.PeakActivations), most(e.Versions)
		}
		switch e.Verdict {
		case contest.Won, contest.Slower:
			place++
			row[0], row[4] = strconv.Itoa(place), fmt.Sprintf("%.1f %%", 100*e.Behind)
		case contest.Control, contest.Refused:
			row[9] = fmt.Sprintf("%s: %s", e.Verdict, row[9])
		}
		switch e.Verdict {
		case contest.Won:
			t.AddMarked(row...)
		case contest.Slower:
			t.Add(row...)
		default:
			t.AddFaint(row...)
		}
	}
	return t
}

// orderOf returns an entry's schedule, and the number of replicas of each stage if the schedule does not decide
// that.
func orderOf(e contest.Entry) string {
	if e.Replicas > 0 {
		return fmt.Sprintf("%s ×%d", e.Schedule, e.Replicas)
	}
	return e.Schedule
}

// weightsOf returns an entry's weight policy, and whether its updates are validated later.
func weightsOf(e contest.Entry) string {
	if e.Validated {
		return string(e.Weights) + ", validated later"
	}
	return string(e.Weights)
}
