package process

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/wire"
)

// If a port breaks, the run fails, and both the leader and the wire learn of it. After Leave, a port that breaks is no
// failure. A failure after the herald has ended is still recorded and sent to the leader.
func TestAPortThatBreaksBehindLeaveIsNoFailure(t *testing.T) {
	why := errors.New("the cable is cut")
	for _, over := range []bool{false, true} {
		carriers, err := wire.InProcess(2)
		if err != nil {
			t.Fatal(err)
		}
		ports, err := wire.NewPorts(carriers, []int{0, 1}, func(int) wire.Config { return wire.Config{} })
		if err != nil {
			t.Fatal(err)
		}
		far, link := control.Pair()
		var heard []control.Body
		far.Start(func(m control.Message, err error) {
			if err == nil {
				heard = append(heard, m.Body)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		x := &Process{ctx: ctx, cancel: cancel, job: &Job{World: Alone(2)},
			leader: leader{link, control.NewFollower(0, 1)}, leaving: leaving{over: over}}
		x.ends = ends{x: x, ports: ports, broken: make(chan breakage, 1)}
		port := x.ends.config(1)
		port.Broken(why)
		port.Broken(errors.New("and again"))
		var herald sync.WaitGroup
		herald.Go(x.herald)
		if over {
			cancel()
		}
		herald.Wait()
		if over {
			if err := x.Failure(); err != nil || len(heard) > 0 {
				t.Errorf("behind leave: %v; the leader hears %v", err, heard)
			}
			x.fail(0, why)
			if err := x.Failure(); !errors.Is(err, why) || len(heard) != 1 {
				t.Errorf("behind the herald: %v; the leader hears %v", err, heard)
			}
		} else {
			if err := x.Failure(); !errors.Is(err, why) || !strings.Contains(err.Error(), "worker 1") || len(heard) != 1 {
				t.Errorf("%v; the leader hears %v", err, heard)
			}
			var peer *wire.PeerError
			if err := ports.Port(0).Err(); !errors.As(err, &peer) || peer.Rank != 1 || !errors.Is(err, why) {
				t.Errorf("the port of worker 0 ends with %v", err)
			}
		}
		if err := ports.Close(); err != nil {
			t.Error(err)
		}
	}
}
