package p2p

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace-ml/millrace/internal/child"
	"github.com/millrace-ml/millrace/internal/crash"
)

// way is one end of a connection between two processes. At most one goroutine sends and at most one receives.
type way interface {
	send(data []byte) error // returns when the slice `data` may be overwritten
	take(room []byte) error // returns when the message has arrived
	// turns does this `count` times: it sends `data` and receives as many bytes. If `first` is false, it receives
	// before it sends.
	turns(first bool, count int, data []byte) error
	sum(vector []float32) error
	close() error
}

// request is a request to a player. The field What is "turns", "arrive" or "sum".
type request struct {
	What     string
	Bytes    int
	Count    int     // number of turns or sums
	ComputeS float64 // of arrive: seconds for which both processes compute
}

func (r request) line() string {
	return fmt.Sprintf("%s %d %d %g", r.What, r.Bytes, r.Count, r.ComputeS)
}

func parse(line string) (r request, err error) {
	if _, err = fmt.Sscanf(line, "%s %d %d %g", &r.What, &r.Bytes, &r.Count, &r.ComputeS); err == nil {
		switch {
		case r.What != "turns" && r.What != "arrive" && r.What != "sum":
			err = fmt.Errorf("%q is nothing to play", r.What)
		case r.Bytes < 4 || r.Bytes > 1<<30 || r.Count < 1 || r.ComputeS < 0 || r.ComputeS > 60:
			err = fmt.Errorf("out of range")
		}
	}
	if err != nil {
		err = fmt.Errorf("p2p: the request %q: %w", line, err)
	}
	return r, err
}

// answer is the answer of a player's first process.
type answer struct {
	Seconds float64 `json:"seconds"` // time of all turns or sums; for arrive, time from sending to arrival
}

// partnerSays is a line from the second process: its address, that it is ready, or what it measured.
type partnerSays struct {
	Address string // address of the second process
	AtNs    int64  // arrival of the message, by the machine's clock
}

// Play is the first process of a player that is written in Go; `name` is raw or millrace. `command` starts this program
// as the second process.
func Play(ctx context.Context, name string, command []string, in io.Reader, out io.Writer) error {
	open, known := ways[name]
	if !known {
		return fmt.Errorf("p2p: there is no way %q", name)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	partner := child.Command(ctx, command[0], command[1:]...)
	to, err := partner.StdinPipe()
	if err != nil {
		return fmt.Errorf("p2p: %w", err)
	}
	said, err := partner.StdoutPipe()
	if err != nil {
		return fmt.Errorf("p2p: %w", err)
	}
	if err := partner.Start(); err != nil {
		return fmt.Errorf("p2p: %w", err)
	}
	hears := json.NewDecoder(bufio.NewReader(said))
	err = lead(open, in, out, to, hears)
	_ = to.Close()
	if err != nil {
		cancel()
	}
	if ended := partner.Wait(); err == nil && ended != nil {
		err = fmt.Errorf("p2p: the second process: %w", ended)
	}
	return err
}

// lead answers requests together with the second process.
func lead(open opener, in io.Reader, out, to io.Writer, hears *json.Decoder) error {
	w, err := open(0, func(address string) (other string, err error) {
		var p partnerSays
		if _, err = fmt.Fprintln(to, address); err == nil {
			err = hears.Decode(&p)
		}
		return p.Address, err
	})
	if err != nil {
		return err
	}
	defer w.close()
	if _, err := fmt.Fprintln(out, `{"name": "player"}`); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		r, err := parse(lines.Text())
		if err != nil {
			return err
		}
		room, ready := make([]byte, r.Bytes), partnerSays{}
		if _, err := fmt.Fprintln(to, r.line()); err != nil {
			return err
		}
		if err := hears.Decode(&ready); err != nil {
			return fmt.Errorf("p2p: the second process: %w", err)
		}
		var took time.Duration
		switch began := time.Now(); r.What {
		case "turns":
			if err := w.turns(true, r.Count, room); err != nil {
				return err
			}
			took = time.Since(began)
		case "sum":
			if err := r.sums(w); err != nil {
				return err
			}
			took = time.Since(began)
		case "arrive":
			sent, began := make(chan error, 1), monotonic()
			crash.Go(func() { sent <- w.send(room) })
			compute(r.ComputeS)
			if err := <-sent; err != nil {
				return err
			}
			if err := hears.Decode(&ready); err != nil {
				return err
			}
			took = time.Duration(ready.AtNs - began)
		}
		if err := json.NewEncoder(out).Encode(answer{took.Seconds()}); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (r request) sums(w way) error {
	vector := make([]float32, r.Bytes/4)
	for range r.Count {
		if err := w.sum(vector); err != nil {
			return err
		}
	}
	return nil
}

// Follow plays the second process of a player.
func Follow(name string, in io.Reader, out io.Writer) error {
	open, known := ways[name]
	if !known {
		return fmt.Errorf("p2p: there is no way %q", name)
	}
	lines, says := bufio.NewScanner(in), json.NewEncoder(out)
	w, err := open(1, func(address string) (other string, err error) {
		lines.Scan()
		return lines.Text(), says.Encode(partnerSays{Address: address})
	})
	if err != nil {
		return err
	}
	defer w.close()
	for lines.Scan() {
		r, err := parse(strings.TrimSpace(lines.Text()))
		if err != nil {
			return err
		}
		room := make([]byte, r.Bytes)
		if err := says.Encode(partnerSays{}); err != nil {
			return err
		}
		switch r.What {
		case "turns":
			if err := w.turns(false, r.Count, room); err != nil {
				return err
			}
		case "sum":
			if err := r.sums(w); err != nil {
				return err
			}
		case "arrive":
			at, failed := make(chan int64, 1), make(chan error, 1)
			crash.Go(func() {
				err := w.take(room)
				at <- monotonic()
				failed <- err
			})
			compute(r.ComputeS)
			if err := says.Encode(partnerSays{AtNs: <-at}); err != nil {
				return err
			}
			if err := <-failed; err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// monotonic returns the time in nanoseconds by a clock that both processes share.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// kept keeps the result of compute, so that the compiler does not remove the computation.
var kept float64

// compute keeps a core busy for this many seconds.
func compute(seconds float64) {
	x := kept
	for end := time.Now().Add(time.Duration(seconds * 1e9)); time.Now().Before(end); {
		for range 10_000 {
			x = x*0.999 + 1
		}
	}
	kept = x
}
