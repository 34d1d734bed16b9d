package training

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/content"
	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/stage/optim"
)

// resumption is the checkpoint that a job resumes from, and the settings that the job takes from it.
type resumption struct {
	path     string
	manifest *checkpoint.Manifest
	here     bool     // the checkpoint is in the job's own folder
	newer    bool     // drafts of later checkpoints may be complete if other hosts' files are added
	anew     bool     // the job's own folder has no checkpoint yet: the run was killed before the first one
	taken    []string // settings that were taken from the checkpoint
	changed  []string // settings that a flag or the job file has changed
	base     bool     // the base of the learning rate was taken from the checkpoint
	floor    bool     // the floor of the learning rate was taken from the checkpoint
}

// at returns the path of the checkpoint; "" if there is none.
func (r *resumption) at() string {
	if r == nil {
		return ""
	}
	return r.path
}

// steps returns how many steps are done.
func (r *resumption) steps() int {
	if r == nil || r.manifest == nil {
		return 0
	}
	return r.manifest.Steps
}

// samples returns how many samples of the data are consumed.
func (r *resumption) samples() int64 {
	if r == nil || r.manifest == nil {
		return 0
	}
	return r.manifest.Samples
}

// fits refuses a checkpoint of another model, before anything is measured.
func (r *resumption) fits(m *model.Model) error {
	if r == nil || r.manifest == nil || r.manifest.ModelID == m.ID() {
		return nil
	}
	how := ""
	if r.manifest.Model != m.Name {
		how = "; name its model with --model"
	} else {
		how = "; name the --set and --freeze that it was trained with (of a PyTorch network, its file and --fuse), " +
			"or begin another training with its weights: " +
			"checkpoint export, then --init"
	}
	return fmt.Errorf("checkpoint %s: model is %s (%s); this run has %s (%s)%s",
		r.path, r.manifest.Model, r.manifest.ModelID, m.Name, m.ID(), how)
}

// checkpoints returns the folder of a job's checkpoints.
func checkpoints(j *job.Job) string { return filepath.Join(j.Output.Folder, "checkpoints") }

// nameOut sets the folder of a job that names none. It has the name of the job's model, or of its plan's.
func nameOut(j *job.Job) {
	if model := cmp.Or(j.Model.Name, prepare.PlannedModel(j)); model != "" {
		j.Output.Folder = cmp.Or(j.Output.Folder, filepath.Join("runs", prepare.Trimmed(model)))
	}
}

// takeUp opens the checkpoint that a job resumes from; it returns nil if the job names none. If the job's own folder
// has no checkpoint yet, the result says only that. The job inherits every setting of the checkpoint's training that
// neither a flag nor the job file sets. Call it before the job is completed.
func (t *training) takeUp(j *job.Job) (*resumption, error) {
	if j.Model.Name == "" || j.Save.Resume == "" { // Complete refuses a job without a model
		return nil, nil
	}
	of := filepath.Join(j.Save.Resume, "checkpoints")
	if own := filepath.Clean(j.Save.Resume) == filepath.Clean(j.Output.Folder); own || isFolder(of) {
		j.Save.Resume = of // the path names the run's folder
	}
	path, m, err := t.find(j.Save.Resume)
	if errors.Is(err, checkpoint.ErrNone) && isOwn(j) {
		j.Save.Resume = ""
		return &resumption{anew: true}, nil
	}
	if err != nil {
		return nil, err
	}
	r := &resumption{path: path, manifest: m}
	if r.newer = t.spread.Spread != nil && t.spread.Newer; t.peers.led == nil { // this run has one process
		r.newer = checkpoint.NamesOne(j.Save.Resume) && readRecord(j.Output.Folder).Run != ""
	}
	if isFolder(checkpoints(j)) {
		if r.here, err = liesIn(j, path, m); err != nil {
			return nil, err
		}
	}
	r.inherit(j)
	return r, r.stays(j)
}

