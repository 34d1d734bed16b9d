package process

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
)

// save writes a stage's file, and those of the pipelines that it is the reference of; the CK of that stage. In a
// Program that trains it is a stage's own checkpoint behind an update, and the leader is told of it at once.
func (w *worker) save(h *holding, in schedule.Instruction) error {
	all := []*holding{h}
	if w.job.Together() > 1 {
		all = append(all, w.pipelinesOf(h)...)
	}
	var saved control.Saved
	dir, steps := w.x.dir, w.x.base
	if w.x.trains {
		steps += int(in.Micro) + 1
		saved.Steps = steps
		var err error
		if dir, err = w.x.pathOf(checkpoint.DraftName(steps, w.x.run)); err != nil {
			return err
		}
	}
	for _, one := range all {
		if err := w.saveOne(one, dir, steps, &saved); err != nil {
			return err
		}
	}
	w.x.mu.Lock()
	defer w.x.mu.Unlock()
	if w.x.trains {
		w.x.say(saved)
		return nil
	}
	w.x.saved.Files = append(w.x.saved.Files, saved.Files...)
	for layer, n := range saved.Updates {
		w.x.saved.Updated(layer, n)
	}
	return nil
}

// saveOne writes one file of a checkpoint after so many steps into a draft. It waits for the device.
func (w *worker) saveOne(h *holding, dir string, steps int, saved *control.Saved) error {
	j := w.job
	if err := checkpoint.MakeDraft(dir); err != nil {
		return err
	}
	l, err := w.fetch(waitSaved, h.Params.Snapshot())
	if err != nil {
		return err
	}
	defer l.free()
	if err := l.wait(); err != nil {
		return err
	}
	tensors := make([]checkpoint.Tensor, len(l.hosts))
	for i, v := range l.vectors {
		tensors[i] = checkpoint.Tensor{
			Name: j.tensorName(h.pipeline, v.Name), DType: v.Tensor.DType(), Shape: v.Tensor.Shape(), Data: l.hosts[i].Bytes(),
		}
		frozen := slices.ContainsFunc(h.Params.Frozen, func(p *stage.Param) bool { return p.Name == v.Name })
		if !frozen && !finite(tensors[i].DType, tensors[i].Data) {
			return &notFiniteError{fmt.Sprintf("after %d steps %s, on stage %d, has values that are not finite; nothing is "+
				"saved, the checkpoint before stays: lower the learning rate or clip gradients",
				steps, v.Name, h.position.stage)}
		}
	}
	file, err := checkpoint.WriteFile(dir, j.stageFile(h.position), tensors)
	if err != nil {
		return err
	}
	saved.Files = append(saved.Files, control.File(file))
	for _, p := range h.Params.Learned {
		if n := h.Versions.Updates(p); p.Owned && n != steps {
			saved.Updated(j.Graph.Model.Layers[p.Layer].Whole(), n)
		}
	}
	return nil
}

// pathOf is where a draft is.
func (x *Process) pathOf(draft string) (string, error) {
	if x.job.Store == nil {
		return "", x.folderless()
	}
	return x.job.Store.Draft(draft)
}

func (x *Process) folderless() error {
	return fmt.Errorf("run: %s is to save, and has no folder for checkpoints", x.job.World.Name(x.job.World.Rank))
}

