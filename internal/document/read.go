package document

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// MaxBytes is the length of the longest document that is read.
const MaxBytes = 64 << 20

// These constants bound JSON values, because a few bytes of text can become a value of hundreds of bytes.
const (
	MaxDepth   = 64
	MaxObjects = 1 << 20 // objects and lists
)

// Open opens a file for reading. It refuses files that may never end or block: devices, sockets, folders, and named
// pipes. It accepts a pipe that the process inherited, such as /dev/stdin or <(command).
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return os.Open(path) // the error of os.Open says what is wrong
	}
	kind := ""
	switch mode := info.Mode(); {
	case mode.IsRegular() || mode&fs.ModeNamedPipe != 0 && handed(path):
		return os.Open(path)
	case mode.IsDir():
		kind = "a folder"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a pipe with a name"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	default:
		kind = "a device"
	}
	return nil, fmt.Errorf("%s is %s; give a regular file", path, kind)
}

// handed reports whether a path names a file that the process has open.
func handed(path string) bool {
	return path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/self/fd/")
}

// Read reads a whole file of at most `most` bytes.
func Read(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > most {
		return nil, fmt.Errorf("%s has %d bytes; at most %d are read", path, info.Size(), most)
	}
	text := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	if err := readAll(text, f, most); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text.Bytes(), nil
}

// ReadAll reads r to its end. It returns an error if r has more than `most` bytes.
func ReadAll(r io.Reader, most int64) ([]byte, error) {
	var text bytes.Buffer
	err := readAll(&text, r, most)
	return text.Bytes(), err
}

func readAll(text *bytes.Buffer, r io.Reader, most int64) error {
	if _, err := text.ReadFrom(io.LimitReader(r, most+1)); err != nil {
		return err
	}
	if int64(text.Len()) > most {
		return tooLong(most)
	}
	return nil
}

func tooLong(most int64) error {
	return fmt.Errorf("it is longer than %d bytes, and no more are read", most)
}

// AtMost returns a reader that reads from r and fails after `most` bytes.
func AtMost(r io.Reader, most int64) io.Reader { return &bounded{r, most, most} }

type bounded struct {
	r          io.Reader
	most, left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, tooLong(b.most)
	}
	return n, err
}

// A gzip text may unpack to unpacksFreely bytes, plus unpacksTo bytes for each of its own bytes. So a small file cannot
// take all memory.
const (
	unpacksFreely = 64 << 20
	unpacksTo     = 200 // times the packed size
)

// Gunzip unpacks r. Reading the result fails once r has unpacked to far more bytes than any real text.
func Gunzip(r io.Reader) (io.ReadCloser, error) {
	packed := &counted{r: r}
	z, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	return &unpacked{Reader: z, packed: packed}, nil
}

type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

type unpacked struct {
	*gzip.Reader
	packed *counted
	n      int64
}

func (u *unpacked) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if u.n += int64(n); u.n > unpacksFreely+unpacksTo*u.packed.n {
		return n, fmt.Errorf("it unpacks to over %d bytes and %d times its length; no text does", unpacksFreely,
			unpacksTo)
	}
	return n, err
}

// Bounded returns an error for JSON that is nested deeper than MaxDepth or has more objects and lists than allowed.
func Bounded(text []byte, objects int) error {
	depth, n, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return fmt.Errorf("line %d: it is nested deeper than %d levels", LineOf(text, i), MaxDepth)
			}
			if n++; n > objects {
				return fmt.Errorf("line %d: it has more than %d objects and lists, and no more are read",
					LineOf(text, i), objects)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// LineOf returns the line number of a byte of a text, from 1.
func LineOf(text []byte, at int) int {
	return 1 + bytes.Count(text[:max(0, min(at, len(text)))], []byte("\n"))
}
