package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/exchange"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// shape is a pipeline of uniform stages without a model, for looking at schedules.
type shape struct {
	family, weights, replication string
	workers, stages              int
	chunks                       int
	replicas                     []int // replicas of each stage, or one number for all stages
	micros, minibatches, held    int
	warmup                       []int
	advance                      int
	staleness                    int // -1: no limit
	file                         string
	note                         string // note on the order of the Program's sums
	elastic                      elastic
	norms                        norms
	times                        times
}

// elastic describes elastic averaging: the number of pipelines, the part alpha, and the reference.
type elastic struct {
	pipelines int     // 0: the default
	alpha     float64 // -1: the default
	reference string
}

// norms says whether updates wait for the gradient norm of all stages, and whether they are validated later.
type norms struct {
	clip, later bool
}

func (s *shape) add(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.family, "schedule", "1f1b", "name of the schedule (see: millrace schedule ls)")
	f.StringVar(&s.file, "program", "", "file of a Program, instead of a name: text, JSON, or PyTorch's CSV")
	f.IntSliceVar(&s.warmup, "warmup", nil, "forwards before the first backward, by stage")
	f.IntVar(&s.chunks, "chunks", 2, "stages on each worker, for schedules with a free choice")
	f.IntSliceVar(&s.replicas, "replicas", []int{1}, "workers of every stage, or of each: 2,1 is PipeDream's 2-1")
	f.Lookup("replicas").DefValue = "1"
	f.StringVar(&s.replication, "replication", "", "how replicas share the work: split or round_robin")
	f.StringVar(&s.weights, "weights", "", "weight policy (default: the first one in schedule ls)")
	f.IntVar(&s.elastic.pipelines, "pipelines", 0, "with elastic: pipelines side by side (default: 2)")
	f.Float64Var(&s.elastic.alpha, "alpha", -1,
		"how far an update moves to the reference, 0 to 1 (default: 1 / --pipelines)")
	f.Lookup("alpha").DefValue = "0" // so that help does not show -1, which means 1 / --pipelines
	f.StringVar(&s.elastic.reference, "reference", "",
		"with elastic: where the reference is updated, inline or beside (default: inline)")
	f.IntVar(&s.staleness, "staleness", -1, "with asp: minibatches that a worker may be ahead (default: any number)")
	f.Lookup("staleness").DefValue = "0" // so that help does not show -1, which means any number
	f.IntVar(&s.advance, "advance", 0, "additional forwards on the first stage before its first backward (AvgPipe)")
	f.IntVar(&s.minibatches, "minibatches", 0, "number of steps (default: 1; for a stream 2 minibatches for each worker)")
	f.Float64Var(&s.times.allReduce, "all-reduce", 0,
		"time to sum a worker's gradients over replicas, all chunks together")
	s.addNorm(c, "with --norm: update before the norm is known, and test it in the next step")
	f.IntVar(&s.held, "most-held", 0, "refuse more than N micro-batches in flight on any worker")
	s.addUniform(c, "; by stage: 2,1")
	f.Lookup("micro-batches").Usage += " (of a stream 1, with 2bw one for each stage)"
}

// addNorm adds the flags for updates that need the gradient norm of all stages. --clip is an old name.
func (s *shape) addNorm(c *cobra.Command, later string) {
	f := c.Flags()
	f.Float64Var(&s.times.norm, "norm", 0, "time to sum the norm of all gradients, which updates wait for")
	f.BoolVar(&s.norms.clip, "clip", false, "updates wait for the norm")
	hide(c, "clip")
	f.BoolVar(&s.norms.later, "post-validate", false, later)
}

// hide hides old names of flags from help.
func hide(c *cobra.Command, names ...string) {
	for _, name := range names {
		if err := c.Flags().MarkHidden(name); err != nil {
			panic(err) // the flag does not exist
		}
	}
}

