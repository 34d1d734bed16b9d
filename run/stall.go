package run

import (
	"fmt"
	"time"

	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// judge fails the run if no worker can continue. Otherwise it calls tellQuiet.
func (l *leader) judge() {
	quietS, waits, stalled := l.state.Stalled(l.config.Watch.StallAfter.Seconds())
	if !stalled {
		l.tellQuiet()
		return
	}
	how := "has stalled: nobody can move and nothing is on its way"
	if quietS > 0 {
		quiet := time.Duration(quietS * float64(time.Second))
		how = fmt.Sprintf("has stalled: nothing has happened for %v", quiet.Round(time.Millisecond))
	}
	stall, err := l.stall(how, waits)
	if err == nil {
		err = stall
	}
	l.fail(err)
}

// tellQuiet reports which workers wait for workers that compute, if nothing has happened for long. The devices of those
// that compute may hang. If the run is to stop, tellQuiet ends it instead.
func (l *leader) tellQuiet() {
	quietS, waits, computing := l.state.Quiet()
	quiet := time.Duration(quietS * float64(time.Second))
	if quiet < l.silence.quiet {
		l.silence.quiet = 0 // something has happened since
	}
	if !computing || quiet < l.silence.quiet+l.config.Watch.StallAfter {
		return
	}
	if l.stopping {
		l.silence.hangs = true
		stall, err := l.stall(fmt.Sprintf("was told to stop, and nothing has happened for %v", quiet.Round(time.Millisecond)),
			waits)
		if err == nil {
			err = stall
		}
		l.fail(err)
		return
	}
	hook := l.config.Hooks.OnQuiet
	if hook == nil {
		return
	}
	stall, err := l.stall("", waits)
	if err != nil {
		l.fail(err)
		return
	}
	l.silence.quiet = quiet
	chain := told(stall)
	l.hooks.add(func() { hook(quiet, chain) })
}

// told returns a line of text for each wait.
func told(stall *machine.StallError) (chain []string) {
	for _, w := range stall.Waits {
		chain = append(chain, w.Text)
	}
	return chain
}

// stall returns what all workers wait for. If possible, each worker is followed by a worker that it waits for. Each
// entry has the instruction that its worker is at.
func (l *leader) stall(how string, waits []control.Wait) (*machine.StallError, error) {
	var needs []machine.Need
	times := map[int]control.Wait{}
	for _, w := range waits {
		if w.Worker < 0 || w.Worker >= len(l.job.World.Workers) || w.Peer < 0 || w.Peer >= len(l.job.World.Workers) {
			return nil, fmt.Errorf("run: worker %d is said to wait for worker %d; there are %d", w.Worker, w.Peer,
				len(l.job.World.Workers))
		}
		n := machine.Need{Worker: w.Worker, At: w.At, Lack: w.Lack, Peer: w.Peer}
		if w.For != "" {
			var err error
			if n.For, err = schedule.ParseInstruction(w.For); err != nil {
				return nil, err
			}
		}
		needs, times[w.Worker] = append(needs, n), w
	}
	return machine.NewStall("run", how, l.under.program, needs, func(n machine.Need) string {
		w, does := times[n.Worker], "has waited"
		if n.Lack == machine.Running {
			does = "has been there"
		}
		n.At, n.For = l.absolute(n.At), l.absolute(n.For)
		return fmt.Sprintf("%s; it %s for %v, since %v of the run", n.Told(l.job.World.Called), does,
			w.Waited.Round(time.Millisecond), w.Since.Round(time.Millisecond))
	}), nil
}

// absolute converts the ids in an instruction of the running Program to ids that count over the whole training.
func (l *leader) absolute(in schedule.Instruction) schedule.Instruction {
	if !l.under.trains || in == (schedule.Instruction{}) {
		return in
	}
	return process.Absolute(l.under.program, l.done, in)
}
