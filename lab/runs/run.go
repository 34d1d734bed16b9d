package runs

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
)

// subject is a model with its data, optimizer and batch.
type subject struct {
	Model        []string // flags of all verbs that read the model
	Optimizer    []string // flags of train, and of profile, which counts the optimizer's state
	Train        []string // flags only of train
	Layers       int
	Batch        int
	MicroBatches int
}

// layout says which layers form a stage, which workers hold it, and in which order they work.
type layout struct {
	Schedule     string
	Weights      string  // a weight policy; "": sync
	Cuts         []int   // first layers of stages 1, 2, ...
	On           [][]int // workers of each stage; nil: stage i on worker i
	Rows         bool    // replicas split the rows of micro-batches; otherwise they take whole micro-batches in turn
	Recompute    string
	Warmup       []int // by stage: forwards before the first backward; nil: the schedule's own numbers
	Batch        int   // 0: the subject's
	MicroBatches int   // 0: the subject's
	Pipelines    int
	Alpha        float64 // 0: 1/Pipelines
	Printed      bool    // uses the paper's order of elastic averaging
}

// leg is a training from one checkpoint to the next, or from the beginning.
type leg struct {
	layout
	Steps int
	Flags []string // flags of train
	// Program holds arguments of `millrace schedule`. The text that this command prints is trained instead of a plan's
	// schedule. If Program is empty and Schedule is "", the whole plan is in Flags.
	Program []string
}

// run is one line of the list.
type run struct {
	Name    string // says what the run tests
	Subject string
	leg
	// Like is the run whose tensors must equal this run's bit by bit.
	Like string
	// Then is the leg that resumes from the first leg's checkpoint, if there is one.
	Then *leg
}

func (r run) legs() []leg {
	if r.Then == nil {
		return []leg{r.leg}
	}
	return []leg{r.leg, *r.Then}
}

// workers returns how many workers a layout needs.
func (l layout) workers() int {
	most := 0
	for _, on := range l.places() {
		most = max(most, slices.Max(on)+1)
	}
	return most
}

// places returns On with its default filled in.
func (l layout) places() [][]int {
	if l.On != nil {
		return l.On
	}
	var on [][]int
	for i := range len(l.Cuts) + 1 {
		on = append(on, []int{i})
	}
	return on
}

// planFile is the part of a plan's JSON that says how to train. It is written without the code under test, and has only
// fields that every version of that code reads.
type planFile struct {
	Version      int          `json:"version"`
	Model        string       `json:"model"`
	ModelID      string       `json:"model_id"`
	Cluster      string       `json:"cluster"`
	Stages       []planStage  `json:"stages"`
	Replication  string       `json:"replication"`
	MicroBatch   int          `json:"micro_batch"`
	MicroBatches int          `json:"micro_batches"`
	Schedule     string       `json:"schedule"`
	Weights      string       `json:"weights"`
	Elastic      *planElastic `json:"elastic,omitempty"`
	Planner      string       `json:"planner"`
}

type planStage struct {
	First     int    `json:"first_layer"`
	Last      int    `json:"last_layer"`
	Devices   []int  `json:"devices"`
	Recompute string `json:"recompute"`
	Warmup    int    `json:"warmup"`
}

type planElastic struct {
	Pipelines int     `json:"pipelines"`
	Alpha     float64 `json:"alpha"`
	Order     string  `json:"order"`
}

// plan returns a layout as a file for `train --plan`, for a model with this name and digest.
func (l layout) plan(s subject, model, id string) ([]byte, error) {
	batch, micro := cmp.Or(l.Batch, s.Batch), cmp.Or(l.MicroBatches, s.MicroBatches)
	if batch%micro != 0 {
		return nil, fmt.Errorf("a batch of %d in %d micro-batches", batch, micro)
	}
	p := planFile{
		Version: 1, Model: model, ModelID: id, Cluster: "local", Replication: "round_robin", Planner: "lab",
		MicroBatch: batch / micro, MicroBatches: micro, Schedule: l.Schedule, Weights: cmp.Or(l.Weights, "sync"),
	}
	if l.Rows {
		p.Replication = "split"
	}
	if l.Pipelines > 0 {
		alpha := cmp.Or(l.Alpha, 1/float64(l.Pipelines))
		p.Elastic = &planElastic{Pipelines: l.Pipelines, Alpha: alpha, Order: "dilute_first"}
		if l.Printed {
			p.Elastic.Order = "printed"
		}
	}
	first := append([]int{0}, l.Cuts...)
	for i, on := range l.places() {
		st := planStage{First: first[i], Last: s.Layers - 1, Devices: on, Recompute: cmp.Or(l.Recompute, "none")}
		if i+1 < len(first) {
			st.Last = first[i+1] - 1
		}
		if l.Warmup != nil {
			st.Warmup = l.Warmup[i]
		}
		p.Stages = append(p.Stages, st)
	}
	return json.MarshalIndent(p, "", "  ")
}

// digest returns a hash of a list, its subjects and its input files. The hashes of the runs depend on all of these.
func digest(list []run, subjects map[string]subject) string {
	text, err := json.Marshal(struct {
		Runs     []run
		Subjects map[string]subject
		Files    map[string]string
	}{list, subjects, inputs()})
	if err != nil {
		panic(err) // cannot happen: the list is plain values
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}
