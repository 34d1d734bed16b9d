package start

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
)

// A word is a message between a launcher and another host, as a line of JSON.
type word struct {
	// The launcher sends these.
	Order  *order `json:",omitempty"`
	Signal int    `json:",omitempty"`
	// The other host sends these.
	Hello   *hello   `json:",omitempty"`
	Started *started `json:",omitempty"`
	Said    *said    `json:",omitempty"`
	Ended   *end     `json:",omitempty"`
}

// hello is the first word of the other host.
type hello struct {
	Version int
	Port    string // a free port of that host
}

// started answers an order.
type started struct{ Failed string } // why the start failed; "" if all processes have started

// said is a line that a process printed.
type said struct {
	Rank int
	Errs bool
	Line []byte
}

const (
	wordsVersion = 1
	maxWord      = 4 << 20 // most bytes of a word; a word may contain an environment or a line
)

// orphanGrace is how long processes have to stop when their launcher is gone.
const orphanGrace = 10 * time.Second

// Serve starts the processes that a launcher orders over a connection, and reports on them. It returns when all have
// ended. If the connection or ctx ends first, it tells the processes to stop, and kills them after orphanGrace.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	v := &server{out: json.NewEncoder(out), gone: make(chan struct{})}
	port, err := freePort()
	if err != nil {
		return err
	}
	if err := v.say(word{Hello: &hello{wordsVersion, port}}); err != nil {
		return err
	}
	words, done := make(chan word), make(chan struct{})
	defer close(done)
	var wrong error
	crash.Go(func() {
		defer close(words)
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, maxWord)
		for lines.Scan() {
			var w word
			if wrong = json.Unmarshal(lines.Bytes(), &w); wrong != nil {
				return
			}
			select {
			case words <- w:
			case <-done:
				return
			}
		}
		wrong = lines.Err()
	})
	first, there := <-words
	switch {
	case !there && wrong == nil:
		return nil // the launcher has ended without an order: nothing is to be done
	case !there:
		return fmt.Errorf("start: the launcher's order cannot be read: %w", wrong)
	case first.Order == nil:
		return errors.New("start: the launcher says no order")
	}
	c := newLocal(v)
	o := *first.Order
	o.Env = append(others(os.Environ()), o.Env...)
	v.left = len(o.Ranks)
	if err := c.start(o); err != nil {
		c.signal(syscall.SIGKILL)
		_ = v.say(word{Started: &started{err.Error()}})
		return err
	}
	_ = v.say(word{Started: &started{}}) // if the launcher is gone, the loop below notices
	for {
		select {
		case w, there := <-words:
			if there {
				c.signal(syscall.Signal(w.Signal))
				continue
			}
		case <-ctx.Done():
		case <-v.gone:
			return c.leave()
		}
		break
	}
	c.signal(syscall.SIGTERM)
	late := time.AfterFunc(orphanGrace, crash.Caught(func() { c.signal(syscall.SIGKILL) }))
	defer late.Stop()
	return c.leave()
}

// server sends reports to the launcher.
type server struct {
	mu   sync.Mutex
	out  *json.Encoder
	left int
	gone chan struct{} // closed when all processes have ended
}

func (v *server) say(w word) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.out.Encode(w)
}

func (v *server) says(rank int, errs bool, line []byte) error {
	_ = v.say(word{Said: &said{rank, errs, line}}) // the launcher may be gone while processes still save
	return nil
}

func (v *server) ended(e end) {
	_ = v.say(word{Ended: &e}) // an error means that the launcher is gone, and needs no report
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.left--; v.left == 0 {
		close(v.gone)
	}
}
