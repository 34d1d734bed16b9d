package run

import (
	"fmt"
	"path/filepath"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// epochs are the checkpoints that stages write by themselves while a Program trains (Checkpointing.ByStage).
type epochs struct {
	written map[int]*epoch // by number of steps; without the epoch that is being committed
	sealing *epoch         // the epoch that is being committed
	due     []int          // numbers of steps after which stages of the running Program save, ascending
}

// epoch is a checkpoint that stages write by themselves.
type epoch struct {
	steps  int
	saved  control.Saved  // what stages have written so far
	loss   *float64       // loss of the epoch's last step; nil while it is not known
	orders []control.Body // remaining orders that commit the epoch; the first is in progress
}

// of returns the epoch that ends after this number of steps.
func (e *epochs) of(steps int) *epoch {
	if e.written == nil {
		e.written = map[int]*epoch{}
	}
	if e.written[steps] == nil {
		e.written[steps] = &epoch{steps: steps}
	}
	return e.written[steps]
}

// next returns the first epoch if it is complete: all stages have saved, and its loss is known. Otherwise it returns
// nil.
func (e *epochs) next(stages int) *epoch {
	var first *epoch
	for _, w := range e.written {
		if first == nil || w.steps < first.steps {
			first = w
		}
	}
	if first == nil || first.loss == nil || len(first.saved.Files) < stages {
		return nil
	}
	return first
}

// drafts returns the names of drafts that stages may have begun and that will not be completed. These are the drafts of
// all checkpoints due in the running Program that are not sealed yet. Even a draft of which no save was reported may
// have files, because a stage reports a save only after it has written everything.
//
// If all processes share one folder, the draft that is being committed is included. The folder has it either as a draft
// or as a checkpoint. If there are several folders, this draft is left in place, as in save. While it is unknown
// whether the leader's checkpoint is whole, the files in the other folders may be needed. The next run adopts or
// removes the draft.
func (s *saves) drafts() (all []string) {
	for _, steps := range s.epochs.due {
		if e := s.epochs.sealing; steps > s.at && (!s.others || e == nil || e.steps != steps) {
			all = append(all, checkpoint.DraftName(steps, s.run))
		}
	}
	return all
}

// byStage refuses Checkpointing.ByStage where the saved state would differ from that of a drained run, or where ByStage
// would make no difference. It also refuses periods that do not end with an update of every stage.
func (c Config) byStage(p *schedule.Program) error {
	every := c.Checkpoint.Every
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("run: save mode stage: "+format, args...)
	}
	switch {
	case !c.Checkpoint.ByStage:
		return nil
	case every == 0:
		return refuse("say behind how many steps (save-every)")
	case p.HasReference():
		return refuse("pipelines side by side are held together by a reference, which is of all of them")
	case !p.Streams():
		return refuse("with weights %s nothing is in flight behind a step, and a checkpoint waits for nobody; they are of "+
			"streams, such as schedule 1f1b-rr", p.Weights)
	case p.Served():
		return refuse("with weights %s one worker holds the weights, and saves them by itself", p.Weights)
	case every%p.StopUnit() != 0:
		return refuse("every %d steps; stages update for %d at once: give a multiple", every, p.StopUnit())
	case c.Train.EvalEvery%p.StopUnit() != 0:
		return refuse("evaluation every %d steps (eval-every) drains between them; stages update for %d at once: give a "+
			"multiple", c.Train.EvalEvery, p.StopUnit())
	}
	if layer, statistic := running(c.Model); layer != "" {
		return refuse("layer %s has running statistics (%s), which move with forwards of the next steps before its update: "+
			"save without", layer, statistic)
	}
	return nil
}

// running returns the first layer whose forwards change its statistics, and the name of one of these statistics.
func running(m *model.Model) (layer, statistic string) {
	for _, l := range m.Layers {
		for _, q := range l.Params {
			if q.Buffer && !q.Frozen {
				return l.Name, q.Name
			}
		}
	}
	return "", ""
}

// stagesSave reports whether stages save themselves.
func (l *leader) stagesSave() bool {
	return l.config.Checkpoint.ByStage && l.config.Checkpoint.Dir != ""
}

