package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/millrace-ml/millrace/internal/document"
)

// Limits of a file: its unpacked size in bytes, and its number of JSON objects and lists.
const (
	maxFileBytes = 1 << 30
	maxRows      = 1 << 23
)

// Write writes the Timeline as JSON with one event per line, so that diff can compare two of them. It refuses what
// Read would refuse.
func (t *Timeline) Write(w io.Writer) error {
	tooMany := fmt.Errorf("trace: the Timeline has more than %d events, samples, marks and lists, the most that a file "+
		"may have: keep fewer steps", maxRows)
	rows := len(t.Events) + len(t.Memory) + 1 // one more for the list of samples
	if rows > maxRows {
		return tooMany
	}
	if err := t.Validate(); err != nil {
		return err
	}
	head := *t
	head.Events, head.Memory = []Event{}, nil
	// encoding/json would put everything on one line. So the head is encoded without events and memory, and their rows
	// are written by hand in the place of these two fields.
	whole, err := json.Marshal(&head)
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	if document.Bounded(whole, maxRows-rows) != nil {
		return tooMany
	}
	before, after, found := bytes.Cut(whole, []byte(`"events":[]`))
	if !found {
		panic("trace: the JSON of a Timeline has no empty events field")
	}
	b := bufio.NewWriterSize(&room{to: w, left: maxFileBytes}, 1<<16)
	b.Write(before)
	if err := writeRows(b, `"events":[`, t.Events); err != nil {
		return err
	}
	if len(t.Memory) > 0 {
		if err := writeRows(b, `,"memory":[`, t.Memory); err != nil {
			return err
		}
	}
	b.Write(after)
	b.WriteByte('\n')
	if err := b.Flush(); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}

// room is a writer that fails once it is given more than `left` bytes in all.
type room struct {
	to   io.Writer
	left int64
}

func (r *room) Write(p []byte) (int, error) {
	if r.left -= int64(len(p)); r.left < 0 {
		return 0, fmt.Errorf("the Timeline takes over %d bytes, which no file has: keep fewer steps", int64(maxFileBytes))
	}
	return r.to.Write(p)
}

func writeRows[T any](b *bufio.Writer, open string, rows []T) error {
	b.WriteString(open)
	for i := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		row, err := json.Marshal(&rows[i])
		if err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		b.Write(row)
	}
	b.WriteString("]")
	return nil
}

var files = document.Store[Timeline]{
	Room: "trace", Bytes: maxFileBytes, Decode: decode,
	InFile: func(err error, path string) error { return fmt.Errorf("%s: %w", path, err) },
	Encode: func(w io.Writer, t *Timeline, path string) error { return t.writeTo(w, strings.HasSuffix(path, ".gz")) },
}

// Read reads a Timeline that Write wrote, plain or gzipped. It looks at the first bytes, not at the file's name. It
// refuses files over the limits, what Validate refuses, unknown fields, and anything after the end.
func Read(r io.Reader) (*Timeline, error) { return files.From(r) }

func decode(text []byte) (*Timeline, error) {
	if bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		z, err := document.Gunzip(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("trace: not a gzip file: %w", err)
		}
		defer z.Close()
		if text, err = document.ReadAll(z, maxFileBytes); err != nil {
			return nil, readError(err, text)
		}
	}
	if err := document.Bounded(text, maxRows); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	var t Timeline
	if err := dec.Decode(&t); err != nil {
		return nil, readError(err, text)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("trace: line %d: something follows the end of the Timeline: want one JSON object",
			document.LineOf(text, int(dec.InputOffset())))
	}
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return &t, nil
}

// readError says where the JSON of a text is wrong and, in the usual case, why.
func readError(err error, text []byte) error {
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("trace: the file is empty: want a Timeline in JSON")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("trace: line %d: the file ends too early: it was cut short, write it again: %w",
			document.LineOf(text, len(text)), err)
	case errors.As(err, &syntax):
		return fmt.Errorf("trace: line %d: %w", document.LineOf(text, int(syntax.Offset)), err)
	case errors.As(err, &wrong):
		return fmt.Errorf("trace: line %d: %s is a %s, want %s", document.LineOf(text, int(wrong.Offset)), wrong.Field,
			wrong.Value, wrong.Type)
	}
	return fmt.Errorf("trace: near line %d: %w", document.LineOf(text, len(text)), err)
}

// ReadFile reads the Timeline in a file; errors name it.
func ReadFile(path string) (*Timeline, error) { return files.Read(path) }

// WriteFile writes the Timeline to a file, gzipped when the name ends in .gz. An existing file of that name is replaced
// when the new file is complete, and not before.
func (t *Timeline) WriteFile(path string) error { return files.Write(path, t) }

func (t *Timeline) writeTo(w io.Writer, zip bool) error {
	if !zip {
		return t.Write(w)
	}
	// The header has no name and no time, so that the same Timeline gives the same bytes.
	z := gzip.NewWriter(w)
	if err := t.Write(z); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}
