package prepare

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/measure"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/place"
)

// MicroBatches is the sizes worth measuring for a job: the batch over 1, 2, 4, ... as long
// as that divides it, at most 64 of them; or the one that is fixed.
func MicroBatches(j *job.Job) []int {
	switch {
	case j.MicroBatch > 0:
		return []int{j.MicroBatch}
	case j.MicroBatches > 0 && j.Batch%j.MicroBatches == 0:
		return []int{j.Batch / j.MicroBatches}
	}
	var sizes []int
	for n := 1; n <= 64 && j.Batch%n == 0; n *= 2 {
		sizes = append(sizes, j.Batch/n)
	}
	slices.Reverse(sizes)
	return sizes
}

// Costs measures on this machine, or computes for the devices of a cluster file.
func Costs(c *cobra.Command, j *job.Job, m *model.Model, sizes []int, passes int) (*profile.Profile, error) {
	if j.Cluster == "" {
		return measured(c, j, m, sizes, passes)
	}
	described, err := DescribedCluster(c, j)
	if err != nil {
		return nil, err
	}
	p, err := profile.Analytic(m, described.DeviceTypes, sizes, j.Optimizer.Kind, len(j.Optimizer.States()))
	return p, cli.BadInput(err)
}

// LayerTimer times the model's layers on samples made up for it.
func LayerTimer(e engine.Engine, j *job.Job, m *model.Model) (*measure.Timer, error) {
	split, err := synthetic(m)
	if err != nil {
		return nil, err
	}
	on := &place.Policy{}
	return measure.NewTimer(e, split, j.Optimizer, run.TrainPipeline(e, on), on)
}

func measured(c *cobra.Command, j *job.Job, m *model.Model, sizes []int, passes int) (*profile.Profile, error) {
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
	bar := progressbar.NewOptions(1, progressbar.OptionSetWriter(c.ErrOrStderr()),
		progressbar.OptionSetDescription("profile"),
		progressbar.OptionSetWidth(30), progressbar.OptionSetVisibility(cli.Draws(os.Stderr)),
		progressbar.OptionClearOnFinish())
	p, err := profile.Measure(c.Context(), m, timer, profile.Options{
		MicroBatches: sizes, Passes: passes, Concurrency: min(j.Workers, CoresOf(j)), Threads: j.ThreadsPerWorker,
		Workers: j.Workers,
		Progress: func(done, all int, what string) {
			bar.ChangeMax(all)
			bar.Describe("profile: " + what)
			_ = bar.Set(done) // a progress bar that cannot be drawn is no reason to stop
		},
	})
	if errors.As(err, new(*nn.CallError)) {
		return nil, cli.BadInput(err) // samples are made up here, so that it is the network
	}
	return p, err
}

// checkSizes refuses micro-batches of which the widest layer's inputs and outputs alone are more than the
// machine's memory.
func checkSizes(m *model.Model, sizes []int) error {
	bytes, err := MemoryBytes()
	have := bytes["MemTotal"]
	if err != nil || have == 0 {
		return nil // a machine that does not say what it has
	}
	width := 0.0 // of the widest layer, in bytes a sample
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
			most, float64(most)*width/(1<<30), m.Name, cluster.FormatBytes(have), int(float64(have)/width)))
	}
	return nil
}

// profileFor is the profile that a job plans with: the file it names, one in the cache, or
// one that a process of its own measures now, so that nothing measured in a run can enter
// that run's prediction.
func profileFor(c *cobra.Command, j *job.Job, m *model.Model, sizes []int) (*profile.Profile, error) {
	if j.Profile != "" {
		return GivenProfile(j, m)
	}
	own := Own()
	return HostProfile(c.Context(), c.ErrOrStderr(), j, m, sizes, own.Kind(j.Workers, j.Workers))
}

