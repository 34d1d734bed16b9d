package process

import (
	"fmt"

	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
)

// save writes a stage's file, and those of the pipelines that it is the reference of; the CK of that stage.
func (w *worker) save(h *holding) error {
	if err := w.saveOne(h); err != nil || w.job.Together() == 1 {
		return err
	}
	for _, one := range w.pipelinesOf(h) {
		if err := w.saveOne(one); err != nil {
			return err
		}
	}
	return nil
}

// saveOne writes one file of a checkpoint. It waits for the device.
func (w *worker) saveOne(h *holding) error {
	j, steps := w.job, w.x.base
	l, err := w.fetch(waitSaved, h.Snapshot())
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
		if !finite(tensors[i].DType, tensors[i].Data) {
			return &notFiniteError{fmt.Sprintf("after %d steps %s, on stage %d, has values that are not finite; nothing is "+
				"saved, the checkpoint before stays: lower the learning rate or clip gradients",
				steps, v.Name, h.position.stage)}
		}
	}
	file, err := checkpoint.WriteFile(w.x.dir, j.stageFile(h.position), tensors)
	if err != nil {
		return err
	}
	w.x.mu.Lock()
	defer w.x.mu.Unlock()
	saved := &w.x.saved
	saved.Files = append(saved.Files, control.File(file))
	for _, p := range h.Params() {
		if n := h.Updates(p); h.Owns(p) && n != steps {
			if saved.Updates == nil {
				saved.Updates = map[string]int{}
			}
			saved.Updates[j.Model.Layers[p.Layer].Name] = n
		}
	}
	return nil
}
