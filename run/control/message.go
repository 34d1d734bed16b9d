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

// Message is what one process says to another.
type Message struct {
	N     uint64 // of its sender's messages, from 1 on
	From  int    // process
	Epoch uint32 // of the Program that is, or was last, under way; 0: none yet
	Body  Body

	shared *shared // nil: encoded by each Link for itself
}

// shared is the text of a Message that goes over several Links.
type shared struct {
	once sync.Once
	text []byte
	err  error
}

// Shared makes a Message that is encoded once, over however many Links it goes.
func (m Message) Shared() Message {
	m.shared = &shared{}
	return m
}

// encoded is its line.
func (m Message) encoded() ([]byte, error) {
	s := m.shared
	if s == nil {
		return Encode(m)
	}
	s.once.Do(func() { s.text, s.err = Encode(m) })
	return s.text, s.err
}

// Body is what a Message says: one of the types below.
type Body interface{ kind() string }

// Load starts a Program that trains.
type Load struct {
	Program string `json:"program"`         // its text
	Base    int    `json:"base"`            // the step that its minibatch 0 is
	Slots   int    `json:"slots,omitempty"` // messages that may lie with a receiver on an edge; 0: no bound
	Run     uint64 `json:"run,omitempty"`   // whose drafts stages write, where they save themselves in it
}

// Evaluate starts a Program that evaluates behind so many steps.
type Evaluate struct {
	Program string `json:"program"`
	Base    int    `json:"base"`
	Slots   int    `json:"slots,omitempty"`
}

// Save starts a Program that saves what so many steps have left, each stage as files of a draft: a directory of
// that name in each process's folder of checkpoints.
type Save struct {
	Program string `json:"program"`
	Base    int    `json:"base"`
	Slots   int    `json:"slots,omitempty"`
	Draft   string `json:"draft"`
}

// Mark has every process leave a mark in a draft, and Look say whose marks it sees there: processes that see
// each other's have one folder, and the first of them keeps it.
type Mark struct {
	Draft string `json:"draft"`
}

// Look follows Mark.
type Look struct {
	Draft string `json:"draft"`
}

// Commit has the keepers of folders make a draft a checkpoint, by writing its manifest and giving it its name:
// the leader's own process, or with Others all other keepers.
type Commit struct {
	Draft    string `json:"draft"`
	Manifest string `json:"manifest"` // its text
	Others   bool   `json:"others,omitempty"`
}

// Prune has every keeper remove drafts, and its oldest checkpoints beyond those to be kept.
type Prune struct {
	// Behind is how many steps the last draft is of that goes, where a Program is under way in which stages save
	// themselves: those of more are being written. 0: all go.
	Behind int `json:"behind,omitempty"`
}

// Done answers Mark, Look, Commit and Prune.
type Done struct {
	Keeper  int     `json:"keeper,omitempty"`  // of Look: the first process whose mark is seen
	Refused *Failed `json:"refused,omitempty"` // of the first Commit: why the draft has not become a checkpoint
}

// Stop asks how far a Program has been begun. Of a process it says that somebody wants the run to stop.
type Stop struct{}

// Begun answers Stop.
type Begun struct {
	Minibatch int `json:"minibatch"` // the greatest that a worker here has begun; -1: none
}

// Limit says how many minibatches of the Program are done; what lies behind is passed.
type Limit struct {
	Minibatches int `json:"minibatches"`
}

// Reached says that all workers of a process are at a drain, with nothing of theirs under way.
type Reached struct {
	Drain   int `json:"drain"`
	Workers int `json:"workers"`
}

// Release lets a drain through.
type Release struct {
	Drain int `json:"drain"`
}

