package process

import (
	"math"

	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
)

// underway is the current Program of a process and its state. What describes the Program changes only between two
// Programs, when every worker is idle. The process's mu guards the rest.
type underway struct {
	job         *Job
	program     *schedule.Program // nil before the first Program
	base        int               // the step of the program's minibatch 0
	slots       int               // messages that may wait at the receiver of an edge; 0 means no bound
	trains      bool              // the program trains, so its instructions belong to steps
	minibatches int               // number of the program's minibatches

	limit   int   // number of minibatches after which the program ends
	refused error // why the last update was taken back for good
	drains  int   // drains that were reported to the leader
	ended   bool  // all lists have ended, and the leader has been told
	saved   control.Saved
	tested  control.Result
}

// begins returns the state of a Program that begins.
func begins(j *Job, p *schedule.Program, base, slots int, trains bool) underway {
	return underway{job: j, program: p, base: base, slots: slots, trains: trains, minibatches: p.Minibatches(),
		limit: math.MaxInt}
}

// runs reports whether there is a Program with a list that has not ended.
func (u *underway) runs() bool { return u.program != nil && !u.ended }

// absolute converts an instruction's ids to ids that count over the whole training, if the Program trains.
func (u *underway) absolute(in schedule.Instruction) schedule.Instruction {
	if !u.trains {
		return in
	}
	return Absolute(u.program, u.base, in)
}

// Absolute converts an instruction's ids to ids that count over the whole training. p must train, and its minibatch 0
// is step base.
func Absolute(p *schedule.Program, base int, in schedule.Instruction) schedule.Instruction {
	if in.Kind.OfMinibatch() {
		in.Micro += int32(base)
	} else {
		in.Micro += int32(base * p.PerMinibatch())
	}
	return in
}

// stepOf returns the step that an instruction belongs to, if the Program trains.
func (u *underway) stepOf(in schedule.Instruction) int { return u.base + u.program.MinibatchOf(in) }

// covers returns the minibatches [first, end) of an update, or of a collective before it.
func (u *underway) covers(in schedule.Instruction) (first, end int) {
	return u.program.Covers(in, u.minibatches)
}

// stands reports whether an instruction makes its stage's part of minibatches final: no rollback can follow.
func (u *underway) stands(in schedule.Instruction) bool {
	return u.program.Settled(in) && (u.refused == nil || u.program.MinibatchOf(in) < u.limit-1)
}

// stopsAt makes the Program end after this number of minibatches at the latest. If the last update was taken back for
// good, forGood is the reason, and the run ends too. Otherwise forGood is nil.
func (u *underway) stopsAt(minibatches int, forGood error) {
	u.limit = min(u.limit, minibatches)
	if u.refused == nil {
		u.refused = forGood
	}
}

// positionOf returns the position of the stage that executes an instruction. Programs of evaluations and checkpoints
// have only one pipeline, the one that is shown.
func (u *underway) positionOf(in schedule.Instruction) position {
	p := positionOf(in)
	if !u.trains {
		p.pipeline = u.job.shown()
	}
	return p
}

// micro returns the micro-batch of an instruction, or the slice of it that its replica computes.
func (u *underway) micro(in schedule.Instruction) stage.Micro {
	perStep := u.program.MicroBatches / u.program.Period
	r := rowsOf(u.program, in.Pipeline, in.Stage, int(in.Replica), u.job.Plan.MicroBatch)
	return stage.Micro{
		ID: int(in.Micro), Step: u.job.BatchOf(u.base+int(in.Micro)/perStep,
			in.Pipeline), Index: int(in.Micro) % perStep, FirstRow: r.Lo, Rows: r.len(),
	}
}

// rows returns how many rows the whole micro-batch of a transfer has.
func (u *underway) rows(in schedule.Instruction) int {
	if u.trains {
		return u.job.Plan.MicroBatch
	}
	return u.job.TestRows(int(in.Micro))
}

// share returns the weight of a micro-batch's mean loss in the loss of its step.
func (u *underway) share(m stage.Micro) float64 {
	return float64(m.Rows) / float64(u.job.Plan.Batch()*u.job.Together())
}

// weight returns the factor of a micro-batch's mean loss before differentiation: the rows of the micro-batch divided by
// the rows of its minibatch. If an update covers several minibatches, each stage divides by their number itself
// (updating.stepOf). This number cannot be part of the factor, because gradients flow from one stage to the next. Two
// stages with different numbers of replicas may have updates that cover different numbers of minibatches.
func (u *underway) weight(m stage.Micro) float64 {
	return float64(m.Rows) / float64(u.job.Plan.Batch())
}

// packs reports whether the floats of a message are packed.
//
// In training, stages on different workers may send each other fewer bits than they compute with (plan.Plan.Boundary).
// Tensors are packed when sent and unpacked when received. Tensors that change hands on one worker are not packed.
// Tensors of an evaluation are not packed either, so that its result depends only on the weights.
func (u *underway) packs(kind schedule.Kind) bool {
	switch kind {
	case schedule.SF, schedule.RF, schedule.SB, schedule.RB:
		return u.trains && u.job.Plan.Boundary.Packs()
	}
	return false
}
