package prepare

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/exchange"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/tune"
	"github.com/millrace-ml/millrace/tune/predict"
)

// ReadProgram reads the Program in a file.
func ReadProgram(file string) (*exchange.Source, error) {
	f, err := document.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, schedule.MaxFile+1)) // ReadSource refuses a longer text
	if err != nil {
		return nil, err
	}
	return exchange.ReadSource(file, text)
}

// UseProgram reads the Program that the job names, and sets its file's name as the job's schedule. The job also gets
// the Program's micro-batches and post-validation. If the job names no cluster, it gets the Program's workers. If the
// job sets no weight policy, it gets the Program's policy. UseProgram returns nil if the job names no Program.
func UseProgram(j *job.Job) (*exchange.Source, error) {
	if j.Plan.Program == "" {
		return nil, nil
	}
	name := filepath.Base(j.Plan.Program)
	if j.Plan.Schedule != "" && j.Plan.Schedule != name || j.Plan.File != "" { // in a recorded job, Schedule is `name`
		return nil, cli.BadInput(fmt.Errorf("--program %s is a schedule of its own; leave out --schedule and --plan",
			j.Plan.Program))
	}
	source, err := ReadProgram(j.Plan.Program)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	if _, err := source.Check(0); err != nil {
		return nil, cli.BadInput(err)
	}
	p := *source.Program
	p.Name = name
	if err := family.RegisterProgram(&p); err != nil {
		return nil, cli.BadInput(err)
	}
	j.Plan.Schedule = p.Name
	if j.Machine.Cluster == "" {
		j.Machine.Workers = p.Workers
	}
	if j.Plan.PostValidate = j.Plan.PostValidate || p.PostValidate; p.PostValidate && !(j.Train.Clip > 0) {
		return nil, cli.BadInput(fmt.Errorf("--program %s: its updates are validated by a gradient norm; give the norm's "+
			"limit with --clip", j.Plan.Program))
	}
	j.Plan.MicroBatches = p.MicroBatches / p.Period
	if j.Plan.Weights == "" {
		j.Plan.Weights = string(p.Weights)
	}
	return source, nil
}

// NotPromised is the note on a plan whose results may differ in bits from those of one worker.
const NotPromised = "the bits of one worker are not promised"

// sums checks whether the job's own Program adds gradients in ascending order. It refuses to train with a Program that
// does not, unless the job allows any order. If such a Program is not refused, sums prints a note for the plan and
// returns it.
func sums(c *cobra.Command, j *job.Job, source *exchange.Source, m *model.Model, trains bool) (note string, err error) {
	if source == nil {
		return "", nil
	}
	wrong := source.OutOfOrder(m.NormalisesMicroBatches() != nil)
	if wrong == nil {
		return "", nil
	}
	if trains && !j.Plan.AnyOrder {
		return "", cli.BadInput(fmt.Errorf("%w; reorder it, or train all the same with --any-order: %s then",
			wrong, NotPromised))
	}
	note = fmt.Sprintf("%s: %v", NotPromised, wrong)
	fmt.Fprintf(c.ErrOrStderr(), "millrace: %s\n", note)
	return note, nil
}

// tooMuch returns the error for a Program that exceeds the workers' memory under every plan. The error is about the
// plan with the least excess. It names the worker that is over its limit, and the first instruction at which this
// happens.
func (p *Prepared) tooMuch(source *exchange.Source, refused *tune.MemoryError) error {
	pl := refused.Leanest
	costs, err := sim.CostsOf(p.Profile, p.Cluster, pl)
	if err != nil {
		return err
	}
	program, err := programs.AtLeast(pl, p.Profile.TiedLayers(), p.Job.Train.Clip > 0, predict.Shown(pl, costs))
	if err != nil {
		return err
	}
	devices := pl.Devices()
	limit := func(w int) int64 { return p.Cluster.MemoryBytes(devices[w]) }
	o := sim.Options{Vary: costs.Noise.Vary(), MemoryBytes: limit}
	_, sum, err := sim.Run(program, costs, o)
	if err != nil {
		return err
	}
	over := sum.Over
	if over == nil {
		return refused
	}
	held := fmt.Sprintf("%s; its memory is %s, and at most it would hold %s (%s)", terminal.Bytes(over.Bytes),
		terminal.Bytes(limit(over.Worker)),
		terminal.Bytes(sum.PeakBytes[over.Worker]), refused.Plan)
	if over.Throughout {
		return source.TooMuch(program, over.Worker, schedule.Instruction{Micro: -1},
			"before its first instruction the worker would hold "+held)
	}
	return source.TooMuch(program, over.Worker, over.Instruction, "from here on the worker would hold "+held)
}