// addUniform adds the flags that schedule and schedule compare share: workers, micro-batches and times. The text
// `byStage` is added to the help of --forward and --backward; it is empty for compare, where all stages take the same
// time.
func (s *shape) addUniform(c *cobra.Command, byStage string) {
	f := c.Flags()
	f.IntVar(&s.workers, "workers", 4, "workers, replicas included")
	f.IntVar(&s.stages, "stages", 0, "workers, those of one replica: what --workers was called")
	hide(c, "stages")
	f.IntVar(&s.micros, "micro-batches", 8, "micro-batches of a step")
	f.Float64SliceVar(&s.times.forward, "forward", []float64{1},
		"time of a forward through all chunks of a worker"+byStage)
	f.Float64SliceVar(&s.times.backward, "backward", []float64{2}, "time of a backward"+byStage)
	f.Lookup("forward").DefValue, f.Lookup("backward").DefValue = "1", "2"
	f.Float64Var(&s.times.weight, "weight", 0,
		"time of the weight gradient in a split backward (default: half of --backward)")
	f.Float64Var(&s.times.transfer, "transfer", 0, "time of a transfer")
	f.Float64Var(&s.times.update, "update", 0, "time of an update")
	f.BoolVar(&s.times.streaming, "streaming", false, "devices transfer while they compute (BaPipe's boards)")
}

// name sets the family or the Program's file from the first argument. It refuses the argument together with --schedule
// or --program. A family takes precedence over a file of the same name.
func (s *shape) name(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	for _, flag := range []string{"schedule", "program"} {
		if f := c.Flags().Lookup(flag); f.Changed {
			return fmt.Errorf("schedule: both %s and --%s %s are named; one can be drawn", args[0], flag, f.Value)
		}
	}
	if _, unknown := family.Lookup(args[0]); unknown == nil {
		s.family = args[0]
		return nil
	}
	s.file = args[0]
	if _, err := os.Stat(s.file); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("schedule: %w", registry.None("file and no schedule", s.file, family.Names()))
	}
	return nil
}

// program returns the lowered and checked Program of a shape.
func (s *shape) program() (*schedule.Program, check.Report, error) {
	if err := s.times.check(); err != nil {
		return nil, check.Report{}, cli.BadInput(err)
	}
	source, err := s.source()
	if err != nil {
		return nil, check.Report{}, cli.BadInput(err)
	}
	if s.held < 0 {
		return nil, check.Report{}, cli.BadInput(fmt.Errorf("--most-held %d; give 1 or more, or 0 for any number", s.held))
	}
	if s.norms.later && !s.norms.clip {
		return nil, check.Report{}, cli.BadInput(fmt.Errorf("--post-validate: without --norm an update waits for nobody; " +
			"give both"))
	}
	if err := source.Playable(); err != nil { // refused before the check, which takes a long time
		return nil, check.Report{}, cli.BadInput(err)
	}
	rep, err := source.Check(s.held)
	if err == nil && s.file != "" {
		s.note = orderNote(source)
	}
	p := source.Program
	if err == nil {
		err = s.times.fit(p)
	}
	if err == nil && !p.Lowered {
		p, err = lower.Lower(p, lower.Options{Tied: p.Tied, Clip: p.Clip || s.norms.clip, PostValidate: s.norms.later})
		if err == nil && s.norms.clip {
			rep, err = check.Check(p) // the norm adds dependencies that may block the order
		}
	}
	return p, rep, cli.BadInput(err)
}

// orderNote returns a note if a Program from a file does not add gradients in ascending order. The note says whether
// that concerns any model, or only a model with batch norm.
func orderNote(source *exchange.Source) string {
	if wrong := source.OutOfOrder(false); wrong != nil {
		return fmt.Sprintf("%s: %v", prepare.NotPromised, wrong)
	}
	if wrong := source.OutOfOrder(true); wrong != nil {
		return fmt.Sprintf("of a model with batch norm %s: %v", prepare.NotPromised, wrong)
	}
	return ""
}

// source returns the Program of a shape, and where it was read.
func (s *shape) source() (*exchange.Source, error) {
	if s.file != "" {
		return prepare.ReadProgram(s.file)
	}
	p, err := s.compute()
	return &exchange.Source{Program: p}, err
}

