package run

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// Check returns the error with which Train would refuse this Config, without running or writing anything. It also
// checks the checkpoint to resume from, and the rows of steps (RowError).
func (c Config) Check() error {
	c, err := c.filled()
	if err != nil {
		return err
	}
	p, err := programs.AtLeast(c.Plan, c.Model.TiedLayers(), c.Train.Clip > 0, 1)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if err := c.runnable(p); err != nil {
		return err
	}
	done, err := c.resumed()
	if err != nil {
		return err
	}
	return cmp.Or(c.CheckRows(done), c.checkReplay(done))
}

// resumed returns the number of steps in the checkpoint to resume from; 0 if there is none. It refuses a checkpoint
// that does not fit this run.
func (c *Config) resumed() (done int, err error) {
	switch from := c.Resume.Open; {
	case c.Resume.At == "":
		return 0, nil
	case from != nil:
		return from.Manifest.Steps, c.fits(from)
	}
	from, err := openCheckpoint(*c)
	if err != nil {
		return 0, err
	}
	return from.Manifest.Steps, from.Close()
}

// RowError is the error for steps in a row that the plan's schedule cannot train. One Program trains a row. A row ends
// at an evaluation, at a checkpoint for which workers drain, and at the last step. If more steps follow each other than
// a Program may have, they are divided into rows.
type RowError struct {
	Schedule string // its name
	Done, To int    // numbers of steps before the row, and at its end
	InARow   string // what the schedule can train (family.Family.InARow)
	Most     int    // most steps of a Program, if the steps in question are more; otherwise 0
	// Steps, EvalEvery and SaveEvery are the nearest values with which every row can be trained. There are at most two,
	// ascending: one below and one above this run's value. Each is for the case that the other settings stay. Steps has
	// none below half of this run's steps or above twice as many, unless nothing else helps.
	Steps, EvalEvery, SaveEvery []int
}

func (e *RowError) Error() string { return "run: " + e.Why() }

// Why returns the error without the values that would be right.
func (e *RowError) Why() string {
	what, rule := fmt.Sprintf("steps %d to %d are %d in a row", e.Done+1, e.To, e.To-e.Done), ""
	if e.To == e.Done+1 {
		what, rule = fmt.Sprintf("step %d would be trained by itself", e.To), "in a row, "
	}
	if e.Most > 0 {
		what += fmt.Sprintf(" (a row ends after %d)", e.Most)
	}
	return fmt.Sprintf("%s; %s%s trains %s", what, rule, e.Schedule, e.InARow)
}

// CheckRows returns a RowError if this run has a row of steps that the plan's schedule cannot train. `done` is the
// number of steps before this run. Of the Config CheckRows needs only the numbers of steps and the plan's schedule.
func (c Config) CheckRows(done int) error {
	if c.Next != nil {
		return nil
	}
	f, err := family.Lookup(c.Plan.Schedule)
	if err != nil {
		return err
	}
	return c.rowsOf(f, done)
}

// rowsOf is CheckRows for a family of schedules.
func (c Config) rowsOf(f family.Family, done int) error {
	if f.Trains(1) && f.Trains(2) {
		return nil
	}
	c.longest = f.Longest(cmp.Or(c.longest, maxRepeat)) // before the plan is known, the usual limit
	wrong := c.wrongRow(f, done)
	if wrong == nil {
		return c.savesInRows(f, done)
	}
	if c.Train.EvalEvery > 0 {
		wrong.EvalEvery = c.near(f, done, &c.Train.EvalEvery)
	}
	if c.Checkpoint.Every > 0 && !c.Checkpoint.ByStage {
		wrong.SaveEvery = c.near(f, done, &c.Checkpoint.Every)
	}
	wrong.Steps = c.near(f, done, &c.Train.Steps)
	given := c.Train.Steps
	fair := slices.DeleteFunc(slices.Clone(wrong.Steps), func(n int) bool { return n < given-n || n-given > given })
	if len(fair)+len(wrong.EvalEvery)+len(wrong.SaveEvery) > 0 {
		wrong.Steps = fair
	}
	return wrong
}

// wrongRow returns an error for the first row of steps that the family cannot train; nil if it can train all rows. It
// looks at steps only until their rows repeat.
func (c *Config) wrongRow(f family.Family, done int) *RowError {
	short, turn := c.turns()
	right := map[int]bool{} // numbers of steps from one boundary to the next that can be trained
	for from := done; from < c.Train.Steps; {
		if turn > 0 && from%turn == 0 && from-turn >= done { // a whole turn is right
			from, turn = c.Train.Steps/turn*turn, 0
			continue
		}
		end := c.boundary(from)
		switch n := end - from; {
		case right[n]:
		case n <= c.longest && !f.Trains(n):
			return &RowError{Schedule: f.Name, Done: from, To: end, InARow: f.InARow()}
		default:
			if _, programs := f.Divided(n, c.longest); programs == 0 {
				return &RowError{Schedule: f.Name, Done: from + (n-1)/c.longest*c.longest, To: end, InARow: f.InARow(),
					Most: c.longest}
			}
			right[n] = true
		}
		if from = end; short > 0 && from%short == 0 && right[short] {
			from = max(from, c.lastOf(short, from))
		}
	}
	return nil
}

