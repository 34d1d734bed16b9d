// Package names keeps what users and files call things from doing harm where it is shown or made a path of.
//
// In: a name, or a text with names in it. Out: whether a document may have that name (Check), a name for
// a file (File), a text that a terminal shows and does not obey (Shown, Screen). Refused: control
// characters, escape sequences among them, characters that turn the direction of writing or are not seen,
// and names that are too long.
package names

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Longest is how many characters a name may have.
const Longest = 200

// Check refuses a name that could not be shown as it is.
func Check(name string) error {
	if n := utf8.RuneCountInString(name); n > Longest {
		return fmt.Errorf("a name of %d characters, %.40q ...; it may have %d", n, name, Longest)
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("the name %q; it must be text in UTF-8", name)
	}
	for _, r := range name {
		if hidden(r) {
			return fmt.Errorf("the name %q; %U in it is a character that is not shown but obeyed", name, r)
		}
	}
	return nil
}

// hidden says whether a terminal obeys a character, or shows nothing for it.
func hidden(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs)
}

// longestFile leaves room for prefixes and suffixes of a name, within the length that file systems take.
const longestFile = 64

// File is a name as a part of a file's: letters, digits and . _ -, no path, no hidden file, not too long. Others
// become -, so that two names may be one.
func File(name string) string {
	var b strings.Builder
	for _, r := range name {
		if b.Len() == longestFile {
			break
		}
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("._-", r) {
			b.WriteRune(r)
		} else {
			b.WriteByte('-')
		}
	}
	clean := strings.TrimLeft(b.String(), ".")
	if clean == "" {
		return "unnamed"
	}
	return clean
}

// Shown is a text as a terminal shows it: what it would obey is written as JSON and Go write it. Lines and tabs stay.
func Shown(text string) string {
	var b strings.Builder
	s := Screen(&b, false)
	_, _ = io.WriteString(s, text) // a Builder has no errors
	_ = s.Close()
	return b.String()
}

// Screen cleans what is written to it as Shown does, but where it is coloured for colours, which are ours. Close
// writes what is left of a character that was cut.
func Screen(w io.Writer, coloured bool) io.WriteCloser { return &screen{to: w, coloured: coloured} }

type screen struct {
	to       io.Writer
	coloured bool
	rest     []byte // the beginning of a character, or of an escape sequence
}

// Fd is the file descriptor behind it, for whoever asks whether this is a terminal; none where there is none.
func (s *screen) Fd() uintptr {
	if f, ok := s.to.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

func (s *screen) Write(text []byte) (int, error) {
	if len(s.rest) == 0 && plain(text) {
		return s.to.Write(text)
	}
	whole := append(s.rest, text...)
	s.rest = nil
	out := make([]byte, 0, len(whole)+16)
	for len(whole) > 0 {
		if n := colour(whole); s.coloured && n > 0 {
			out, whole = append(out, whole[:n]...), whole[n:]
			continue
		}
		if !utf8.FullRune(whole) || s.coloured && cutColour(whole) {
			s.rest = append([]byte(nil), whole...)
			break
		}
		r, n := utf8.DecodeRune(whole)
		if hidden(r) && r != '\n' && r != '\t' {
			out = escaped(out, r)
		} else {
			out = utf8.AppendRune(out, r) // what is no UTF-8 becomes the mark for that
		}
		whole = whole[n:]
	}
	_, err := s.to.Write(out)
	return len(text), err
}

// Close implements io.Closer. It does not close what is behind it.
func (s *screen) Close() error {
	if len(s.rest) == 0 {
		return nil
	}
	out := []byte(nil)
	for _, r := range string(s.rest) {
		if hidden(r) {
			out = escaped(out, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	s.rest = nil
	_, err := s.to.Write(out)
	return err
}

// escaped adds a character as JSON writes it.
func escaped(out []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		return fmt.Appendf(out, `\u%04x\u%04x`, high, low)
	}
	return fmt.Appendf(out, `\u%04x`, r)
}

// plain says whether a text is of characters that everybody shows.
func plain(text []byte) bool {
	for _, c := range text {
		if c >= 0x7f || c < ' ' && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// longestColour bounds the sequences that colour gives.
const longestColour = 8

// colour is the length of the escape sequence that a text begins with if it is a colour, ESC [ digits m; else 0.
func colour(text []byte) int {
	if len(text) < 3 || text[0] != 0x1b || text[1] != '[' {
		return 0
	}
	for i := 2; i < len(text) && i < longestColour; i++ {
		switch c := text[i]; {
		case c == 'm':
			return i + 1
		case c != ';' && (c < '0' || c > '9'):
			return 0
		}
	}
	return 0
}

// cutColour says whether a text may be the beginning of a colour.
func cutColour(text []byte) bool {
	if text[0] != 0x1b || len(text) >= longestColour || len(text) > 1 && text[1] != '[' {
		return false
	}
	for _, c := range text[min(2, len(text)):] {
		if c != ';' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
