package run

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/pace"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// leader decides what a run does next, using only what the processes report. It runs on one goroutine. It has a method
// for each step of a run and each message of a process. Most of these methods concern several parts of the leader.
type leader struct {
	job      *process.Job
	config   *Config
	state    *control.Leader
	progress *control.Progress
	peers    peers
	inbox    *inbox
	hooks    *hookQueue
	silence  silence
	paces    paces
	under    underway
	tests    evaluating
	saves    saves

	stop     <-chan struct{} // closed when the run is to stop; nil once that was noticed
	done     int             // steps done in the whole training
	span     int             // most steps of the next Program
	loss     float64
	stopping bool // no further step may begin
	stopped  bool // the run has stopped before its last step
	begun    bool // Config.Begin is not to be called again
}

// peers holds the processes, the leader's own first, and what each has sent. Its slices are indexed by process.
type peers struct {
	links   []control.Link
	hosts   int               // number of hosts
	asBytes bool              // some workers exchange messages as bytes, as workers of different processes do
	began   time.Time         // time 0 of the clock of the leader's own process
	clocks  []control.Clock   // relative to the clock of the leader's own process
	asked   []time.Time       // time of the last Beat
	shown   []*trace.Timeline // answers to a Show that not all processes have answered yet
	records [][]control.Record
	left    []control.Left
}

// silence records how long no message has come, and what was done about it.
type silence struct {
	beat  *time.Ticker
	told  time.Time     // when a message that must be answered was last sent to the processes
	held  func() string // describes what keeps the leader's own process from leaving
	hung  error         // the error if the leader's own process has not left; otherwise nil
	hangs bool          // a device of some process hangs, so waits are cut short
	quiet time.Duration // duration that OnQuiet was last called with
	late  overdue
}

// paces is the state of the search for stragglers.
type paces struct {
	watch      *pace.Watch // nil means no search
	stragglers []trace.Straggler
	slow       map[int]int // by worker: index in stragglers of an entry that has not ended
}

// underway describes the Program that is running.
type underway struct {
	program *schedule.Program
	trains  bool // it trains, unlike an evaluation or a save
	length  int  // number of the Program's minibatches
	whole   int  // number of its complete minibatches
}

// evaluating holds the running evaluation and the earlier ones.
type evaluating struct {
	results []control.Tested // by micro-batch
	apart   float64
	all     []trace.Evaluation
}

// saves holds the checkpoint that is being written, and what is known of other checkpoints.
type saves struct {
	run    uint64        // number of this run, part of its drafts' names
	saved  control.Saved // what processes have written so far
	draft  string        // name of a checkpoint that is not complete yet; empty if none
	epochs epochs        // checkpoints that stages save by themselves
	others bool          // processes have checkpoint folders other than the leader's
	last   string        // path of this run's last checkpoint, or of the one that it resumed from if no step was left
	at     int           // number of steps of this run's last checkpoint; -1 means none yet
}

// newLeader returns a leader of the processes at the other ends of the links. Its clock is 0 at the time `began`.
func newLeader(ctx context.Context, c *Config, j *process.Job, links []control.Link, began time.Time) *leader {
	of := j.World.WorkersOf()
	l := &leader{
		job: j, config: c, state: control.NewLeader(len(of), len(j.World.Workers)),
		progress: control.NewProgress(of, j.Plan.MicroBatches*j.Together()*j.LastReplicas()),
		peers: peers{links: links, began: began, clocks: make([]control.Clock, len(of)), asked: make([]time.Time, len(of)),
			records: make([][]control.Record, len(of)), left: make([]control.Left, len(of)),
			shown: make([]*trace.Timeline, len(of)),
			hosts: len(slices.Compact(slices.Sorted(slices.Values(j.World.Hosts))))},
		inbox: &inbox{more: make(chan struct{}, 1)},
		silence: silence{beat: time.NewTicker(max(c.Watch.StallAfter/8, time.Millisecond)), told: time.Now(),
			late: newOverdue(c.Watch.LateAfter)},
		saves: saves{at: -1, run: rand.Uint64()},
		stop:  ctx.Done(), span: c.longest,
	}
	if j.Plan.PostValidate {
		l.span = 16 * leastRepeat
	}
	if j.From != nil {
		l.done, l.loss = j.From.Manifest.Steps, j.From.Manifest.Loss
	}
	l.hooks = newHookQueue(func(err error) { l.inbox.put(event{failed: err}) })
	for p, link := range links {
		link.Start(func(m control.Message, err error) { l.inbox.put(event{from: p, m: m, at: time.Now(), broken: err}) })
	}
	return l
}
