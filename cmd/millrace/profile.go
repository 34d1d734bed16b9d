package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/measure"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/place"
)

func profileCommand() *cobra.Command {
	var flags jobFlags
	var output, sizes string
	var passes int
	var asJSON, analytic bool
	c := &cobra.Command{
		Use: "profile [MODEL]", Short: "Measure what each layer costs on this machine, or compute it for described devices",
		Long: `profile passes micro-batches of several sizes through every layer, on as many workers at once as
will train, and prints the medians of forward and backward. Sizes are visited in turn, in rounds: at
most 15 of them, for about 15 seconds, unless --passes says otherwise.

With --cluster it computes the costs of that cluster's devices instead, from their peaks;
--analytic says so.`,
		Example: "  millrace profile --model gpt --batch 32 -o gpt.json\n  millrace profile --model convnet --sizes 8,16,32 --workers 1\n  millrace profile bert-48 --analytic --cluster dapple-a --batch 64 -o bert-48.json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && c.Flags().Changed("model") {
				return badInput(fmt.Errorf("both %s and --model are named; one model is profiled", args[0]))
			}
			if len(args) > 0 {
				flags.given = append(flags.given, func(j *job.Job) error { j.Model = args[0]; return nil })
			}
			j, err := flags.job()
			if err != nil {
				return err
			}
			if analytic && j.Cluster == "" {
				return badInput(fmt.Errorf("--analytic computes costs for described devices: name them with --cluster FILE or a preset, %s", strings.Join(cluster.Presets(), ", ")))
			}
			if passes < 0 {
				return badInput(fmt.Errorf("--passes %d; give 1 at least, or 0 for up to 15", passes))
			}
			m, err := loadModel(j)
			if err != nil {
				return err
			}
			list := microBatches(j)
			if sizes != "" {
				list = nil
				for word := range strings.SplitSeq(sizes, ",") {
					n, err := strconv.Atoi(word)
					if err != nil || n < 1 {
						return badInput(fmt.Errorf("--sizes: %q is no micro-batch size", word))
					}
					list = append(list, n)
				}
			}
			p, err := costs(c, j, m, list, passes)
			if err != nil {
				return err
			}
			if output != "" {
				if err := p.Write(output); err != nil {
					return err
				}
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), p)
			}
			if output == "" || isTerminal(os.Stdout) {
				printProfile(c, p)
			}
			return nil
		},
	}
	flags.add(c, job.ModelOptions, job.PlanOptions, job.ClusterOptions)
	c.Flags().StringVarP(&output, "output", "o", "", "write the profile to this file")
	writes(c, "output")
	c.Flags().StringVar(&sizes, "sizes", "", "micro-batch sizes, with commas (default: those that divide --batch)")
	c.Flags().IntVar(&passes, "passes", 0, "measured passes over the model for each size (default: up to 15)")
	c.Flags().BoolVar(&asJSON, "json", false, "for machines")
	c.Flags().BoolVar(&analytic, "analytic", false, "compute costs from --cluster's devices instead of measuring")
	return c
}