// turns returns the smaller of the two periods with which rows end, and the number of steps after which these ends
// repeat. Either is 0 if there is none before the last step.
func (c *Config) turns() (short, turn int) {
	for _, every := range c.periods() {
		switch {
		case every < 1:
		case short == 0:
			short, turn = every, every
		default:
			common, rest := short, every
			for rest != 0 {
				common, rest = rest, common%rest
			}
			turn = 0
			if every/common <= c.Train.Steps/short { // otherwise the ends do not repeat before the last step
				turn = every / common * short
			}
			short = min(short, every)
		}
	}
	return short, turn
}

// lastOf returns the last step up to which all rows after `from` end with the shorter period.
func (c *Config) lastOf(short, from int) int {
	end := c.Train.Steps
	for _, every := range c.periods() {
		if every > short {
			end = min(end, (from/every+1)*every)
		}
	}
	return end / short * short
}

// savesInRows returns an error if stages cannot save themselves because a row ends between the steps of one update.
func (c *Config) savesInRows(f family.Family, done int) error {
	if every := c.Train.EvalEvery; !c.Checkpoint.ByStage || c.unit < 2 || every > 0 && every <= c.longest {
		return nil
	}
	for _, end := range c.rows(f, done) {
		if end%c.unit != 0 && end < c.Train.Steps {
			return fmt.Errorf("run: save mode stage: a row of %s ends after step %d, and stages update for %d at once: "+
				"save with a drain", f.Name, end, c.unit)
		}
	}
	return nil
}

// near returns the nearest values, below and above the present one, with which a family can train all rows. `at` points
// to the setting in c. The setting keeps its value.
func (c *Config) near(f family.Family, done int, at *int) (good []int) {
	given := *at
	defer func() { *at = given }()
	for _, direction := range []int{-1, 1} {
		for d := 1; d <= 2*(f.Least+f.Each); d++ {
			if *at = given + d*direction; *at < 1 || c.Train.Steps <= done {
				break
			}
			if c.wrongRow(f, done) == nil {
				good = append(good, *at)
				break
			}
		}
	}
	return good
}

// rows returns the rows of steps of this run: for each row the number of steps before it, and at its end. `done` is as
// in CheckRows.
func (c *Config) rows(f family.Family, done int) iter.Seq2[int, int] {
	return func(yield func(from, end int) bool) {
		for from := done; from < c.Train.Steps; {
			end := c.boundary(from)
			for long := end-from > c.longest; from < end; {
				steps := rowOf(f, end-from, c.longest, long)
				if !yield(from, from+steps) {
					return
				}
				from += steps
			}
		}
	}
}

// FirstProgram returns the Program that a run's first steps execute, if nothing stops the run. `done` is the number of
// steps before the run. Steps that flush are alike, so their Program has one step.
func FirstProgram(c Config, done int) (*schedule.Program, error) {
	tied := c.Model.TiedLayers()
	p, err := programs.AtLeast(c.Plan, tied, c.Train.Clip > 0, 1)
	if err != nil || !p.Streams() || c.Next != nil {
		return p, err
	}
	f, err := family.Lookup(c.Plan.Schedule)
	if err != nil {
		return nil, err
	}
	c.longest = longest(p, cmp.Or(c.longest, maxRepeat))
	for from, end := range c.rows(f, done) {
		return programs.AtLeast(c.Plan, tied, c.Train.Clip > 0, end-from)
	}
	return p, nil
}

// rowOf returns the number of steps of the next row, of those up to a boundary. `long` says that these steps, or those
// before them since the last boundary, are too many for one Program.
func rowOf(f family.Family, left, longest int, long bool) int {
	longest = f.Longest(longest)
	if !long && left <= longest {
		return left
	}
	if first, programs := f.Divided(left, longest); programs > 0 {
		return first
	}
	return min(left, longest)
}

// boundary returns the step by which the next Program must end, given the number of steps done.
func (c *Config) boundary(done int) int {
	end := c.Train.Steps
	for _, every := range c.periods() {
		if every > 0 {
			end = min(end, (done/every+1)*every)
		}
	}
	return end
}

// periods returns the numbers of steps after each of which a row ends; 0 means no such end.
func (c *Config) periods() []int {
	if c.Checkpoint.ByStage { // then checkpoints drain nothing
		return []int{c.Train.EvalEvery}
	}
	return []int{c.Train.EvalEvery, c.Checkpoint.Every}
}

// runnable returns an error for a Program that cannot run to its end or does not fit this plan's workers. Unless
// Train.AnyOrder is set, it also refuses a Program that does not add gradients in ascending order of micro-batches.
func (c Config) runnable(p *schedule.Program) error {
	if _, err := check.Check(p); err != nil {
		return err
	}
	return cmp.Or(executable(p, c.Plan), c.ordered(p))
}