// Step says that a process's part of a step stands: all its updates. Times are seconds on the process's
// clock.
type Step struct {
	Step    int     `json:"step"`
	StartS  float64 `json:"start_s"`          // of the first computation
	EndS    float64 `json:"end_s"`            // of the last
	Norm    float64 `json:"norm,omitempty"`   // of the gradients, before they are clipped; 0: nobody needs it
	Workers []Did   `json:"workers"`          // of the process
	Losses  []Loss  `json:"losses,omitempty"` // of those that hold the last stage
	// Applied is of the process whose worker holds the weights for the others.
	Applied *Applied `json:"applied,omitempty"`
	// Seen is of stages whose reference is beside its pipelines.
	Seen []Seen `json:"seen,omitempty"`
}

// Applied is the update of a step among all of the training: which it was, and how many there had been in the weights
// that its gradients were computed with.
type Applied struct {
	At      int `json:"at"`
	Version int `json:"version"`
}

// Seen is the update of a pipeline on a stage, and how many updates the reference that it saw had had in the training.
type Seen struct {
	Stage    int `json:"stage"`
	Pipeline int `json:"pipeline"`
	Version  int `json:"version"`
}

// Did is what a worker has computed in a step, and what it holds and has moved behind it.
type Did struct {
	BusyS         float64 `json:"busy_s"`
	PeakBytes     int64   `json:"peak_bytes"`
	LiveBytes     int64   `json:"live_bytes"`
	SentBytes     int64   `json:"sent_bytes"` // to other workers, since the run began
	ReceivedBytes int64   `json:"received_bytes"`
}

// Loss is what a micro-batch, or a replica's slice of it, adds to the loss of its step.
type Loss struct {
	Index int     `json:"index"` // of the slice in its step, in the order in which they are added
	Value float64 `json:"value"`
}

// Result is a process's part of an evaluation.
type Result struct {
	Parts []Tested `json:"parts,omitempty"`
	// Apart is how far references are from the average of their pipelines: the farthest here.
	Apart float64 `json:"apart,omitempty"`
}

// perResult bounds the numbers that a Result reports, and its parts, so that it is far shorter than MaxLine.
const perResult = 1 << 16

// ResultsOf divides a Result into several, one at least.
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

// Tested is what one micro-batch of an evaluation gave.
type Tested struct {
	Index int     `json:"index"`
	Rows  int     `json:"rows"`
	Loss  float64 `json:"loss"` // mean over its rows
	// Correct is how many predictions were right; nil where the model does not count them.
	Correct *float64 `json:"correct,omitempty"`
	// Reported is what the model yields behind its loss, in its order; nil for what is no finite number.
	Reported []*float64 `json:"reported,omitempty"`
}

// Saved is the files that a process has written for a checkpoint.
type Saved struct {
	Steps   int            `json:"steps,omitempty"` // of that of stages which save themselves as a Program trains; 0: of Save's
	Files   []File         `json:"files,omitempty"`
	Updates map[string]int `json:"updates,omitempty"` // by layer, where they are not the steps done
}

// Updated notes how many updates a layer has had.
func (s *Saved) Updated(layer string, n int) {
	if s.Updates == nil {
		s.Updates = map[string]int{}
	}
	s.Updates[layer] = n
}

// File is one of them.
type File struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
	CRC32C  string `json:"crc32c"` // Castagnoli, 8 hex digits
	Tensors int    `json:"tensors"`
	Host    string `json:"host,omitempty"` // as the leader knows it
}

// Ended says that all lists of a process have ended.
type Ended struct {
	Minibatches int     `json:"minibatches"`       // done
	Refused     *Failed `json:"refused,omitempty"` // why the last update was taken back for good
	PeakBytes   []int64 `json:"peak_bytes"`        // by worker of the process
}

// Ready says that a process's workers are open.
type Ready struct{}

// Beat asks a process for its Needs.
type Beat struct{}

