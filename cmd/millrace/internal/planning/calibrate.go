package planning

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/internal/words"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune/calibrate"
	"github.com/millrace-ml/millrace/tune/measured"
)

// calibrateFlags are the flags of calibrate in addition to a model's flags.
type calibrateFlags struct {
	model     prepare.JobFlags
	output    string
	fit       []string
	overwrite bool
	asJSON    bool
}

// CalibrateCommand returns the verb that fits described devices to measurements.
func CalibrateCommand() *cobra.Command {
	var f calibrateFlags
	c := &cobra.Command{
		Use: "calibrate CLUSTER MEASUREMENTS ...", Short: "Fit a described device to what was measured on one",
		Long: `calibrate changes the speeds of kernels and collectives in a cluster file, so that predictions agree with
measurements as well as possible. It prints the changed numbers with their uncertainty, the remaining error, the
error on measurements held out of the fit, and what to measure next.

Measurements are profiles (JSON) that millrace profile has made on one such device, or step times (CSV). A CSV file
has one row for each run, with the columns layers, hidden, heads, seq_len, vocab, micro_batch, global_batch,
precision and iteration_s. Columns for runs that need them are tp, pp, dp, schedule, virtual_stages_per_device,
recompute, sequence_parallel, shard, kv_heads, ffn_hidden, dropout, tied and id. A few measurements of different
settings are worth more than many of similar ones.`,
		Example: "  millrace calibrate examples/dgx-a100s.yaml examples/measured-a100.csv -o fitted.yaml\n" +
			"  millrace calibrate cpu.yaml gpt.json --fit matmul.limit,launch -o cpu.yaml --overwrite",
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: words.Calibrated,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args[0], args[1:]) },
	}
	f.model.Add(c, job.ModelOptions)
	cli.Unasked(c, "job", "freeze")
	c.Flags().StringSliceVar(&f.fit, "fit", nil, "fit only these numbers, like matmul.limit,launch (default: all)")
	cli.JSON(c, &f.asJSON)
	cli.Output(c, &f.output, "write the fitted cluster to this file")
	cli.WritesAs(c, "out", ".yaml", ".yml")
	c.Flags().BoolVar(&f.overwrite, "overwrite", false, "replace an existing file")
	return c
}

func (f *calibrateFlags) run(c *cobra.Command, description string, files []string) error {
	if _, err := os.Stat(f.output); f.output != "" && err == nil && !f.overwrite {
		return cli.BadInput(fmt.Errorf("--out %s: it is there: write over it with --overwrite, or give another --out",
			f.output))
	}
	described, err := cluster.Read(description)
	if err != nil {
		return cli.BadInput(err)
	}
	for _, d := range described.Devices {
		if d != described.Devices[0] {
			return cli.BadInput(fmt.Errorf("calibrate: %s has device types %s; give a file of the one that was measured",
				description, strings.Join(described.Types(), ", ")))
		}
	}
	if described.DeviceTypes[described.Devices[0]].Kernels == nil {
		return cli.BadInput(fmt.Errorf("calibrate: device type %s of %s has no kernels to fit: build it on one that has, "+
			"like {like: a100-80gb}; there are %s", described.Devices[0], description, strings.Join(cluster.Types(), ", ")))
	}
	known := calibrate.NamesOf(described)
	if err := fittable(f.fit, known); err != nil {
		return cli.BadInput(err)
	}
	meter := cli.StartMeter("calibrate")
	defer meter.Stop()
	meter.Doing("reading")
	all, err := f.read(described, files)
	if err != nil {
		return cli.BadInput(err)
	}
	r := calibrate.Request{Cluster: described, Names: f.fit, Least: toldAtLeast}
	if len(r.Names) == 0 {
		r.Names = known
	}
	for _, set := range all {
		r.Observations = append(r.Observations, set.Observations...)
	}
	r.Fitted = func(done, of int) { follow(meter.Work(), done, of) }
	meter.Doing("fitting " + terminal.Count(len(r.Names), "number"))
	fit, err := calibrate.Run(c.Context(), r)
	if err != nil {
		return cli.BadInput(err)
	}
	meter.Work().End(time.Now())
	meter.Doing("weighing what to measure next")
	var candidates []calibrate.Candidate
	for _, set := range all {
		candidates = append(candidates, set.Candidates(fit.Cluster)...)
	}
	next, err := fit.Next(candidates, mostAdvice)
	if err != nil {
		return err
	}
	meter.Stop()
	if f.output != "" {
		text := fmt.Sprintf("# Fitted by millrace calibrate to %s of %s: error %s before, %s after, %s held out.\n",
			terminal.Count(len(r.Observations), "time"), strings.Join(files, ", "), percent(fit.Before), percent(fit.After),
			percent(fit.HeldOut)) + fit.Cluster.Text()
		if _, err := cluster.Parse(strings.NewReader(text)); err != nil {
			return fmt.Errorf("calibrate: what was fitted cannot be read again: %w", err)
		}
		if err := document.WriteText(f.output, text); err != nil {
			return err
		}
	}
	if f.asJSON {
		return cli.WriteJSON(c.OutOrStdout(), calibrated(&r, fit, next, all))
	}
	if err := printFit(c.OutOrStdout(), &r, fit, next, all); err != nil {
		return err
	}
	return cli.Wrote(c.OutOrStdout(), f.output)
}

