package process

import (
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/engine"
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

// Going on with another number of pipelines (Config.AverageResumed). The reference of a
// checkpoint is the average of its N pipelines, so that is where all of the N' pipelines to come
// begin, and their reference with them. What the optimizer keeps is averaged too, element by
// element over the N pipelines: it is gathered from gradients at weights that are close to one
// another, and starting it anew would need its count of updates anew (Adam's bias
// corrections). One pipeline is its own average and has no reference, so a checkpoint of plain
// training is taken up by several pipelines, and one of several by plain training, in the same
// way. The data goes on with the first batch that nobody has seen.

// BatchOf is the batch of the data that a pipeline trains on in a step: those of a step side by
// side, behind the ones that the checkpoint which the run goes on from has seen.
func (j *Job) BatchOf(step int, pipeline int16) int {
	from, seen := 0, 0
	if j.From != nil {
		from, seen = j.From.Manifest.Steps, int(j.From.Manifest.Samples)/j.Plan.Batch()
	}
	return seen + (step-from)*j.Together() + int(pipeline)
}

// resumed is a tensor of a pipeline as the checkpoint has it, or as the average says.
func (j *Job) resumed(pipeline int16, name string) (checkpoint.Tensor, error) {
	n := j.From.Manifest.Pipelines()
	if n == j.Together() {
		return j.From.Tensor(j.tensorName(pipeline, name))
	}
	if n == 1 || !strings.Contains(name, "#") {
		return j.From.Tensor(name)
	}
	var of []checkpoint.Tensor
	for p := range n {
		t, err := j.From.Tensor(pipelineTensor(p, name))
		if err != nil {
			return t, err
		}
		of = append(of, t)
	}
	return average(of)
}

// average is the mean of tensors element by element, added up in ascending order in float64.
// The first is used up.
func average(of []checkpoint.Tensor) (checkpoint.Tensor, error) {
	out := of[0]
	for _, t := range of[1:] {
		if t.DType != out.DType || len(t.Data) != len(out.Data) {
			return out, fmt.Errorf("run: %s is %v%v and %s %v%v; the states of all pipelines are alike", out.Name, out.DType,
				out.Shape, t.Name, t.DType, t.Shape)
		}
	}
	switch out.DType {
	case engine.Float32:
		averageInto[float32](of)
	case engine.Float64:
		averageInto[float64](of)
	default:
		return out, fmt.Errorf("run: %s is %v; there is an average of floats alone", out.Name, out.DType)
	}
	return out, nil
}

func averageInto[T float32 | float64](of []checkpoint.Tensor) {
	all := make([][]T, len(of))
	for i, t := range of {
		all[i] = engine.Numbers[T](t.Data)
	}
	for k := range all[0] {
		sum := 0.0
		for _, xs := range all {
			sum += float64(xs[k])
		}
		all[0][k] = T(sum / float64(len(all)))
	}
}

// pipelineTensor is what a checkpoint calls a tensor of a pipeline that is not the one shown.
func pipelineTensor(pipeline int, name string) string {
	return fmt.Sprintf("pipeline-%d/%s", pipeline, name)
}
