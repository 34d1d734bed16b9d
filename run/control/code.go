package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// MaxLine is the maximum length of an encoded Message, in bytes.
const MaxLine = 64 << 20

// head is the first part of an encoded Message on a Link between processes. The body follows the head and is not nested
// in it. A nested body would be copied once more, and a body may have a long Program.
type head struct {
	N     uint64 `json:"n"`
	From  int    `json:"from"`
	Epoch uint32 `json:"epoch,omitempty"`
	Kind  string `json:"kind"`
}

// readers decode a body of each kind.
var readers = map[string]func([]byte) (Body, error){}

func init() {
	register[Load]()
	register[Evaluate]()
	register[Save]()
	register[Mark]()
	register[Look]()
	register[Commit]()
	register[Prune]()
	register[Done]()
	register[Stop]()
	register[Begun]()
	register[Limit]()
	register[Reached]()
	register[Release]()
	register[Step]()
	register[Result]()
	register[Saved]()
	register[Ended]()
	register[Ready]()
	register[Beat]()
	register[Needs]()
	register[Failed]()
	register[Ask]()
	register[Answer]()
	register[Begin]()
	register[Dismiss]()
	register[Show]()
	register[Shown]()
	register[Leave]()
	register[Record]()
	register[Left]()
}

func register[T Body]() {
	var zero T
	readers[zero.kind()] = func(text []byte) (Body, error) {
		var body T
		err := strictly(text, &body)
		return body, err
	}
}

// strictly decodes one JSON value that has only known fields and nothing after it.
func strictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("there is more behind it")
	}
	return nil
}

// Encode writes a Message as a line.
func Encode(m Message) ([]byte, error) {
	body, err := json.Marshal(m.Body)
	if err != nil {
		return nil, fmt.Errorf("control: %s: %w", m.Body.kind(), err)
	}
	text, err := json.Marshal(head{N: m.N, From: m.From, Epoch: m.Epoch, Kind: m.Body.kind()})
	if err != nil {
		return nil, fmt.Errorf("control: %s: %w", m.Body.kind(), err)
	}
	if n := len(text) + len(body); n >= MaxLine {
		return nil, fmt.Errorf("control: %s has %d bytes; a message has at most %d", m.Body.kind(), n, MaxLine-1)
	}
	return slices.Concat(text, body, []byte("\n")), nil
}

// Decode reads a line that Encode wrote, without its newline.
func Decode(text []byte) (Message, error) {
	var l head
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return Message{}, fmt.Errorf("control: a message of %d bytes: %w", len(text), err)
	}
	read, known := readers[l.Kind]
	if !known {
		return Message{}, fmt.Errorf("control: message %d of process %d is of kind %q, which there is not", l.N, l.From,
			clip(l.Kind))
	}
	if l.From < 0 {
		return Message{}, fmt.Errorf("control: message %d is from process %d", l.N, l.From)
	}
	body, err := read(text[d.InputOffset():])
	if err != nil {
		return Message{}, fmt.Errorf("control: message %d of process %d, %s: %w", l.N, l.From, l.Kind, err)
	}
	return Message{N: l.N, From: l.From, Epoch: l.Epoch, Body: body}, nil
}

// clip shortens a received text for an error message.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}
