package start

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/launch"
)

// gang is the processes of one start.
type gang struct {
	*Spec
	all   []*process
	ends  chan *process
	ended int
}

// kill signals every process that has not ended, and what it has started.
func (g *gang) kill(signal syscall.Signal) {
	for _, p := range g.all {
		select {
		case <-p.ended:
		default:
			_ = syscall.Kill(-p.cmd.Process.Pid, signal)
		}
	}
}

// next waits for the next process to end, and kills what it has left behind. It is nil where the time is
// over, or stopped is closed, before that.
func (g *gang) next(over <-chan time.Time, stopped <-chan struct{}) *process {
	select {
	case p := <-g.ends:
		g.ended++
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		return p
	case <-over:
	case <-stopped:
	}
	return nil
}

// rest waits for all that are left.
func (g *gang) rest() {
	for g.ended < len(g.all) {
		g.next(nil, nil)
	}
}

// watch waits until all have ended, and says why.
func (g *gang) watch(ctx context.Context) Outcome {
	var first *process
	for first == nil && g.ended < len(g.all) {
		p := g.next(nil, ctx.Done())
		if p == nil {
			return g.stop(ctx)
		}
		if p.code() != 0 {
			first = p
		}
	}
	if first == nil {
		return Outcome{}
	}
	for now := time.After(together); g.ended < len(g.all); {
		p := g.next(now, nil)
		if p == nil {
			break
		}
		if first.code() == launch.LostPeer && p.code() != 0 && p.code() != launch.LostPeer {
			first = p
		}
	}
	for over := time.After(g.Notice); g.ended < len(g.all) && g.next(over, ctx.Done()) != nil; {
	}
	g.end(syscall.SIGTERM, func(*process) {})
	return Outcome{Code: first.code(), Rank: first.rank, How: first.how()}
}

// end tells the rest to stop, and kills what does not in time.
func (g *gang) end(signal syscall.Signal, ended func(*process)) {
	g.kill(signal)
	for grace := time.After(g.Grace); g.ended < len(g.all); {
		p := g.next(grace, nil)
		if p == nil {
			break
		}
		ended(p)
	}
	g.kill(syscall.SIGKILL)
	g.rest()
}

// stop tells all processes to stop. They may end well; what they say by then is the outcome, unless they say
// nothing else than that they were told to.
func (g *gang) stop(ctx context.Context) Outcome {
	signal := syscall.SIGTERM
	var by signalled
	if errors.As(context.Cause(ctx), &by) {
		signal = by.Signal()
	}
	o := Outcome{Code: 128 + int(signal), How: fmt.Sprintf("all processes were told to stop (%v)", signal)}
	g.end(signal, func(p *process) {
		if code := p.code(); code != 0 && !launch.Retry(code) && launch.Retry(o.Code) {
			o = Outcome{Code: code, Rank: p.rank, How: p.how()}
		}
	})
	return o
}

// lines writes whole lines, each behind a rank, where there are several.
type lines struct {
	to       io.Writer
	printing *sync.Mutex
	prefix   string

	mu   sync.Mutex
	rest []byte
}

// maxLine is the longest line that is not cut.
const maxLine = 64 << 10

func (g *gang) lines(to io.Writer, rank int, printing *sync.Mutex) *lines {
	l := &lines{to: to, printing: printing}
	if g.Processes > 1 {
		l.prefix = fmt.Sprintf("[%d] ", rank)
	}
	return l
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, text...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 && len(l.rest) < maxLine {
			return len(text), nil
		}
		if i < 0 {
			i = maxLine - 1
		}
		if err := l.print(bytes.TrimSuffix(l.rest[:i+1], []byte("\n"))); err != nil {
			return 0, err
		}
		l.rest = append(l.rest[:0], l.rest[i+1:]...)
	}
}

// print writes a line at once, so that those of processes do not mix.
func (l *lines) print(line []byte) error {
	l.printing.Lock()
	defer l.printing.Unlock()
	_, err := l.to.Write(append(append([]byte(l.prefix), line...), '\n'))
	return err
}

// flush writes what has no end of line.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		_ = l.print(l.rest) // whoever reads is gone
		l.rest = nil
	}
}
