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

// save executes a CK instruction: it writes the file of its stage. In a run of several pipelines this is the
// reference's stage, and save writes the same stage of every pipeline too. In a Program that trains, a CK comes after
// an update, and save tells the leader at once what it has written.
func (h *holding) save(in schedule.Instruction) error {
	w := h.w
	all := []*holding{h}
	if w.job.Together() > 1 {
		all = append(all, h.pipelines()...)
	}
	var saved control.Saved
	dir, steps := w.x.saving.dir, w.x.now.base
	if w.x.now.trains {
		steps += int(in.Micro) + 1
		saved.Steps = steps
		var err error
		if dir, err = w.x.saving.pathOf(checkpoint.DraftName(steps, w.x.saving.run)); err != nil {
			return err
		}
	}
	for _, one := range all {
		if err := one.write(dir, steps, &saved); err != nil {
			return err
		}
	}
	w.x.mu.Lock()
	defer w.x.mu.Unlock()
	if w.x.now.trains {
		w.x.say(saved)
		return nil
	}
	w.x.now.saved.Files = append(w.x.now.saved.Files, saved.Files...)
	for layer, n := range saved.Updates {
		w.x.now.saved.Updated(layer, n)
	}
	return nil
}

// write writes the stage's file into the folder of a checkpoint's draft. The checkpoint is taken after `steps` steps.
// write waits for the device.
func (h *holding) write(dir string, steps int, saved *control.Saved) error {
	j := h.w.job
	if err := checkpoint.MakeDraft(dir); err != nil {
		return err
	}
	l, err := h.w.fetch(waitSaved, h.stage.Params.Snapshot())
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
			Name: j.tensorName(h.at.pipeline, v.Name), DType: v.Tensor.DType(), Shape: v.Tensor.Shape(),
			Data: l.hosts[i].Bytes(),
		}
		frozen := slices.ContainsFunc(h.stage.Params.Frozen, func(p *stage.Param) bool { return p.Name == v.Name })
		if !frozen && !finite(tensors[i].DType, tensors[i].Data) {
			return &notFiniteError{fmt.Sprintf("after %d steps %s, on stage %d, has values that are not finite; nothing is "+
				"saved, the checkpoint before stays: lower the learning rate or clip gradients",
				steps, v.Name, h.at.stage)}
		}
	}
	file, err := checkpoint.WriteFile(dir, j.stageFile(h.at), tensors)
	if err != nil {
		return err
	}
	saved.Files = append(saved.Files, control.File(file))
	for _, p := range h.stage.Params.Learned {
		if n := h.stage.Versions.Updates(p); p.Owned && n != steps {
			saved.Updated(j.Network.Graph.Model.Layers[p.Layer].Whole(), n)
		}
	}
	return nil
}

// carryOut carries out an order of the leader, on a goroutine of its own because disks may be slow. The caller holds
// mu.
func (x *Process) carryOut(order control.Body) {
	if x.leaving.over {
		return
	}
	x.activity.owes, x.activity.moved = true, time.Now()
	x.beside.Go(crash.Caught(func() {
		var done control.Done
		err := crash.Guard(func() (err error) {
			done, err = x.saving.carryOut(order)
			return err
		})
		if err != nil {
			x.fail(x.crew.some(), fmt.Errorf("run: %w", err))
			return
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		x.activity.owes = false
		x.say(done)
	}))
}

// saving holds what a process needs to write and commit its part of the run's checkpoints. Among the processes that
// share a folder, only one commits and prunes checkpoints there.
type saving struct {
	job       *Job
	dir       string   // folder for the files of the current checkpoint
	run       uint64   // the run whose drafts stages write while the program trains; 0 if none
	keeps     bool     // this process commits and prunes: it is the first of the processes that share its folder
	continued bool     // the folder was prepared (continueIn)
	abandoned []string // drafts to remove at the end
}

// pathOf returns the path of a draft.
func (v *saving) pathOf(draft string) (string, error) {
	if v.job.Store == nil {
		return "", v.folderless()
	}
	return v.job.Store.Draft(draft)
}

func (v *saving) folderless() error {
	return fmt.Errorf("run: %s is to save, and has no folder for checkpoints", v.job.World.Name(v.job.World.Rank))
}

// carryOut carries out an order of the leader. Orders come one at a time. Before the first one, every process has read
// its part of the checkpoint to resume from.
func (v *saving) carryOut(order control.Body) (control.Done, error) {
	s, rank := v.job.Store, v.job.World.Rank
	if err := v.job.Close(); err != nil { // open files would stay on disk and block their removal
		return control.Done{}, err
	}
	if s == nil {
		return control.Done{}, v.folderless()
	}
	switch order := order.(type) {
	case control.Mark:
		return control.Done{}, s.Mark(order.Draft, rank)
	case control.Look:
		marks, err := s.Marks(order.Draft)
		if err == nil && !slices.Contains(marks, rank) {
			err = fmt.Errorf("the mark of %s in %s is gone: something else removes what is there",
				v.job.World.Name(rank), s.Dir)
		}
		if err != nil {
			return control.Done{}, err
		}
		keeper := slices.Min(marks)
		v.keeps = keeper == rank
		return control.Done{Keeper: keeper}, nil
	case control.Commit:
		if !v.keeps || order.Others == (rank == 0) {
			return control.Done{}, nil
		}
		_, err := s.Commit(order.Draft, []byte(order.Manifest))
		if err == nil || order.Others || !s.Drafted(order.Draft) { // the checkpoint is complete in the leader's folder
			return control.Done{}, err
		}
		refused := v.job.FailedOf(fmt.Errorf("run: %w", err))
		return control.Done{Refused: &refused}, nil
	case control.Prune:
		if !v.keeps {
			return control.Done{}, nil
		}
		if !v.continued {
			v.continued = true
			if err := v.continueIn(s); err != nil {
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

// continueIn prepares a folder for this run's checkpoints. If the folder is not the leader's, continueIn also sets
// aside the checkpoints of other runs. For the leader's own folder, the caller of the run has already decided what
// happens to them.
func (v *saving) continueIn(s *checkpoint.Store) error {
	if v.job.World.Rank == 0 {
		return v.continueWith(s)
	}
	arrange := func() error {
		if err := v.continueWith(s); err != nil {
			return err
		}
		return s.SetOthersAside(v.job.From)
	}
	if v.job.Claim == nil {
		return arrange()
	}
	return v.job.Claim(arrange)
}

func (v *saving) continueWith(s *checkpoint.Store) error {
	if v.job.From == nil {
		return nil
	}
	return s.Continue(v.job.From)
}

// abandon removes the drafts that will not become checkpoints. By then this process has stopped writing to them.
func (v *saving) abandon() (err error) {
	if v.job.Store == nil {
		return nil
	}
	for _, draft := range v.abandoned {
		err = errors.Join(err, v.job.Store.Abandon(draft))
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
		l, err := w.fetch(waitWeights, h.stage.Params.Snapshot())
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

// join combines the pieces of weights that are divided by rows. It combines a weight only if the process has all of its
// pieces.
func (n *Network) join(all map[string]Weight) {
	of := map[string]Weight{}
	for _, l := range n.Graph.Model.Layers {
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
				for _, k := range n.Graph.Model.Layers {
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
