package live

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/millrace-ml/millrace/internal/document"
)

// tail reads a file to which lines are appended.
type tail struct {
	path string
	file os.FileInfo // the file as last read; nil: none
	at   int64       // bytes read so far
	rest []byte      // an incomplete last line
	line int         // lines read so far
	skip bool        // the rest of a line that is too long must be skipped
	long error       // error for the first line that is too long
}

// longestLine is the most bytes that a line may have. atOnce is the most appended bytes that are read at once.
const (
	longestLine = 1 << 20
	atOnce      = 1 << 20
)

// read calls the function `each` with every complete new line that is not too long, and reports whether anything was
// new. If the file was replaced, became shorter or disappeared, it first calls the function `anew`.
func (t *tail) read(anew func(), each func(line []byte)) (more bool, err error) {
	info, err := os.Stat(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		if t.file == nil {
			return false, nil
		}
		*t = tail{path: t.path}
		anew()
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if t.file != nil && (!os.SameFile(t.file, info) || info.Size() < t.at) {
		*t = tail{path: t.path}
		anew()
		more = true
	}
	if t.file != nil && info.Size() == t.at {
		t.file = info
		return more, t.long
	}
	f, err := document.Open(t.path)
	if err != nil {
		return more, err
	}
	defer f.Close()
	if opened, err := f.Stat(); err != nil || !os.SameFile(opened, info) {
		return more, err // the file was just replaced; the next call reads it
	}
	t.file = info
	text := make([]byte, min(info.Size()-t.at, atOnce))
	for left := info.Size() - t.at; left > 0; {
		n, err := f.ReadAt(text[:min(left, int64(len(text)))], t.at)
		t.at, left = t.at+int64(n), left-int64(n)
		if n > 0 {
			more = true
			t.split(text[:n], each)
		}
		if errors.Is(err, io.EOF) || n == 0 {
			break
		}
		if err != nil {
			return more, err
		}
	}
	return more, t.long
}

// split calls the function `each` with the lines of a text, except those that are too long.
func (t *tail) split(text []byte, each func(line []byte)) {
	for {
		line, more, whole := bytes.Cut(text, []byte("\n"))
		if !whole {
			break
		}
		if len(t.rest) > 0 {
			line = append(t.rest, line...)
			t.rest = t.rest[:0]
		}
		t.line++
		if !t.skip {
			each(line)
		}
		text, t.skip = more, false
	}
	if t.skip = t.skip || len(t.rest)+len(text) > longestLine; !t.skip {
		t.rest = append(t.rest, text...)
		return
	}
	if t.rest = nil; t.long == nil {
		t.long = fmt.Errorf("%s: line %d is longer than %d bytes, and is left out", t.path, t.line+1, longestLine)
	}
}

// changing is a file that is always replaced as a whole.
type changing struct {
	path  string
	file  os.FileInfo // the file as last read; nil: none
	again bool        // a file on which this file's result depends has changed
}

// changed reports whether the file has changed since the last call, or must be read again, and whether it exists.
func (c *changing) changed() (changed, there bool) {
	info, err := os.Stat(c.path)
	if err != nil {
		changed = c.file != nil
		c.file = nil
		return changed, false
	}
	again := c.again
	c.again = false
	if !again && c.file != nil && os.SameFile(c.file, info) && c.file.Size() == info.Size() &&
		c.file.ModTime().Equal(info.ModTime()) {
		return false, true
	}
	c.file = info
	return true, true
}
