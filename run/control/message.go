package control

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/trace"
)

// Message is a message of one process to another.
type Message struct {
	N     uint64 // its number among the sender's messages, from 1 on
	From  int    // number of the sending process
	Epoch uint32 // epoch of the current or last Program; 0 before the first
	Body  Body

	shared *shared // nil if each Link encodes the message itself
}

// shared is the text of a Message that is sent over several Links.
type shared struct {
	once sync.Once
	text []byte
	err  error
}

// Shared returns a Message that is encoded only once for all Links.
func (m Message) Shared() Message {
	m.shared = &shared{}
	return m
}

// encoded returns the Message as a line.
func (m Message) encoded() ([]byte, error) {
	s := m.shared
	if s == nil {
		return Encode(m)
	}
	s.once.Do(func() { s.text, s.err = Encode(m) })
	return s.text, s.err
}

// Body is the content of a Message: one of the types below.
type Body interface{ kind() string }

// Load starts a Program that trains.
type Load struct {
	Program string `json:"program"`         // the Program's text
	Base    int    `json:"base"`            // the step of its minibatch 0
	Slots   int    `json:"slots,omitempty"` // messages that may wait at the receiver of an edge; 0 means no bound
	Run     uint64 `json:"run,omitempty"`   // if stages save themselves: the run whose drafts they write
}

// Evaluate starts a Program that evaluates after Base steps.
type Evaluate struct {
	Program string `json:"program"`
	Base    int    `json:"base"`
	Slots   int    `json:"slots,omitempty"`
}

// Save starts a Program that saves the state after Base steps. Each stage writes its files into the draft: the
// directory named Draft in its process's checkpoint folder.
type Save struct {
	Program string `json:"program"`
	Base    int    `json:"base"`
	Slots   int    `json:"slots,omitempty"`
	Draft   string `json:"draft"`
}

// Mark makes every process leave a mark in a draft. Processes that then see each other's marks there (Look) share a
// folder, and the first of them keeps it.
type Mark struct {
	Draft string `json:"draft"`
}

// Look asks each process, after Mark, for the first process whose mark it sees in the draft.
type Look struct {
	Draft string `json:"draft"`
}

// Commit makes the keepers of folders turn a draft into a checkpoint: they write its manifest and rename it. If Others
// is not set, Commit is for the leader's own process. If Others is set, it is for all other keepers.
type Commit struct {
	Draft    string `json:"draft"`
	Manifest string `json:"manifest"` // the manifest's text
	Others   bool   `json:"others,omitempty"`
}

// Prune makes every keeper remove drafts, and its oldest checkpoints beyond those to be kept. Before the first Prune,
// each keeper prepares its folder for this run.
type Prune struct {
	// Behind limits the drafts to remove to those of at most this many steps; 0 means all. It is set while stages save
	// themselves in a running Program, which writes drafts of more steps.
	Behind int `json:"behind,omitempty"`
}

// Done answers Mark, Look, Commit and Prune.
type Done struct {
	Keeper  int     `json:"keeper,omitempty"`  // for Look: the first process whose mark is seen
	Refused *Failed `json:"refused,omitempty"` // for the first Commit: why the draft has not become a checkpoint
}

// Stop asks how far workers have begun the Program. If a process sends it, it asks the leader to send a Stop.
type Stop struct{}

// Begun answers Stop.
type Begun struct {
	Minibatch int `json:"minibatch"` // the greatest minibatch that a worker of the process has begun; -1 means none
}

// Limit says after how many minibatches the Program ends; later ones are skipped.
type Limit struct {
	Minibatches int `json:"minibatches"`
}

// Reached says that all workers of a process are at a drain, with nothing in flight.
type Reached struct {
	Drain   int `json:"drain"`
	Workers int `json:"workers"`
}

// Release lets the workers pass a drain.
type Release struct {
	Drain int `json:"drain"`
}

// Step says that a process's part of a step is complete, with all its updates. Times are seconds on the process's
// clock.
type Step struct {
	Step    int     `json:"step"`
	StartS  float64 `json:"start_s"`          // start of the first computation
	EndS    float64 `json:"end_s"`            // end of the last computation
	Norm    float64 `json:"norm,omitempty"`   // norm of the gradients before clipping; 0 if not needed
	Workers []Did   `json:"workers"`          // what the process's workers did
	Losses  []Loss  `json:"losses,omitempty"` // from the workers that hold the last stage
	// Applied is set by the process of the server (asp).
	Applied *Applied `json:"applied,omitempty"`
	// Seen is set for stages whose reference is kept beside the pipelines.
	Seen []Seen `json:"seen,omitempty"`
}

// Applied describes the update of a step. At is the update's number in the training. Version is the number of updates
// in the weights that the step's gradients were computed with.
type Applied struct {
	At      int `json:"at"`
	Version int `json:"version"`
}

