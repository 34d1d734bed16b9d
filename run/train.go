package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/trace"
)

// Train runs a training to its last step. When ctx ends, it finishes the steps that have begun, saves a checkpoint if
// there is a folder for it, and returns with Stopped set and no error. After an error during the run the Result still
// has the Timeline up to the error.
//
// In a World of several processes each calls Train. The Result of process 0 is that of the run. In the other processes
// the Result has only Stopped and what their own workers leave: Leaked, PeakBytes, Weights and their part of the
// Timeline, on their own clock.
func Train(ctx context.Context, c Config) (*Result, error) {
	c, err := c.filled()
	if err != nil {
		return nil, c.refused(err)
	}
	j, err := newJob(c)
	if err != nil {
		return nil, c.refused(err)
	}
	on, err := c.Machine.Place.Take(len(j.World.WorkersOf()[j.World.Rank]), c.Machine.Cores, c.Machine.ThreadsPerWorker)
	if err != nil {
		return nil, c.refused(errors.Join(fmt.Errorf("run: %w", err), j.Close()))
	}
	defer on.Leave()
	if processor, taken := on.Taken(); taken && c.Hooks.OnTaken != nil {
		c.Hooks.OnTaken(processor)
	}
	var res *Result
	if j.World.Rank == 0 {
		res, err = lead(ctx, &c, j, on)
	} else {
		res, err = follow(ctx, &c, j, on)
	}
	return res, errors.Join(err, j.Close())
}

// refused tells the other processes why the run does not begin here, and closes the Links.
func (c *Config) refused(err error) error {
	if c.Machine.World == nil {
		return err
	}
	failed := (&process.Job{World: c.Machine.World, Class: c.Class}).FailedOf(err)
	for _, link := range c.Machine.World.Links {
		if link != nil {
			_ = link.Send(control.Message{N: 1, From: c.Machine.World.Rank, Body: failed})
		}
	}
	return errors.Join(err, closeAll(c.Machine.World.Links))
}

// follow runs a process that does not lead.
func follow(ctx context.Context, c *Config, j *process.Job, on *place.Place) (*Result, error) {
	x, err := process.New(j, on, j.World.Links[0])
	if err != nil {
		return nil, c.refused(err)
	}
	left := x.Attend(ctx)
	return resultOf(&left), errors.Join(whenLost(x.Failure(), left.Due), left.Err)
}

// resultOf returns what a process's own workers leave.
func resultOf(b *process.Belongings) *Result {
	return &Result{Timeline: *b.Timeline, PeakBytes: b.Timeline.PeakBytes, Leaked: b.Leaked, Weights: b.Weights,
		Stopped: b.Stopped}
}

// lead runs the process that leads, and its workers.
func lead(ctx context.Context, c *Config, j *process.Job, on *place.Place) (*Result, error) {
	own, its := control.Pair()
	links := []control.Link{own}
	if len(j.World.Links) > 0 {
		links = append(links, j.World.Links[1:]...)
	}
	x, err := process.New(j, on, its)
	if err != nil {
		return nil, c.refused(err)
	}
	l := newLeader(ctx, c, j, links, x.Began())
	l.silence.held, l.peers.asBytes = x.Held, len(links) > 1 || x.SendsBytes()
	here := make(chan process.Belongings, 1)
	crash.Go(func() { here <- x.Attend(context.Background()) })
	err = crash.Guard(l.lead)
	if err != nil {
		l.fail(err) // tells the processes that do not know the error yet
	}
	l.dismiss()
	var left process.Belongings
	if l.silence.hung == nil {
		left = <-here
	} else if !errors.Is(err, l.silence.hung) {
		left.Err = l.silence.hung
	}
	if err == nil {
		err = l.failure() // a hook may have failed after the last step
	}
	res, merging := l.result(left.Weights)
	return res, errors.Join(whenLost(err, l.peers.due()...), left.Err, l.leaving(), merging, l.part())
}

// part closes the Links. It waits only a limited time for a process that does not read its messages.
func (l *leader) part() error {
	cut := time.AfterFunc(l.patience()/2, crash.Caught(func() { _ = closeAll(l.peers.links) }))
	defer cut.Stop()
	return closeAll(l.peers.links)
}

// closeAll closes all Links concurrently, because closing a lost one may take a moment. It skips nil.
func closeAll(links []control.Link) error {
	all := make([]error, len(links))
	var closing sync.WaitGroup
	for i, l := range links {
		if l == nil {
			continue
		}
		closing.Go(crash.Caught(func() {
			if err := l.Close(); err != nil {
				all[i] = fmt.Errorf("run: %w", err)
			}
		}))
	}
	closing.Wait()
	return errors.Join(all...)
}

// leaving returns the errors with which other processes left.
func (l *leader) leaving() error {
	var all error
	for p, left := range l.peers.left {
		if p > 0 && left.Failed != nil {
			all = errors.Join(all, process.ErrorOf(l.job.World, left.Failed))
		}
	}
	return all
}

// result combines what all processes leave. The weights are those of the leader's own process.
func (l *leader) result(weights map[string]process.Weight) (*Result, error) {
	res := &Result{
		Steps: l.done, Loss: l.loss, Stopped: l.stopped, Checkpoint: l.saves.last, Weights: weights,
		BusySeconds: l.progress.BusyS,
	}
	empty := l.job.Timeline()
	l.placed(&empty)
	parts := []*trace.Timeline{&empty} // a lost process leaves no part
	for p, left := range l.peers.left {
		res.Leaked += left.Leaked
		for _, r := range l.peers.records[p] {
			if len(empty.Processes) > 0 {
				r.Timeline.OnClock(empty.Processes[p].OffsetS, empty.Processes[p].Drift)
			}
			parts = append(parts, r.Timeline)
		}
	}
	merged, err := trace.Merge(parts...)
	if err != nil {
		return res, fmt.Errorf("run: %w", err)
	}
	res.Timeline = *merged
	l.progress.Fill(&res.Timeline)
	res.Timeline.Stragglers = l.paces.stragglers
	if len(l.peers.links) > 1 {
		remark(&res.Timeline)
	}
	res.PeakBytes = res.Timeline.PeakBytes // as last reported; for a lost process this is all that is known
	for w, bytes := range merged.PeakBytes {
		if w < len(res.PeakBytes) {
			res.PeakBytes[w] = max(res.PeakBytes[w], bytes)
		}
	}
	res.Timeline.Evaluations = append(res.Timeline.Evaluations, l.tests.all...)
	if took := l.progress.TookS; took > 0 {
		res.BubbleMean = 1 - res.BusySeconds/(took*float64(len(l.job.World.Workers)))
	}
	return res, nil
}
