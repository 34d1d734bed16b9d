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

// Pipelines side by side in a run. A worker holds every stage it has
// once for each pipeline, and once for their reference. A step is an iteration: a batch of each
// pipeline. Pipeline p of N trains on batch tN+p of the data in iteration t, with the masks of a step
// of that number, so that no two pipelines see the same. Evaluations, and the weights that a run
// leaves, are the reference's; checkpoints have all of them.

// Together is how many pipelines train side by side.
func (j *Job) Together() int { return j.Plan.Together() }

// Models is how many times there is a stage: for every pipeline, and for the reference or a server if there is one.
func (j *Job) Models() int {
	if n := j.Together(); n > 1 || j.Served() {
		return n + 1
	}
	return 1
}

// shown is the pipeline whose weights are evaluated and kept.
func (j *Job) shown() int16 { return int16(j.Models() - 1) }

// pipelines is the stages of all pipelines that the reference h is the average of.
func (h *holding) pipelines() []*holding {
	var all []*holding
	for p := range h.w.job.Together() {
		at := h.at
		at.pipeline = int16(p)
		all = append(all, h.w.held[at])
	}
	return all
}

// measureApart notes how far this reference is from the average of its pipelines.
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

// tensorName is the name in a checkpoint of a pipeline's tensor. With a single model, and for the reference, it is the
// tensor's own name; so a reader of one model gets the reference.
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

// Going on with another number of pipelines (Config.Resume.Averaged). The reference of a
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

// pipelineTensor is the name in a checkpoint of a tensor of a pipeline other than the one shown.
func pipelineTensor(pipeline int, name string) string {
	return checkpoint.PipelinePrefix(pipeline) + name
}

// Weights that one worker holds for all others (schedule, ASP). Pipeline 1 is the weights; workers of pipeline 0 have
// parameters that they fetch, and no optimizer. A step is a minibatch of one of them. What a run leaves, saves and
// evaluates is the server's.

// Served says whether one worker holds the weights for the others.
func (j *Job) Served() bool { return schedule.Policy(j.Plan.Weights).Served() }

// Server is the worker that does: the last of the stage.
func (j *Job) Server() int { return j.Placement[0][len(j.Placement[0])-1] }

// Shown is the workers by stage whose weights are evaluated and saved.
func (j *Job) Shown() [][]int {
	if j.Served() {
		return [][]int{{j.Server()}}
	}
	return j.Placement
}

// placeServed is what a worker of a run holds whose weights one worker has.
func (j *Job) placeServed(worker int) []position {
	if worker == j.Server() {
		return []position{{pipeline: j.shown()}}
	}
	if r := slices.Index(j.Placement[0], worker); r >= 0 {
		return []position{{replica: int16(r)}}
	}
	return nil
}

// serving is a stage whose weights one worker holds for others, on a side of it: the updates that the server has made
// in the Program under way, and how many of them were in the weights that each minibatch was sent.
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

// take takes gradients at the server, or weights from it.
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

// applies notes an update of a server, in the order in which they are made.
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
