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

// leader decides what a run does next, from what the processes say alone. It runs on one goroutine. It has a method for
// each step of a run and each message of a process, most of which concern several of its parts.
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

	stop     <-chan struct{} // closed when the run is to stop; nil once it is heard
	done     int             // steps, in all
	span     int             // steps of the next Program, at most
	loss     float64
	stopping bool // no further step is to be begun
	stopped  bool // and so it was
	begun    bool // Config.Begin was called, if there is one
}

// peers is the processes, the leader's own first, with what each has sent. Its slices are by process.
type peers struct {
	links   []control.Link
	hosts   int               // there are so many
	asBytes bool              // messages between some workers travel as bytes, as they do between processes
	began   time.Time         // when the leader's own process's clock was 0
	clocks  []control.Clock   // relative to that one
	asked   []time.Time       // at the last Beat
	shown   []*trace.Timeline // of the last Show that is not answered by all
	records [][]control.Record
	left    []control.Left
}

// silence keeps how long nothing has been heard, and what was done about it.
type silence struct {
	beat  *time.Ticker
	told  time.Time     // when the processes were last told of what they owe an answer to
	held  func() string // what keeps the leader's own process from leaving
	hung  error         // it has not left
	hangs bool          // a device of some process does, so that nobody is waited for any more
	quiet time.Duration // that OnQuiet was last told of
	late  overdue
}

// paces is the search for stragglers.
type paces struct {
	watch      *pace.Watch // nil: nobody looks
	stragglers []trace.Straggler
	slow       map[int]int // index in stragglers of those that still are, by worker
}

// underway is the Program under way.
type underway struct {
	program *schedule.Program
	trains  bool // it is training
	length  int  // its minibatches
	whole   int  // those that are
}

// evaluating is the evaluation under way, and those before it.
type evaluating struct {
	results []control.Tested // by micro-batch
	apart   float64
	all     []trace.Evaluation
}

// saves keeps the checkpoint that is being saved, and facts about others.
type saves struct {
	run    uint64        // a number of this run, by which its drafts are known
	saved  control.Saved // what processes have written so far
	draft  string        // not yet whole; empty: none
	epochs epochs        // that stages save by themselves
	others bool          // processes have other folders of checkpoints than the leader's
	last   string        // the last one, of this run or the one that it goes on from
	at     int           // steps behind the last one of this run; -1: none yet
}

// newLeader leads the processes behind the links, on a clock that was 0 when its own process began.
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
