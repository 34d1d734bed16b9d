package curves

import (
	"fmt"

	"github.com/millrace-ml/millrace/trace"
)

// Share is what one worker did during a batch, in seconds. The parts add up to the batch's length.
type Share struct {
	ComputeS   float64 `json:"compute_s"`   // forwards and backwards
	UpdateS    float64 `json:"update_s"`    // updates and, with several pipelines, the dilution of the weights
	ReferenceS float64 `json:"reference_s"` // the reference's update, with several pipelines
	BubbleS    float64 `json:"bubble_s"`    // waiting for other workers' computations
	MessageS   float64 `json:"message_s"`   // waiting for messages in flight
	CoreS      float64 `json:"core_s"`      // waiting for a core that another worker used
	BetweenS   float64 `json:"between_s"`   // between two instructions: the runtime itself, and checkpoints
}

// LengthS returns the batch's length.
func (s Share) LengthS() float64 { return s.BusyS() + s.IdleS() }

// BusyS returns the time of the worker's own work.
func (s Share) BusyS() float64 { return s.ComputeS + s.UpdateS + s.ReferenceS }

// IdleS returns the rest of the batch's length.
func (s Share) IdleS() float64 { return s.BubbleS + s.MessageS + s.CoreS + s.BetweenS }

// Times returns n times s, the time of n equal batches.
func (s Share) Times(n float64) Share {
	return Share{n * s.ComputeS, n * s.UpdateS, n * s.ReferenceS, n * s.BubbleS, n * s.MessageS, n * s.CoreS,
		n * s.BetweenS}
}

// Mean returns the mean of some workers' shares.
func Mean(all []Share) Share {
	var m Share
	for _, s := range all {
		n := float64(len(all))
		m.ComputeS += s.ComputeS / n
		m.UpdateS += s.UpdateS / n
		m.ReferenceS += s.ReferenceS / n
		m.BubbleS += s.BubbleS / n
		m.MessageS += s.MessageS / n
		m.CoreS += s.CoreS / n
		m.BetweenS += s.BetweenS / n
	}
	return m
}

// Shares returns what every worker did during a batch, averaged over iterations of a Timeline. An iteration is one
// batch of each pipeline. The first `skip` iterations are left out. With several pipelines the last iteration is left
// out too, because no later iteration fills its bubbles.
//
// Refused: fewer than two remaining iterations, a `skip` below 1, fewer than one pipeline, and an instruction whose
// text cannot be read.
func Shares(t *trace.Timeline, pipelines, skip int) ([]Share, error) {
	if pipelines < 1 {
		return nil, fmt.Errorf("curves: %d pipelines; there is 1 at least", pipelines)
	}
	last := len(t.Steps) - 1
	if pipelines > 1 {
		last--
	}
	if skip < 1 || last-skip < 1 {
		return nil, fmt.Errorf("curves: a Timeline of %d iterations, of which %d are left out; two at least must remain, "+
			"and one left out", len(t.Steps), skip+len(t.Steps)-1-last)
	}
	startS, endS := t.Steps[skip-1].EndS, t.Steps[last].EndS
	batch := float64((last - skip + 1) * pipelines)
	out := make([]Share, t.Workers)
	for i := range t.Events {
		e := &t.Events[i]
		within := min(e.EndS, endS) - max(e.StartS, startS)
		if e.Lane != trace.Compute || !trace.IsBusy(e.Kind) || within <= 0 {
			continue
		}
		f, ok := trace.ParseFields(e.Instruction)
		if !ok {
			return nil, fmt.Errorf("curves: event %d of the Timeline is %q; want an instruction like 0F3", i, e.Instruction)
		}
		at := &out[e.Worker].ComputeS
		switch {
		case e.Kind == "U" && pipelines > 1 && f.Pipeline == pipelines:
			at = &out[e.Worker].ReferenceS
		case e.Kind == "U":
			at = &out[e.Worker].UpdateS
		}
		*at += within / batch
	}
	window := t.Window(startS, endS)
	for w, gaps := range trace.AllGaps(window) {
		s := &out[w]
		for cause, took := range trace.Idle(gaps) {
			switch cause {
			case trace.WaitTransfer:
				s.MessageS += took / batch
			case trace.WaitCore:
				s.CoreS += took / batch
			case trace.Between, trace.Saving:
			default:
				s.BubbleS += took / batch
			}
		}
		s.BetweenS = max((endS-startS)/batch-s.BusyS()-s.BubbleS-s.MessageS-s.CoreS, 0)
	}
	return out, nil
}
