package start

import (
	"bytes"
	"sync"
)

// lines divides written text into lines. If a line has `most` bytes and its end has not come yet, it is cut there.
type lines struct {
	most  int
	print func(line []byte) error // gets a line without its newline; must not keep it

	mu   sync.Mutex
	rest []byte
}

// maxLine is the most bytes of a line of a process. A longer line is cut.
const maxLine = 64 << 10

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, text...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 && len(l.rest) < l.most {
			return len(text), nil
		}
		if i < 0 {
			i = l.most - 1
		}
		if err := l.print(bytes.TrimSuffix(l.rest[:i+1], []byte("\n"))); err != nil {
			return 0, err
		}
		l.rest = append(l.rest[:0], l.rest[i+1:]...)
	}
}

// flush prints the last line if it has no newline.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		_ = l.print(l.rest) // an error means that the reader is gone
		l.rest = nil
	}
}