// fittable refuses names of --fit that occur twice, or whose number in the cluster cannot be fitted.
func fittable(names, known []string) error {
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("calibrate: --fit names %s twice; once is right", name)
		}
		if slices.Contains(calibrate.Names(), name) && !slices.Contains(known, name) {
			return fmt.Errorf("calibrate: --fit %s: the cluster has none, or it is 0, which a fit multiplies; there are %s",
				name, strings.Join(known, ", "))
		}
	}
	return nil
}

// follow reports to `work` how many of the fits that hold out measurements are done.
func follow(work *progress.Work, done, of int) {
	fold := progress.Piece{What: "holding measurements out", Kind: "fit", Cost: 1}
	if done == 1 && of > 1 {
		fold.Times = of - 1
		work.Plan(time.Now(), "held out", fold)
		fold.Times = 0
	}
	if done < of {
		work.Begin(time.Now(), fold)
	}
}

// mostAdvice is the maximal number of proposed measurements.
const mostAdvice = 3

// read reads profiles and CSVs.
func (f *calibrateFlags) read(c *cluster.Cluster, files []string) (all []*measured.Set, err error) {
	for _, file := range files {
		text, err := document.Read(file, document.MaxBytes)
		if err != nil {
			return nil, fmt.Errorf("calibrate: %w", err)
		}
		var set *measured.Set
		if trimmed := bytes.TrimSpace(document.Unmarked(text)); bytes.HasPrefix(trimmed, []byte("{")) {
			set, err = f.layers(file, c)
		} else {
			set, err = measured.Steps(file, text, c)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, set)
	}
	return all, nil
}

// layers reads a profile and finds its model. If the profile was made of a built-in model with default settings, layers
// takes this built-in model. Otherwise it takes the model that the flags name.
func (f *calibrateFlags) layers(file string, c *cluster.Cluster) (*measured.Set, error) {
	p, err := profile.Read(file)
	if err != nil {
		return nil, err
	}
	flags := f.model
	flags.Given = append([]func(*job.Job) error{func(j *job.Job) error { j.Model.Name = p.Model; return nil }},
		flags.Given...)
	j, err := flags.Job()
	if err != nil {
		return nil, err
	}
	m, err := prepare.LoadModel(j)
	if err != nil {
		return nil, fmt.Errorf("calibrate: %s is of model %s: name its file with --model: %w", file, p.Model, err)
	}
	if usual, err := model.Build(p.Model, nil); err == nil && usual.ID() == p.ModelID {
		m = usual // with several profiles, the flags may name the model of another profile
	}
	return measured.Layers(file, p, m, c)
}

// fitJSON is a fit as JSON. Times are in seconds, bandwidths in bytes per second.
type fitJSON struct {
	Observations int          `json:"observations"`
	Numbers      []numberJSON `json:"numbers"`
	ErrorBefore  float64      `json:"error_before"`
	ErrorAfter   float64      `json:"error_after"`
	ErrorHeldOut *float64     `json:"error_held_out"` // null if there is only one observation or group
	Folds        int          `json:"folds"`
	Residuals    []residual   `json:"residuals"`
	Next         []nextJSON   `json:"measure_next"`
	Notes        []string     `json:"notes,omitempty"`
}

type numberJSON struct {
	Name   string  `json:"name"`
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	Doubt  float64 `json:"log_sd_before"`
	Spread float64 `json:"log_sd_after"`
}

type residual struct {
	Name      string  `json:"name"`
	MeasuredS float64 `json:"measured_s"`
	Ratio     float64 `json:"predicted_over_measured"`
}

type nextJSON struct {
	Measure string  `json:"measure"`
	Number  string  `json:"tells_most_of"`
	Before  float64 `json:"log_sd_before"`
	After   float64 `json:"log_sd_after"`
	Gain    float64 `json:"information_nats"`
}