// microBatches is the sizes worth measuring for a job: the batch over 1, 2, 4, ... as long
// as that divides it, at most 64 of them; or the one that is fixed.
func microBatches(j *job.Job) []int {
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

// synthetic is data of the shape that a model reads.
func synthetic(m *model.Model) (data.Split, error) {
	if err := checkRunnable(m); err != nil {
		return nil, err
	}
	var input, target model.Tensor
	for _, in := range m.Inputs {
		switch in.Name {
		case "input":
			input = in
		case "target":
			target = in
		}
	}
	last := m.Layers[len(m.Layers)-1]
	at := m.Index(last.From[0])
	if input.Name == "" || target.Name == "" || at < 0 {
		return nil, badInput(fmt.Errorf("model %s: it must read an input named \"input\" and a target named \"target\"", m.Name))
	}
	logits := m.Layers[at].Outputs[0].Shape
	return data.Synthetic(4096, input.Shape, target.Shape, input.DType == model.Int, logits[len(logits)-1]), nil
}

// costs measures on this machine, or computes for the devices of a cluster file.
func costs(c *cobra.Command, j *job.Job, m *model.Model, sizes []int, passes int) (*profile.Profile, error) {
	if j.Cluster == "" {
		return measured(c, j, m, sizes, passes)
	}
	described, err := describedCluster(c, j)
	if err != nil {
		return nil, err
	}
	p, err := profile.Analytic(m, described.DeviceTypes, sizes, j.Optimizer.Kind, len(j.Optimizer.States()))
	return p, badInput(err)
}

// layerTimer times the model's layers on samples made up for it.
func layerTimer(e engine.Engine, j *job.Job, m *model.Model) (*measure.Timer, error) {
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
	e, err := openEngine()
	if err != nil {
		return nil, err
	}
	timer, err := layerTimer(e, j, m)
	if err != nil {
		return nil, err
	}
	bar := progressbar.NewOptions(1, progressbar.OptionSetWriter(c.ErrOrStderr()), progressbar.OptionSetDescription("profile"),
		progressbar.OptionSetWidth(30), progressbar.OptionSetVisibility(isTerminal(os.Stderr)), progressbar.OptionClearOnFinish())
	return profile.Measure(c.Context(), m, timer, profile.Options{
		MicroBatches: sizes, Passes: passes, Concurrency: min(j.Workers, coresOf(j)), Threads: j.ThreadsPerWorker, Workers: j.Workers,
		Progress: func(done, all int, what string) {
			bar.ChangeMax(all)
			bar.Describe("profile: " + what)
			_ = bar.Set(done) // a progress bar that cannot be drawn is no reason to stop
		},
	})
}

// checkSizes refuses micro-batches of which the widest layer's inputs and outputs alone are more than the
// machine's memory.
func checkSizes(m *model.Model, sizes []int) error {
	bytes, err := memoryBytes()
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
		return badInput(fmt.Errorf("profile: a micro-batch of %d samples takes %.3g GiB in %s's widest layer, and this machine has %s; give micro-batches of %d at most, with --micro-batch or --batch",
			most, float64(most)*width/(1<<30), m.Name, cluster.FormatBytes(have), int(float64(have)/width)))
	}
	return nil
}

func printProfile(c *cobra.Command, p *profile.Profile) {
	for _, device := range p.DeviceTypes() {
		printCosts(c.OutOrStdout(), p, device)
	}
}

func printCosts(out io.Writer, p *profile.Profile, device string) {
	sizes := p.Sizes(device)
	fmt.Fprintf(out, "%s on %s, %s: forward + backward in ms by micro-batch\n%-18s", p.Model, device, origin(p), "layer")
	for _, s := range sizes {
		fmt.Fprintf(out, "%16d", s)
	}
	fmt.Fprintln(out)
	for _, l := range p.Layers {
		fmt.Fprintf(out, "%-18s", l.Name)
		for _, s := range sizes {
			for _, cost := range l.Costs {
				if cost.MicroBatch == s && cost.Device == device {
					fmt.Fprintf(out, "%8.3f%8.3f", 1e3*cost.ForwardS, 1e3*cost.BackwardS)
				}
			}
		}
		fmt.Fprintln(out)
	}
}

// origin says where a profile's figures come from.
func origin(p *profile.Profile) string {
	if p.Engine == "" {
		return p.Source
	}
	return fmt.Sprintf("%s, %d at once", p.Engine, p.Concurrency)
}

