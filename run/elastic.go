package run

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
)

// Elastic averaging (schedule's family elastic) in a run. A worker holds every stage it has
// once for each pipeline, and once for the reference. A step is an iteration: a batch of each
// pipeline. Pipeline p of N trains on batch tN+p of the data in iteration t, with the masks of a step
// of that number, so that no two pipelines see the same. Evaluations, and the weights that a run
// leaves, are the reference's; checkpoints have all of them.

// together is how many pipelines train side by side.
func (j *job) together() int { return j.plan.Together() }

// models is how many times a worker holds a stage: for every pipeline, and for the reference if there is one.
func (j *job) models() int {
	if n := j.together(); n > 1 {
		return n + 1
	}
	return 1
}

// shown is the pipeline whose weights are evaluated and kept.
func (j *job) shown() int16 { return int16(j.models() - 1) }

// positionOf is the stage that an instruction is executed on. The Programs of evaluations and
// checkpoints know one pipeline: the one that is shown.
func (w *worker) positionOf(in schedule.Instruction) position {
	p := positionOf(in)
	if !w.x.trains {
		p.pipeline = w.job.shown()
	}
	return p
}

// pipelinesOf is the stages of all pipelines that the reference h is the average of.
func (w *worker) pipelinesOf(h *holding) []*holding {
	var all []*holding
	for p := range w.job.together() {
		at := h.position
		at.pipeline = int16(p)
		all = append(all, w.held[at])
	}
	return all
}

// updateElastic updates a pipeline's stage and leaves its step in the worker's queue.
func (w *worker) updateElastic(h *holding, step optim.Step) error {
	at := h.position
	at.pipeline = w.job.shown()
	var push *stage.Push
	err := crash.Guard(func() (err error) {
		push, err = h.UpdateElastic(w.job.optimizer, step, w.held[at].Stage, w.job.plan.Elastic)
		return err
	})
	if err != nil {
		return fmt.Errorf("pipeline %d died before it left its step in the queue of the reference of stage %d: %w", h.pipeline, h.stage, err)
	}
	if h.push != nil {
		push.Free()
		return fmt.Errorf("the reference of stage %d has not yet taken the step that pipeline %d left before", h.stage, h.pipeline)
	}
	h.push = push
	return nil
}

// updateReference applies what the pipelines have left in the queue, in ascending order.
func (w *worker) updateReference(h *holding) error {
	all := w.pipelinesOf(h)
	var pushes []*stage.Push
	for p, one := range all {
		if one.push == nil {
			return fmt.Errorf("pipeline %d has left no step in the queue of the reference of stage %d", p, h.stage)
		}
		pushes = append(pushes, one.push)
	}
	for _, one := range all {
		one.push = nil
	}
	if err := crash.Guard(func() error { return h.Apply(pushes) }); err != nil {
		return fmt.Errorf("the reference of stage %d died with the steps of %d pipelines in its queue: %w", h.stage, len(pushes), err)
	}
	return nil
}

// measureApart notes how far this reference is from the average of its pipelines.
func (w *worker) measureApart(h *holding) error {
	if w.job.together() == 1 {
		return nil
	}
	var stages []*stage.Stage
	for _, one := range w.pipelinesOf(h) {
		stages = append(stages, one.Stage)
	}
	difference, scale, err := h.Apart(stages)
	if err != nil {
		return err
	}
	w.x.mu.Lock()
	defer w.x.mu.Unlock()
	w.x.tested.Apart = max(w.x.tested.Apart, difference/max(scale, math.SmallestNonzeroFloat64))
	return nil
}

// sameElastic says whether two settings of elastic averaging, nil for none, are the same.
func sameElastic(a, b *plan.Elastic) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// tensorName is what a checkpoint calls a tensor of a pipeline: its own name where one
// model is all there is, and for the reference, so that whoever reads one model reads that.
func (j *job) tensorName(pipeline int16, name string) string {
	if pipeline == j.shown() {
		return name
	}
	return pipelineTensor(int(pipeline), name)
}

// stageFile is the file of a checkpoint that a stage of a pipeline is in.
func (j *job) stageFile(p position) string {
	if p.pipeline == j.shown() {
		return fmt.Sprintf("stage-%03d.safetensors", p.stage)
	}
	return fmt.Sprintf("stage-%03d-pipeline-%02d.safetensors", p.stage, p.pipeline)
}