func calibrated(r *calibrate.Request, fit *calibrate.Fit, next []calibrate.Advice, all []*measured.Set) fitJSON {
	out := fitJSON{Observations: len(r.Observations), ErrorBefore: fit.Before, ErrorAfter: fit.After, Folds: fit.Folds}
	if !math.IsNaN(fit.HeldOut) {
		out.ErrorHeldOut = &fit.HeldOut
	}
	for _, n := range fit.Numbers {
		out.Numbers = append(out.Numbers, numberJSON{n.Name, n.Before, n.After, n.Doubt, n.Spread})
	}
	for i, o := range r.Observations {
		out.Residuals = append(out.Residuals, residual{o.Name, o.Measured, fit.Residual[i]})
	}
	for _, a := range next {
		out.Next = append(out.Next, nextJSON{a.Measure, a.Number, a.Before, a.After, a.Gain})
	}
	for _, set := range all {
		out.Notes = append(out.Notes, set.Notes...)
	}
	return out
}

// percent formats a fraction as a percentage; NaN becomes "not known".
func percent(part float64) string {
	if math.IsNaN(part) {
		return "not known"
	}
	return fmt.Sprintf("%.1f %%", 100*part)
}

// spread formats a standard deviation of a logarithm.
func spread(sd float64) string {
	if sd > 0.5 {
		return fmt.Sprintf("factor %.3g", math.Exp(sd))
	}
	return fmt.Sprintf("±%.2g %%", 100*(math.Exp(sd)-1))
}

// numberOf formats a fitted number with its unit.
func numberOf(name string, v float64) string {
	switch name {
	case "launch", "layer", "step":
		return terminal.Duration(v)
	case "inside", "outside":
		return terminal.Scaled(v) + "B/s"
	}
	return terminal.Number(v, 3)
}

// toldAtLeast is the least part of a number's uncertainty that measurements must remove for the number to be listed.
const toldAtLeast = 0.05

// printFit prints a fit for people.
func printFit(out io.Writer, r *calibrate.Request, fit *calibrate.Fit, next []calibrate.Advice,
	all []*measured.Set) error {
	s := terminal.Of(out)
	say := func(label, text string) {
		if text != "" {
			fmt.Fprint(out, s.Wrap(fmt.Sprintf("%-12s", label), strings.Repeat(" ", 12), text))
		}
	}
	c := r.Cluster
	fmt.Fprint(out, s.Wrap("", "  ", fmt.Sprintf("%s of device type %s of %s, fitted to %s",
		terminal.Count(len(fit.Numbers), "number"), c.Devices[0], c.Name,
		terminal.Count(len(r.Observations), "measured time"))))
	t := &terminal.Table{Columns: []terminal.Column{{Heading: "number"}, {Heading: "before", Number: true},
		{Heading: "after", Number: true}, {Heading: "spread before", Number: true, Spare: 1},
		{Heading: "after", Number: true}}}
	var untold []string
	for _, n := range fit.Numbers {
		if n.Told() < toldAtLeast {
			untold = append(untold, n.Name)
			continue
		}
		t.Add(n.Name, numberOf(n.Name, n.Before), numberOf(n.Name, n.After), spread(n.Doubt), spread(n.Spread))
	}
	if len(untold) < len(fit.Numbers) {
		if err := t.Write(out, s); err != nil {
			return fmt.Errorf("calibrate: %w", err)
		}
	}
	if len(untold) > 0 {
		say("not told", strings.Join(untold, ", ")+": nothing that was measured depends on them enough, and they stay as "+
			"described")
	}
	held := fmt.Sprintf("%s on what was held out, in %d parts", percent(fit.HeldOut), fit.Folds)
	if math.IsNaN(fit.HeldOut) {
		held = "nothing was held out, as there is one layout alone"
	}
	say("error", fmt.Sprintf("%s before, %s after; %s", percent(fit.Before), percent(fit.After), held))
	worst := slices.MaxFunc(indices(len(fit.Residual)), func(a, b int) int {
		return cmp.Compare(math.Abs(math.Log(fit.Residual[a])), math.Abs(math.Log(fit.Residual[b])))
	})
	say("worst", fmt.Sprintf("%s: measured %s, predicted %s", r.Observations[worst].Name,
		terminal.Duration(r.Observations[worst].Measured),
		terminal.Duration(r.Observations[worst].Measured*fit.Residual[worst])))
	for i, a := range next {
		label := ""
		if i == 0 {
			label = "next"
		}
		say(label, fmt.Sprintf("%s: it tells most of %s, %s to %s", a.Measure, a.Number, spread(a.Before), spread(a.After)))
	}
	if len(next) == 0 {
		say("next", "no measurement of this kind would tell much more")
	}
	for _, set := range all {
		say("note", strings.Join(set.Notes, "; "))
	}
	return nil
}

func indices(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}