// Seen says which version of the reference a pipeline used in its update of a stage. Version is the number of updates
// in that reference.
type Seen struct {
	Stage    int `json:"stage"`
	Pipeline int `json:"pipeline"`
	Version  int `json:"version"`
}

// Did holds a worker's numbers after a step: its computing time in the step, its memory, and its traffic.
type Did struct {
	BusyS         float64 `json:"busy_s"`
	PeakBytes     int64   `json:"peak_bytes"`
	LiveBytes     int64   `json:"live_bytes"`
	SentBytes     int64   `json:"sent_bytes"` // to other workers, since the run began
	ReceivedBytes int64   `json:"received_bytes"`
}

// Loss is what a micro-batch, or a replica's slice of it, adds to the loss of its step.
type Loss struct {
	Index int     `json:"index"` // index of the slice in its step; losses are added in this order
	Value float64 `json:"value"`
}

// Result is a process's part of an evaluation.
type Result struct {
	Parts []Tested `json:"parts,omitempty"`
	// Apart is the largest distance of a reference in this process from the average of its pipelines.
	Apart float64 `json:"apart,omitempty"`
}

// perResult limits the parts and numbers of a Result, counted together, so that its line stays far below MaxLine.
const perResult = 1 << 16

// ResultsOf divides a Result into several, at least one.
func ResultsOf(r Result) []Result {
	all := []Result{{Apart: r.Apart}}
	each := perResult
	if len(r.Parts) > 0 {
		each = max(1, perResult/(1+len(r.Parts[0].Reported)))
	}
	for parts := range slices.Chunk(r.Parts, each) {
		if last := &all[len(all)-1]; last.Parts == nil {
			last.Parts = parts
			continue
		}
		all = append(all, Result{Parts: parts})
	}
	return all
}

// Tested is the result of one micro-batch of an evaluation.
type Tested struct {
	Index int     `json:"index"`
	Rows  int     `json:"rows"`
	Loss  float64 `json:"loss"` // mean over its rows
	// Correct is how many predictions were right; nil if the model does not count them.
	Correct *float64 `json:"correct,omitempty"`
	// Reported holds the other outputs of the model, in the model's order; nil for one that is not finite.
	Reported []*float64 `json:"reported,omitempty"`
}

// Saved lists the files that a process has written for a checkpoint.
type Saved struct {
	Steps   int            `json:"steps,omitempty"` // steps done, if stages save themselves; 0 in the answer to a Save
	Files   []File         `json:"files,omitempty"`
	Updates map[string]int `json:"updates,omitempty"` // by layer, where they differ from the steps done
}

// Updated records how many updates a layer has had.
func (s *Saved) Updated(layer string, n int) {
	if s.Updates == nil {
		s.Updates = map[string]int{}
	}
	s.Updates[layer] = n
}

// File describes a file of a checkpoint.
type File struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
	CRC32C  string `json:"crc32c"` // Castagnoli, 8 hex digits
	Tensors int    `json:"tensors"`
	Host    string `json:"host,omitempty"` // set by the leader
}

// Ended says that all workers of a process have come to the end of their lists of instructions.
type Ended struct {
	Minibatches int     `json:"minibatches"`       // number of minibatches done
	Refused     *Failed `json:"refused,omitempty"` // why the last update was taken back and not repeated
	PeakBytes   []int64 `json:"peak_bytes"`        // by worker of the process
}

// Ready says that a process's workers are open.
type Ready struct{}

// Beat asks a process for its Needs.
type Beat struct{}

// Needs says what the workers of a process wait for.
type Needs struct {
	AtS     float64 `json:"at_s"`           // time on the process's clock
	QuietS  float64 `json:"quiet_s"`        // how long nothing has happened
	Owes    bool    `json:"owes,omitempty"` // the process is starting, or carries out an order
	Running bool    `json:"running,omitempty"`
	Ended   bool    `json:"ended,omitempty"` // no Program is running in the process
	Stuck   bool    `json:"stuck,omitempty"` // no worker can ever continue, and there is no other process
	Waits   []Wait  `json:"waits,omitempty"`
}

// Wait says what one worker waits for, and for how long. If Lack is machine.Running, the worker is executing an
// instruction.
type Wait struct {
	Worker int                  `json:"worker"`
	At     schedule.Instruction `json:"at"`
	Lack   machine.Lack         `json:"lack"`
	For    string               `json:"for,omitempty"` // the instruction that the worker waits for
	Peer   int                  `json:"peer,omitempty"`
	Waited time.Duration        `json:"waited_ns"`
	Since  time.Duration        `json:"since_ns"` // on the process's clock
}

