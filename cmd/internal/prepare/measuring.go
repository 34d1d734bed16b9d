package prepare

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/measure"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/timing"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/place"
)

// Computed returns analytic costs of the model on the devices of the job's cluster file.
func Computed(c *cobra.Command, j *job.Job, m *model.Model, a profile.Analysis) (*profile.Profile, error) {
	described, err := DescribedCluster(c, j)
	if err != nil {
		return nil, err
	}
	p, err := profile.Analyze(m, described.DeviceTypes, a)
	return p, cli.BadInput(err)
}

// LayerTimer returns a Timer for the model's layers, on made-up samples.
func LayerTimer(e engine.Engine, j *job.Job, m *model.Model) (*measure.Timer, error) {
	split, err := synthetic(m)
	if err != nil {
		return nil, err
	}
	on := &place.Policy{}
	return measure.NewTimer(e, split, j.Train.Optimizer, run.TrainPipeline(e, on), on)
}

// Afresh measures a new profile on this machine. It neither uses earlier measurements nor stores its own for later
// ones. `passes` is the number of passes, 0 for the default.
func Afresh(c *cobra.Command, j *job.Job, m *model.Model, sizes []int, passes int) (*profile.Profile, error) {
	if err := checkSizes(m, sizes); err != nil {
		return nil, err
	}
	e, err := OpenEngine()
	if err != nil {
		return nil, err
	}
	timer, err := LayerTimer(e, j, m)
	if err != nil {
		return nil, err
	}
	meter := cli.StartMeter("profile")
	defer meter.Stop()
	p, err := timing.Measure(c.Context(), m, timer, loadOf(j), timing.Options{
		MicroBatches: sizes, Passes: passes, Progress: meter.Work(), Doing: meter.Doing,
	})
	return p, refusal(err)
}

// Spread says how much the passes of a measured profile differ. If its PaceSpread is at least worthPace, Spread also
// says how much slower the slowest worker is. If workers take turns on `shared` cores, it says what a prediction leaves
// out then; 0 means that they do not. It returns "" if the profile does not record the spread of its passes.
func Spread(p *profile.Profile, shared int) string {
	s := p.PassSpread
	if s == nil {
		return ""
	}
	text := fmt.Sprintf("%s%d measured passes%s; the middle half of those took from %.1f %% less to %.1f %% more",
		costsAre, s.Passes, sizesOf(p), 100*s.Below, 100*s.Above)
	if shared > 0 {
		return text + fmt.Sprintf("; workers take turns on %s, and the predicted step leaves out what that costs and how "+
			"cores differ in pace: expect no measured step shorter than with one worker for each core",
			terminal.Count(shared, "core"))
	}
	if p.PaceSpread >= worthPace {
		text += fmt.Sprintf("; of equal work at once the slowest worker took %.0f %% longer than the mean, and the "+
			"predicted step allows for that", 100*p.PaceSpread)
	}
	return text
}

// worthPace is the least PaceSpread that Spread mentions. PaceSpread is how much longer the slowest worker takes than
// the mean, as a fraction of the mean. The prediction of a step takes it into account.
const worthPace = 0.05

// costsAre begins the text that Spread returns.
const costsAre = "costs are medians of "

// sizesOf names the range of micro-batch sizes of a profile with one device type; "" for other profiles.
func sizesOf(p *profile.Profile) string {
	types := p.DeviceTypes()
	if len(types) != 1 {
		return ""
	}
	sizes := p.Sizes(types[0])
	if len(sizes) == 0 {
		return ""
	}
	least, most := slices.Min(sizes), slices.Max(sizes)
	if least == most {
		return " of micro-batches of " + terminal.Count(most, "sample")
	}
	return fmt.Sprintf(" of micro-batches of %d to %s", least, terminal.Count(most, "sample"))
}

// refusal marks an error of a network call as bad input. The samples are made up here, so the network must be at
// fault.
func refusal(err error) error {
	if errors.As(err, new(*nn.CallError)) {
		return cli.BadInput(err)
	}
	return err
}

// checkSizes refuses micro-batch sizes whose inputs and outputs of the widest layer exceed the machine's memory.
func checkSizes(m *model.Model, sizes []int) error {
	bytes, err := MemoryBytes()
	have := bytes["MemTotal"]
	if err != nil || have == 0 {
		return nil // the machine's memory is unknown
	}
	width := 0.0 // bytes per sample of the widest layer's inputs and outputs
	for _, l := range m.Layers {
		sample := 0.0
		for _, t := range l.Outputs {
			sample += 4 * float64(t.Elements())
		}
		for _, from := range l.From {
			if at := m.Index(from); at >= 0 {
				for _, t := range m.Layers[at].Outputs {
					sample += 4 * float64(t.Elements())
				}
			}
		}
		width = max(width, sample)
	}
	for _, t := range m.Inputs {
		width = max(width, 4*float64(t.Elements()))
	}
	if most := slices.Max(sizes); float64(most)*width > float64(have) {
		return cli.BadInput(fmt.Errorf("profile: a micro-batch of %d samples takes %.3g GiB in %s's widest layer, and this "+
			"machine has %s; give micro-batches of %d at most, with --micro-batch or --batch",
			most, float64(most)*width/(1<<30), m.Name, terminal.Bytes(have), int(float64(have)/width)))
	}
	return nil
}

