// Package names makes names from users and files safe to show and to use in paths.
//
// Input: a name, or a text with names in it. Output: whether a document may have that name (Check), a name for a file
// (File), or a text that is safe on a terminal (Shown, Screen). Check refuses control characters (including escape
// sequences), invisible characters, and characters that change the direction of writing. It also refuses bytes that are
// not UTF-8, and names that are too long.
package names

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Longest is the largest number of characters that a name may have.
const Longest = 200

// Check returns an error for a name that is too long or could not be shown unchanged.
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

// hidden reports whether a terminal interprets a character, or shows nothing for it.
func hidden(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs)
}

// longestFile is the largest number of bytes that File returns. File systems allow more, which leaves room for prefixes
// and suffixes.
const longestFile = 64

// File converts a name for use in a file name. It keeps ASCII letters, digits and . _ -, and replaces others by -. The
// result is short, contains no path, and is not hidden. Two names may give the same result.
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

// Shown returns a text that is safe on a terminal: control and invisible characters are escaped as in JSON and Go.
// Newlines and tabs stay.
func Shown(text string) string {
	var b strings.Builder
	s := Screen(&b, false)
	_, _ = io.WriteString(s, text) // a Builder has no errors
	_ = s.Close()
	return b.String()
}

// Screen returns a writer that cleans its input as Shown does. If `coloured` is true, it keeps millrace's own colours.
// Close writes the rest of an incomplete character or colour sequence.
func Screen(w io.Writer, coloured bool) io.WriteCloser { return &screen{to: w, coloured: coloured} }

type screen struct {
	to       io.Writer
	coloured bool
	rest     []byte // the beginning of an incomplete character or escape sequence
}

// Fd returns the underlying writer's file descriptor, so that callers can test for a terminal. If the writer has none,
// the returned descriptor is invalid.
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
			out = utf8.AppendRune(out, r) // invalid UTF-8 becomes the replacement character
		}
		whole = whole[n:]
	}
	_, err := s.to.Write(out)
	return len(text), err
}

// Close implements io.Closer. It does not close the underlying writer.
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

// escaped appends a character as a JSON escape.
func escaped(out []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		return fmt.Appendf(out, `\u%04x\u%04x`, high, low)
	}
	return fmt.Appendf(out, `\u%04x`, r)
}

// plain reports whether a text has only printable ASCII characters, newlines and tabs.
func plain(text []byte) bool {
	for _, c := range text {
		if c >= 0x7f || c < ' ' && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// longestColour bounds the length of the escape sequences that `colour` recognises, in bytes.
const longestColour = 8

// colour returns the length of the colour sequence at the start of a text: ESC, [, digits and semicolons, m. It returns
// 0 if there is none.
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

// cutColour reports whether a text may be the beginning of a colour sequence.
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
