// Package trace defines the Timeline, the record that both sim and run write.
//
// In: events as they happen, on a virtual or a real clock. Out: a value that can be saved as versioned JSON, compared
// and drawn. Refused: files of another version, events that end before they start, workers out of range, times that are
// not numbers.
//
// A run in several processes records where each worker was, and how exactly the processes' clocks agree. All times are
// on one clock. If times of two processes are closer than the clocks' error, their order is unknown.
//
// A Timeline can compute how long each worker computed and what part of a step was bubble. It can find the step whose
// time is nearest to a given time, cut out a step, and say for each gap of a worker why it waited (AllGaps). The
// package does not depend on schedule. It stores an instruction as its text, and looks up its kind in internal/kind.
//
// Steps count from 0 here, in memory and in the JSON form, and wherever code computes. In texts for people and in files
// for other tools they count from 1. StepNumber and StepIndex convert between the two.
package trace

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/internal/kind"
)

// Version is the version of the JSON form.
const Version = 1

// StepNumber returns the number of a step in texts: the step with index 0 is step 1. So 400 steps are done after step
// 400. The name of a checkpoint has the same number.
func StepNumber(index int) int { return index + 1 }

// StepIndex returns the index of the step with this number in texts.
func StepIndex(number int) int { return number - 1 }

// Event is one instruction on one worker. Times are seconds since the Timeline began.
type Event struct {
	Worker      int     `json:"worker"`
	Lane        Lane    `json:"lane"`
	Instruction string  `json:"instruction"` // the instruction's text, with absolute ids
	Kind        string  `json:"kind"`        // letters of its kind: F, B, SF, ...
	Step        int     `json:"step"`
	ReadyS      float64 `json:"ready_s"` // when the worker reached the instruction in its list
	StartS      float64 `json:"start_s"`
	EndS        float64 `json:"end_s"`
	Bytes       int64   `json:"bytes,omitempty"`
	// BlockedBy is what the event waited for between ReadyS and StartS: an instruction's text, ByCore, ByLink or
	// ByDrain. It is empty if the event did not wait.
	BlockedBy string `json:"blocked_by,omitempty"`
}

// What an event can wait for, other than an instruction.
const (
	ByCore  = "core"  // all cores were computing for other workers
	ByLink  = "link"  // another transfer was on the link
	ByDrain = "drain" // not all workers had reached the drain yet
)

// Lane is the part of a worker that an event occupies.
type Lane = kind.Lane

// The lanes. A worker computes and moves data at the same time. Its second thread, if it has one, updates a reference
// model in the lane Beside.
const (
	Compute = kind.Compute
	Comm    = kind.Comm
	Beside  = kind.Beside
)

// MemorySample is the number of bytes that a worker holds at the time AtS.
type MemorySample struct {
	Worker int     `json:"worker"`
	AtS    float64 `json:"at_s"`
	Bytes  int64   `json:"bytes"`
}

// StepMark is one training step: from the first compute start to the last update's end.
type StepMark struct {
	Step   int     `json:"step"`
	StartS float64 `json:"start_s"`
	EndS   float64 `json:"end_s"`
}

// Computed is how long each worker computed in one step, in seconds.
type Computed struct {
	Step  int       `json:"step"`
	BusyS []float64 `json:"busy_s"` // by worker
}

// Loss is the mean loss over the samples of one step.
type Loss struct {
	Step  int     `json:"step"`
	Value float64 `json:"value"`
}

// Applied is an update with the gradients of one step. These gradients were computed with the weights that resulted
// from the first Version updates of the training. The update's staleness is its own number minus Version.
type Applied struct {
	Step    int `json:"step"`
	Version int `json:"version"`
}

// Seen is a pipeline's update of one stage in a step of elastic averaging, with the reference beside the pipelines.
// Version is the number of updates of the reference before the pipeline was pulled towards it.
type Seen struct {
	Step     int `json:"step"`
	Stage    int `json:"stage"`
	Pipeline int `json:"pipeline"`
	Version  int `json:"version"`
}

// Evaluation is the result on held-out data with the weights after Step.
type Evaluation struct {
	Step    int     `json:"step"`
	Loss    float64 `json:"loss"`              // mean over the samples
	Correct int     `json:"correct,omitempty"` // how many predictions were right, of Samples
	// Samples is the number of predictions: samples, or tokens for language models. It is 0 if the model does not count
	// correct predictions.
	Samples int `json:"samples"`
	// Reported holds what an imported model returns in addition to its loss, by name: means over the samples. A value
	// that was not a finite number is nil.
	Reported map[string]*float64 `json:"reported,omitempty"`
	// Apart says how far the reference of several pipelines was from the average of its pipelines. It is the largest
	// difference of any parameter, divided by the largest value on its stage. nil means that there is no reference.
	Apart *float64 `json:"reference_apart,omitempty"`
}