// carryOut does what the leader orders between two Programs, on a goroutine: disks may take long. The caller holds
// mu.
func (x *Process) carryOut(order control.Body) {
	if x.over {
		return
	}
	x.owes, x.moved = true, time.Now()
	x.beside.Go(crash.Caught(func() {
		var done control.Done
		err := crash.Guard(func() (err error) {
			done, err = x.carriedOut(order)
			return err
		})
		if err != nil {
			x.fail(x.some(), fmt.Errorf("run: %w", err))
			return
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		x.owes = false
		x.say(done)
	}))
}

// carriedOut does it. Orders come one at a time, and behind the first all processes have what they go on from.
func (x *Process) carriedOut(order control.Body) (control.Done, error) {
	s, rank := x.job.Store, x.job.World.Rank
	if err := x.job.Close(); err != nil { // its files would stay on disk, and be in the way of who removes it
		return control.Done{}, err
	}
	if s == nil {
		return control.Done{}, x.folderless()
	}
	switch order := order.(type) {
	case control.Mark:
		return control.Done{}, s.Mark(order.Draft, rank)
	case control.Look:
		marks, err := s.Marks(order.Draft)
		if err == nil && !slices.Contains(marks, rank) {
			err = fmt.Errorf("the mark of %s in %s is gone: something else removes what is there",
				x.job.World.Name(rank), s.Dir)
		}
		if err != nil {
			return control.Done{}, err
		}
		keeper := slices.Min(marks)
		x.keeps = keeper == rank
		return control.Done{Keeper: keeper}, nil
	case control.Commit:
		if !x.keeps || order.Others == (rank == 0) {
			return control.Done{}, nil
		}
		_, err := s.Commit(order.Draft, []byte(order.Manifest))
		if err == nil || order.Others || !s.Drafted(order.Draft) { // the checkpoint is whole
			return control.Done{}, err
		}
		refused := x.job.FailedOf(fmt.Errorf("run: %w", err))
		return control.Done{Refused: &refused}, nil
	case control.Prune:
		if !x.keeps {
			return control.Done{}, nil
		}
		if !x.continued {
			x.continued = true
			if err := x.continueIn(s); err != nil {
				return control.Done{}, err
			}
		}
		if order.Behind > 0 {
			return control.Done{}, s.PruneBehind(order.Behind)
		}
		return control.Done{}, s.Prune()
	}
	return control.Done{}, fmt.Errorf("a %T is no order", order)
}

// continueIn has a folder go on with the checkpoints of this run. The leader's own folder is in order by then: what is
// to become of another run's there is decided where the run was asked for.
func (x *Process) continueIn(s *checkpoint.Store) error {
	if x.job.World.Rank == 0 {
		return x.continueWith(s)
	}
	arrange := func() error {
		if err := x.continueWith(s); err != nil {
			return err
		}
		return s.SetOthersAside(x.job.From)
	}
	if x.job.Claim == nil {
		return arrange()
	}
	return x.job.Claim(arrange)
}

func (x *Process) continueWith(s *checkpoint.Store) error {
	if x.job.From == nil {
		return nil
	}
	return s.Continue(x.job.From)
}

// abandon removes the drafts that will not become checkpoints. Nobody of this process writes to them any more.
func (x *Process) abandon() (err error) {
	x.mu.Lock()
	drafts := x.abandoned
	x.mu.Unlock()
	if x.job.Store == nil {
		return nil
	}
	for _, draft := range drafts {
		err = errors.Join(err, x.job.Store.Abandon(draft))
	}
	return err
}

// weights copies the parameters and buffers of the stages that this worker saves.
func (w *worker) weights() (map[string]Weight, error) {
	all := map[string]Weight{}
	for p, h := range w.held {
		if p.replica != 0 || p.pipeline != w.job.shown() {
			continue
		}
		l, err := w.fetch(waitWeights, h.Params.Snapshot())
		if err == nil {
			err = l.wait()
		}
		if err != nil {
			return nil, fmt.Errorf("the weights of stage %d: %w", p.stage, err)
		}
		for i, v := range l.vectors {
			if !strings.Contains(v.Name, "#") {
				all[v.Name] = Weight{DType: v.Tensor.DType(), Shape: v.Tensor.Shape(), Data: bytes.Clone(l.hosts[i].Bytes())}
			}
		}
		l.free()
	}
	return all, nil
}

// join makes whole weights of rows, where a process has all of one's.
func (j *Job) join(all map[string]Weight) {
	of := map[string]Weight{}
	for _, l := range j.Graph.Model.Layers {
		for i, p := range l.Params {
			rows := p.Rows
			if rows == nil {
				continue
			}
			part, here := all[l.ParamName(i)]
			w := of[rows.Name]
			if !here || len(w.Shape) == 0 && rows.First > 0 || len(w.Shape) > 0 && w.Shape[0] != int64(rows.First) {
				continue
			}
			w = Weight{DType: part.DType, Shape: slices.Clone(part.Shape), Data: append(w.Data, part.Data...)}
			w.Shape[0] = int64(rows.End)
			if of[rows.Name] = w; rows.End == rows.Of {
				all[rows.Name] = w
				for _, k := range j.Graph.Model.Layers {
					for i, q := range k.Params {
						if q.Rows != nil && q.Rows.Name == rows.Name {
							delete(all, k.ParamName(i))
						}
					}
				}
			}
		}
	}
}