// profileFor returns the profile that a job plans with: the file it names, or earlier measurements, or new
// measurements. New measurements run in a separate process, so that they do not affect the run that is predicted.
func profileFor(c *cobra.Command, j *job.Job, m *model.Model, w Wanted) (*profile.Profile, error) {
	if j.Plan.Profile != "" {
		return GivenProfile(j, m)
	}
	return HostProfile(c.Context(), c.ErrOrStderr(), j, m, w, OwnKind(j), true)
}

// OwnKind returns the kind of this machine, for a job whose workers are all on it.
func OwnKind(j *job.Job) string {
	own := Own()
	n := loadOf(j).Concurrency // with more workers than cores, only this many compute at once
	return own.Kind(n, n)
}

// HostProfile returns a job's profile on this machine. It takes earlier measurements, and measures what is missing in a
// separate process. `kind` is the kind of machine, given the processes that share it. `alone` means that no other
// process of the job measures on this machine.
func HostProfile(ctx context.Context, log io.Writer, j *job.Job, m *model.Model, w Wanted, kind string,
	alone bool) (*profile.Profile, error) {
	if err := CheckRunnable(m); err != nil {
		return nil, err
	}
	if _, err := OpenEngine(); err != nil {
		return nil, fmt.Errorf("%w; or name a profile that was measured elsewhere with --profile", err)
	}
	return completed(ctx, j, m, w, kind, func(k *kept) (*profile.Profile, error) {
		if alone {
			WarnOfCores(log, j, w.Workers)
		}
		kept := ", kept for later runs"
		if k.lost != nil {
			kept = ""
		}
		fmt.Fprintf(log, "profile: measuring %s, %s at once%s\n", names.Shown(j.Model.Name),
			terminal.Count(loadOf(j).Concurrency, "worker"), kept)
		args := []string{"--keep", "--kind", kind}
		if w.Every {
			args = append(args, "--every")
		}
		if !alone {
			args = append(args, "--beside-others")
		}
		var p bytes.Buffer // the child prints the profile, because it may be unable to write files
		if err := inChild(ctx, j, w.Sizes, &p, args...); err != nil {
			return nil, err
		}
		return profile.Decode(&p)
	})
}

// WarnOfCores prints a line if a job has more workers than this machine has cores. Call it before anything is measured
// with these workers. `planned` is how many devices the job's given plan uses; 0 means that there is no such plan.
func WarnOfCores(log io.Writer, j *job.Job, planned int) {
	if text := tooManyFor(j, planned, CoresOf(j)); text != "" {
		fmt.Fprint(log, terminal.Of(log).Wrap("", "  ", text))
	}
}

// tooManyFor returns the warning of WarnOfCores; "" if there are enough cores.
func tooManyFor(j *job.Job, planned, cores int) string {
	workers := cmp.Or(planned, j.Machine.Workers)
	switch {
	case workers <= cores:
		return ""
	case planned > 0:
		return fmt.Sprintf("profile: the plan in %s is for %s, and they share %s and take turns: expect no measured step "+
			"faster than of a plan with --workers %d, whatever is predicted", j.Plan.File, terminal.Count(workers, "worker"),
			terminal.Count(cores, "core"), cores)
	}
	return fmt.Sprintf("profile: %s share %s and take turns: expect no measured step faster than with --workers %d, "+
		"whatever is predicted",
		terminal.Count(workers, "worker"), terminal.Count(cores, "core"), cores)
}

// Extend measures in this process what is missing for a profile, and returns the profile.
func Extend(c *cobra.Command, j *job.Job, m *model.Model, w Wanted, kind string, alone bool) (*profile.Profile, error) {
	return completed(c.Context(), j, m, w, kind, func(k *kept) (*profile.Profile, error) {
		p, err := k.measure(c.Context(), w, alone)
		return p, refusal(err)
	})
}

