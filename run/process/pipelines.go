package process

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
)

// Pipelines side by side in a run. A worker holds every stage it has
// once for each pipeline, and once for their reference. A step is an iteration: a batch of each
// pipeline. Pipeline p of N trains on batch tN+p of the data in iteration t, with the masks of a step
// of that number, so that no two pipelines see the same. Evaluations, and the weights that a run
// leaves, are the reference's; checkpoints have all of them.

// Together is how many pipelines train side by side.
func (j *Job) Together() int { return j.Plan.Together() }

// Models is how many times a worker holds a stage: for every pipeline, and for the reference if there is one.
func (j *Job) Models() int {
	if n := j.Together(); n > 1 {
		return n + 1
	}
	return 1
}

// shown is the pipeline whose weights are evaluated and kept.
func (j *Job) shown() int16 { return int16(j.Models() - 1) }

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
	for p := range w.job.Together() {
		at := h.position
		at.pipeline = int16(p)
		all = append(all, w.held[at])
	}
	return all
}

// measureApart notes how far this reference is from the average of its pipelines.
func (w *worker) measureApart(h *holding) error {
	apart, err := h.updates.Apart()
	if err != nil {
		return err
	}
	w.x.mu.Lock()
	defer w.x.mu.Unlock()
	w.x.tested.Apart = max(w.x.tested.Apart, apart)
	return nil
}

// tensorName is what a checkpoint calls a tensor of a pipeline: its own name where one
// model is all there is, and for the reference, so that whoever reads one model reads that.
func (j *Job) tensorName(pipeline int16, name string) string {
	if pipeline == j.shown() {
		return name
	}
	return pipelineTensor(int(pipeline), name)
}

// stageFile is the file of a checkpoint that a stage of a pipeline is in.
func (j *Job) stageFile(p position) string {
	if p.pipeline == j.shown() {
		return fmt.Sprintf("stage-%03d.safetensors", p.stage)
	}
	return fmt.Sprintf("stage-%03d-pipeline-%02d.safetensors", p.stage, p.pipeline)
}
