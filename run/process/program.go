package process

import (
	"math"

	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
)

// underway is the Program under way in a process, and what it has come to so far. What it is changes between two
// Programs alone, when every worker is idle; the rest is guarded by the process's mu.
type underway struct {
	job         *Job
	program     *schedule.Program // nil: there has been none yet
	base        int               // step that minibatch 0 of program is
	slots       int               // messages that may lie with a receiver on an edge; 0: no bound
	trains      bool              // program is training, so its instructions belong to steps
	minibatches int               // of program

	limit   int   // minibatches of program that are done at its end
	refused error // why the last update was taken back for good
	drains  int   // that the leader has been told of
	ended   bool  // all lists have, and the leader has been told
	saved   control.Saved
	tested  control.Result
}

// begins is a Program that begins.
func begins(j *Job, p *schedule.Program, base, slots int, trains bool) underway {
	return underway{job: j, program: p, base: base, slots: slots, trains: trains, minibatches: p.Minibatches(),
		limit: math.MaxInt}
}

// runs says whether there is a Program whose lists have not all ended.
func (u *underway) runs() bool { return u.program != nil && !u.ended }

// absolute gives an instruction ids that count over the whole training.
func (u *underway) absolute(in schedule.Instruction) schedule.Instruction {
	if !u.trains {
		return in
	}
	return Absolute(u.program, u.base, in)
}

// Absolute gives an instruction of a Program that trains, whose minibatch 0 is step base, such ids.
func Absolute(p *schedule.Program, base int, in schedule.Instruction) schedule.Instruction {
	if in.Kind.OfMinibatch() {
		in.Micro += int32(base)
	} else {
		in.Micro += int32(base * p.PerMinibatch())
	}
	return in
}

// stepOf is the step that an instruction belongs to, where the Program trains.
func (u *underway) stepOf(in schedule.Instruction) int { return u.base + u.program.MinibatchOf(in) }

// covers is the minibatches of an update, or of a collective in front of it; end is left out.
func (u *underway) covers(in schedule.Instruction) (first, end int) {
	return u.program.Covers(in, u.minibatches)
}

// stands says whether with an instruction its stage's part of minibatches stands: it is not to be taken back.
func (u *underway) stands(in schedule.Instruction) bool {
	return u.program.Settled(in) && (u.refused == nil || u.program.MinibatchOf(in) < u.limit-1)
}

// stopsAt has the Program end with so many minibatches, for good with an error.
func (u *underway) stopsAt(minibatches int, forGood error) {
	u.limit = min(u.limit, minibatches)
	if u.refused == nil {
		u.refused = forGood
	}
}

// positionOf is the stage that an instruction is executed on. The Programs of evaluations and
// checkpoints know one pipeline: the one that is shown.
func (u *underway) positionOf(in schedule.Instruction) position {
	p := positionOf(in)
	if !u.trains {
		p.pipeline = u.job.shown()
	}
	return p
}

// micro is the micro-batch of an instruction, or the slice of it that its replica computes.
func (u *underway) micro(in schedule.Instruction) stage.Micro {
	perStep := u.program.MicroBatches / u.program.Period
	r := rowsOf(u.program, in.Pipeline, in.Stage, int(in.Replica), u.job.Plan.MicroBatch)
	return stage.Micro{
		ID: int(in.Micro), Step: u.job.BatchOf(u.base+int(in.Micro)/perStep,
			in.Pipeline), Index: int(in.Micro) % perStep, FirstRow: r.Lo, Rows: r.len(),
	}
}

// rows is how many rows the whole micro-batch of a transfer has.
func (u *underway) rows(in schedule.Instruction) int {
	if u.trains {
		return u.job.Plan.MicroBatch
	}
	return u.job.TestRows(int(in.Micro))
}

// share is what a micro-batch's mean loss counts for in its step's.
func (u *underway) share(m stage.Micro) float64 {
	return float64(m.Rows) / float64(u.job.Plan.Batch()*u.job.Together())
}

// weight is what a micro-batch's mean loss is differentiated with: its rows over those of its minibatch.
// Where an update covers several minibatches each stage divides by their number itself (updating.stepOf), because
// stages of other numbers of replicas cover others with the same gradients.
func (u *underway) weight(m stage.Micro) float64 {
	return float64(m.Rows) / float64(u.job.Plan.Batch())
}

// packs says whether floats of a message are packed.
//
// What stages on different workers send each other in training may have fewer bits than what they compute with
// (plan.Plan.Boundary). It is packed as it is sent and unpacked as it is received; what changes hands on one worker is
// not. Nor is what an evaluation sends: its result is of the weights alone.
func (u *underway) packs(kind schedule.Kind) bool {
	switch kind {
	case schedule.SF, schedule.RF, schedule.SB, schedule.RB:
		return u.trains && u.job.Plan.Boundary.Packs()
	}
	return false
}