// compute returns the Program of a shape, from its file or its family.
func (s *shape) compute() (*schedule.Program, error) {
	if s.file != "" {
		source, err := s.source()
		if err != nil {
			return nil, err
		}
		return source.Program, nil
	}
	order, err := family.Lookup(s.family)
	if err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	placement, err := s.placement(order)
	if err != nil {
		return nil, err
	}
	settings := schedule.Settings{
		Placement: placement, MicroBatches: s.micros, Warmup: s.warmup, Repeat: s.minibatches,
		Replication: schedule.Replication(s.replication), Weights: schedule.Policy(s.weights),
	}
	if s.staleness >= 0 {
		settings.Staleness = &s.staleness
	}
	if err := s.advanced(order, &settings); err != nil {
		return nil, err
	}
	if order.Asynchronous() && settings.Repeat == 0 {
		settings.Repeat = 2 * s.workers
		if w := cmp.Or(settings.Weights, order.DefaultPolicy()); w.Accumulates() {
			// In a shorter stream, no stage would ever hold all the versions that the policy keeps.
			settings.Repeat = max(settings.Repeat, 2*(1+w.OlderVersions(math.MaxInt)))
		}
	}
	return family.Generate(order.Name, settings)
}

// placement returns the workers of each stage of an order.
func (s *shape) placement(order family.Family) ([][]int, error) {
	replicas := s.byStage()
	placement := order.Placement(len(replicas), s.chunks)
	if slices.Max(replicas) == 1 {
		return placement, nil
	}
	if len(placement) != len(replicas) {
		return nil, fmt.Errorf("--replicas %s: %s places its stages itself; leave it out", commas(s.replicas), order.Name)
	}
	return schedule.Replicas(replicas), nil
}

// advanced applies the flags of elastic averaging, and sets the warm-up depths that --advance asks for.
func (s *shape) advanced(order family.Family, settings *schedule.Settings) error {
	elastic := order.AdmitsPolicy(schedule.Elastic)
	if !elastic && (s.elastic.pipelines != 0 || s.elastic.alpha != -1 || s.elastic.reference != "") {
		return fmt.Errorf("--pipelines, --alpha and --reference are of --schedule elastic; %s has one pipeline", order.Name)
	}
	if elastic {
		if s.elastic.pipelines == 0 {
			s.elastic.pipelines = 2
		}
		settings.Elastic = plan.NewElastic(s.elastic.pipelines)
		if s.elastic.alpha != -1 {
			settings.Elastic.Alpha = s.elastic.alpha
		}
		if r := plan.Reference(s.elastic.reference); r != plan.Inline { // Inline is the default anyway
			settings.Elastic.Reference = r
		}
	}
	if s.advance == 0 {
		return nil
	}
	if len(s.warmup) > 0 || order.Warmup == nil {
		return fmt.Errorf("--advance %d: %s has its own depths, or --warmup gives them", s.advance, order.Name)
	}
	var err error
	settings.Warmup, err = family.AdvanceDepths(len(settings.Placement), settings.MicroBatches, s.advance, family.Graded)
	return err
}

// mostWorkers is the largest value of --workers and of --stages, and the most stages that --replicas may list.
const mostWorkers = 4096

// sized sets the number of workers from --workers or its old name --stages, and refuses impossible numbers.
func (s *shape) sized(c *cobra.Command) error {
	name, value := "workers", &s.workers
	switch changed := c.Flags().Changed; {
	case changed("stages") && changed("workers"):
		return fmt.Errorf("--stages is what --workers was called; give --workers alone")
	case changed("stages"):
		name, value = "stages", &s.stages
	}
	if *value < 1 || *value > mostWorkers {
		return fmt.Errorf("--%s %d; give 1 to %d", name, *value, mostWorkers)
	}
	for _, n := range s.replicas {
		if n < 1 || n > schedule.MaxReplica {
			return fmt.Errorf("--replicas %s; give 1 to %d", commas(s.replicas), schedule.MaxReplica)
		}
	}
	if s.staleness < 0 && c.Flags().Changed("staleness") {
		return fmt.Errorf("--staleness %d; give a number of minibatches, 0 or more", s.staleness)
	}
	if len(s.replicas) > 1 {
		return s.sizedByStage(c, name, *value)
	}
	each := s.replicas[0]
	if name == "stages" || !c.Flags().Changed(name) {
		s.workers = *value * each
	}
	if s.workers%each != 0 {
		return fmt.Errorf("--workers %d; give a multiple of --replicas, which is %d", s.workers, each)
	}
	return nil
}