// Needs is what the workers of a process wait for.
type Needs struct {
	AtS     float64 `json:"at_s"`           // what the process's clock says
	QuietS  float64 `json:"quiet_s"`        // for so long nothing has happened
	Owes    bool    `json:"owes,omitempty"` // the process is getting ready, or carries out an order
	Running bool    `json:"running,omitempty"`
	Ended   bool    `json:"ended,omitempty"` // all lists have
	Stuck   bool    `json:"stuck,omitempty"` // nobody here can ever move, and there is no other process
	Waits   []Wait  `json:"waits,omitempty"`
}

// Wait is what one worker waits for, and for how long it has. One that lacks nothing but its own end
// (machine.Running) is at an instruction.
type Wait struct {
	Worker int                  `json:"worker"`
	At     schedule.Instruction `json:"at"`
	Lack   machine.Lack         `json:"lack"`
	For    string               `json:"for,omitempty"` // an instruction
	Peer   int                  `json:"peer,omitempty"`
	Waited time.Duration        `json:"waited_ns"`
	Since  time.Duration        `json:"since_ns"` // on the process's clock
}

// Failed says why a run is over.
type Failed struct {
	Process int        `json:"process"`
	Text    string     `json:"text"`
	Class   string     `json:"class,omitempty"` // what kind of error it is, as whoever drives this has it
	Lost    *LostError `json:"lost,omitempty"`  // where that is why
	Err     error      `json:"-"`               // itself, where it has not left its process
}

// Error is its text.
func (f *Failed) Error() string { return f.Text }

// Unwrap is the error itself, if it is of this process, or the LostError that it is.
func (f *Failed) Unwrap() error {
	if f.Err == nil && f.Lost != nil {
		return f.Lost
	}
	return f.Err
}

// Ask has a process do something before the run, by name, and answer.
type Ask struct {
	Name string          `json:"name"`
	With json.RawMessage `json:"with,omitempty"`
}

// Answer is what came of an Ask.
type Answer struct {
	With   json.RawMessage `json:"with,omitempty"`
	Failed *Failed         `json:"failed,omitempty"`
}

// Begin is the last that is said before the run.
type Begin struct{}

// Dismiss sends a process away without a run.
type Dismiss struct {
	Failed *Failed `json:"failed,omitempty"` // why, where something is wrong
}

// Show asks a process for its record of a step that stands, while the run goes on.
type Show struct {
	Step   int  `json:"step"`
	Around bool `json:"around,omitempty"` // and of the others that it still has: they overlap
}

// Shown answers Show.
type Shown struct {
	Step int `json:"step"`
	// Timeline has the events, on the process's clock; nil where it has them no more, or they are too many to be sent
	// while the run goes on.
	Timeline *trace.Timeline `json:"timeline,omitempty"`
}

// MostShown bounds the events of a Shown, and its samples of memory.
const MostShown = perRecord

// Leave ends a process's part in the run.
type Leave struct {
	Stopped bool   `json:"stopped,omitempty"` // before its last step, as somebody wanted
	Draft   string `json:"draft,omitempty"`   // that will not become a checkpoint, and is to be removed
	// Drafts are those that stages had begun, and that will not become one either.
	Drafts []string `json:"drafts,omitempty"`
}

// Record is a part of a process's record; all parts, merged, are the whole.
type Record struct {
	Timeline *trace.Timeline `json:"timeline"`
}

// perRecord bounds the events of a Record, and its samples of memory, so that it is far shorter than MaxLine.
const perRecord = 1 << 14

// RecordsOf divides a Timeline into Records, one at least.
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
		part.PeakBytes, part.PeakActivations, part.Steps, part.Computed = nil, nil, nil, nil // said
		part.Losses, part.Evaluations, part.Rounded = nil, nil, nil
	}
}

// Left is what a process leaves, behind its Records.
type Left struct {
	Leaked int     `json:"leaked,omitempty"` // handles still open as its devices were closed
	Due    *Due    `json:"due,omitempty"`    // where a process was lost: what it waited for of that one
	Failed *Failed `json:"failed,omitempty"` // what went wrong as it left
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