// Accuracy returns the fraction of correct predictions, from 0 to 1.
func (e Evaluation) Accuracy() float64 {
	if e.Samples <= 0 {
		return 0
	}
	return float64(e.Correct) / float64(e.Samples)
}

// Said returns the Reported values as text, each with its name after a comma. A value from 0 to 1 that a model calls
// accuracy is written as a percentage, like the accuracy that millrace counts.
func (e Evaluation) Said() string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(e.Reported)) {
		v := e.Reported[name]
		switch {
		case v != nil && name == "accuracy" && *v >= 0 && *v <= 1:
			text += fmt.Sprintf(", accuracy %.2f %%", 100**v)
		case v != nil:
			text += fmt.Sprintf(", %s %.4g", name, *v)
		default:
			text += fmt.Sprintf(", %s not finite", name)
		}
	}
	return text
}

// Straggler is a worker that in many steps computed slower than its profile says and slower than the other workers.
type Straggler struct {
	Worker int     `json:"worker"`
	From   int     `json:"from"`   // the first step in which the worker was slow
	To     int     `json:"to"`     // the last step in which the worker was slow
	Times  float64 `json:"times"`  // its computing time when it was noticed, as a multiple of its profile's
	Others float64 `json:"others"` // the same multiple for the other workers
	// LastTimes is the multiple when the worker was last noticed; 0 means that it was noticed only once.
	LastTimes float64 `json:"last_times,omitempty"`
}

// Process is one of the processes of a run.
type Process struct {
	Host string `json:"host,omitempty"`
	// A time t of the process's own clock is t (1 + Drift) + OffsetS on process 0's clock. The error is at most ErrorS
	// seconds.
	OffsetS float64 `json:"offset_s,omitempty"`
	Drift   float64 `json:"drift,omitempty"` // seconds per second
	ErrorS  float64 `json:"error_s,omitempty"`
}

// Place is where a worker was.
type Place struct {
	Process int `json:"process"`
	Device  int `json:"device"` // number of the device in its process
}

// Pool is a set of workers that share this many cores.
type Pool struct {
	Cores   int   `json:"cores"`
	Workers []int `json:"workers"`
}

// Timeline is a run, real or simulated. Its fields are those of a Timeline's file, and its methods check, cut or
// measure what they record.
type Timeline struct {
	Version          int            `json:"version"`
	Source           string         `json:"source"` // "sim" or "run"
	Model            string         `json:"model,omitempty"`
	Workers          int            `json:"workers"`
	Stages           int            `json:"stages"`
	Cores            int            `json:"cores,omitempty"` // cores that workers share; 0: one for each, or see Pools
	Pools            []Pool         `json:"pools,omitempty"`
	ThreadsPerWorker int            `json:"threads_per_worker,omitempty"`
	Stream           bool           `json:"stream,omitempty"`    // a step begins before the one before it has ended
	Processes        []Process      `json:"processes,omitempty"` // by number; empty: one process, on a host without a name
	Places           []Place        `json:"places,omitempty"`    // by worker; empty if Processes is empty
	Events           []Event        `json:"events"`
	Memory           []MemorySample `json:"memory,omitempty"`
	PeakBytes        []int64        `json:"peak_bytes,omitempty"`       // by worker
	PeakActivations  []int          `json:"peak_activations,omitempty"` // by worker: the most micro-batches held at once
	Steps            []StepMark     `json:"steps,omitempty"`
	Computed         []Computed     `json:"computed,omitempty"` // also of steps whose events are not kept
	Losses           []Loss         `json:"losses,omitempty"`
	Applied          []Applied      `json:"applied,omitempty"` // in order; only of a run in which one worker holds the weights
	Seen             []Seen         `json:"seen,omitempty"`    // only of a run with a reference beside its pipelines
	Evaluations      []Evaluation   `json:"evaluations,omitempty"`
	Rounded          []Rounded      `json:"rounded,omitempty"` // by stage and kind; only if stages round what they send
	Stragglers       []Straggler    `json:"stragglers,omitempty"`
}