// HostProfile is the profile of this machine for a job, from the cache or from a process of its own. kind is the
// machine's, as it is shared with others.
func HostProfile(ctx context.Context, log io.Writer, j *job.Job, m *model.Model, sizes []int,
	kind string) (*profile.Profile, error) {
	if err := CheckRunnable(m); err != nil {
		return nil, err
	}
	if _, err := OpenEngine(); err != nil {
		return nil, fmt.Errorf("%w; or name a profile that was measured elsewhere with --profile", err)
	}
	if err := checkSizes(m, sizes); err != nil {
		return nil, err
	}
	path, err := CachedProfile(j, m, sizes, kind)
	if err != nil {
		return nil, err
	}
	if p, err := profile.Read(path); err == nil && p.ModelID == m.ID() {
		return p, nil
	}
	fmt.Fprintf(log, "profile: measuring %s at micro-batches %v, once for this machine\n",
		names.Shown(j.Model), sizes)
	if err := ProfileInChild(ctx, j, path, sizes, 0); err != nil {
		return nil, err
	}
	return profile.Read(path)
}

// GivenProfile is the file that the job names.
func GivenProfile(j *job.Job, m *model.Model) (*profile.Profile, error) {
	p, err := profile.Read(j.Profile)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	if p.ModelID != m.ID() {
		return nil, cli.BadInput(fmt.Errorf("%s is the profile of model %s (%s), not of %s (%s); profile again with: "+
			"millrace profile", j.Profile, p.Model, p.ModelID, m.Name, m.ID()))
	}
	return p, nil
}

// CachedProfile is where the profile of this model, kind of machine and way of running is kept. Machines of several
// kinds may have one folder in common.
func CachedProfile(j *job.Job, m *model.Model, sizes []int, kind string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder for profiles: %w; name a file with --profile", err)
	}
	native, _ := torch.Find()
	library, _ := os.Stat(native)
	built := time.Time{}
	if library != nil {
		built = library.ModTime()
	}
	key := sha256.Sum256(fmt.Append(nil, m.ID(), sizes, j.Workers, CoresOf(j), j.ThreadsPerWorker, j.Optimizer,
		kind, built, os.Getenv("OPENBLAS_CORETYPE"), profile.Version, profile.Measures))
	dir := filepath.Join(cache, "millrace", "profiles")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cache folder for profiles: %w", err)
	}
	return filepath.Join(dir, names.File(m.Name)+"-"+hex.EncodeToString(key[:6])+".json"), nil
}

// MeasureCommand is what profileInChild starts: it measures sizes here and writes the profile.
func MeasureCommand() *cobra.Command {
	var flags JobFlags
	var output, sizes string
	var passes int
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
			p, err := measured(c, j, m, list, passes)
			if err != nil {
				return err
			}
			return p.Write(output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "write the profile to this file")
	cli.Writes(c, "output")
	c.Flags().StringVar(&sizes, "sizes", "", "micro-batch sizes, with commas")
	c.Flags().IntVar(&passes, "passes", 0, "measured passes over the model for each size (default: up to 15)")
	return c
}

// ReadSizes reads micro-batch sizes with commas between them.
func ReadSizes(text string) (sizes []int, err error) {
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, cli.BadInput(fmt.Errorf("--sizes: %q is no micro-batch size", word))
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// ProfileInChild has another process measure sizes, in as many passes; 0 is as many as a profile has by default.
func ProfileInChild(ctx context.Context, j *job.Job, path string, sizes []int, passes int) error {
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
	own.Cores = CoresOf(j)
	if err := own.Write(file); err != nil {
		return cli.BadInput(err)
	}
	args := []string{"measure", file, "--sizes", strings.Join(words, ","), "-o", path}
	if passes > 0 {
		args = append(args, "--passes", strconv.Itoa(passes))
	}
	child := exec.CommandContext(ctx, self, args...)
	child.Stderr = os.Stderr
	// It is told to end, for it to leave no half of a file, and is gone before this process is.
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.WaitDelay = cli.StopGrace / 2
	// Where this process is killed it is told, too; the thread's end is what that goes by.
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
