package process

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/record"
	"github.com/millrace-ml/millrace/schedule"
)

// This file is about parallel pipelines in a run. A worker holds each of its stages once for every pipeline and once
// for their reference. A step is an iteration: one batch for each pipeline. In iteration t, pipeline p of N trains on
// batch tN+p of the data and uses the dropout masks with this number. So no two pipelines see the same data or masks.
// Evaluations use the reference, and the final weights are its weights. Checkpoints contain all models.

// Together returns how many pipelines train in parallel.
func (j *Job) Together() int { return j.Plan.Together() }

// Models returns how many copies of a stage there are: one per pipeline, and one more for the reference or the
// server if there is one.
func (j *Job) Models() int {
	if n := j.Together(); n > 1 || j.Served() {
		return n + 1
	}
	return 1
}

// shown returns the pipeline whose weights are evaluated and kept.
func (j *Job) shown() int16 { return int16(j.Models() - 1) }

// pipelines returns the stages of all pipelines that the reference h averages.
func (h *holding) pipelines() []*holding {
	var all []*holding
	for p := range h.w.job.Together() {
		at := h.at
		at.pipeline = int16(p)
		all = append(all, h.w.held[at])
	}
	return all
}

// measureApart records the distance of this reference from the average of its pipelines, if it is the largest so far.
func (h *holding) measureApart() error {
	apart, err := h.updates.by.Apart()
	if err != nil {
		return err
	}
	x := h.w.x
	x.mu.Lock()
	defer x.mu.Unlock()
	x.now.tested.Apart = max(x.now.tested.Apart, apart)
	return nil
}

// tensorName returns the name of a pipeline's tensor in a checkpoint. For the shown pipeline, which is the only one,
// the reference or the server, this is the tensor's own name. So a program that expects a single model reads the shown
// one.
func (j *Job) tensorName(pipeline int16, name string) string {
	if pipeline == j.shown() {
		return name
	}
	return pipelineTensor(int(pipeline), name)
}

// stageFile returns the name of a stage's file in a checkpoint.
func (j *Job) stageFile(p position) string {
	if p.pipeline == j.shown() {
		return fmt.Sprintf("stage-%03d.safetensors", p.stage)
	}
	return fmt.Sprintf("stage-%03d-pipeline-%02d.safetensors", p.stage, p.pipeline)
}

// The functions below let a run resume with another number of pipelines (Config.Resume.Averaged). All new pipelines,
// and their reference, begin at the reference of the checkpoint, which is the average of its N pipelines. A single
// pipeline has no reference, because it is its own average; the new pipelines then begin at its weights. So several
// pipelines can resume from plain training, and plain training from several pipelines.
//
// The optimizer's state is averaged too, element by element over the N pipelines. All pipelines have gathered it from
// gradients at similar weights. If the state were empty instead, Adam's bias corrections would have to count updates
// from 0. The data continues with the first unused batch.

// BatchOf returns the batch of the data that a pipeline trains on in a step. The pipelines of a step use successive
// batches, after those that the resumed checkpoint has used.
func (j *Job) BatchOf(step int, pipeline int16) int {
	from, seen := 0, 0
	if j.From != nil {
		from, seen = j.From.Manifest.Steps, int(j.From.Manifest.Samples)/j.Plan.Batch()
	}
	return seen + (step-from)*j.Together() + int(pipeline)
}

// resumed returns a tensor with which a pipeline begins. It comes from the resumed checkpoint. If the checkpoint has
// another number of pipelines, resumed returns the reference's tensor or, for the optimizer's state, an average.
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

// average returns the mean of tensors element by element, summed in the order given, in float64. It reuses the first
// tensor.
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

// pipelineTensor returns the name that a pipeline's tensor has in a checkpoint, if the pipeline is not the shown one.
func pipelineTensor(pipeline int, name string) string {
	return checkpoint.PipelinePrefix(pipeline) + name
}

// The functions below are for weights that one worker holds for all others (schedule, ASP). Pipeline 1 is the server's
// stage. The workers of pipeline 0 fetch their parameters and have no optimizer. A step is one minibatch of one of
// these workers. The final, saved and evaluated weights are the server's.

// Served reports whether one worker holds the weights for the others.
func (j *Job) Served() bool { return schedule.Policy(j.Plan.Weights).Served() }

// Server returns the worker that holds the weights for the others. It is the last worker of the only stage.
func (j *Job) Server() int { return j.Placement[0][len(j.Placement[0])-1] }

// Shown returns, by stage, the workers whose weights are evaluated and saved.
func (j *Job) Shown() [][]int {
	if j.Served() {
		return [][]int{{j.Server()}}
	}
	return j.Placement
}

// placeServed returns what a worker holds if one worker has the weights.
func (j *Job) placeServed(worker int) []position {
	if worker == j.Server() {
		return []position{{pipeline: j.shown()}}
	}
	if r := slices.Index(j.Placement[0], worker); r >= 0 {
		return []position{{replica: int16(r)}}
	}
	return nil
}

// serving is the asp state of a stage, on the server or on a trainer. It counts the server's updates in the current
// Program, and how many of them were in the weights sent for each minibatch.
type serving struct {
	h       *holding
	applied int
	reads   map[int32]int // by minibatch
}

// begin resets the counts for the next Program.
func (s *serving) begin() {
	s.applied = 0
	clear(s.reads)
}

// give sends gradients to the server, or weights from it.
func (s *serving) give(in schedule.Instruction) (int64, error) {
	given := s.h.stage.Gradients.Give
	if in.Kind == schedule.SW {
		given = s.h.stage.Params.Copies
		s.reads[in.Micro] = s.applied
	}
	tensors, err := given()
	if err != nil {
		return 0, err
	}
	w := s.h.w
	to := w.x.now.program.Receivers(in)[0]
	return s.h.cuts.dispatch(in, to, tensors, w.mail.departs(in, []int{to}))
}

// take receives gradients at the server, or weights from it.
func (s *serving) take(in schedule.Instruction) (int64, error) {
	m := &s.h.w.mail
	a, err := m.take(m.messages[0])
	if err != nil {
		return 0, err
	}
	size := a.Bytes()
	got, err := s.h.cuts.unpack(in, a.Parts)
	if err != nil {
		return size, err
	}
	if in.Kind == schedule.RG {
		return size, s.h.stage.Gradients.Take(got)
	}
	return size, s.h.stage.TakeWeights(got)
}

// applies records an update of a server. It is called in the order of the updates.
func (s *serving) applies(in schedule.Instruction) {
	x := s.h.w.x
	read := s.reads[in.Micro]
	delete(s.reads, in.Micro)
	x.mu.Lock()
	defer x.mu.Unlock()
	base := x.now.base
	x.ledger.record.Applied(base+int(in.Micro), record.Applied{At: base + s.applied, Version: base + read})
	s.applied++
}
