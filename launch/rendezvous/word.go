package rendezvous

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// version is the version of the words. If a process has another version than rank 0, the meeting fails.
const version = 1

// These are the largest sizes of words in bytes.
const (
	maxHello   = 16 << 10
	maxAnswer  = 256
	maxWord    = 64 << 10 // of a word of rank 0, except for the table
	maxInTable = 3 << 10  // of a table, for each process, in addition to maxWord
)

// These are the limits of a Hello's fields.
const (
	maxSize    = 1 << 16
	maxFacts   = 16
	maxText    = 256  // bytes of a name or a value
	maxAddress = 1500 // bytes of an address
)

// Fact is a property of a process that is compared with the same property of other processes. An empty Value is not
// compared.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
	Must  bool   `json:"must,omitempty"` // a difference ends the meeting; otherwise it is only reported
}

// Hello is what a process says about itself.
type Hello struct {
	Version int    `json:"version"`
	Rank    int    `json:"rank"`
	Size    int    `json:"size"`
	Run     string `json:"run,omitempty"`     // identity of the run
	Restart int    `json:"restart,omitempty"` // how often the run was started before
	Host    string `json:"host"`
	Machine string `json:"machine,omitempty"` // distinguishes hosts of one name; may be empty
	PID     int    `json:"pid"`
	Facts   []Fact `json:"facts,omitempty"`
	Address []byte `json:"address,omitempty"` // how other processes reach this one; opaque to this package
}

// check refuses a Hello beyond the limits.
func (h *Hello) check() error {
	switch {
	case h.Size < 1 || h.Size > maxSize || h.Rank < 0 || h.Rank >= h.Size:
		return fmt.Errorf("it says rank %d of %d; there are at most %d", h.Rank, h.Size, maxSize)
	case max(len(h.Host), len(h.Machine), len(h.Run)) > maxText || len(h.Address) > maxAddress || len(h.Facts) > maxFacts:
		return fmt.Errorf("its host's name has %d bytes, its machine's %d, its run's %d, its address %d, and it states "+
			"%d facts; names have %d at most, an address %d, and there are %d facts at most", len(h.Host), len(h.Machine),
			len(h.Run), len(h.Address), len(h.Facts), maxText, maxAddress, maxFacts)
	}
	for _, f := range h.Facts {
		if len(f.Name) > maxText || len(f.Value) > maxText {
			return fmt.Errorf("a fact of it has a name of %d bytes and a value of %d; at most %d", len(f.Name), len(f.Value),
				maxText)
		}
	}
	return nil
}

// kind is the kind of a word from rank 0.
type kind string

const (
	ping    kind = "ping"    // asks for the process's clock
	beat    kind = "beat"    // not all processes are here yet
	table   kind = "table"   // the table of all processes follows, in a word of its own
	goAhead kind = "go"      // all processes have the table
	refused kind = "refused" // the meeting has failed
	notOurs kind = "not_ours"
)

// word is a message from rank 0.
type word struct {
	Kind    kind     `json:"kind"`
	Reasons []string `json:"reasons,omitempty"` // why, in refused and not_ours; in a beat: which ranks are missing
	Retry   bool     `json:"retry,omitempty"`
	Clock   *Clock   `json:"clock,omitempty"`
}

// answer is a process's answer to a word.
type answer struct {
	At int64 `json:"at,omitempty"` // to a ping: the process's clock, in nanoseconds
}

// Clock is the difference between a process's clock and rank 0's.
type Clock struct {
	OffsetS float64 `json:"offset_s"` // seconds to add to the process's clock to get rank 0's
	ErrorS  float64 `json:"error_s"`  // largest error of the offset, in seconds
}

// encode returns a value as a word.
func encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return asWord(text), nil
}

// asWord puts the length before a text.
func asWord(text []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
}

// say writes a value as a word.
func say(w io.Writer, v any) error {
	text, err := encode(v)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// hear reads a word of at most the given size, and nothing after it.
func hear(r io.Reader, most int, into any) error {
	text, err := hearBytes(r, most)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("a word that is no JSON of its kind: %w", err)
	}
	return nil
}

// firstRead is the most bytes of memory that are allocated for a word before any of it has come.
const firstRead = 64 << 10

// hearBytes reads the content of a word. Memory grows with the bytes that come; the announced length is not trusted.
func hearBytes(r io.Reader, most int) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(length[:]))
	if n > int64(most) {
		return nil, fmt.Errorf("a word of %d bytes; at most %d are read", n, most)
	}
	text := make([]byte, 0, min(n, firstRead))
	for int64(len(text)) < n {
		more := min(n-int64(len(text)), max(int64(len(text)), firstRead))
		text = slices.Grow(text, int(more))
		got, err := io.ReadFull(r, text[len(text):len(text)+int(more)])
		if text = text[:len(text)+got]; err != nil {
			return nil, fmt.Errorf("a word of %d bytes ends after %d: %w", n, len(text), err)
		}
	}
	return text, nil
}