// saving returns p with the saves of stages inserted, if any are due in its steps.
func (l *leader) saving(p *schedule.Program) (*schedule.Program, error) {
	l.saves.epochs.due = nil
	if !l.stagesSave() {
		return p, nil
	}
	every := l.config.Checkpoint.Every
	var ends []int
	for at := (l.done/every + 1) * every; at <= l.done+p.Minibatches(); at += every {
		ends, l.saves.epochs.due = append(ends, at-l.done), append(l.saves.epochs.due, at)
	}
	if len(ends) == 0 {
		return p, nil
	}
	saved, err := lower.Saved(p, ends)
	if err != nil {
		return nil, fmt.Errorf("run: behind step %d: %w", l.done, err)
	}
	return saved, nil
}

// stageSaved records what the stages of a process have written for an epoch.
func (l *leader) stageSaved(from int, part control.Saved) error {
	if part.Steps <= l.done || part.Steps > l.done+l.under.length || !l.stagesSave() ||
		!divides(l.config.Checkpoint.Every, part.Steps) {
		return fmt.Errorf("run: %s has saved what %d steps have left, in a program of steps %d to %d",
			l.job.World.Name(from), part.Steps, l.done+1, l.done+l.under.length)
	}
	l.adds(&l.saves.epochs.of(part.Steps).saved, from, part)
	return nil
}

// seal commits complete epochs in order. An epoch is complete when all stages have saved and the losses up to it are
// known to be finite. seal does not wait for its orders to be carried out: it is called again after every message.
func (l *leader) seal() error {
	for l.failure() == nil && !l.state.Ordered() {
		epochs := &l.saves.epochs
		e := epochs.sealing
		if e == nil {
			if e = epochs.next(len(l.config.Plan.Stages)); e == nil {
				return nil
			}
			var err error
			if e.orders, err = l.ordersOf(e); err != nil {
				return err
			}
			delete(epochs.written, e.steps)
			epochs.sealing = e
			l.tell(l.state.Order(e.orders[0]))
			continue
		}
		if refused := l.state.Refused(); refused != nil {
			epochs.sealing, epochs.of(e.steps).saved = nil, e.saved // the epoch is still a draft
			return process.ErrorOf(l.job.World, refused)
		}
		if e.orders = e.orders[1:]; len(e.orders) > 0 {
			l.tell(l.state.Order(e.orders[0]))
			continue
		}
		epochs.sealing = nil
		l.sealed(e.steps)
	}
	return nil
}

// ordersOf returns the orders that commit an epoch, first in the leader's own folder and then in the other folders. The
// last order is a Prune.
func (l *leader) ordersOf(e *epoch) ([]control.Body, error) {
	manifest, err := l.manifest(e.steps, *e.loss, e.saved)
	if err != nil {
		return nil, err
	}
	commit := control.Commit{Draft: checkpoint.DraftName(e.steps, l.saves.run), Manifest: string(manifest)}
	orders := []control.Body{commit}
	if l.saves.others {
		commit.Others = true
		orders = append(orders, commit)
	}
	return append(orders, control.Prune{Behind: e.steps}), nil
}

// sealed notes that a checkpoint is whole.
func (l *leader) sealed(steps int) {
	l.saves.last, l.saves.at = filepath.Join(l.config.Checkpoint.Dir, checkpoint.NameOf(steps)), steps
	if f := l.config.Hooks.OnCheckpoint; f != nil {
		path := l.saves.last
		l.hooks.add(func() { f(path, steps) })
	}
}

// sealAll waits until all epochs of a finished Program are checkpoints.
func (l *leader) sealAll() error {
	epochs := &l.saves.epochs
	for epochs.sealing != nil || len(epochs.written) > 0 {
		if err := l.failure(); err != nil {
			return err
		}
		if !l.state.Ordered() && epochs.sealing == nil && epochs.next(len(l.config.Plan.Stages)) == nil {
			return fmt.Errorf("run: stages have not all saved themselves behind step %d", l.done)
		}
		l.await()
	}
	if err := l.failure(); err != nil {
		return err
	}
	epochs.due = nil // epochs after a stop were not begun
	return nil
}