// completed returns the profile from measurements on one kind of machine. If some of them are missing, it calls
// `measure`. If the verb is stopped while it measures, the verb says which measurements are kept.
func completed(ctx context.Context, j *job.Job, m *model.Model, w Wanted, kind string,
	measure func(k *kept) (*profile.Profile, error)) (*profile.Profile, error) {
	if err := checkSizes(m, w.Sizes); err != nil {
		return nil, err
	}
	k := keptIn(j, m, kind)
	if p, err := k.profile(w); p != nil || err != nil {
		return p, err
	}
	cli.Keeps(ctx, k.leaves)
	defer cli.Keeps(ctx, nil)
	return measure(k)
}

// GivenProfile reads the profile that the job names.
func GivenProfile(j *job.Job, m *model.Model) (*profile.Profile, error) {
	p, err := profile.Read(j.Plan.Profile)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	if p.ModelID != m.ID() {
		return nil, cli.BadInput(fmt.Errorf("%s is the profile of model %s (%s), not of %s (%s); profile again with: "+
			"millrace profile", j.Plan.Profile, p.Model, p.ModelID, m.Name, m.ID()))
	}
	return p, nil
}

// MeasureCommand returns the hidden verb that measures micro-batch sizes. Other verbs start it in a separate
// process.
func MeasureCommand() *cobra.Command {
	var flags JobFlags
	var output, sizes, kind string
	var passes int
	var keep, every, beside bool
	c := &cobra.Command{
		Use: "measure JOB.yaml", Short: "Measure a profile (used by the verbs that need one)", Hidden: true,
		Example: "  measure job.yaml --sizes 4,8 -o profile.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			flags.File = args[0]
			if passes < 0 {
				return cli.BadInput(fmt.Errorf("--passes %d; give 1 at least, or 0 for up to 15", passes))
			}
			list, err := ReadSizes(sizes)
			if err != nil {
				return err
			}
			j, err := flags.Job()
			if err != nil {
				return err
			}
			m, err := LoadModel(j)
			if err != nil {
				return err
			}
			if keep {
				cli.Keeps(c.Context(), func() string { return "" }) // the process that started this one informs the user
				p, err := keptIn(j, m, kind).measure(c.Context(), Wanted{Sizes: list, Every: every}, !beside)
				if err != nil {
					return refusal(err)
				}
				return cli.WriteJSON(c.OutOrStdout(), p)
			}
			p, err := Afresh(c, j, m, list, passes)
			if err != nil {
				return err
			}
			return p.Write(output)
		},
	}
	cli.Output(c, &output, "write the profile to this file")
	f := c.Flags()
	f.StringVar(&sizes, "sizes", "", "micro-batch sizes, with commas")
	f.IntVar(&passes, "passes", 0, "measured passes over the model for each size (default: up to 15)")
	f.BoolVar(&keep, "keep", false, "measure what is missing of what was measured before, keep and print the profile")
	f.StringVar(&kind, "kind", "", "with --keep: the kind of machine")
	f.BoolVar(&every, "every", false, "with --keep: each of the sizes")
	f.BoolVar(&beside, "beside-others", false, "with --keep: do not wait for others who measure here")
	return c
}

// ReadSizes reads micro-batch sizes that are separated by commas.
func ReadSizes(text string) (sizes []int, err error) {
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, cli.BadInput(fmt.Errorf("--sizes is %q; give sizes of micro-batches, 1 or more, with commas", text))
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// ProfileInChild measures a new profile in a separate process. `passes` is the number of passes; 0 for a profile's
// default.
func ProfileInChild(ctx context.Context, j *job.Job, path string, sizes []int, passes int) error {
	return inChild(ctx, j, sizes, nil, "-o", path, "--passes", strconv.Itoa(passes))
}

// inChild measures the given sizes in a separate process. The standard output of that process goes to `out`.
func inChild(ctx context.Context, j *job.Job, sizes []int, out io.Writer, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	var words []string
	for _, s := range sizes {
		words = append(words, strconv.Itoa(s))
	}
	dir, remove, err := document.Scratch("millrace-profile-")
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer remove()
	file := filepath.Join(dir, "job.yaml")
	own := *j
	own.Machine.Cores = CoresOf(j)
	if err := own.Write(file); err != nil {
		return cli.BadInput(err)
	}
	args = append([]string{"measure", file, "--sizes", strings.Join(words, ",")}, args...)
	child := exec.CommandContext(ctx, self, args...)
	child.Stdout, child.Stderr = out, os.Stderr
	// SIGTERM lets the child end without leaving a half-written file. It has time to end before this process does.
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.WaitDelay = cli.StopGrace / 2
	// The child also gets SIGTERM if this process is killed. The kernel sends it when the thread that started the child
	// ends; therefore this goroutine keeps its thread until the child has ended.
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = child.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if child.ProcessState != nil && child.ProcessState.ExitCode() == cli.ExitBadInput {
		return cli.BadInput(fmt.Errorf("profile: the measuring process refused, see above"))
	}
	return fmt.Errorf("profile: the measuring process: %w", err)
}
