package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// documented holds documented exit codes: 0, 1, 2, and 128 plus the number of a signal. The code of a run that has lost
// a process is not among them.
var documented = map[int]bool{0: true, 1: true, 2: true, 129: true, 130: true, 143: true}

// dumps matches what Go, libtorch and libc print at a crash, and what millrace prints for a caught panic. Bad input
// must cause none of them.
var dumps = regexp.MustCompile(`(?m)^fatal error:|^goroutine \d+ |^SIG[A-Z]+: |\bpanic\b|runtime error:` +
	`|internal error in |unexpected fault address|terminate called|core dumped|stack smashing|double free|corrupted size`)

// crashed is the beginning of a fault's text if the command has printed something that `dumps` matches.
const crashed = "printed a crash: "

// faults returns what a command did that no command may do, whatever its input.
func (e *ended) faults(l limits) []string {
	var found []string
	if e.hung {
		return append(found, fmt.Sprintf("did not end in %v", l.wall))
	}
	if e.overgrown || l.resident > 0 && e.peak > l.resident {
		return append(found, fmt.Sprintf("took %d MiB of memory, over the limit of %d MiB", e.peak>>20, l.resident>>20))
	}
	for _, text := range [][]byte{e.err, e.out} {
		if at := dumps.FindIndex(text); at != nil {
			found = append(found, crashed+lineAt(text, at[0]))
			break
		}
	}
	if !documented[e.code] {
		found = append(found, fmt.Sprintf("ended with code %d, which the documents do not name", e.code))
	}
	if e.code != 0 && e.signal == 0 && len(strings.TrimSpace(string(e.err))) == 0 {
		found = append(found, fmt.Sprintf("ended with code %d and said nothing", e.code))
	}
	for name, text := range map[string][]byte{"stderr": e.err, "stdout": e.out} {
		if at := control(text); at >= 0 {
			found = append(found, fmt.Sprintf("printed a control character to %s: %s", name, lineAt(text, at)))
		}
	}
	return found
}

// control returns the position of the first character that acts on a terminal; -1 if there is none. Such characters are
// control characters of ASCII and Latin-1 except line ends and tabs, characters that change the writing direction, and
// invalid UTF-8.
func control(text []byte) int {
	if len(text) == keptOutput {
		text = text[:keptOutput-utf8.UTFMax] // the kept part may end inside a character
	}
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size <= 1 || r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Bidi_Control) {
			return at
		}
		at += size
	}
	return -1
}

// lineAt quotes the line that contains a position.
func lineAt(text []byte, at int) string {
	from := strings.LastIndexByte(string(text[:at]), '\n') + 1
	line, _, _ := strings.Cut(string(text[from:]), "\n")
	return clipped(line, 160)
}

// clipped quotes a text, or its first `most` bytes if it is longer.
func clipped(s string, most int) string {
	if len(s) > most {
		return fmt.Sprintf("%+q...", s[:most])
	}
	return fmt.Sprintf("%+q", s)
}