// goesOnHere opens this host's copy of the checkpoint that a job resumes from; it returns nil if there is none.
// Processes other than rank 0 call it.
func (t *training) goesOnHere(j *job.Job) (*resumption, error) {
	if !t.spread.chosen() {
		return nil, nil
	}
	path, m, err := t.spread.shelf.Take(t.spread.Spread)
	if err != nil {
		return nil, err
	}
	here, err := liesIn(j, path, m)
	return &resumption{path: path, here: here}, err
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// goOn sets where a run continues after its launcher has started it again. It continues from the newest whole
// checkpoint of an earlier start. The checkpoint's files may be on any host whose folder belongs to the run. Without
// such a checkpoint, the run starts as it did the first time.
func (t *training) goOn(j *job.Job, run string) error {
	if j.Model.Name == "" || run == "" {
		return nil
	}
	members, err := t.membersOf(j, run)
	if err != nil || !slices.Contains(members, true) {
		return err
	}
	at := checkpoints(j)
	t.peers.members = members
	err = t.choose(at)
	var damaged *checkpoint.DamagedError
	switch {
	case err == nil:
		j.Save.Resume = at
	case errors.As(err, &damaged) && damaged.Whole != "":
		j.Save.Resume = damaged.Whole
	case errors.Is(err, checkpoint.ErrNone):
		t.peers.members = nil
	default:
		return err
	}
	return nil
}

// forget clears the run's name in this host's copy of the folder that a job overwrites. It does so only if the run is
// started for the first time. Otherwise a later start could resume from an older run of the same name.
func (t *training) forget(w *launch.World, j job.Job) error {
	if t.dry || !j.Output.Overwrite || w.StartedBefore() || w.RunID == "" {
		return nil
	}
	if nameOut(&j); readRecord(j.Output.Folder).Run != w.RunID {
		return nil
	}
	return noteRun(j.Output.Folder, "")
}

// take sets a setting to the checkpoint's value, unless the job sets it.
func take[T comparable](r *resumption, j *job.Job, key string, at *T, was T) (taken bool) {
	var zero T
	if j.Given(key) {
		if *at != was {
			r.changed = append(r.changed, fmt.Sprintf("%s %v (was %v)", key, *at, was))
		}
		return false
	}
	usual := *at
	*at = was
	j.Give(key)
	if was != zero || usual != was {
		r.taken = append(r.taken, fmt.Sprintf("%s %v", key, was))
	}
	return true
}

// inherit copies to the job all settings of the checkpoint's training that the job does not set. The planner still
// chooses stages and devices.
func (r *resumption) inherit(j *job.Job) {
	m, stepsGiven, scaleGiven := r.manifest, j.Given("steps"), j.Given("rate_scale")
	if asked := m.Asked; asked != nil {
		take(r, j, "steps", &j.Train.Steps, max(asked.Steps, m.Steps))
		take(r, j, "eval_every", &j.Train.EvalEvery, asked.EvalEvery)
		if n := asked.EvalRows; n != nil && *n == 0 && !j.Given("eval_rows") { // all, which is not worth a word
			j.Train.EvalRows = 0
			j.Give("eval_rows")
		} else if n != nil {
			take(r, j, "eval_rows", &j.Train.EvalRows, *n)
		}
		take(r, j, "save_every", &j.Save.Every, asked.SaveEvery)
		take(r, j, "keep", &j.Save.Keep, asked.Keep)
		take(r, j, "rate_scale", &j.Train.RateScale, asked.RateScale)
	}
	if stepsGiven && !j.Given("rate.total") && (m.Asked == nil || m.Asked.Steps == m.Rate.Total) {
		j.Train.Rate.Total = j.Train.Steps // the schedule ends at the last of the steps that were asked for
		j.Give("rate.total")
	}
	take(r, j, "seed", &j.Data.Seed, m.Seed)
	if !j.Given("plan") {
		take(r, j, "batch", &j.Plan.Batch, m.Batch)
		if j.Plan.Batch == m.Batch && !j.Given("micro_batches") && !j.Given("program") {
			take(r, j, "micro_batch", &j.Plan.MicroBatch, m.MicroBatch)
		}
		r.inheritPolicy(j, m.Plan, scaleGiven)
	}
	r.inheritOptimizer(j, m.Optimizer)
	take(r, j, "clip", &j.Train.Clip, m.Clip)
	r.inheritRate(j, m.Rate)
}

// inheritPolicy takes over the tensor format between stages, and the settings that decide which weights the training
// computes with. With elastic averaging these settings are the number of pipelines and how they are averaged. Without a
// flush they are the weight policy and the schedule, because the schedule's order decides how old weights are.
func (r *resumption) inheritPolicy(j *job.Job, pl *plan.Plan, scaleGiven bool) {
	if pl == nil || j.Given("program") {
		return
	}
	r.inheritBoundary(j, pl)
	if e := pl.Elastic; e != nil {
		take(r, j, "pipelines", &j.Plan.Elastic.Pipelines, e.Pipelines)
		if j.Plan.Elastic.Pipelines == e.Pipelines && !scaleGiven {
			take(r, j, "alpha", &j.Plan.Elastic.Alpha, e.Alpha)
			take(r, j, "averaging", &j.Plan.Elastic.Averaging, string(e.Order))
			take(r, j, "reference", &j.Plan.Elastic.Reference, string(e.Reference))
		}
		return
	}
	if schedule.Policy(pl.Weights).Flushes() || j.Plan.Elastic.Pipelines > 1 {
		return
	}
	family, err := family.Lookup(cmp.Or(j.Plan.Schedule, pl.Schedule))
	if err != nil || !family.AdmitsPolicy(schedule.Policy(pl.Weights)) {
		return
	}
	weightsGiven := j.Given("weights")
	take(r, j, "weights", &j.Plan.Weights, pl.Weights)
	if !weightsGiven {
		take(r, j, "schedule", &j.Plan.Schedule, pl.Schedule)
	}
	if s := pl.Staleness; s != nil && schedule.Policy(j.Plan.Weights).Served() && !j.Given("staleness") {
		j.Plan.Staleness = s
		j.Give("staleness")
		r.taken = append(r.taken, fmt.Sprintf("staleness %d", *s))
	}
}

// inheritOptimizer takes over the optimizer, and its coefficients unless the job names another optimizer.
func (r *resumption) inheritOptimizer(j *job.Job, was optim.Settings) {
	o := &j.Train.Optimizer
	take(r, j, "optimizer.kind", &o.Kind, was.Kind)
	if o.Kind != was.Kind {
		return
	}
	take(r, j, "optimizer.weight_decay", &o.WeightDecay, was.WeightDecay)
	switch was.Kind {
	case optim.SGD:
		take(r, j, "optimizer.momentum", &o.Momentum, was.Momentum)
		take(r, j, "optimizer.nesterov", &o.Nesterov, was.Nesterov)
	case optim.LARS:
		take(r, j, "optimizer.momentum", &o.Momentum, was.Momentum)
		take(r, j, "optimizer.trust", &o.Trust, was.Trust)
	case optim.ASGD:
		take(r, j, "optimizer.average_from", &o.AverageFrom, was.AverageFrom)
	default:
		take(r, j, "optimizer.beta1", &o.Beta1, was.Beta1)
		take(r, j, "optimizer.beta2", &o.Beta2, was.Beta2)
		take(r, j, "optimizer.epsilon", &o.Epsilon, was.Epsilon)
	}
}

// inheritRate takes over the learning rate and its schedule, as they were before a rate scale was applied. Numbers that
// belong to one kind of schedule are taken only if the kind stays.
func (r *resumption) inheritRate(j *job.Job, was optim.Rate) {
	if f := r.factor(j); f != 1 {
		was.Base, was.Floor = was.Base/f, was.Floor/f
	}
	rate := &j.Train.Rate
	take(r, j, "rate.kind", &rate.Kind, was.Kind)
	r.base = take(r, j, "rate.base", &rate.Base, was.Base)
	take(r, j, "rate.warmup", &rate.Warmup, was.Warmup)
	switch rate.Kind {
	case optim.Cosine, optim.Polynomial:
		if was.Kind == rate.Kind {
			take(r, j, "rate.total", &rate.Total, was.Total)
			r.floor = take(r, j, "rate.floor", &rate.Floor, was.Floor)
		}
		if was.Kind == optim.Polynomial && rate.Kind == was.Kind {
			take(r, j, "rate.power", &rate.Power, was.Power)
		}
	case optim.StepDecay:
		if was.Kind == rate.Kind {
			take(r, j, "rate.every", &rate.Every, was.Every)
			take(r, j, "rate.factor", &rate.Factor, was.Factor)
		}
	}
}

// factor returns the number by which the checkpoint's learning rate was multiplied. A manifest of version 1 does not
// record this number. It is then computed from the job's rate scale.
func (r *resumption) factor(j *job.Job) float64 {
	m := r.manifest
	if m.Asked != nil {
		return cmp.Or(m.Asked.RateFactor, 1)
	}
	was := job.Train{RateScale: j.Train.RateScale, Clip: m.Clip, Optimizer: m.Optimizer}
	return was.RateFactor(m.Pipelines())
}

// rate returns the learning rate of a job with this many pipelines, and the factor by which it was multiplied. A rate
// that stays unchanged equals the checkpoint's rate to the last bit.
func (r *resumption) rate(j *job.Job, pipelines int) (optim.Rate, float64) {
	factor := j.Train.RateFactor(pipelines)
	rate := j.Train.Rate.Scaled(factor)
	if r == nil || r.manifest == nil || factor != r.factor(j) {
		return rate, factor
	}
	if r.base {
		rate.Base = r.manifest.Rate.Base
	}
	if r.floor {
		rate.Floor = r.manifest.Rate.Floor
	}
	return rate, factor
}

// runOf returns the folder of the run that a checkpoint, or a folder of checkpoints, belongs to. The error says why
// this host has no job of that run.
func runOf(resume string) (run string, lacks error) {
	run = filepath.Clean(resume)
	for _, inside := range []string{filepath.Dir(run), run} {
		if filepath.Base(inside) == "checkpoints" {
			run = filepath.Dir(inside)
			break
		}
	}
	if _, err := os.Stat(resume); errors.Is(err, fs.ErrNotExist) {
		err := fmt.Errorf("--resume %s: there is no such run and no such checkpoint", resume)
		if near := registry.Nearest(filepath.Clean(resume), runsIn(filepath.Dir(resume))); near != "" {
			err = fmt.Errorf("%w; did you mean %s?", err, near)
		}
		return run, err
	}
	file := filepath.Join(run, folder.JobName)
	if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
		return run, nil
	}
	if inside := runsIn(run); len(inside) > 0 {
		return run, fmt.Errorf("--resume %s: it is no run; %s", resume, registry.Instead("", inside))
	}
	return run, fmt.Errorf("--resume %s: there is no %s, which would say what trains; name its model with --model, or a "+
		"job", resume, file)
}

// runsIn returns the runs in a folder, by path.
func runsIn(dir string) (runs []string) {
	inside, _ := os.ReadDir(dir) // a folder that cannot be read has none to suggest
	for _, e := range inside {
		if path := filepath.Join(dir, e.Name()); content.Of(path) == content.Run {
			runs = append(runs, path)
		}
	}
	return runs
}