// profileFor is the profile that a job plans with: the file it names, one in the cache, or
// one that a process of its own measures now, so that nothing measured in a run can enter
// that run's prediction.
func profileFor(c *cobra.Command, j *job.Job, m *model.Model, sizes []int) (*profile.Profile, error) {
	if j.Profile != "" {
		return givenProfile(j, m)
	}
	if err := checkRunnable(m); err != nil {
		return nil, err
	}
	if _, err := openEngine(); err != nil {
		return nil, fmt.Errorf("%w; or name a profile that was measured elsewhere with --profile", err)
	}
	if err := checkSizes(m, sizes); err != nil {
		return nil, err
	}
	path, err := cachedProfile(j, m, sizes)
	if err != nil {
		return nil, err
	}
	if p, err := profile.Read(path); err == nil && p.ModelID == m.ID() {
		return p, nil
	}
	fmt.Fprintf(c.ErrOrStderr(), "profile: measuring %s at micro-batches %v, once for this machine\n",
		names.Shown(j.Model), sizes)
	if err := profileInChild(c.Context(), j, path, sizes, 0); err != nil {
		return nil, err
	}
	return profile.Read(path)
}

// givenProfile is the file that the job names.
func givenProfile(j *job.Job, m *model.Model) (*profile.Profile, error) {
	p, err := profile.Read(j.Profile)
	if err != nil {
		return nil, badInput(err)
	}
	if p.ModelID != m.ID() {
		return nil, badInput(fmt.Errorf("%s is the profile of model %s (%s), not of %s (%s); profile again with: millrace profile", j.Profile, p.Model, p.ModelID, m.Name, m.ID()))
	}
	return p, nil
}

// cachedProfile is where the profile of this model, machine and way of running is kept.
func cachedProfile(j *job.Job, m *model.Model, sizes []int) (string, error) {
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
	key := sha256.Sum256(fmt.Append(nil, m.ID(), sizes, j.Workers, coresOf(j), j.ThreadsPerWorker, j.Optimizer, cpuModel(), built, os.Getenv("OPENBLAS_CORETYPE"), profile.Version, profile.Measures))
	dir := filepath.Join(cache, "millrace", "profiles")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cache folder for profiles: %w", err)
	}
	return filepath.Join(dir, names.File(m.Name)+"-"+hex.EncodeToString(key[:6])+".json"), nil
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // where it is missing, all processors look alike
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// profileInChild has another process measure sizes, in as many passes; 0 is as many as a profile has by default.
func profileInChild(ctx context.Context, j *job.Job, path string, sizes []int, passes int) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	var words []string
	for _, s := range sizes {
		words = append(words, strconv.Itoa(s))
	}
	args := []string{"profile", "--model", j.Model, "--sizes", strings.Join(words, ","), "-o", path,
		"--workers", strconv.Itoa(j.Workers), "--cores", strconv.Itoa(coresOf(j)), "--threads-per-worker", strconv.Itoa(j.ThreadsPerWorker),
		"--batch", strconv.Itoa(j.Batch), "--optimizer", j.Optimizer.Kind,
		"--momentum", fmt.Sprint(j.Optimizer.Momentum), "--weight-decay", fmt.Sprint(j.Optimizer.WeightDecay)}
	for _, name := range sortedKeys(j.Settings) {
		args = append(args, "--set", name+"="+settingText(j.Settings[name]))
	}
	if passes > 0 {
		args = append(args, "--passes", strconv.Itoa(passes))
	}
	child := exec.CommandContext(ctx, self, args...)
	child.Stderr = os.Stderr
	// It ends as this process does, and leaves no half of a file.
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.WaitDelay = stopGrace
	err = child.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if child.ProcessState != nil && child.ProcessState.ExitCode() == exitBadInput {
		return badInput(fmt.Errorf("profile: the measuring process refused, see above"))
	}
	return fmt.Errorf("profile: the measuring process: %w", err)
}

func sortedKeys(m map[string]any) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// settingText writes a setting as --set takes it.
func settingText(v any) string {
	list, ok := v.([]any)
	if !ok {
		return fmt.Sprint(v)
	}
	words := make([]string, len(list))
	for i, item := range list {
		words[i] = fmt.Sprint(item)
	}
	return strings.Join(words, ",")
}