// Failed says why a run is over.
type Failed struct {
	Process int        `json:"process"`
	Text    string     `json:"text"`
	Class   string     `json:"class,omitempty"` // the kind of error, as the caller names it
	Lost    *LostError `json:"lost,omitempty"`  // set if a lost process is the reason
	Err     error      `json:"-"`               // the error itself; nil in other processes
}

// Error returns the failure's text.
func (f *Failed) Error() string { return f.Text }

// Unwrap returns the error itself in the process where it occurred; in others the LostError, if there is one.
func (f *Failed) Unwrap() error {
	if f.Err == nil && f.Lost != nil {
		return f.Lost
	}
	return f.Err
}

// Ask makes a process carry out the action Name before the run, and answer.
type Ask struct {
	Name string          `json:"name"`
	With json.RawMessage `json:"with,omitempty"`
}

// Answer is the result of an Ask.
type Answer struct {
	With   json.RawMessage `json:"with,omitempty"`
	Failed *Failed         `json:"failed,omitempty"`
}

// Begin is the last message before the run.
type Begin struct{}

// Dismiss sends a process away without a run.
type Dismiss struct {
	Failed *Failed `json:"failed,omitempty"` // the reason, if there is an error
}

// Show asks a process for its record of a complete step, during the run.
type Show struct {
	Step   int  `json:"step"`
	Around bool `json:"around,omitempty"` // also send the other steps that are still recorded, because steps overlap
}

// Shown answers Show.
type Shown struct {
	Step int `json:"step"`
	// Timeline has the events, on the process's clock. It is nil if they are gone or too many to be sent during the
	// run.
	Timeline *trace.Timeline `json:"timeline,omitempty"`
}

// MostShown limits the events of a Shown, and also its samples of memory.
const MostShown = perRecord

// Leave ends a process's part in the run.
type Leave struct {
	Stopped bool   `json:"stopped,omitempty"` // the run was stopped before its last step
	Draft   string `json:"draft,omitempty"`   // a draft that will not become a checkpoint and is to be removed
	// Drafts are further drafts to be removed, of stages that save themselves.
	Drafts []string `json:"drafts,omitempty"`
}

// Record is a part of a process's record. Merging all parts gives the whole record.
type Record struct {
	Timeline *trace.Timeline `json:"timeline"`
}

// perRecord limits the events of a Record, and also its samples of memory, so that its line stays far below MaxLine.
const perRecord = 1 << 14

// RecordsOf divides a Timeline into Records, at least one.
func RecordsOf(t *trace.Timeline) []Record {
	var all []Record
	part, events, memory := *t, t.Events, t.Memory
	for {
		n, m := min(len(events), perRecord), min(len(memory), perRecord)
		one := part
		one.Events, one.Memory = events[:n:n], memory[:m:m]
		all = append(all, Record{&one})
		if events, memory = events[n:], memory[m:]; len(events)+len(memory) == 0 {
			return all
		}
		part.PeakBytes, part.PeakActivations, part.Steps, part.Computed = nil, nil, nil, nil // the first part has these
		part.Losses, part.Evaluations, part.Rounded = nil, nil, nil
	}
}

// Left is the last message of a process, after its Records.
type Left struct {
	Leaked int     `json:"leaked,omitempty"` // handles still open when its devices were closed
	Due    *Due    `json:"due,omitempty"`    // if a process was lost: what this process awaited from it
	Failed *Failed `json:"failed,omitempty"` // error while leaving
}

func (Load) kind() string     { return "load" }
func (Evaluate) kind() string { return "evaluate" }
func (Save) kind() string     { return "save" }
func (Mark) kind() string     { return "mark" }
func (Look) kind() string     { return "look" }
func (Commit) kind() string   { return "commit" }
func (Prune) kind() string    { return "prune" }
func (Done) kind() string     { return "done" }
func (Stop) kind() string     { return "stop" }
func (Begun) kind() string    { return "begun" }
func (Limit) kind() string    { return "limit" }
func (Reached) kind() string  { return "reached" }
func (Release) kind() string  { return "release" }
func (Step) kind() string     { return "step" }
func (Result) kind() string   { return "result" }
func (Saved) kind() string    { return "saved" }
func (Ended) kind() string    { return "ended" }
func (Ready) kind() string    { return "ready" }
func (Beat) kind() string     { return "beat" }
func (Needs) kind() string    { return "needs" }
func (Failed) kind() string   { return "failed" }
func (Ask) kind() string      { return "ask" }
func (Answer) kind() string   { return "answer" }
func (Begin) kind() string    { return "begin" }
func (Dismiss) kind() string  { return "dismiss" }
func (Show) kind() string     { return "show" }
func (Shown) kind() string    { return "shown" }
func (Leave) kind() string    { return "leave" }
func (Record) kind() string   { return "record" }
func (Left) kind() string     { return "left" }
