package exchange

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/millrace-ml/millrace/schedule"
)

// byteOrderMark is what some editors put in front of a text.
const byteOrderMark = "\ufeff"

// Read reads a Program in any of its forms. It is JSON if it begins with a brace. It is PyTorch's CSV if its first line
// has an action and not millrace's header, and otherwise millrace's text. An accepted Program still has to pass Check.
func Read(r io.Reader) (*schedule.Program, error) {
	in := bufio.NewReader(&bounded{from: r, left: schedule.MaxFile})
	if mark, err := in.Peek(len(byteOrderMark)); err == nil && string(mark) == byteOrderMark {
		_, _ = in.Discard(len(byteOrderMark)) // Peek has read it
	}
	begin, err := in.Peek(512)
	if err != nil && err != io.EOF {
		return schedule.ParseText(in) // its error says what is wrong with the file
	}
	switch {
	case bytes.HasPrefix(bytes.TrimSpace(begin), []byte("{")):
		return schedule.ReadJSON(in)
	case looksLikeTorch(begin):
		return ReadTorchCSV(in)
	case !bytes.HasPrefix(begin, []byte(schedule.TextHeader)):
		first, _, _ := strings.Cut(string(begin), "\n") // the first line is enough
		return schedule.ParseText(strings.NewReader(first))
	}
	return schedule.ParseText(in)
}

// bounded reads at most `left` bytes and fails if there are more.
type bounded struct {
	from io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.from.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("schedule: a program's file can have %d bytes; this one has more", schedule.MaxFile)
	}
	return n, err
}

// looksLikeTorch reports whether some cell of the first line is an action.
func looksLikeTorch(begin []byte) bool {
	line, _, _ := strings.Cut(strings.TrimSpace(string(begin)), "\n")
	for cell := range strings.SplitSeq(line, ",") {
		if actions, err := torchActions(unquoted(cell)); err == nil && len(actions) > 0 {
			return true
		}
	}
	return false
}