// ordered returns an error for a Program that does not add gradients in ascending order of micro-batches. With
// Train.AnyOrder it returns none.
func (c Config) ordered(p *schedule.Program) error {
	if c.Train.AnyOrder {
		return nil
	}
	if wrong := check.OutOfOrder(p, c.Model.NormalisesMicroBatches() != nil); wrong != nil {
		return fmt.Errorf("run: %w", wrong)
	}
	return nil
}

// executable returns an error for a Program with an instruction that its worker cannot execute. The instruction may be
// for a stage that the worker does not hold. It may also be a save or an evaluation, because a run has separate
// Programs for these. If stages save themselves, leader.saving adds the saves after this check.
func executable(p *schedule.Program, of *plan.Plan) error {
	_, s := schedule.FromPlan(of)
	holds := func(worker int, in schedule.Instruction) bool {
		on := s.Placement[in.Stage]
		if p.IsServer(int(in.Pipeline)) { // the last of its stage's workers is the server
			on = on[len(on)-1:]
		}
		return int(in.Replica) < len(on) && on[in.Replica] == worker
	}
	for _, part := range []schedule.Part{p.Prologue, p.Body, p.Epilogue} {
		for w, list := range part {
			for _, in := range list {
				refuse := func(why string) error {
					return fmt.Errorf("run: program %s: worker %d: %v: %s", p.Name, w, in, why)
				}
				switch {
				case in.Kind == schedule.CK, in.Kind == schedule.EV:
					return refuse("a run saves and evaluates between two Programs by itself, every so many steps")
				case in.Kind != schedule.DR && !holds(w, in):
					return refuse("the plan does not put this stage on this worker")
				}
			}
		}
	}
	return nil
}

// CheckPlan returns an error for a plan that Train cannot carry out on this model. perSlice is Training.PerSlice.
func CheckPlan(p *plan.Plan, m *model.Model, perSlice bool) error {
	if id := m.ID(); p.ModelID != "" && p.ModelID != id {
		return fmt.Errorf("run: the plan is for model %s (%s); this is %s (%s)", p.Model, p.ModelID, m.Name, id)
	}
	if p.MicroBatch < 1 || p.MicroBatches < 1 {
		return fmt.Errorf("run: the plan has %d micro-batches of %d samples; both must be at least 1",
			p.MicroBatches, p.MicroBatch)
	}
	if p.Precision != "" && p.Precision != "f32" {
		return fmt.Errorf("run: the plan is for %s; this runtime trains in f32, and other precisions are planned and "+
			"simulated alone: plan without --precision", p.Precision)
	}
	if p.Tensor != nil {
		return fmt.Errorf("run: the plan's devices are tensor-parallel groups of %d, which are planned, simulated and "+
			"exported to Megatron-LM, not executed: plan without --tensor", p.Tensor.Devices)
	}
	if what := p.PlansOnly(); what != "" {
		return fmt.Errorf("run: of the plan %s, which is planned, simulated and exported, not executed here: plan without "+
			"--shard, with --gradients overlapped or bucket=SIZE, and --recompute none, stage or every:K", what)
	}
	if len(p.Stages) == 0 {
		return fmt.Errorf("run: the plan has no stages")
	}
	for at, l := range p.Order {
		if at != l {
			return fmt.Errorf("run: the plan has layer %d at position %d of its own order; this runtime executes layers "+
				"in the model's order", l, at)
		}
	}
	next := 0
	for i, s := range p.Stages {
		if s.FirstLayer != next && !p.Shares(i) || s.LastLayer < s.FirstLayer {
			return fmt.Errorf("run: stage %d has layers %d to %d; it must begin with layer %d",
				i, s.FirstLayer, s.LastLayer, next)
		}
		if p.Replication == string(schedule.Split) && len(s.Devices) > p.MicroBatch {
			return fmt.Errorf("run: stage %d splits micro-batches of %d samples over %d replicas; each needs one at least",
				i, p.MicroBatch, len(s.Devices))
		}
		next = s.LastLayer + 1
	}
	if next != len(m.Layers) {
		return fmt.Errorf("run: the plan ends with layer %d; %s has layers 0 to %d", next-1, m.Name, len(m.Layers)-1)
	}
	if err := divisible(p, m); err != nil {
		return err
	}
	if schedule.Policy(p.Weights).Served() {
		if layer, statistic := running(m); layer != "" {
			return fmt.Errorf("run: layer %s has running statistics (%s), which each worker would gather by itself: with "+
				"weights %s one worker holds the weights, and gradients alone go there; use schedule dp or dp-async, or a "+
				"model without batch norm", layer, statistic, p.Weights)
		}
	}
	if l := m.NormalisesMicroBatches(); l != nil && !perSlice && splits(p) {
		return fmt.Errorf("run: the plan splits micro-batches over replicas, and layer %s normalises over whole ones; "+
			"set batch_norm: per_slice to have it normalise over slices", l.Name)
	}
	return nil
}