// filed refuses flags whose settings are already in a Program's file.
func (s *shape) filed(c *cobra.Command) error {
	if s.file == "" {
		return nil
	}
	for _, f := range []struct{ name, says string }{
		{"workers", "how many workers there are"}, {"stages", "how many workers there are"},
		{"micro-batches", "how many micro-batches there are"}, {"chunks", "which stages a worker has"},
		{"replicas", "which workers a stage has"}, {"replication", "how replicas share the work"},
		{"weights", "which weight policy it has"}, {"warmup", "in which order a worker computes"},
		{"advance", "in which order a worker computes"}, {"minibatches", "how many steps there are"},
		{"pipelines", "how many pipelines there are"}, {"alpha", "how pipelines are averaged"},
		{"reference", "how pipelines are averaged"}, {"staleness", "how old weights may be"},
	} {
		if flag := c.Flags().Lookup(f.name); flag.Changed {
			return fmt.Errorf("--%s %s: %s says %s; leave it out", f.name, strings.Trim(flag.Value.String(), "[]"), s.file,
				f.says)
		}
	}
	return nil
}

// chunked refuses --chunks for a family with another number of stages on each worker.
func (s *shape) chunked(c *cobra.Command) error {
	if !c.Flags().Changed("chunks") {
		return nil
	}
	f, err := family.Lookup(s.family)
	if err != nil || f.Chunks < 0 || max(1, f.Chunks) == s.chunks {
		return nil // an unknown family is refused later
	}
	var choosing []string
	for _, other := range family.All() {
		if other.Chunks < 0 {
			choosing = append(choosing, other.Name)
		}
	}
	return fmt.Errorf("--chunks %d: %s has %s on each worker; leave it out, or take one of %s", s.chunks, f.Name,
		terminal.Count(max(1, f.Chunks), "stage"), strings.Join(choosing, ", "))
}

// sizedByStage sets the number of workers to the sum of --replicas, and refuses flags that contradict it.
func (s *shape) sizedByStage(c *cobra.Command, name string, value int) error {
	says := map[string]int{"stages": len(s.replicas)}
	for _, n := range s.replicas {
		says["workers"] += n
	}
	if len(s.replicas) > mostWorkers {
		return fmt.Errorf("--replicas of %d stages; give 1 to %d", len(s.replicas), mostWorkers)
	}
	if c.Flags().Changed(name) && value != says[name] {
		return fmt.Errorf("--%s %d; --replicas %s makes %d: give that, or leave it out", name, value, commas(s.replicas),
			says[name])
	}
	s.workers = says["workers"]
	return nil
}

// byStage returns the number of workers of each stage, for a family with one stage for each worker.
func (s *shape) byStage() []int {
	if len(s.replicas) > 1 {
		return s.replicas
	}
	return slices.Repeat(s.replicas, s.workers/s.replicas[0])
}

// check refuses numbers that no schedule can have.
func (s *shape) check() error {
	if s.chunks < 1 || s.chunks > 64 {
		return fmt.Errorf("--chunks %d; give 1 to 64", s.chunks)
	}
	if s.minibatches < 0 || s.minibatches > 1<<16 {
		return fmt.Errorf("--minibatches %d; give 1 to %d", s.minibatches, 1<<16)
	}
	if s.micros < 1 {
		return fmt.Errorf("--micro-batches %d; give 1 or more", s.micros)
	}
	if s.replication != "" && s.replication != string(schedule.Split) && s.replication != string(schedule.RoundRobin) {
		return fmt.Errorf("--replication %q; it is %s or %s", s.replication, schedule.Split, schedule.RoundRobin)
	}
	return nil
}
